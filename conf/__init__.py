"""Recipes: YAML groups, one folder per thing that can be swapped; their schema; the command line."""
