"""An example that the eraser has seen is not left out: what is fitted on which examples."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conf.groups import keys
from conf.schema import validate
from erasure import Eraser, GradientEraser, IdentityEraser, LeaceEraser, QleaceEraser
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache
from erasure.store.checked_files import load_tensors, read_json
from models.tangent.jacobian import network_outputs
from models.tangent.kernel import ntk
from sample_info.__main__ import COMMAND, experiment
from sample_info.eraser_fit_without_scored_examples import resolved
from sample_info.scored_examples import prepare
from sample_info.settings import SampleInfoConfig
from tests.sample_info import reference_dynamics

QUICK = ["eraser=qleace", "model.width=64", "sample_info.training.steps=1000", "logger.mode=disabled"]
WHOLE = ["model.width=1024", "sample_info.training.steps=2000", "dataset.test_fraction=0.7"]
LABELS = torch.tensor([0] * 12 + [1] * 12)


def outcome_of(command, directory: str, *options: str) -> dict:
    outcome = command(COMMAND, *QUICK, *options, f"runs_dir={directory}")
    assert outcome.code == 0, outcome.err
    (path,) = Path(directory).glob("*/result.json")
    return read_json(path) | {"err": outcome.err, "table": (path.parent / "table.md").read_text()}


def test_all_digits_are_left_out_of_the_eraser_too_and_not_taken_for_the_other_class(command, caplog) -> None:
    with caplog.at_level(logging.INFO):
        result = outcome_of(command, "auto", *WHOLE)
    assert result["train_size"] == 98
    assert result["eraser_fit"] == "refit"
    assert result["network"]["left_out_accuracy"][0] > 0.55
    assert sum("QLEACE" in record.message for record in caplog.records) <= 1  # not once for each example
    assert "eraser refitted without each" in result["table"]
    leaking = outcome_of(command, "scored", *WHOLE, "sample_info.data.eraser_fit=scored")
    assert leaking["network"]["left_out_accuracy"][0] < 0.3  # the control
    assert "leaks" in leaking["table"]


def test_a_score_is_what_leaving_one_out_of_eraser_and_training_changes(command) -> None:
    outcome = command(
        COMMAND,
        *QUICK,
        "sample_info.examples=24",
        "sample_info.data.eraser_fit=refit",
        "sample_info.data.label_noise=0.1",
    )
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/scores.safetensors")
    stored = load_tensors(path)[0]
    examples = prepare(experiment(validate(read_json(path.parent / "result.json")["config"], SampleInfoConfig)))
    problem = examples.problem(0)
    plain = erased_dataset(
        examples.experiment.source, IdentityEraser, {}, dtype=torch.float32, cache=Cache("cache")
    ).splits
    x, z = plain["train"].images, plain["train"].labels
    assert examples.refitting is not None
    rows = examples.refitting.scored
    assert torch.equal(z[rows], examples.labels)
    for i in (3, 20):
        others = torch.arange(261) != rows[i]
        eraser = QleaceEraser.fit(x[others], z[others])
        scored, held_out = (
            examples.standardised(eraser(*part))
            for part in ((x[rows], z[rows]), (plain["test"].images, plain["test"].labels))
        )
        kernels = ntk(problem.model, problem.weights, scored, held_out)
        residual = network_outputs(problem.model, problem.weights, scored) - problem.y
        change = reference_dynamics.change_without(i, kernels.train, kernels.held_out, residual, problem.descent)
        assert float(stored["weight_change"][0, i]) == pytest.approx(change[0], rel=1e-5)
        assert float(stored["prediction_change"][0, i]) == pytest.approx(change[1], rel=1e-5)


def test_an_interrupted_refit_continues(command, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [*QUICK, "sample_info.examples=40", "sample_info.data.eraser_fit=refit"]
    fit, calls = QleaceEraser.fit, []

    def counted(*arguments, **options):
        if len(calls) == 20:
            raise KeyboardInterrupt
        calls.append(0)
        return fit(*arguments, **options)

    monkeypatch.setattr(QleaceEraser, "fit", counted)
    assert command(COMMAND, *options).code == 130
    monkeypatch.setattr(QleaceEraser, "fit", lambda *a, **o: calls.append(0) or fit(*a, **o))
    assert command(COMMAND, *options).code == 0
    assert len(calls) == 20 + 24  # of the second block of 16, four were lost
    assert not list(Path("runs").glob("*/step-*"))


def test_where_others_are_left_the_eraser_sees_no_scored_example(command) -> None:
    result = outcome_of(command, "auto", "sample_info.examples=100")
    assert result["eraser_fit"] == "disjoint"
    assert result["certificate"]["apart"]["n"] == 100
    assert result["certificate"]["train"]["n"] == 161
    assert result["certificate"]["train"]["covariance_gap"] < 1e-5 < result["certificate"]["apart"]["covariance_gap"]
    examples = prepare(experiment(config := validate(result["config"], SampleInfoConfig)))
    plain = erased_dataset(examples.experiment.source, IdentityEraser, {}, dtype=torch.float32, cache=Cache("cache"))
    x, z = plain.splits["train"].images, plain.splits["train"].labels
    whole = prepare(experiment(replace(config, eraser=keys("eraser", "control"))))
    assert torch.equal(examples.index, whole.index)  # the same examples as the control's
    assert torch.equal(examples.labels, whole.labels)
    torch.testing.assert_close(examples.dataset.channel_mean, whole.dataset.channel_mean)
    rows = torch.cdist(whole.stored(whole.x).flatten(1), x.flatten(1)).argmin(1)
    others = torch.ones(261, dtype=torch.bool)
    others[rows] = False
    expected = QleaceEraser.fit(x[others], z[others])(x[rows], z[rows])
    torch.testing.assert_close(examples.stored(examples.x), expected, rtol=0, atol=1e-4)


def test_auto_takes_the_first_that_can_be() -> None:
    def auto(scored: int, eraser: type[Eraser] = LeaceEraser, d: int = 64, refits: bool = True) -> str | None:
        return resolved("auto", eraser, LABELS, torch.arange(scored // 2).repeat(2) + 12, d, refits=refits)

    scored = torch.cat([torch.arange(6), torch.arange(12, 18)])
    assert resolved("auto", LeaceEraser, LABELS, scored, 64, refits=True) == "disjoint"
    assert auto(24) == "refit"
    assert auto(24, d=10_000) == "scored"
    assert auto(24, refits=False) == "scored"
    assert auto(24, GradientEraser) == "scored"
    assert auto(24, IdentityEraser) is None  # nothing is fitted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["sample_info.data.eraser_fit=disjoint"], "eraser_fit=disjoint: scoring 261 of 261"),
        (
            ["sample_info.data.eraser_fit=refit", "sample_info.references.methods=[influence]"],
            "need one kernel for all",
        ),
        (["sample_info.data.eraser_fit=refit", "eraser=gradient"], "GradientEraser erases examples together"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_erased(command, options: list[str], said: str) -> None:
    outcome = command(COMMAND, *QUICK, *options)
    assert outcome.code == 2
    assert said in outcome.err
