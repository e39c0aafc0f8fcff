"""Shared parts of all commands: identity of runs, run directories, results, comparisons, logger."""
