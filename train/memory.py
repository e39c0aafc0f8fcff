"""Memory: kept between steps where that saves time, and advice on what to lower when it runs out."""

import contextlib
import ctypes
from collections.abc import Iterator

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
_KEEP_FREE, _LARGEST_KEPT = 2**31 - 1, 2**25  # bytes; the latter is glibc's largest


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next allocation instead of handing it back to the system.

    A training step on the CPU allocates and frees the same megabytes each time; without this each of their pages
    is mapped and zeroed anew (3,100 page faults in a step of ConvNeXt V2 on the digits, a fifth of its time).
    Blocks above 32 MiB are still handed back. Other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEEP_FREE)


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
