"""Tensors that are costly to compute, kept in one directory and found again by what determines them."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from erasure.storage import DamagedFileError, load_tensors, save_tensors

log = logging.getLogger(__name__)

Entry = tuple[dict[str, Tensor], dict[str, Any]]  # tensors and JSON-like metadata


class Cache:
    """A directory of checksummed safetensors files, one per key.

    An entry appears whole or not at all. A damaged one is set aside under another name and built again.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def fetch(self, key: str, build: Callable[[], Entry]) -> Entry:
        """The entry of `key`, built and stored the first time. `key` must name all that determines it."""
        path = self.root / f"{key}.safetensors"
        if path.exists():
            try:
                return load_tensors(path)
            except DamagedFileError as error:
                aside = path.with_suffix(f".damaged-{time.time_ns()}")
                path.replace(aside)
                log.warning("%s; set aside as %s and built again", error, aside.name)
        tensors, metadata = build()
        save_tensors(path, tensors, metadata)
        return tensors, metadata
