"""The replay code: nothing is used before it is paid for, and what it pays follows from that alone."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from erasure.dataset import LabelledImages
from erasure.store.checked_files import load_tensors
from mdl.__main__ import COMMAND as MDL
from mdl.replay_code import ReplayTrainer, batch_ends, stream_positions
from mdl.settings import ReplaySettings
from mdl.temperature_mixture import INVERSE_TEMPERATURES
from models.classifier import Classifier
from models.mlp import MLP
from tests.train.test_training import Dropping
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.settings import TrainSettings
from train.trainer import NonFiniteLossError

CPU, K = torch.device("cpu"), 3
SIZES, OPTIONS = [10, 25, 60], ReplaySettings(batch=4, streams=6)
SMALL = ["model=linear", "eraser=control", "seeds=[0,1]", "train.stack=all", "logger.mode=disabled", "cache_dir=cache"]
SMALL += ["mdl=quick", "mdl.code=replay", "mdl.replay.batch=64", "mdl.replay.streams=7"]


class Constant(Classifier):
    """Predicts the same for every image, and cannot learn otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None: ...

    def forward(self, x: Tensor) -> Tensor:
        return (0 * self.weight).expand(len(x), K)


def mlp() -> MLP:
    return MLP((1, 4, 4), K, width=16, depth=1, activation="relu", parametrization="mup")


def images(labels: Tensor | None = None, n: int = SIZES[-1]) -> DeviceImages:
    """Images whose brightness says the label; `labels` may say otherwise."""
    generator = torch.Generator().manual_seed(0)
    true_labels = torch.arange(n) % K
    pixels = torch.randn(n, 1, 4, 4, generator=generator)
    pixels += 2 * (true_labels - 1)[:, None, None, None]
    part = LabelledImages(pixels, true_labels if labels is None else labels)
    return DeviceImages(part, torch.zeros(1), torch.ones(1), padding=1, flip=True, device=CPU)


@pytest.fixture
def code(settings: TrainSettings):
    """A code of two seeds over an order of their own, or over one that they share."""
    settings = dataclasses.replace(settings, lr=0.02, warmup_steps=5, batch_size=8)

    def make(
        train: DeviceImages, model: Classifier | None = None, *, seeds=(0, 1), shared=True, options=OPTIONS, **change
    ):
        orders = torch.stack([torch.randperm(SIZES[-1], generator=torch.Generator().manual_seed(s)) for s in seeds])
        orders = orders[:1].expand_as(orders).clone() if shared else orders
        changed = dataclasses.replace(settings, **change)
        data = {"train": train, "test": train}
        return ReplayTrainer(Ensemble(model or mlp()), data, seeds, orders, changed, options, sizes=SIZES)

    return make


@pytest.mark.parametrize("known", [0, 1, 10, 23, 59])
def test_labels_that_are_not_yet_paid_for_change_nothing(code, known: int) -> None:
    """Poison all from some place on, and every label before it costs the same to the bit; those after it do not."""
    clean, other = code(images()), images().labels.clone()
    future = clean._orders[0, known:]
    other[future] = (other[future] + torch.randint(1, K, future.shape, generator=torch.Generator().manual_seed(1))) % K
    poisoned = code(images(other))
    clean.run()
    poisoned.run()
    assert torch.equal(clean.bits[:, :known], poisoned.bits[:, :known])
    assert (clean.bits[:, max(known, 10) :] != poisoned.bits[:, max(known, 10) :]).all()
    for i, n in enumerate(SIZES):  # the training loss at a size is that of the labels known there
        assert torch.equal(clean.scores[2, :, i], poisoned.scores[2, :, i]) == (n <= known)


def test_a_constant_predictor_costs_log2_k_a_label(code) -> None:
    constant = code(images(), Constant(), seeds=(0,))
    constant.run()
    torch.testing.assert_close(constant.bits, torch.full_like(constant.bits, math.log2(K)), rtol=1e-14, atol=0)


def test_labels_that_can_be_learnt_cost_less_and_the_first_batch_the_uniform_code(code) -> None:
    learnt = code(images(), shared=False)
    ends = []
    learnt.on_batch = lambda: ends.append(learnt.known)
    learnt.run()
    assert ends == learnt.ends
    assert learnt.finished
    assert str(learnt) == f"label {SIZES[-1]} of {SIZES[-1]}"
    torch.testing.assert_close(learnt.bits[:, :3], torch.full((2, 3), math.log2(K), dtype=torch.float64))
    assert float(learnt.bits[:, 40:].mean()) < 0.5 * math.log2(K)
    test, accuracy, train = learnt.scores[:, :, len(SIZES) - 1]
    assert test.tolist() == pytest.approx(learnt.test_bits.double().mean(1).tolist())
    assert float(accuracy.min()) > 0.8
    assert float(train.max()) < 0.9
    early, late = learnt.scores[0, :, 0], test
    assert (late < early).all()


def test_labels_that_say_nothing_cost_little_more_than_the_uniform_code_one_at_a_time(code) -> None:
    """A mixture that learns from what it paid never costs log2 17 bits more than any of its members."""
    noise = torch.randint(K, (SIZES[-1],), generator=torch.Generator().manual_seed(3))
    sure = code(images(noise), options=ReplaySettings(batch=1, streams=6), lr=0.3)
    sure.run()
    bound = SIZES[-1] * math.log2(K) + math.log2(len(INVERSE_TEMPERATURES))
    assert (sure.bits.sum(1) <= bound + 1e-9).all()


def test_each_seed_draws_its_own_initial_weights(code) -> None:
    weights = code(images(), seeds=(0, 1, 0)).optimizer.averaged()
    drawn = [weight for name, weight in weights.items() if name.startswith("hidden") and weight.any()]
    assert drawn
    for weight in drawn:
        assert torch.equal(weight[0], weight[2])
        assert not torch.allclose(weight[0], weight[1])


def test_a_seed_costs_what_it_costs_alone(code) -> None:
    together, alone = code(images(), shared=False), code(images(), seeds=(1,))
    together.run()
    alone.run()
    torch.testing.assert_close(together.bits[1], alone.bits[0], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(together.bits[0], together.bits[1], rtol=1e-2)


@pytest.mark.parametrize("model", [mlp, Dropping])
@pytest.mark.parametrize("steps", [0, 1, 20, 21, 63])
def test_a_restored_code_goes_on_to_the_bit(code, model, steps: int) -> None:
    """From any optimiser step, whether or not it is the first after a batch was coded."""
    seeds = (0, 1) if model is mlp else (0,)

    def make() -> ReplayTrainer:
        return code(images(torch.arange(SIZES[-1]) % 2), model(), seeds=seeds)

    undisturbed, dying, states = make(), make(), []

    def check() -> None:
        if len(states) == steps:
            tensors, values = dying.state()
            states.append(({name: tensor.clone() for name, tensor in tensors.items()}, json.dumps(values)))
        elif len(states) < steps:
            states.append(None)

    dying.before_step = check
    undisturbed.run()
    dying.run()
    (tensors, values), resumed = states[steps], make()
    assert resumed.restore(tensors, json.loads(values))
    resumed.run()
    for one in (dying, resumed):
        assert torch.equal(one.bits, undisturbed.bits)
        assert torch.equal(one.scores, undisturbed.scores)
        assert torch.equal(one.test_bits, undisturbed.test_bits)
    assert not code(images(), seeds=(2,)).restore(tensors, json.loads(values))


def test_streams_stand_uniformly_over_the_past() -> None:
    positions = stream_positions(12, 40_000, seed=0)
    for t in range(12):
        counts = positions[t].bincount(minlength=t + 1)
        assert len(counts) == t + 1
        expected = 40_000 / (t + 1)
        assert float(((counts - expected) ** 2 / expected).sum()) < t + 6 * math.sqrt(2 * t) + 1e-9  # chi-squared
    stepped = positions[1:] == positions[:-1] + 1
    assert (stepped | (positions[1:] == 0)).all()
    assert not torch.equal(positions, stream_positions(12, 40_000, seed=1))


def test_batches_end_at_the_sizes() -> None:
    assert batch_ends([3, 10, 12], 4) == [3, 6, 10, 12]
    assert batch_ends([11], 4) == [3, 7, 11]
    assert batch_ends([8, 17], 4) == [4, 8, 11, 14, 17]
    ends = batch_ends([27, 62, 109], 8)
    assert {27, 62, 109} <= set(ends)
    assert max(after - before for before, after in zip([0, *ends], ends, strict=False)) <= 8


def test_a_diverging_network_stops_the_run_in_one_line(code) -> None:
    with pytest.raises(NonFiniteLossError, match=r"labels up to number \d+ .* seed 0, learning rate 3e\+38"):
        code(images(), lr=3e38, warmup_steps=0).run()


def result(runs: str) -> Mapping:
    (path,) = Path(runs).glob("mdl-*/result.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("stack", ["all", "one"])
def test_the_command_says_what_was_paid(command, stack: str) -> None:
    assert command(MDL, *SMALL, f"train.stack={stack}").code == 0
    run_result = result("runs")
    curve, code = run_result["curve"], run_result["mdl"]
    sizes = [point["n"] for point in curve]
    assert sizes[-1] == run_result["train_size"]
    for s in range(2):
        later = sum((m - n) * p["ce_next_bits"][s] for n, m, p in zip(sizes, sizes[1:], curve, strict=False))
        first = code["total_bits"][s] - later
        assert 0 < first <= sizes[0] * math.log2(10) + math.log2(17)
        assert code["bits_per_sample"][s] == pytest.approx(code["total_bits"][s] / sizes[-1])
        assert run_result["final"]["loss_bits"][s] == curve[-1]["ce_test_bits"][s] < math.log2(10)
    assert [point["epochs"] for point in curve] == [[8, 8]] * len(curve)
    (directory,) = Path("runs").glob("mdl-*")
    assert not list(directory.glob("checkpoint-*"))
    coded, _ = load_tensors(directory / "bits.safetensors")
    assert coded["bits"].double().mean(1).tolist() == pytest.approx(code["bits_per_sample"])
    assert int(coded["trained_on"].max()) >= sizes[-1] - 64
    assert int((coded["trained_on"] == 0).sum()) <= 2 * 64


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("replay.batch=0", "must be at least 1"),
        ("replay.streams=0", "must be at least 1"),
        ("validation=prefix", "has no effect with mdl.code=replay"),
        ("code=replay model=kernel", "has no effect with model=kernel"),
    ],
)
def test_a_value_that_cannot_be_is_one_line(command, option: str, why: str) -> None:
    value, *others = f"mdl.{option}".split()
    failed = command(MDL, *SMALL, value, *others)
    assert failed.code == 2
    assert failed.err.startswith(f"{value}: {why}")
    assert failed.err.count("\n") == 1
