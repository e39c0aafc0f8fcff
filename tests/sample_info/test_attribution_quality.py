"""The field's metrics against plain definitions, and a small study through the real command line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from conf.schema import validate
from erasure.store.checked_files import load_tensors, read_json
from sample_info.__main__ import COMMAND, experiment
from sample_info.agreement import auroc
from sample_info.attribution_quality import added_up, datamodeling_score, leave_one_out_correlation
from sample_info.linearized.network import LinearizedNetwork
from sample_info.retraining import GradientDescent, halves, positions
from sample_info.scored_examples import prepare
from sample_info.settings import SampleInfoConfig
from tests.sample_info.problems import draws

SMALL = ["model.width=128", "sample_info.examples=60", "sample_info.held_out=40", "sample_info.training.steps=300"]
SMALL += ["logger.mode=disabled", "sample_info.references.subsets=30"]


def statistic(test: Any, a: Tensor, b: Tensor) -> float:
    return float(test(a, b)[0])


def test_the_datamodeling_score_is_spearmans_mean_and_its_interval_no_narrower_than_draws_differ() -> None:
    def methods(seed: int) -> tuple[Tensor, Tensor]:
        truth = draws(40, 6, 2, seed=seed)
        return truth + 0.5 * draws(40, 6, 2, seed=seed + 1), truth

    predicted, truth = methods(0)
    score = datamodeling_score(predicted, truth)
    each = [statistic(spearmanr, a, b) for a, b in zip(predicted.flatten(1).T, truth.flatten(1).T, strict=True)]
    assert score.mean == pytest.approx(sum(each) / 12)
    assert score.low < score.mean < score.high
    others = torch.tensor([datamodeling_score(*methods(seed)).mean for seed in range(10, 50, 2)])
    assert 3.9 < (score.high - score.low) / float(others.std()) < 12  # 3.9 of a normal distribution: never too narrow
    exact = datamodeling_score(truth.exp(), truth)
    assert (exact.mean, exact.low) == pytest.approx((1, 1))
    assert datamodeling_score(-truth, truth).mean == pytest.approx(-1)
    assert datamodeling_score(torch.ones_like(truth), truth).mean == 0  # it says nothing
    assert abs(datamodeling_score(draws(40, 6, 2, seed=99), truth).mean) < 0.2  # the control


def test_effects_add_up_over_a_set_and_correlate_over_what_was_left_out() -> None:
    outputs, sets = draws(8, 3, 2, seed=0), halves(8, 4)
    for total, one in zip(added_up(outputs, sets), sets, strict=True):
        torch.testing.assert_close(total, outputs[one].sum(0))
    truth = outputs + draws(8, 3, 2, seed=1)
    known = torch.tensor([0, 2, 3, 7])
    some = torch.full_like(truth, torch.nan).index_put((known,), truth[known])
    columns = zip(outputs[known].flatten(1).T, truth[known].flatten(1).T, strict=True)
    expected = sum(statistic(pearsonr, a, b) for a, b in columns) / 6
    assert leave_one_out_correlation(outputs, some) == pytest.approx(expected)
    assert leave_one_out_correlation(torch.ones(8, 3, 2), some) is None


def test_scores_are_those_of_dattri_on_the_same_arrays() -> None:
    metric = pytest.importorskip("dattri.metric", reason="of the bench group: uv sync --group bench")
    effects, trained, sets = draws(30, 5, 1, seed=0), draws(5, 1, seed=9), halves(30, 12)
    truth = added_up(effects, sets) + 2 * draws(12, 5, 1, seed=1)
    on = positions(torch.ones(12, 30).scatter_(1, sets, 0))  # theirs: outputs, and who was trained on
    lds, _ = metric.lds(effects[:, :, 0], ((trained - truth)[:, :, 0], on))
    assert datamodeling_score(added_up(effects, sets), truth).mean == pytest.approx(float(lds.mean()))
    torch.testing.assert_close(
        metric.lds(effects[:, :, 0], (truth[:, :, 0], sets))[0], lds
    )  # the same, of what is lost
    assert 0.1 < float(lds.mean()) < 0.95
    alone = torch.tensor([1, 4, 7, 20, 29])
    single = torch.full_like(effects, torch.nan).index_put((alone,), effects[alone] + draws(5, 5, 1, seed=2))
    loo, _ = metric.loo_corr(effects[alone, :, 0], (single[alone, :, 0], alone))
    assert leave_one_out_correlation(effects, single) == pytest.approx(float(loo.mean()))
    wrong = torch.arange(30) % 4 == 0
    sizes = effects.square().mean((1, 2))
    area, _ = metric.mislabel_detection_auc(sizes, wrong)
    assert auroc(sizes, wrong) == pytest.approx(float(area), abs=1e-6)


def test_a_study_of_accounts_judged_by_retraining_on_halves(command, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ["sample_info.references.methods=[subsets,influence,cosine,retraining]"]
    methods += ["sample_info.references.examples=10"]
    outcome = command(COMMAND, *SMALL, *methods, "sample_info.data.label_noise=0.1")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    by_method = {name: one for name, (one,) in read_json(path)["attribution"].items()}
    ours, thinned, sets, *baselines = by_method
    assert baselines == ["influence 10", "influence 1e-05", "gradient cosine"]
    assert by_method[sets]["datamodeling"]["mean"] > 0.97
    assert by_method[ours]["datamodeling"]["mean"] > 0.7
    assert by_method[thinned]["datamodeling"]["low"] > by_method[ours]["datamodeling"]["mean"]
    assert all(by_method[sets]["datamodeling"]["low"] > by_method[name]["datamodeling"]["high"] for name in baselines)
    assert by_method[ours]["leave_one_out"] > 0.95
    assert by_method[ours]["auroc"] == pytest.approx(read_json(path)["groups"]["wrong label"]["auroc"][0])
    assert "leave_one_out" not in by_method[sets]
    assert [*read_json(path)["references"]] == [
        "influence 10", "influence 1e-05", "retraining",
        "influence 10 with retraining", "influence 1e-05 with retraining",
    ]  # fmt: skip
    (table,) = Path("runs").glob("*/table.md")
    assert f"| {sets} | 0.9" in table.read_text()
    subsets, _ = load_tensors(path.parent / "subsets-0.safetensors")
    alone, moved = subsets["alone"], subsets["alone_outputs"]
    problem = prepare(experiment(validate(read_json(path)["config"], SampleInfoConfig))).problem(0)
    effects = LinearizedNetwork(problem, problem.kernels()).all_left_out().outputs
    again = datamodeling_score(added_up(effects, subsets["left_out"]), subsets["outputs"])
    assert again.mean == pytest.approx(by_method[ours]["datamodeling"]["mean"])
    single = torch.full((60, *moved.shape[1:]), torch.nan, dtype=torch.float64).index_put((alone,), moved)
    r = leave_one_out_correlation(effects, single)
    assert r == pytest.approx(by_method[ours]["leave_one_out"])

    def fail(*_) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(GradientDescent, "train", fail)
    assert command(COMMAND, *SMALL, *methods, "sample_info.data.label_noise=0.1").code == 0
