"""Advice on what to lower where memory runs out."""

import pytest
import torch

from train.out_of_memory_advice import MemoryExhaustedError, advice


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
