"""Memory that a step freed is kept for the next; without any, an error says what to lower."""

import ctypes
import resource
import subprocess
import sys

import pytest
import torch

from train.memory import MemoryExhaustedError, advice

COUNT_FAULTS = """
import ctypes, resource, sys, torch
from train.memory import keep_freed_memory
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


def test_out_of_memory_says_what_to_lower() -> None:
    with (
        pytest.raises(MemoryExhaustedError, match="out of memory while training: lower train.batch_size=64, or set "),
        advice("training", batch_size=64, stack="auto"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with (
        pytest.raises(MemoryExhaustedError, match=r"while evaluating: lower train.eval_batch_size=9 \(.*allocate"),
        advice("evaluating", eval_batch_size=9, stack="one"),
    ):
        torch.empty(2**58)
    with pytest.raises(RuntimeError, match="another"), advice("training", batch_size=64):
        raise RuntimeError("another error")
