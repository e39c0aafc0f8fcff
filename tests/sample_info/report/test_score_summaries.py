"""Summaries of made-up scores."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.result import as_json, parsed
from sample_info.report.score_summaries import _summary_of
from sample_info.result import ScoreSummary


def test_the_top_tenth_of_nineteen_is_one() -> None:
    labels, index = torch.zeros(19, dtype=torch.int64), torch.arange(19)
    dataset = SimpleNamespace(class_names=["a", "b"])  # of "b" no example is scored
    examples: Any = SimpleNamespace(labels=labels, index=index, dataset=dataset)
    summary = _summary_of(torch.cat([torch.ones(18), torch.tensor([2.0])]), examples)
    assert summary.share_of_top_tenth == pytest.approx(2 / 20)
    assert summary.mean_nats_by_class == [pytest.approx(20 / 19), None]
    assert parsed(ScoreSummary, as_json(summary)) == summary
    assert (summary.median_nats, summary.largest_nats, summary.most_informative[0]) == (1.0, 2.0, 18)
