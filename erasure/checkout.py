"""Packages beside the library in a checkout, which a user's modules may shadow."""

import importlib.machinery
import sys
from pathlib import Path

_PACKAGES = ("conf", "models", "harness", "train")  # imported by `mdl` and `sample_info`


def require_own_packages() -> None:
    """Refuse modules of a user that shadow packages of this checkout, without running them.

    Raises:
        ImportError: a package is shadowed.
    """
    root = Path(__file__).parents[1]
    for name in _PACKAGES:
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded else importlib.machinery.PathFinder.find_spec(name)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != root.resolve() / name / "__init__.py":
            hiding = spec.origin if spec and spec.origin else f"a folder {name}"
            raise ImportError(
                f"{hiding} hides the package {name} of {root}: rename it, or start Python where it is not imported"
            )
