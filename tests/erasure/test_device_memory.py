"""The free memory of a machine, of a container or a cluster's task."""

import math
from pathlib import Path

import pytest
import torch

from erasure import device_memory
from erasure.device_memory import free_bytes


def test_free_memory_is_what_the_system_and_its_groups_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert device_memory._available(meminfo) == 2**21
    assert device_memory._available(tmp_path / "none") == math.inf
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert device_memory._left_to_group(tmp_path) == math.inf
    (tmp_path / "memory.max").write_text("1100\n")
    assert device_memory._left_to_group(tmp_path) == 1000
    monkeypatch.setattr(device_memory, "_CGROUP", tmp_path)
    assert free_bytes(torch.device("cpu")) == 1000
    assert free_bytes(torch.device("meta")) == math.inf
