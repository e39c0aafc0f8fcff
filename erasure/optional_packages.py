"""Optional packages, which only readers of datasets need."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Name the extra that brings a package where importing it fails within this context.

    Args:
        extra: of the package `erasure-mdl`, as in `pip install 'erasure-mdl[images]'`.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        line = f"{error.name} is not installed: pip install 'erasure-mdl[{extra}]'"
        raise ModuleNotFoundError(line, name=error.name) from error
