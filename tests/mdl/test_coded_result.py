"""The result of a learning curve: sums in bits, final losses and the sharpest fall."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.loss_curves import CurveRow, sharp_drops
from harness.result_fields import Final
from mdl.block_code import BlockCode, SizeTrained
from mdl.coded_result import result_of_curve
from mdl.result import Point
from tests.made_up_runs import made_up
from train.randomness import permutation


def prepared(seeds: Sequence[int], num_classes: int) -> Any:
    """Return what a result is described by."""
    shared = {name: getattr(made_up(), name) for name in ("command", "run_id", "config", "train_size", "parameters")}
    fields = shared | {"seeds": seeds, "num_classes": num_classes, "certificate": {}, "versions": {}}
    labels = SimpleNamespace(labels=torch.arange(num_classes))
    dataset = SimpleNamespace(splits={"train": labels})
    return SimpleNamespace(result_fields=lambda: fields, num_classes=num_classes, dataset=dataset)


def test_a_result_is_that_of_its_learning_curve() -> None:
    """Two seeds whose losses on the next chunk are power laws; training and test losses are others."""
    sizes, seeds, k = [10, 30, 70, 150, 310, 630], [4, 7], 8
    laws = {4: (6.0, 0.5), 7: (3.0, 0.25)}
    test_bits = {4: [2.9, 2.5, 2.2, 1.9, 1.4, 0.9], 7: [3.0, 2.9, 2.8, 2.7, 2.6, 2.5]}
    validation = [3.0, 2.9, 1.5, 1.4]
    trained = []
    for i, n in enumerate(sizes):
        following = [a * n**-b for a, b in laws.values()] if i < len(sizes) - 1 else None
        tested = [test_bits[seed][i] for seed in seeds]
        point = Point(n=n, ce_next_bits=following, ce_test_bits=tested, ce_train_bits=[0.01, 0.02],
                      test_accuracy=[0.8, 0.7], epochs=[3, 3])  # fmt: skip
        rows = [CurveRow(n, seed, epoch, None if epoch == 0 else 2.0 - epoch, bits + (seed == 7) * epoch)
                for seed in seeds for epoch, bits in enumerate(validation)]  # fmt: skip
        trained.append(SizeTrained(point, rows))
    code = BlockCode(sizes, torch.stack([permutation(seed, 630) for seed in seeds]), k, trained)
    summary = result_of_curve(
        prepared(seeds, k), [size.point for size in trained], sizes, code.total_bits,
        sharp_drop=sharp_drops(trained[-1].losses),
    )  # fmt: skip
    for s, (a, b) in enumerate(laws.values()):
        bits = sizes[0] * 3 + sum((m - n) * a * n**-b for n, m in itertools.pairwise(sizes))
        assert summary.mdl.total_bits[s] == pytest.approx(bits)
        assert summary.mdl.bits_per_sample[s] == pytest.approx(bits / 630)
        published = sum(n * bits for n, bits in zip(sizes[1:], test_bits[seeds[s]][:-1], strict=True)) / 630
        assert summary.mdl.published[s] == pytest.approx(published)
    assert summary.final == Final(loss_bits=[0.9, 2.5], accuracy=[0.8, 0.7], train_loss_bits=[0.01, 0.02])
    assert summary.sharp_drop is not None
    assert summary.sharp_drop.bits == pytest.approx([1.6, 0.4])  # of the validation loss; the other rises
    assert summary.sharp_drop.epoch == [0, 1]
