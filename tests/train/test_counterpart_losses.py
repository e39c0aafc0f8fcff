"""Losses on counterparts along a training: they change nothing of it, and tell apart what shares other orders."""

import csv
import math
from pathlib import Path
from statistics import mean

import pytest
import torch

from erasure.dataset import LabelledImages
from erasure.matched_samples import counterpart
from erasure.store.checked_files import load_tensors, read_json
from harness.results.arrange import arrange
from harness.results.read import read_run
from mdl.__main__ import COMMAND as MDL
from models.classifier import Classifier
from models.polynomial import PolynomialClassifier
from train.__main__ import COMMAND as TRAIN
from train.counterpart_losses import DATA, CounterpartCurves
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.epoch_trainer import EpochTrainer
from train.learning_order_report import past_means_step, samples_of
from train.prepared_training import WEIGHTS
from train.settings import TrainSettings

TINY = ["eraser=control", "train=quick", "train.max_epochs=3", "logger.mode=disabled", "seeds=[0,1]"]


def on_device(x: torch.Tensor, z: torch.Tensor) -> DeviceImages:
    part, c = LabelledImages(x, z), x.shape[1]
    return DeviceImages(part, torch.zeros(c), torch.ones(c), padding=0, flip=False, device=torch.device("cpu"))


def test_training_is_the_same_with_and_without(command, real_figures) -> None:
    for more in ([], ["counterparts=[order1,swap]"]):
        outcome = command(TRAIN, *TINY, *more)
        assert outcome.code == 0, outcome.err
    paths = sorted(Path("runs").glob("train-*/result.json"), key=lambda path: "counterparts" in path.read_text())
    plain, followed = (read_json(path) for path in paths)
    assert plain["run_id"] != followed["run_id"]
    assert plain["final"] == followed["final"]
    (weights, _), (same, _) = (load_tensors(path.with_name(WEIGHTS)) for path in paths)
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert "counterparts" not in plain["config"] or plain["config"]["counterparts"] is None
    assert list(followed["counterparts"]) == [DATA, "order1", "swap"]
    assert followed["counterparts"]["order1"]["step"][1][:6] == [0, 1, 2, 4, 8, 16]
    assert "learning_order.png" in outcome.out

    (table,) = Path("runs").glob("**/learning_order.csv")
    for row in csv.DictReader(table.open()):
        losses = followed["counterparts"][row["sample"]]["loss_bits"]
        assert float(row["end_loss_bits_mean"]) == pytest.approx(mean(of_seed[-1] for of_seed in losses))

    assert set(followed["counterparts"]) == {DATA, "order1", "swap"}
    (entry,) = arrange([read_run(paths[1].parent)])
    assert [losses for _, losses in samples_of(entry)["swap"]] == followed["counterparts"]["swap"]["loss_bits"]


def test_only_python_m_train_has_counterparts(command) -> None:
    outcome = command(MDL, "counterparts=[order1]")
    assert (outcome.code, "unknown key counterparts" in outcome.err) == (2, True)
    outcome = command(TRAIN, *TINY, "counterparts=[order1,order1]")
    assert (outcome.code, "name each once" in outcome.err) == (2, True)
    outcome = command(TRAIN, *TINY, "counterparts=[order3]")
    assert (outcome.code, "'order1', 'order2'" in outcome.err) == (2, True)


def settings(**options) -> TrainSettings:
    usual = {
        "lr": 5e-2, "betas": (0.9, 0.999), "weight_decay": 0.0, "warmup_steps": 5, "batch_size": 50, "max_epochs": 8,
        "patience_steps": 1000, "plateau_steps": 0, "min_improvement_bits": 0.0, "eval_every": 1, "min_epoch_steps": 1,
        "crop_padding": 0.0, "precision": "float32", "eval_batch_size": 1000,
    }  # fmt: skip
    return TrainSettings(**(usual | options))


def planted(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes in three dimensions that differ in mean and covariance, and are not Gaussian."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.arange(n) % 2
    x = torch.rand(n, 3, generator=generator) - 0.5
    x = x * (1 + 2 * z[:, None]) + 0.5 * z[:, None]
    return x.view(n, 3, 1, 1), z


def training(model: Classifier, samples: list[str]) -> EpochTrainer:
    x, z = planted(400, 0)
    test, labels = planted(4000, 1)
    drawn = {name: on_device(*counterpart(name, test, labels)) for name in samples}
    subsets = torch.arange(len(x)).expand(2, -1)
    data = {"train": on_device(x, z), "validation": on_device(*planted(400, 2))}
    followed = {DATA: on_device(test, labels), **drawn}
    return EpochTrainer(Ensemble(model), data, [0, 1], subsets, settings(), counterparts=followed)


@pytest.mark.parametrize(
    ("degree", "sample", "alike"), [(1, "order1", True), (2, "order2", True), (2, "order1", False)]
)
def test_a_model_of_degree_n_cannot_tell_what_shares_n_orders(degree: int, sample: str, alike: bool) -> None:
    """Belrose et al. 2024: the logits of such a model have the same class means on both."""
    trained = training(PolynomialClassifier((3, 1, 1), 2, degree=degree), [sample])
    trained.run()
    images, other = (
        [row.loss_bits for row in trained.followed.rows if (row.seed, row.sample) == (0, which)]
        for which in (DATA, sample)
    )
    assert images[-1] < images[0] - 0.1
    distance = max(abs(a - b) for a, b in zip(images, other, strict=True))
    assert distance < 0.03 if alike else distance > 0.06, (images, other)


@pytest.mark.parametrize(("degree", "past"), [(1, False), (2, True)])
def test_a_model_that_uses_means_alone_is_never_past_them(degree: int, past: bool) -> None:
    trained = training(PolynomialClassifier((3, 1, 1), 2, degree=degree), ["order1", "order2"])
    trained.run()
    for seed in (0, 1):
        of_means, of_covariances = (
            [row for row in trained.followed.rows if (row.seed, row.sample) == (seed, name)]
            for name in ("order1", "order2")
        )
        step = past_means_step(
            [row.step for row in of_covariances],
            [row.loss_bits for row in of_covariances],
            [row.loss_bits for row in of_means],
        )
        assert (step is not None) == past


def test_scores_of_a_sample_are_those_of_its_logits() -> None:
    x, z = planted(50, 0)
    samples = {DATA: on_device(x, z), "flipped": on_device(x, 1 - z)}
    model = PolynomialClassifier((3, 1, 1), 2)
    curves = CounterpartCurves(Ensemble(model), samples, 20)
    weights = {name: torch.randn(1, *one.shape) for name, one in model.named_parameters()}
    curves.note(0, [0], weights)
    with torch.no_grad():
        logits = torch.func.functional_call(model, {name: one[0] for name, one in weights.items()}, x)
    rows = {row.sample: row for row in curves.rows}
    for name, labels in ((DATA, z), ("flipped", 1 - z)):
        assert rows[name].accuracy == pytest.approx((logits.argmax(1) == labels).double().mean().item(), abs=1e-5)
        loss = torch.nn.functional.cross_entropy(logits, labels).item() / math.log(2)
        assert rows[name].loss_bits == pytest.approx(loss, abs=1e-4)
    first, second = (logits[z == j].softmax(1).mean(0) for j in (0, 1))
    assert rows["flipped"].agreement == pytest.approx(1 - (first - second).abs().sum().item() / 2, abs=1e-4)
    assert rows[DATA].agreement == 1


def test_a_training_that_continues_has_the_same_curves() -> None:
    whole, first, second = (training(PolynomialClassifier((3, 1, 1), 2, degree=1), ["swap"]) for _ in range(3))
    whole.run()
    states = []

    class StoppedError(Exception): ...

    def stop() -> None:
        states.append(first.state())
        if len(states) == 12:
            raise StoppedError

    first.before_step = stop
    with pytest.raises(StoppedError):
        first.run()
    assert second.restore(*states[-1])
    second.run()
    assert second.followed.rows == whole.followed.rows
    assert len({row.step for row in whole.followed.rows}) > 6


def test_steps_are_powers_of_two_then_epochs_further_and_further_apart() -> None:
    samples = {DATA: on_device(*planted(10, 0))}
    curves = CounterpartCurves(Ensemble(PolynomialClassifier((3, 1, 1), 2, degree=1)), samples, 20)
    chosen = [step for step in range(20 * 20) if curves.due(step)]
    epochs = [*range(1, 11), 11, 13, 15, 17, 19]
    assert chosen == [0, 1, 2, 4, 8, 16, *(20 * epoch for epoch in epochs)]
