"""A lock for shared file systems: a file with a heartbeat, which anybody may take over once the beat stops.

It needs exclusive creation and rename, but no `flock`, and compares no clocks of different machines. It saves work;
that results are right does not depend on it, because they are renamed into place whole.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

DEFAULT_STALE_AFTER_S = 60.0


class Lease:
    """Exclusive use of something named by a path, for as long as this process lives and its heart beats.

    Args:
        path: the lock file; its folder must exist.
        stale_after_s: seconds without a heartbeat after which a waiter takes over. A holder on the same machine
            whose process is gone is replaced at once.
    """

    def __init__(self, path: Path, *, stale_after_s: float = DEFAULT_STALE_AFTER_S) -> None:
        self.path = path
        self.stale_after_s = stale_after_s
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None
        self._seen: tuple[str, float] | None = None  # the holder's last known heartbeat
        self._seen_at = 0.0

    def try_acquire(self) -> bool:
        """Take the lease if it is free or its holder is gone; otherwise note its heartbeat and return False."""
        if self._create():
            return True
        return self._holder_is_gone() and self._take_away() and self._create()

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        if self._holder().get("token") == self._token:
            self.path.unlink(missing_ok=True)

    def holder(self) -> str:
        """Who holds it, for messages."""
        holder = self._holder()
        return f"process {holder['pid']} on {holder['host']}" if holder else "nobody"

    def __enter__(self) -> Self:
        announced = False
        pause_s = 0.02
        while not self.try_acquire():
            if not announced and pause_s > 0.5:
                log.info("waiting for %s, held by %s", self.path.name, self.holder())
                announced = True
            time.sleep(pause_s)
            pause_s = min(1.0, 1.5 * pause_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _create(self) -> bool:
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            json.dump({"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}, file)
        self._stop.clear()
        self._beating = threading.Thread(target=self._beat, name=f"lease {self.path.name}", daemon=True)
        self._beating.start()
        return True

    def _beat(self) -> None:
        while not self._stop.wait(self.stale_after_s / 5):
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def _holder(self) -> dict:
        """The lock file's content; empty if it is gone or not yet written."""
        try:
            return json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}

    def _holder_is_gone(self) -> bool:
        holder = self._holder()
        if holder.get("host") == socket.gethostname() and not _alive(int(holder["pid"])):
            return True
        try:
            seen = (holder.get("token", ""), self.path.stat().st_mtime)
        except FileNotFoundError:
            return False
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at > self.stale_after_s

    def _take_away(self) -> bool:
        """Remove a stale lock file; of several that try, the rename lets one succeed."""
        log.warning("%s left %s behind; taking over", self.holder(), self.path.name)
        aside = self.path.with_name(f"{self.path.name}.{self._token}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return False
        aside.unlink()
        return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
