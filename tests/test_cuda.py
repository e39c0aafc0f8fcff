"""Tests that need a GPU: erasers and models agree with the CPU, bfloat16 trains, and CUDA graphs change no number."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import erasure
from erasure import ClassMoments, Eraser
from erasure.erasers.qleace import ClassMapsEraser
from mdl.__main__ import COMMAND as MDL
from models.classifier import Classifier
from tests.erasure.test_devices_and_synchronization import ERASERS, examples
from tests.models.every_model import EVERY, SMALL
from tests.train.test_training import images
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.epoch_trainer import fit_members
from train.settings import TrainSettings
from train.training_step import GraphedFunction

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("kind", ERASERS)
def test_erasers_agree_with_the_cpu(kind: type[Eraser]) -> None:
    x, z = examples(d=60)
    expected = kind.fit(x, z, **ERASERS[kind])(x, z)
    erased = kind.fit_examples(x, z, ClassMoments.fit(x, z, device="cuda"), **ERASERS[kind])(x, z)
    # QLEACE searches its target in float32, and rounding decides where the search stops
    searched = issubclass(kind, erasure.GradientEraser | ClassMapsEraser)
    torch.testing.assert_close(erased, expected, rtol=0, atol=1e-4 if searched else 1e-8)


def test_sums_of_bytes_are_exact() -> None:
    x = torch.randint(0, 256, (5000, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    z = torch.arange(5000) % 3
    here, there = ClassMoments.fit(x, z), ClassMoments.fit(x, z, device="cuda")
    torch.testing.assert_close(there.means.cpu(), here.means, rtol=1e-15, atol=0)  # CUDA divides by a reciprocal
    torch.testing.assert_close(there.covariances.cpu(), here.covariances, rtol=1e-13, atol=0)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", EVERY)
def test_models_agree_with_the_cpu(name: str, precision: torch.dtype) -> None:
    model: Classifier = EVERY[name](SMALL)
    model.reset_parameters(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():  # readouts start at zero
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        x = torch.randn(8, *SMALL, generator=torch.Generator().manual_seed(2))
        expected = model.eval()(x)
        # PyTorch's convolutions round float32 to TF32 unless told otherwise
        with (
            torch.backends.cudnn.flags(allow_tf32=False),
            torch.autocast("cuda", precision, enabled=precision is torch.bfloat16),
        ):
            logits = model.cuda()(x.cuda()).float().cpu()
    tolerance = 1e-4 if precision is torch.float32 else 0.1 * float(expected.std()) + 0.05
    torch.testing.assert_close(logits, expected, rtol=0, atol=tolerance)


def test_the_main_job_learns_in_bfloat16(command) -> None:
    quick = ["eraser=control", "train=quick", "mdl=quick", "seeds=[0,1]", "logger.mode=disabled"]
    assert command(MDL, "device=cuda", *quick).code == 0
    (path,) = Path("runs").glob("mdl-*/result.json")
    result = json.loads(path.read_text())
    assert result["config"]["train"]["precision"] == "bfloat16"
    assert min(result["final"]["accuracy"]) > 0.8


def test_a_graphed_function_computes_what_the_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(5, 5, device="cuda")
    graphed = GraphedFunction(lambda x: (x @ weight).relu())
    for size in [3] * 8 + [2] * 5:  # a graph per shape, from the fourth call on
        x = torch.randn(size, 5, device="cuda")
        torch.testing.assert_close(graphed(x), (x @ weight).relu(), rtol=0, atol=0)
        weight.add_(0.1)  # a graph reads the memory, not the values of its capture
    assert len(graphed._graphs) == 2


def test_a_function_that_waits_for_the_device_is_not_captured(caplog: pytest.LogCaptureFixture) -> None:
    graphed = GraphedFunction(lambda x: x * float(x.sum()))
    for _ in range(6):
        x = torch.randn(4, device="cuda")
        torch.testing.assert_close(graphed(x), x * float(x.sum()))
    assert len(caplog.records) == 1
    assert "without a CUDA graph" in caplog.text


@pytest.mark.parametrize("protocol", ["standard", "published"])
def test_training_with_cuda_graphs_computes_the_same_numbers(
    protocol: str, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds leave the network as they stop; by the published procedure the last batch of an epoch is short."""
    arguments = ["eraser=control", "train=quick", "mdl=quick", "seeds=[0,1,2]", "logger.mode=disabled", "device=cuda"]
    arguments += ["train.precision=float32", "train.max_epochs=12", "train.lr=0.01", "train.warmup_steps=0"]
    arguments.append(f"train.protocol={protocol}")
    results = []
    for enabled in (True, False):
        monkeypatch.setattr(GraphedFunction, "enabled", enabled)
        assert command(MDL, *arguments, f"runs_dir=runs-{enabled}").code == 0
        (path,) = Path(f"runs-{enabled}").glob("mdl-*/result.json")
        results.append(json.loads(path.read_text()))
    with_graphs, without = (torch.tensor([point["ce_test_bits"] for point in result["curve"]]) for result in results)
    assert float(without.min()) < 2.5
    torch.testing.assert_close(with_graphs, without, rtol=0, atol=1e-3)


def two_short_trainings(
    settings: TrainSettings,
) -> tuple[torch.device, TrainSettings, dict[str, DeviceImages], torch.Tensor]:
    """Return device, settings, data and positions of the examples of two members' trainings."""
    settings = dataclasses.replace(settings, batch_size=16, max_epochs=3, min_epoch_steps=4, warmup_steps=0)
    device = torch.device("cuda")
    data = {"train": images(0, device, side=8), "validation": images(1, device, side=8)}
    subsets = torch.stack([torch.arange(seed, 32 + seed) for seed in range(2)]).to(device)
    return device, settings, data, subsets


@pytest.mark.parametrize("name", ["timm", "convnextv2", "swinv2"])
def test_members_run_by_vmap_are_captured_and_train_as_each_does_alone(
    name: str, settings: TrainSettings, caplog: pytest.LogCaptureFixture
) -> None:
    device, settings, data, subsets = two_short_trainings(settings)
    ensemble = Ensemble(EVERY[name](SMALL).to(device))
    with torch.backends.cudnn.flags(allow_tf32=False):
        together, alone = (
            fit_members(ensemble, data, [3, 4], subsets, settings, stack=stack).curves for stack in (2, 1)
        )
    assert "without a CUDA graph" not in caplog.text
    for a, b in zip(together, alone, strict=True):
        assert a.validation_loss_bits == pytest.approx(b.validation_loss_bits, rel=1e-2)
    assert together[0].validation_loss_bits[-1] != pytest.approx(together[1].validation_loss_bits[-1])


@pytest.mark.parametrize("name", ["mlp-relu", "convnextv2"])
def test_compiled_steps_are_captured_and_train_as_others_do(
    name: str, settings: TrainSettings, caplog: pytest.LogCaptureFixture
) -> None:
    device, settings, data, subsets = two_short_trainings(settings)
    with torch.backends.cudnn.flags(allow_tf32=False):
        compiled, eager = (
            fit_members(
                Ensemble(EVERY[name](SMALL).to(device)),
                data,
                [3, 4],
                subsets,
                dataclasses.replace(settings, compile=each),
                stack=2,
            ).curves
            for each in (True, False)
        )
    assert "without a CUDA graph" not in caplog.text
    for one, other in zip(compiled, eager, strict=True):
        assert one.validation_loss_bits == pytest.approx(other.validation_loss_bits, rel=1e-2)
        assert one.validation_loss_bits[-1] < one.validation_loss_bits[0]
