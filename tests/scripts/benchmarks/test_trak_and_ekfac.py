"""Other packages' methods against ours where theory has them equal; the comparison in miniature."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from erasure.store.checked_files import read_json
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from sample_info.__main__ import COMMAND
from sample_info.attribution_quality import OURS, SETS, THINNED
from sample_info.linearized.descent import LinearizedDescent
from sample_info.references import influence
from sample_info.training_problem import TrainingProblem
from scripts.benchmarks import trak_and_ekfac
from scripts.benchmarks.trak_and_ekfac import EKFAC, Study, require_one_output, trak
from tests.sample_info.networks import away_from_zero
from tests.sample_info.problems import draws

REASON = "of the bench group: uv sync --group bench"
SMALL = ["model.width=64", "sample_info.examples=60", "sample_info.held_out=20", "sample_info.training.steps=200"]
SMALL += ["sample_info.references.methods=[subsets,influence,cosine,retraining]", "sample_info.references.subsets=12"]
SMALL += ["logger.mode=disabled", "sample_info.references.examples=5", "sample_info.data.label_noise=0.1"]


def problem(model, n: int = 60, m: int = 7, steps: int = 10) -> TrainingProblem:
    shape = model.input_shape if hasattr(model, "input_shape") else (1, 2, 2)
    descent = LinearizedDescent(learning_rate=0.5, steps=steps)
    x, held_out = (draws(size, *shape, seed=size).float() for size in (n, m))
    y = (x.flatten(1).sum(1, keepdim=True) > 0).double()
    return TrainingProblem(model, away_from_zero(model), x, y, held_out, descent, 0, 2**30)


def mlp() -> MLP:
    return MLP((1, 4, 4), 1, width=16, depth=1, activation="relu", parametrization="standard")


def exact(linear: TrainingProblem, damping: float) -> Tensor:
    residual = linear.outputs(linear.x) - linear.y
    return influence(linear.kernels(), residual, len(linear.x) * damping).outputs


def test_ekfac_is_influence_functions_where_a_layer_is_all_there_is() -> None:
    pytest.importorskip("kronfluence", reason=REASON)
    linear = problem(PolynomialClassifier((1, 2, 2), 1))
    factors = EKFAC(linear)
    for damping in (1e-3, 1.0):
        torch.testing.assert_close(factors.effects(damping).outputs, exact(linear, damping), rtol=1e-3, atol=1e-6)


def test_trak_is_influence_functions_where_its_projection_loses_nothing() -> None:
    pytest.importorskip("dattri", reason=REASON)
    linear = problem(PolynomialClassifier((1, 2, 2), 1))  # five parameters
    everything, some = trak(linear, 5), trak(linear, 2)
    torch.testing.assert_close(everything.outputs, exact(linear, 1e-9), rtol=1e-3, atol=1e-6)
    assert float((some.outputs - everything.outputs).abs().max()) > 1e-3  # the control
    torch.testing.assert_close(everything.prediction, everything.outputs.square().mean((1, 2)))


def test_two_outputs_are_refused() -> None:
    network = problem(mlp(), n=6)
    with pytest.raises(ValueError, match="2 outputs: TRAK and EK-FAC are compared on one"):
        require_one_output(replace(network, y=network.y.expand(-1, 2)))


def test_a_finished_run_beside_the_other_packages(command) -> None:
    pytest.importorskip("dattri", reason=REASON)
    pytest.importorskip("kronfluence", reason=REASON)
    assert command(COMMAND, *SMALL).code == 0
    (path,) = Path("runs").glob("*/result.json")
    rows = {row.name: row.attribution for row in Study(path.parent).evaluate_methods([1.0, 10.0], [8])}
    stored = {name: one for name, (one,) in read_json(path)["attribution"].items()}
    both = [OURS, THINNED, SETS, "influence 10", "gradient cosine"]  # the run's own network and halves: its own numbers
    assert rows.keys() == {*both, "influence 1", "TRAK 8", "EK-FAC 1", "EK-FAC 10"}
    for name in both:
        expected = stored[name]
        assert rows[name].datamodeling.mean == pytest.approx(expected["datamodeling"]["mean"], abs=6e-4)
        if name != SETS:
            known = [expected["leave_one_out"], expected["auroc"]]
            assert [rows[name].leave_one_out, rows[name].auroc] == pytest.approx(known, abs=6e-4)


def test_a_run_without_halves_is_refused(command, capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for option in SMALL if "references" not in option]
    assert command(COMMAND, *options).code == 0
    (path,) = Path("runs").glob("*/result.json")
    with pytest.raises(SystemExit):
        trak_and_ekfac.main([str(path.parent)])
    assert (
        "no subsets-0.safetensors: run with sample_info.references.methods=[subsets,retraining]"
        in capsys.readouterr().err
    )
