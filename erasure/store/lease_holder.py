"""The holder of a lease: its process, its last sign of life, and whether it has certainly ended.

Whether it has ended is known at once only under the same kernel and in the same PID namespace (containers may share
everything else, also a host's name); otherwise only when the heartbeat stops.
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
_LARGEST_BYTES = 2**16  # of a lock file, which has some 300


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life of a lease's holder.

    Attributes:
        process: description of the holder; empty if it is unreadable, or no lease has written it (yet).
        at: when, by the file system's clock, in seconds since 1970.
    """

    process: dict
    at: float

    @property
    def holder(self) -> str:
        """The process and its machine, in words."""
        return f"process {self.process['pid']} on {self.process['host']}" if self.process else NOBODY

    @property
    def gone(self) -> bool:
        """Whether the holder is a process of this machine that has ended: /proc would show it, and does not."""
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
    """Return the time of the machine that stores `folder`, to compare with heartbeats; seconds since 1970."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.", suffix=".tmp") as file:
            return Path(file.name).stat().st_mtime
    except OSError:  # a folder that only others may write
        return time.time()


def this_process() -> dict:
    """Return the description of this process for a lease."""
    return {"pid": os.getpid(), "started": _started("self"), **_machine()}


def parsed(content: str) -> dict:
    """Parse the holder of a lock file; empty if no lease wrote it."""
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    expected = {"token": str, "host": str, "pid": int}
    whole = isinstance(holder, dict) and all(isinstance(holder.get(key), kind) for key, kind in expected.items())
    return holder if whole and 0 < holder["pid"] < 2**31 else {}


def _machine() -> dict[str, str]:
    """Return an identity of processes: host, boot and namespaces; empty strings where /proc is missing.

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
    """Return clock ticks from boot to a process's start; -1 if it has ended, None if unknown."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return -1 if state in "ZX" else int(fields[18])  # zombies have ended
    except (OSError, ValueError, IndexError):
        return None
