"""Finished runs as pandas frames, their comparison with the control, and the tables made of them.

`load` and `compare` are the public way to the numbers (docs/tutorials/results.md).
"""

from harness.results.comparison import compare
from harness.results.frames import Results, load

__all__ = ["Results", "compare", "load"]
