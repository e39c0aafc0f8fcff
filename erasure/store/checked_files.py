"""Files with checksums: tensors as safetensors (never pickle), and JSON."""

import contextlib
import errno
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from erasure.store.atomic_files import replacing, write_text
from erasure.store.regular_files import DamagedFileError, read_regular, regular

_DIGEST = "digest:"  # prefix of the metadata keys that hold each tensor's checksum
_METADATA_DIGEST = "metadata-digest"  # key of the checksum of all other metadata
_SETTLED_NS = 2 * 10**9  # a file that changed more recently may change again without a new time stamp
_JSON_DIGEST = "digest"  # key of the checksum of a JSON file's other values

Values = dict[str, Any]  # JSON-like


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write strict JSON with a checksum; NaN is an error."""
    write_text(path, sealed(values))


def sealed(values: Mapping[str, object]) -> str:
    """Return the text of a JSON file with values and their checksum."""
    digest = fingerprint(json.loads(json.dumps(values)))  # of the values as they will be read: tuples become lists
    return json.dumps({**values, _JSON_DIGEST: digest}, indent=2, allow_nan=False) + "\n"


def read_json(path: Path) -> Values:
    """Read a JSON file that `write_json` wrote, in any layout.

    Raises:
        DamagedFileError: no regular file, invalid JSON, no checksum, or a wrong one.
        OSError: it cannot be opened.
    """
    try:
        values = json.loads(read_regular(path))
        stated = values.pop(_JSON_DIGEST, None)
        matches = stated == fingerprint(values)
    except DamagedFileError:
        raise
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({str(error)[:160]})") from error
    if stated is None:
        raise DamagedFileError(f"{path} has no checksum: it was edited, or something else wrote it")
    if not matches:
        raise DamagedFileError(f"{path} was edited or damaged: its checksum does not match its content")
    return values


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, object] | None = None) -> None:
    """Save tensors, with a checksum each, and JSON metadata in one safetensors file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, name a file in it", str(path))
    tensors = _apart({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    header = {name: json.dumps(value, allow_nan=False) for name, value in (metadata or {}).items()}
    header |= {_DIGEST + name: digest(tensor) for name, tensor in tensors.items()}
    header[_METADATA_DIGEST] = fingerprint(header)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without shared memory, as safetensors requires; a column can share memory with its transpose."""
    apart, used = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if address in used else tensor
        used.add(address)
    return apart


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Values]:
    """Load a file of `save_tensors`; raise DamagedFileError if it is truncated, altered, or of another format."""
    with _opened(path) as (file, header):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, tensor in tensors.items():
        if header.pop(_DIGEST + name, None) != digest(tensor):
            raise DamagedFileError(f"{path}: the checksum of '{name}' does not match its content")
    if missing := [key for key in header if key.startswith(_DIGEST)]:
        raise DamagedFileError(f"{path} lacks {', '.join(key.removeprefix(_DIGEST) for key in missing)}")
    try:
        return tensors, {name: json.loads(value) for name, value in header.items() if name != _METADATA_DIGEST}
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} has metadata that is not JSON ({str(error)[:160]})") from error


def checksum(path: Path) -> str:
    """Read the checksum in the metadata of a file of `save_tensors`; raise DamagedFileError if it is damaged."""
    with _opened(path) as (_, header):
        return header[_METADATA_DIGEST]


def digest(tensor: Tensor) -> str:
    """Return a checksum of the dtype, shape and bytes of a tensor."""
    content = hashlib.blake2b(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), digest_size=16)
    content.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, computed once per process while its size, times and inode stay the same."""
    status = path.stat()
    stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    settled = time.time_ns() - status.st_ctime_ns > _SETTLED_NS
    return (_sha256 if settled else _sha256.__wrapped__)(path, stamp)


@cache
def _sha256(path: Path, stamp: tuple[int, ...]) -> str:  # noqa: ARG001 key of the cached answer
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(description: Any, length: int = 16) -> str:
    """Return a hexadecimal digest of a JSON-like description, the same on every machine."""
    canonical = json.dumps(description, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[safe_open, dict[str, str]]]:
    """Open a safetensors file, which may be a link, and verify its header."""
    regular(Path(os.path.realpath(path)), math.inf)  # opening a pipe would wait forever
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            if header.get(_METADATA_DIGEST) != fingerprint({k: v for k, v in header.items() if k != _METADATA_DIGEST}):
                raise DamagedFileError(f"{path}: the checksum of its metadata does not match its content")
            yield file, header
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is not a whole safetensors file ({error})") from error
