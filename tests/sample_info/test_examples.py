"""Examples as networks see them and as they are stored, and what counts as right."""

import pytest
import torch

from conf.compose import composed
from harness.job import Job
from sample_info.examples import Examples, load
from sample_info.settings import SampleInfoConfig


@pytest.fixture
def examples(tmp_path) -> Examples:
    chosen = ["model=linear", "eraser=control", "sample_info.examples=30", "sample_info.held_out=20"]
    config = composed("sample_info", [*chosen, f"cache_dir={tmp_path}"], SampleInfoConfig)
    return load(Job.from_config("sample_info", config))


def test_what_networks_see_is_standardised_and_can_be_undone(examples: Examples) -> None:
    stored = examples.stored(examples.x)
    assert 0 <= float(stored.min()) < float(stored.max()) <= 1 + 1e-6
    torch.testing.assert_close(examples.standardised(stored), examples.x)
    mean, std = examples.dataset.channel_mean, examples.dataset.channel_std
    torch.testing.assert_close(stored, examples.x * std.float().view(1, -1, 1, 1) + mean.float().view(1, -1, 1, 1))


def test_accuracy_is_a_share(examples: Examples) -> None:
    k = examples.num_outputs
    right = torch.nn.functional.one_hot(examples.labels, max(k, 2)).double()
    outputs = right if k > 1 else right[:, 1:]
    assert examples.accuracy(outputs, examples.labels) == 1
    outputs[:15] = outputs[:15].roll(1, 1) if k > 1 else 1 - outputs[:15]
    assert examples.accuracy(outputs, examples.labels) == 0.5
