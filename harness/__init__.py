"""What every verb does around its own computation: identity, run directory, result, comparison, logger."""
