"""Information of single examples by the linearised network (Harutyunyan et al. 2021), and reference methods."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sample_info.scores import unique_information

__all__ = ["unique_information"]


def __getattr__(name: str) -> Any:
    """Import torch and the function on first use: `python -m sample_info --help` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from erasure.checkout import require_own_packages

    require_own_packages()
    from sample_info import scores

    return getattr(scores, name)
