"""Reads an offline .wandb file back: a LevelDB log of protobuf records. No server, no account.

32 KiB blocks after a 7-byte header; records of checksum (4 bytes), length (2) and type (1: full, 2: first,
3: middle, 4: last), little-endian.
"""

import contextlib
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

_BLOCK = 32 * 1024
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Record]:
    content, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(content):
        if _BLOCK - position % _BLOCK < 7:  # too short for a header: padding
            position += _BLOCK - position % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (_FULL, _LAST):
            yield Record.FromString(parts)
            parts = b""
        else:
            assert kind in (_FIRST, _MIDDLE), kind


class WandbRun:
    """Records of one offline run."""

    def __init__(self, path: Path) -> None:
        self.history: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.exit_code: int | None = None
        for record in records(path):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                self.history.append({self._key(item): json.loads(item.value_json) for item in record.history.item})
            elif kind == "summary":
                self.summary |= {self._key(item): json.loads(item.value_json) for item in record.summary.update}
            elif kind == "run":
                self.run = record.run
                self.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "config":
                self.config |= {item.key: json.loads(item.value_json) for item in record.config.update}
            elif kind == "exit":
                self.exit_code = record.exit.exit_code

    @staticmethod
    def _key(item: Any) -> str:
        return item.key or ".".join(item.nested_key)


def only_run(directory: Path, pattern: str = "*.wandb", *, timeout_s: float = 60.0) -> WandbRun:
    """The one W&B run below a directory, once its own process has written its end.

    Raises:
        ValueError: there is not exactly one whole run when the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        paths = list(directory.rglob(pattern))
        with contextlib.suppress(AssertionError, struct.error, DecodeError):  # half written
            if len(paths) == 1 and (run := WandbRun(paths[0])).exit_code is not None:
                return run
        if time.monotonic() > deadline:
            raise ValueError(f"{directory} holds {len(paths)} W&B files, or one without an end")
        time.sleep(0.1)
