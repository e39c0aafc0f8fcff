"""Finished runs as pandas frames, and their comparison with the control: the public way to the numbers."""

from harness.results.compare import bootstrap_error, compare, holm, paired_difference
from harness.results.load import Results, load

__all__ = ["Results", "bootstrap_error", "compare", "holm", "load", "paired_difference"]
