"""The free memory of a machine, of a container or a cluster's task."""

import math
from pathlib import Path

import torch

from erasure.device_memory import free_bytes, free_host_bytes


def test_free_memory_is_what_the_system_and_its_groups_leave(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert free_host_bytes(meminfo, tmp_path) == math.inf
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert free_host_bytes(meminfo, tmp_path) == 2**21
    (tmp_path / "memory.current").write_text("100\n")
    for limit, left in (("max", 2**21), ("1100", 1000), ("9000000", 2**21)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert free_host_bytes(meminfo, tmp_path) == left


def test_free_memory_of_other_devices_is_unknown() -> None:
    assert free_bytes(torch.device("meta")) == math.inf
    assert free_bytes(torch.device("cpu")) > 0
