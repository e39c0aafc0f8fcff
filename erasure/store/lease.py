"""A lock for shared file systems: a file with a heartbeat, which anybody may take over once the beat stops.

It needs exclusive creation and rename, but no `flock`, and compares no clocks of different machines. It saves work;
that results are right does not depend on it, because they are renamed into place whole.

A holder is known to have ended without waiting for its heart to stop only where its number means the same process to
both: under one kernel, in one PID namespace (containers may share everything else, a host's name included).
"""

import contextlib
import json
import logging
import os
import socket
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

_NOBODY = "nobody known"
DEFAULT_STALE_AFTER_S = 120.0  # NFS may show a heartbeat up to 60 s late


class LeaseLostError(Exception):
    """Another process has taken over, because this one showed no sign of life for too long."""


class Lease:
    """Exclusive use of something named by a path, for as long as this process lives and its heart beats.

    Args:
        path: the lock file; its folder must exist.
        stale_after_s: seconds without a heartbeat after which a waiter takes over. A holder on the same machine,
            and in the same container, whose process is gone is replaced at once.
    """

    def __init__(self, path: Path, *, stale_after_s: float = DEFAULT_STALE_AFTER_S) -> None:
        self.path = path
        self.stale_after_s = stale_after_s
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None
        self._seen: Heartbeat | None = None  # as last looked at
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
        if (beat := heartbeat(self.path)) and beat.process.get("token") == self._token:
            self.path.unlink(missing_ok=True)

    def require(self) -> None:
        """Make sure, before writing what the lease protects, that nobody has taken it over.

        Raises:
            LeaseLostError: somebody has, whom it names, or the file is gone.
        """
        try:
            content = self.path.read_text(errors="replace")
        except FileNotFoundError:
            raise LeaseLostError(f"{self.path} was deleted or moved while it was held; stepping aside") from None
        except OSError:  # the file server's trouble says nothing about the holder
            return
        if _parse(content).get("token") != self._token:
            raise LeaseLostError(
                f"{self.path}: no heartbeat was seen for {self.stale_after_s:g} s, and {self.holder()} has taken over; "
                "stepping aside"
            )

    def holder(self) -> str:
        """Who holds it, for messages."""
        beat = heartbeat(self.path)
        return beat.holder if beat else _NOBODY

    def acquire(self) -> None:
        """Take the lease; wait as long as another's heart beats."""
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
            json.dump({"token": self._token, "pid": os.getpid(), "started": _started("self"), **_machine()}, file)
        self._stop.clear()
        self._beating = threading.Thread(target=self._beat, name=f"lease {self.path.name}", daemon=True)
        self._beating.start()
        return True

    def _beat(self) -> None:
        while not self._stop.wait(self.stale_after_s / 5):
            try:
                self.require()
            except LeaseLostError as error:  # the heart of another beats there now
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
        """Remove a stale lock file; of several that try, the rename lets one succeed."""
        aside = self.path.with_name(f"{self.path.name}.{self._token}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return False
        taken = heartbeat(aside)
        if taken != self._seen:  # not the file that was looked at: its holder lives, or another waiter was faster
            with contextlib.suppress(FileNotFoundError):  # its holder has finished, and tidied up
                aside.rename(self.path)
            return False
        log.warning("%s left %s behind; taking over", taken.holder if taken else _NOBODY, self.path.name)
        aside.unlink(missing_ok=True)  # who has the lease by now may have tidied up
        return True


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life of a lease's holder.

    Attributes:
        content: of the lock file; empty where it may not be read.
        at: when, by the file system's clock, in seconds since 1970.
    """

    content: str
    at: float

    @property
    def process(self) -> dict:
        """What the holder wrote of itself; empty if that is not yet written, or not what a lease writes."""
        return _parse(self.content)

    @property
    def holder(self) -> str:
        """Who, in words."""
        process = self.process
        return f"process {process['pid']} on {process['host']}" if process else _NOBODY

    @property
    def gone(self) -> bool:
        """Whether the holder is a process of this machine that has ended."""
        process = self.process
        return bool(process) and _gone(process)


def heartbeat(path: Path) -> Heartbeat | None:
    """The heartbeat of the lease at `path`; None if nobody holds it."""
    try:
        content = path.read_text(errors="replace")
    except OSError:
        content = ""
    try:
        return Heartbeat(content, path.stat().st_mtime)
    except OSError:
        return None


def file_system_time(folder: Path) -> float:
    """What time it is for the machine that stores `folder`, to compare with heartbeats; seconds since 1970."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.", suffix=".tmp") as file:
            return Path(file.name).stat().st_mtime
    except OSError:  # a folder that only others may write
        return time.time()


def _parse(content: str) -> dict:
    try:
        holder = json.loads(content)
    except ValueError:
        return {}
    expected = {"token": str, "host": str, "pid": int}
    whole = isinstance(holder, dict) and all(isinstance(holder.get(key), kind) for key, kind in expected.items())
    return holder if whole and 0 < holder["pid"] < 2**31 else {}


def _gone(holder: dict) -> bool:
    """Whether the holder has certainly ended: this machine's /proc would show it, and does not."""
    machine = _machine()
    if not all(machine.values()) or any(holder.get(key) != value for key, value in machine.items()):
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's
        pass
    recorded, started = holder.get("started"), _started(holder["pid"])
    return None not in (recorded, started) and recorded != started


def _machine() -> dict[str, str]:
    """What makes a process number mean one process: host, boot and namespaces; empty strings where /proc tells nothing.

    Start times are counted in a time namespace, where the kernel has these.
    """
    described = {"host": socket.gethostname(), "boot": "", "namespaces": ""}
    with contextlib.suppress(OSError):
        if Path("/proc/self").readlink().name == str(os.getpid()):  # otherwise it is another namespace's /proc
            links = [Path(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
            described["namespaces"] = " ".join(str(link.readlink()) for link in links if link.is_symlink())
            described["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return described


def _started(process: int | str) -> int | None:
    """Clock ticks from the machine's start to a process's; -1 if it has ended, None where /proc tells nothing."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return -1 if state in "ZX" else int(fields[18])  # a zombie has ended, too
    except (OSError, ValueError, IndexError):
        return None
