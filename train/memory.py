"""Memory of a training: freed memory is kept for the next step, and an error names the setting to lower."""

import contextlib
import ctypes
from collections.abc import Iterator

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
_KEEP_FREE, _LARGEST_KEPT = 2**31 - 1, 2**25  # bytes; 2**25 is the largest value that glibc allows


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next allocation instead of returning it to the system.

    Every training step on the CPU allocates and frees the same megabytes. By default the system maps and zeroes their
    pages anew each time: 3,100 page faults in a step of ConvNeXt V2 on the digits, a fifth of its time. Blocks above
    32 MiB are still returned. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEEP_FREE)


class MemoryExhaustedError(RuntimeError):
    """Too little memory for the settings."""


@contextlib.contextmanager
def advice(doing: str, **settings: int | str) -> Iterator[None]:
    """Turn a failed allocation into an error that names the training settings to lower.

    Args:
        doing: purpose of the memory, for the message.
        settings: options of `conf/train` that determine the amount of memory, with their values.

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
