"""Optional packages, needed by readers of datasets and by `erasure.sklearn`."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Name the extra that installs a package, if importing it fails within this context.

    Args:
        extra: extra of the package `erasure-mdl`, as in `pip install 'erasure-mdl[images]'`.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        line = f"{error.name} is not installed: pip install 'erasure-mdl[{extra}]'"
        raise ModuleNotFoundError(line, name=error.name) from error
