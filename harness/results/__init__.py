"""Finished runs as pandas frames, their comparison with the control, and tables.

`load` and `compare` are the public functions (docs/tutorials/results.md).
"""

from harness.results.comparison import compare
from harness.results.frames import Results, load

__all__ = ["Results", "compare", "load"]
