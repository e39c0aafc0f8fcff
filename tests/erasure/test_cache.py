"""The cache builds once, and again only what was damaged."""

import logging
from pathlib import Path

import pytest
import torch

from erasure.cache import Cache


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    cache, built = Cache(tmp_path / "new"), []

    def build():
        built.append(1)
        return {"a": torch.ones(3)}, {"note": "x"}

    for _ in range(2):
        tensors, metadata = cache.fetch("key", build)
        assert torch.equal(tensors["a"], torch.ones(3))
        assert metadata == {"note": "x"}
    assert len(built) == 1


def test_a_damaged_entry_is_named_set_aside_and_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path)
    cache.fetch("key", lambda: ({"a": torch.ones(3)}, {}))
    path = tmp_path / "key.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        tensors, _ = cache.fetch("key", lambda: ({"a": torch.zeros(3)}, {}))
    assert torch.equal(tensors["a"], torch.zeros(3))
    assert "key.safetensors" in caplog.text
    assert len(list(tmp_path.glob("key.damaged-*"))) == 1


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        Cache(tmp_path).fetch("key", fail)
    assert list(tmp_path.iterdir()) == []
