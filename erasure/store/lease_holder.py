"""The holder of a lease: its process, its last heartbeat, and whether the process has certainly ended.

Only processes under the same kernel and in the same PID namespace see at once that a process has ended. (Containers may
share everything else, even the host name.) Others see only that the heartbeat stops.
"""

import contextlib
import json
import os
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from erasure.store.regular_files import DamagedFileError, read_regular

NOBODY = "nobody known"
_LARGEST_BYTES = 2**16  # of a lock file, which usually has 300


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of the holder of a lease.

    Attributes:
        process: description of the holder; empty if it is unreadable, or not written yet.
        at: time by the clock of the file system, in seconds since 1970.
    """

    process: dict
    at: float

    @property
    def holder(self) -> str:
        """The process and its machine, for messages."""
        return f"process {self.process['pid']} on {self.process['host']}" if self.process else NOBODY

    @property
    def gone(self) -> bool:
        """Whether the holder is a process of this machine that has ended, according to /proc."""
        machine = _machine()
        if not all(machine.values()) or any(self.process.get(key) != value for key, value in machine.items()):
            return False
        pid, recorded = self.process["pid"], self.process.get("started")
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # another user's process
            pass
        started = _started(pid)
        return None not in (recorded, started) and recorded != started


def heartbeat(path: Path) -> Heartbeat | None:
    """Return the heartbeat of the lease at `path`; None if nobody holds it."""
    try:
        content = read_regular(path, _LARGEST_BYTES, errors="replace")
    except (OSError, DamagedFileError):
        content = ""
    try:
        return Heartbeat(parsed(content), path.lstat().st_mtime)
    except OSError:
        return None


def file_system_time(folder: Path) -> float:
    """Return the time of the file system of `folder`, to compare with heartbeats, in seconds since 1970."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.", suffix=".tmp") as file:
            return Path(file.name).stat().st_mtime
    except OSError:  # a folder without write permission
        return time.time()


def this_process() -> dict:
    """Return the description of this process for a lease."""
    return {"pid": os.getpid(), "started": _started("self"), **_machine()}


def parsed(content: str) -> dict:
    """Parse the holder in the content of a lock file; empty if no lease wrote it."""
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    expected = {"token": str, "host": str, "pid": int}
    whole = isinstance(holder, dict) and all(isinstance(holder.get(key), kind) for key, kind in expected.items())
    return holder if whole and 0 < holder["pid"] < 2**31 else {}


def _machine() -> dict[str, str]:
    """Return the host, boot and namespaces in which process numbers are valid; empty strings without /proc.

    Start times depend on the time namespace, if the kernel has time namespaces.
    """
    described = {"host": socket.gethostname(), "boot": "", "namespaces": ""}
    with contextlib.suppress(OSError):
        if Path("/proc/self").readlink().name == str(os.getpid()):  # otherwise /proc belongs to another namespace
            links = [Path(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
            described["namespaces"] = " ".join(str(link.readlink()) for link in links if link.is_symlink())
            described["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return described


def _started(process: int | str) -> int | None:
    """Return clock ticks from boot to a process's start; -1 if it has ended, None if unknown."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return -1 if state in "ZX" else int(fields[18])  # zombies have ended
    except (OSError, ValueError, IndexError):
        return None
