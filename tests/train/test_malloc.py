"""Memory that a step freed is kept for the next."""

import ctypes
import resource
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import ctypes, resource, sys, torch
from train.malloc import keep_freed_memory
ctypes.CDLL(None).mallopt(-3, 2**17)  # glibc's first threshold, which it may or may not have raised by itself
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    tensors = [torch.ones(2**18) for _ in range(40)]  # 1 MiB each, all alive at once
def per_step():
    for _ in range(3):
        step()
    before = faults()
    for _ in range(5):
        step()
    return (faults() - before) // 5
print(per_step())
keep_freed_memory()
print(per_step())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_memory_that_a_step_freed_is_kept_for_the_next() -> None:
    outcome = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    returned, reused = map(int, outcome.stdout.split())
    pages = 40 * 2**20 // resource.getpagesize()
    assert reused < pages / 20
    assert returned > pages / 2
