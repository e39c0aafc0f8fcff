"""What the verb compares scores with: a miniature of table 1 of Harutyunyan et al. 2021."""

from pathlib import Path

import pytest

from erasure.storage import read_json
from sample_info.__main__ import VERB

SMALL = ["model.width=256", "sample_info.examples=40", "sample_info.held_out=50", "sample_info.steps=300"]


def test_scores_agree_with_retraining_and_better_than_influence_functions(command) -> None:
    outcome = command(VERB, *SMALL, "sample_info.references=[retraining,influence]", "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    found = read_json(path)["references"]
    for kind in ("weight", "prediction"):
        retraining, influence = (found[name][0][kind]["pearson"] for name in ("retraining", "influence"))
        assert 0.95 < retraining <= 1
        assert influence < retraining
    assert found["retraining"][0]["examples"] == 40


def test_a_sample_of_examples_may_be_left_out(command) -> None:
    options = ["sample_info.references=[retraining]", "sample_info.reference_examples=5", "logger.mode=disabled"]
    outcome = command(VERB, *SMALL, *options)
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    assert read_json(path)["references"]["retraining"][0]["examples"] == 5


@pytest.mark.parametrize("override", ["sample_info.steps=converged", "sample_info.time=continuous"])
def test_training_that_is_no_number_of_steps_has_no_reference(command, override: str) -> None:
    outcome = command(VERB, *SMALL, override, "sample_info.references=[influence]")
    assert outcome.code == 2
    assert "trained for it step by step" in outcome.err
    assert not Path("runs").exists()
