"""Training of networks: `fit` in Python, `python -m train` for datasets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train.fitted import Fitted, fit

__all__ = ["Fitted", "fit"]


def __getattr__(name: str) -> Any:
    """Import torch and the functions on first use: `python -m train --help` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from erasure.checkout import require_own_packages

    require_own_packages()
    from train import fitted

    return getattr(fitted, name)
