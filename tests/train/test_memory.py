"""Settings of the allocator during a training."""

import ctypes
import resource
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import ctypes, resource, sys, torch
from train.memory import keep_freed_memory
ctypes.CDLL(None).mallopt(-3, 2**17)  # glibc's first threshold, which it may or may not have raised by itself
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    tensors = [torch.ones(2**18) for _ in range(40)]  # 1 MiB each, all alive at once
for _ in range(3):
    step()
before = faults()
for _ in range(5):
    step()
print((faults() - before) // 5)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_memory_that_a_step_freed_is_kept_for_the_next() -> None:
    def faults(mode: str) -> int:
        outcome = subprocess.run([sys.executable, "-c", COUNT_FAULTS, mode], capture_output=True, text=True, check=True)
        return int(outcome.stdout)

    pages = 40 * 2**20 // resource.getpagesize()
    assert faults("keep") < pages / 20
    assert faults("leave") > pages / 2
