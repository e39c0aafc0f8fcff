"""Advice on what to lower when memory runs out."""

import contextlib
from collections.abc import Iterator

import torch


class MemoryExhaustedError(RuntimeError):
    """A device's memory that does not hold what the settings ask for."""


@contextlib.contextmanager
def advice(doing: str, **settings: int | str) -> Iterator[None]:
    """Turn a failed allocation into an error that names the training settings that decide how much is allocated.

    Args:
        doing: what the memory was for.
        settings: options of `conf/train` and their present values.

    Raises:
        MemoryExhaustedError: no memory is left on the device, or on the host.
    """
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        sizes = [f"train.{name}={value}" for name, value in settings.items() if isinstance(value, int)]
        remedies = [f"lower {' or '.join(sizes)}"]
        if settings.get("stack") != "one":
            remedies.append("set train.stack=one, which trains one seed after another")
        reason = str(error).splitlines()[0]
        raise MemoryExhaustedError(f"out of memory while {doing}: {', or '.join(remedies)} ({reason})") from error
