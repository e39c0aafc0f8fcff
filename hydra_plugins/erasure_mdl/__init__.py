"""Launchers and sweeper, in the only namespace that Hydra searches for plugins."""
