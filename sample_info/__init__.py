"""Per-example information on the linearised network (Harutyunyan et al. 2021), and what it is compared with."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sample_info.scores import unique_information

__all__ = ["unique_information"]


def __getattr__(name: str) -> Any:
    """Import torch and the function when it is asked for: `python -m sample_info --help` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from erasure.checkout import require_own_packages

    require_own_packages()
    from sample_info import scores

    return getattr(scores, name)
