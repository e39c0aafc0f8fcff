"""Around every command's own computation: identity, run directory, result, comparison, logger."""
