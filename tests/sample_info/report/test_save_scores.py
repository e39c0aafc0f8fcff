"""Columns of the files of a run's scores; tests/sample_info/test_command.py reads whole files."""

import torch

from sample_info.leave_one_out_effects import Changes
from sample_info.report.save_scores import columns
from sample_info.scores import Scores


def test_a_column_is_named_after_its_score_or_its_reference() -> None:
    ours, retrained = (Changes(torch.full((2,), i), torch.full((2,), i + 1.0)) for i in (0.0, 2.0))
    scored = Scores(
        changes=ours,
        nats={"f_si_nats": torch.tensor([5.0, 6.0])},
        left_out_correct=torch.tensor([True, False]),
        left_out_label=torch.tensor([7, 2]),
        references={"influence functions": retrained},
        signed={},
        how={},
    )
    assert {name: values.tolist() for name, values in columns(scored).items()} == {
        "weight_change": [0.0, 0.0],
        "prediction_change": [1.0, 1.0],
        "f_si_nats": [5.0, 6.0],
        "left_out_correct": [1, 0],
        "left_out_label": [7, 2],
        "influence_functions_weight_change": [2.0, 2.0],
        "influence_functions_prediction_change": [3.0, 3.0],
    }
