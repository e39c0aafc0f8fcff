"""Prequential minimum description length: `codelength` of labels in Python, `python -m mdl` for datasets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdl.codelengths import Codelength, CodelengthDifference, codelength

__all__ = ["Codelength", "CodelengthDifference", "codelength"]


def __getattr__(name: str) -> Any:
    """Import torch and the functions on first use: `python -m mdl --help` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from erasure.checkout import require_own_packages

    require_own_packages()
    from mdl import codelengths

    return getattr(codelengths, name)
