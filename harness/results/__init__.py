"""Finished runs as pandas frames, their comparison with the control, and the tables made of them.

`load` and `compare` are the public way to the numbers (docs/tutorials/results.md). pandas is imported with them, so
that a training, which needs no frame, does not wait for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.results.comparison import compare
    from harness.results.frames import Results, load

__all__ = ["Results", "compare", "load"]


def __getattr__(name: str) -> Any:
    if name == "compare":
        from harness.results.comparison import compare

        return compare
    if name in ("Results", "load"):
        from harness.results import frames

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
