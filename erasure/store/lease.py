"""A lock for shared file systems: a file with a heartbeat. Another process may take over when the heartbeat stops.

It needs exclusive creation and rename, but no `flock`, and does not compare the clocks of different machines. Its
purpose is to save work. Correct results do not depend on it, because files are renamed into place whole.
"""

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Self

from erasure.store.atomic_files import remove
from erasure.store.lease_holder import NOBODY, Heartbeat, heartbeat, parsed, this_process
from erasure.store.regular_files import DamagedFileError, read_regular

log = logging.getLogger(__name__)

DEFAULT_STALE_AFTER_S = 120.0  # NFS may show a heartbeat up to 60 s late
_MOVED_FOR_S = 0.1  # a process that finds a moved lock alive has put it back by then


class LeaseLostError(OSError):
    """Another process has taken over, because this one missed its heartbeat for too long."""


class Lease:
    """Exclusive use of a resource that a path names, while this process lives and sends heartbeats.

    Args:
        path: the lock file, in an existing folder.
        stale_after_s: seconds without a heartbeat after which a waiting process takes over. It takes over at once if
            the holder's process has ended on the same machine and in the same container.
    """

    def __init__(self, path: Path, *, stale_after_s: float = DEFAULT_STALE_AFTER_S) -> None:
        self.path = path
        self.stale_after_s = stale_after_s
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None
        self._seen: Heartbeat | None = None  # when last checked
        self._seen_at = 0.0

    def try_acquire(self) -> bool:
        """Take the lease if it is free or its holder is gone; otherwise record the heartbeat and return False."""
        if self._create():
            return True
        return self._holder_is_gone() and self._take_away() and self._create()

    def release(self) -> None:
        """Release the lease if this process still holds it."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        if (beat := heartbeat(self.path)) and beat.process.get("token") == self._token:
            self.path.unlink(missing_ok=True)

    def require(self) -> None:
        """Raise LeaseLostError if another process has taken over, before protected files are written."""
        if not self.path.exists():
            time.sleep(_MOVED_FOR_S)  # a waiting process may just have moved it away, and moves it back
        try:
            content = read_regular(self.path, errors="replace")
        except DamagedFileError:  # replaced by something else
            content = ""
        except FileNotFoundError:
            raise LeaseLostError(
                f"{self.path} was deleted while it was held, perhaps by a process that has taken over and ended; "
                "stepping aside"
            ) from None
        except OSError:  # errors of the file server say nothing about the holder
            return
        if parsed(content).get("token") != self._token:
            raise LeaseLostError(
                f"{self.path}: no heartbeat was seen for {self.stale_after_s:g} s, and {self.holder()} has taken over; "
                "stepping aside"
            )

    def holder(self) -> str:
        """Describe the holder, for messages."""
        beat = heartbeat(self.path)
        return beat.holder if beat else NOBODY

    def acquire(self) -> None:
        """Take the lease, and wait while another holder sends heartbeats."""
        announced = False
        pause_s = 0.02
        while not self.try_acquire():
            if not announced and pause_s > 0.5:
                log.info("waiting for %s, held by %s", self.path, self.holder())
                announced = True
            time.sleep(pause_s)
            pause_s = min(1.0, 1.5 * pause_s)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _create(self) -> bool:
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"token": self._token, **this_process()}, file)
        except BaseException:  # signals included: others would wait for a lock file without a holder
            self.path.unlink(missing_ok=True)
            raise
        self._stop.clear()
        self._beating = threading.Thread(target=self._beat, name=f"lease {self.path.name}", daemon=True)
        self._beating.start()
        return True

    def _beat(self) -> None:
        while not self._stop.wait(self.stale_after_s / 5):
            try:
                self.require()
            except LeaseLostError as error:  # another process holds the lease
                log.warning("%s", error)
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def _holder_is_gone(self) -> bool:
        beat = heartbeat(self.path)
        if beat is None:
            return False
        now = time.monotonic()
        if beat != self._seen:
            self._seen, self._seen_at = beat, now
        return beat.gone or now - self._seen_at > self.stale_after_s

    def _take_away(self) -> bool:
        """Remove a stale lock file; the rename lets only one of several processes succeed."""
        aside = self.path.with_name(f"{self.path.name}.{self._token}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return False
        taken = heartbeat(aside)
        if taken != self._seen:  # another file: its holder lives, or another waiting process was faster
            with contextlib.suppress(FileNotFoundError):  # its holder has finished and removed it
                aside.rename(self.path)
            return False
        log.warning("%s left %s behind; taking over", taken.holder if taken else NOBODY, self.path.name)
        remove(aside)  # the new holder may have removed it already
        return True
