"""A cache of tensors that are costly to compute, in one directory, keyed by their inputs."""

import contextlib
import glob
import logging
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from erasure.store.atomic_files import remove
from erasure.store.checked_files import DamagedFileError, Values, load_tensors, save_tensors
from erasure.store.lease import DEFAULT_STALE_AFTER_S, Lease

log = logging.getLogger(__name__)

Entry = tuple[dict[str, Tensor], Values]  # tensors and metadata

_SUFFIX = ".safetensors"


class Cache:
    """A directory of checksummed safetensors files, one per key; may be shared by many processes and machines.

    An entry appears whole or not at all. One process builds it while others that need it wait; if the builder dies, the
    others wait no longer than the lease. A damaged entry is renamed and built again.

    Args:
        root: the directory, which is created with the first entry.
        lease_s: seconds without a heartbeat after which a builder counts as dead.
    """

    def __init__(self, root: Path | str, *, lease_s: float = DEFAULT_STALE_AFTER_S) -> None:
        self.root = Path(root)
        self.lease_s = lease_s

    def path(self, key: str) -> Path:
        """Return the path of the entry of `key`, which need not exist."""
        return self.root / f"{key}{_SUFFIX}"

    def fetch(self, key: str, build: Callable[[], Entry]) -> Entry:
        """Return the entry of `key`, built and stored the first time; `key` must identify all inputs."""
        path = self.path(key)
        lease = Lease(self.root / f"{key}.lock", stale_after_s=self.lease_s)
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            path.open("rb").close()  # safetensors would report unreadable files as missing
            entry = load_tensors(path)
            with contextlib.suppress(OSError):  # another user's cache
                if lease.path.exists() and lease.try_acquire():  # the builder was killed after storing
                    try:
                        self._tidy(key)
                    finally:
                        lease.release()
            return entry
        self.root.mkdir(parents=True, exist_ok=True)
        with lease:
            try:
                return load_tensors(path)  # built while we waited
            except FileNotFoundError:
                pass
            except DamagedFileError as error:
                aside = path.with_suffix(f".damaged-{time.time_ns()}")
                path.replace(aside)
                log.warning("%s; set aside as %s and built again", error, aside.name)
            self._tidy(key)
            tensors, metadata = build()
            try:
                save_tensors(path, tensors, metadata)
            except FileNotFoundError:  # the lease was taken over, and our file removed
                log.warning("%s was not stored: another process has taken over its building", path.name)
            return tensors, metadata

    def _tidy(self, key: str) -> None:
        """Delete files of builders that were killed."""
        for leftover in self.root.glob(f".{glob.escape(self.path(key).name)}.*.tmp"):
            remove(leftover)
