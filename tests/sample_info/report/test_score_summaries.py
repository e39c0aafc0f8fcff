"""Summaries of made-up scores."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sample_info.report.score_summaries import _summary_of


def test_the_top_tenth_of_nineteen_is_one() -> None:
    labels, index = torch.zeros(19, dtype=torch.int64), torch.arange(19)
    examples: Any = SimpleNamespace(labels=labels, index=index, dataset=SimpleNamespace(class_names=["a"]))
    summary = _summary_of(torch.cat([torch.ones(18), torch.tensor([2.0])]), examples)
    assert summary.share_of_top_tenth == pytest.approx(2 / 20)
    assert (summary.median_nats, summary.largest_nats, summary.most_informative[0]) == (1.0, 2.0, 18)
