"""The procedure of the paper's code: orders, backtracking, scores, and that an interrupted training continues."""

import math
import signal
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from schedulefree import AdamWScheduleFree
from torch import Tensor

from conf.compose import composed
from harness.experiment import Experiment
from harness.logger import Logger
from harness.result import read_result
from harness.run_directory import Run
from mdl.__main__ import COMMAND
from mdl.published_procedure import (
    LabelledSet,
    PublishedTraining,
    initialise,
    mean_bits,
    prepare,
    published,
    published_order,
)
from mdl.result import MdlResult, Point
from mdl.settings import MdlConfig
from models.convnextv2 import ConvNeXtV2
from models.lenet import PublishedLeNet
from models.mlp import MLP
from models.stackable_layers import Conv2d
from scripts.report import main as report
from train.checkpoint import Checkpoints
from train.randomness import generator
from train.settings import TrainSettings


def settings(**options: object) -> TrainSettings:
    changed = {"precision": "float32", "warmup_steps": 5, "lr": 5e-3, "published.patience_epochs": 3} | options
    words = [f"train.{key}={value}" for key, value in changed.items()]
    return composed("mdl", ["train=published", "eraser=control", *words], MdlConfig).train


def examples(n: int, seed: int, dtype: torch.dtype = torch.float32) -> LabelledSet:
    """Images [n, 1, 8, 8] whose class is where they are bright, and noise."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=source)
    images = torch.randn(n, 1, 8, 8, generator=source)
    images[torch.arange(n), 0, 2 * labels] += 1.0
    return images.to(dtype), labels


def mlp(dtype: torch.dtype = torch.float32) -> MLP:
    return MLP((1, 8, 8), 4, width=16, depth=2, activation="relu", parametrization="mup").to(dtype)


def training(own: TrainSettings, n: int = 200) -> PublishedTraining:
    return PublishedTraining(mlp(), 0, examples(n, 1), examples(100, 2), own, flip=True)


def test_every_size_shuffles_the_order_of_the_size_before() -> None:
    first, second = published_order(3, 50, 0), published_order(3, 50, 1)
    assert sorted(second.tolist()) == list(range(50))
    assert not torch.equal(first, second)
    places = torch.empty(50, dtype=torch.long)
    places[first] = torch.arange(50)
    source = torch.Generator().manual_seed(0)  # the second is the first, permuted: not a permutation drawn alone
    assert not torch.equal(places[second], torch.randperm(50, generator=source))
    assert torch.equal(published_order(3, 50, 1), second)
    assert not torch.equal(published_order(4, 50, 1), second)


def test_a_loss_in_bfloat16_moves_in_steps_of_a_64th_bit() -> None:
    z = torch.arange(128) % 10
    assert mean_bits(torch.zeros(128, 10).bfloat16().log_softmax(1), z) == 3.3125
    logits = 1e-3 * F.one_hot(z, 10).bfloat16()  # right, but by too little to be seen
    assert mean_bits(logits.log_softmax(1), z) == 3.3125
    assert mean_bits((20 * logits).log_softmax(1), z) < 3.3125
    assert float(mean_bits(torch.zeros(128, 10).log_softmax(1), z)) == pytest.approx(math.log2(10), rel=1e-6)
    assert mean_bits(torch.zeros(128, 10).log_softmax(1), z, torch.bfloat16) == 3.3125


@pytest.mark.parametrize("rounded", [True, False])
def test_losses_are_rounded_while_weights_stay_in_float32(rounded: bool) -> None:
    run = training(settings(**{"published.round_losses": rounded}))
    next(run.run())
    loss, _ = run.score(run.validation, 128)
    assert (loss == float(torch.tensor(loss).bfloat16())) is rounded
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_an_epoch_without_improvement_is_undone_and_so_many_in_a_row_end_it() -> None:
    run = training(settings(lr=10.0, warmup_steps=0))  # so large that no epoch improves
    start = [parameter.detach().clone() for parameter in run.model.parameters()]
    for _ in run.run():
        pass
    assert run.curve.ended == "patience"
    assert run.curve.epochs == 3
    assert run.curve.best_epoch == 0
    assert run.curve.validation_loss_bits[0] == pytest.approx(2.0)
    assert all(torch.equal(a, b) for a, b in zip(start, run.model.parameters(), strict=True))


def test_without_backtracking_epochs_go_on_from_where_they_are() -> None:
    """Validation losses of the second failed epoch differ: with it, it starts from the same weights as the first."""
    losses = {}
    for backtrack in (True, False):
        run = training(settings(lr=10.0, warmup_steps=0, crop_padding=0.0, **{"published.backtrack": backtrack}))
        run.flip = False  # the two epochs then see the same batches
        losses[backtrack] = [None for _ in run.run()] and run.curve.validation_loss_bits
    assert losses[True][1] == losses[True][2]
    assert losses[False][1] != losses[False][2]


def test_the_saved_state_is_overwritten_as_by_load_state_dict() -> None:
    """The same losses as a loop that sets back with PyTorch's `load_state_dict`; not so if z and v are undone too."""
    options = {"lr": 0.01, "warmup_steps": 0, "crop_padding": 0.0, "published.patience_epochs": 8}
    losses = {}
    for shared in (True, False):
        run = training(settings(**options, **{"published.share_saved_state": shared}))
        run.flip = False
        losses[shared] = [None for _ in run.run()] and run.curve.validation_loss_bits
    assert losses[True] == pytest.approx(losses_by_load_state_dict(settings(**options)), rel=1e-6)
    assert losses[True] != losses[False]


def losses_by_load_state_dict(own: TrainSettings) -> list[float]:
    """Return validation losses of the network and data of `training`, by a loop that is as short as can be."""
    model, (x, z), validation = mlp(), examples(200, 1), examples(100, 2)
    initialise(model, generator(0, 200, "init"))
    factors = model.learning_rates()
    optimizer = AdamWScheduleFree(
        [{"params": [p], "lr": own.lr * factors[name]} for name, p in model.named_parameters()], betas=own.betas
    )
    losses, failures = [], 0
    best = deepcopy((model.state_dict(), optimizer.state_dict()))
    while failures < own.published.patience_epochs:
        with torch.no_grad():
            loss = float(F.cross_entropy(model(validation[0]), validation[1])) / math.log(2)
        if loss < min(losses, default=math.inf):
            failures, best = 0, deepcopy((model.state_dict(), optimizer.state_dict()))
        else:
            failures += 1
            model.load_state_dict(best[0])
            optimizer.load_state_dict(best[1])
        losses.append(loss)
        optimizer.train()
        for images, labels in zip(x.split(128), z.split(128), strict=True):
            optimizer.zero_grad()
            (F.cross_entropy(model(images), labels) / math.log(2)).backward()
            optimizer.step()
    return losses


def test_it_learns_and_scores_the_training_sequence_and_the_average() -> None:
    run = training(settings(**{"published.patience_epochs": 10}), n=400)
    assert run.averaged_loss(examples(300, 3)) == pytest.approx(2.0)  # bits, of four classes and a readout of zeros
    for _ in run.run():
        pass
    test = examples(300, 3)
    bits, accuracy = run.score(test, 32)
    assert bits < 1.5
    assert accuracy > 0.5
    by_hand = sum(
        float(F.cross_entropy(run.model(x), z).detach()) * len(z)
        for x, z in zip(test[0].split(32), test[1].split(32), strict=True)
    )
    assert bits == pytest.approx(by_hand / 300 / math.log(2), rel=1e-5)
    averaged = run.averaged_loss(test)
    assert averaged < 2.0
    assert averaged != pytest.approx(bits, rel=1e-3)
    assert run.score(test, 32) == (bits, accuracy)  # looking changes nothing


@pytest.mark.parametrize("stop_after", [1, 4])
def test_an_interrupted_training_continues_with_the_same_result(stop_after: int) -> None:
    own = settings(**{"published.patience_epochs": 5})
    whole = training(own)
    for _ in whole.run():
        pass
    first, second = training(own), training(own)
    for epoch, _ in enumerate(first.run(), start=1):
        if epoch == stop_after:
            break
    tensors, values = first.state()
    assert second.restore({name: value.clone() for name, value in tensors.items()}, values)
    for _ in second.run():
        pass
    assert second.curve.validation_loss_bits == whole.curve.validation_loss_bits
    assert second.curve.train_loss_bits == whole.curve.train_loss_bits
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_training_that_is_interrupted_is_saved_before_its_next_epoch(tmp_path: Path) -> None:
    own = settings(**{"published.patience_epochs": 5})
    whole, first, second = training(own), training(own), training(own)
    for _ in whole.run():
        pass

    def interrupted() -> None:
        with Checkpoints(tmp_path, every_s=100.0).continued("some", first):
            for epoch, _ in enumerate(first.run(), start=1):
                if epoch == 3:
                    signal.raise_signal(signal.SIGUSR1)

    with pytest.raises(SystemExit):
        interrupted()
    assert not first.finished
    with Checkpoints(tmp_path, every_s=100.0).continued("some", second):
        assert second.curve.epochs == 2  # the third is not yet scored
        for _ in second.run():
            pass
    assert second.curve == whole.curve


def test_validation_and_test_have_no_image_in_common(tmp_path: Path) -> None:
    """Other labels of the part that tests change its loss alone, and those of some validation images theirs alone."""
    sizes = ["mdl.num_chunks=2", "mdl.min_chunk=300"]
    learns = ["train=published", "train.precision=float32", "train.warmup_steps=0", "train.max_epochs=3"]
    own = ["model.width=8", "eraser=control", "seeds=[0]", "logger.mode=disabled", f"cache_dir={tmp_path / 'cache'}"]
    data = prepare(Experiment.from_config("mdl", composed("mdl", [*sizes, *learns, *own], MdlConfig)))
    order, trained_on = published_order(0, len(data.labels), 0), 300

    def losses(name: str, first: int, end: int) -> tuple[Point, str]:
        labels, run = data.labels.clone(), Run(tmp_path / "runs", name)
        labels[order[first:end]] = (labels[order[first:end]] + 1) % 10
        with run.claim(), Logger(data.experiment.config.logger, {"id": name}, run.directory, {}) as logger:
            (point,) = published(replace(data, labels=labels), run, logger).curve
        return point, (run.directory / "curves.csv").read_text()

    (before, curve), (tested, same_curve) = losses("a", 0, 0), losses("b", trained_on, data.train_size)
    assert tested.ce_test_bits != before.ce_test_bits
    assert (tested.ce_validation_bits, same_curve) == (before.ce_validation_bits, curve)
    validated, _ = losses("c", data.train_size, data.train_size + 10)  # too few to stop or undo an epoch
    assert validated.ce_validation_bits != before.ce_validation_bits
    assert validated.ce_test_bits == before.ce_test_bits


def test_branches_are_dropped_when_it_is_scored() -> None:
    model = ConvNeXtV2((1, 8, 8), 4, width=8, depth=1, drop_path=0.5, parametrization="mup")
    run = PublishedTraining(model, 0, examples(64, 1), examples(32, 2), settings(warmup_steps=0), flip=False)
    torch.nn.init.normal_(model.readout.weight)
    test = examples(64, 3)
    assert run.score(test, 32)[0] != run.score(test, 32)[0]
    assert run.averaged_loss(test) == run.averaged_loss(test)
    seen: list[tuple[float, Any]] = []
    note = lambda *_: seen.extend((layer.rate, layer.factors) for layer in model.stochastic_depth())  # noqa: E731
    model.register_forward_pre_hook(note)
    run.score(test, 64)
    for rate, factors in seen:  # what is kept makes up for what is dropped
        expected = torch.tensor([0.0, 1 / (1 - rate)] if rate else [1.0])
        torch.testing.assert_close(factors.unique(), expected)


def test_layers_start_as_pytorchs_do_and_the_readout_at_zero() -> None:
    model = PublishedLeNet((3, 32, 32), 10, channels=(128, 40), units=(256, 64))
    assert sum(p.numel() for p in model.parameters()) == 411_122
    initialise(model, torch.Generator().manual_seed(0))
    first = model.convolutions[0]
    assert isinstance(first, Conv2d)
    bound = 75**-0.5
    assert first.weight.abs().max() <= bound
    assert float(first.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert first.bias.abs().max() > 0.5 * bound
    assert not model.readout.weight.any()
    assert not model.readout.bias.any()


def test_weights_optimizer_and_images_are_in_bfloat16() -> None:
    own = settings(precision="bfloat16")
    run = PublishedTraining(
        mlp(torch.bfloat16), 0, examples(200, 1, torch.bfloat16), examples(100, 2, torch.bfloat16), own, flip=True
    )
    for _ in run.run():
        break
    tensors, _ = run.state()
    kept: list[Tensor] = [value for name, value in tensors.items() if name.startswith("now.")]
    assert len(kept) == 3 * 6
    assert {value.dtype for value in kept} == {torch.bfloat16}


@pytest.mark.parametrize("option", ["mdl.code=replay", "mdl.validation=prefix", "mdl.order=largest_first"])
def test_options_that_the_procedure_does_not_have_are_refused(option: str) -> None:
    config = composed("mdl", ["train=published", "eraser=control", option], MdlConfig)
    with pytest.raises(ValueError, match=rf"^{option}: has no effect with train.protocol=published"):
        COMMAND.experiment(config)


def test_a_run_is_read_back_and_shown(tmp_path: Path, command: Callable, caplog: pytest.LogCaptureFixture) -> None:
    asked = ("train=published", "mdl.num_chunks=3", "mdl.min_chunk=100", "train.max_epochs=9", "train.warmup_steps=20")
    outcome = command(COMMAND, *asked, "model.width=8", "eraser=control", "seeds=[0]", "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    assert "on 100 examples or fewer, train.max_epochs=9 end before the 20 steps of train.warmup_steps" in caplog.text
    (path,) = (tmp_path / "runs").glob("*/result.json")
    result = read_result(path)
    assert isinstance(result, MdlResult)
    assert all(point.ce_next_bits for point in result.curve)
    assert [*result.coding] == result.curve
    assert report([str(path.parent.parent), "--out", str(tmp_path / "report")]) == 0
    assert path.parent.name in (tmp_path / "report" / "index.html").read_text()
