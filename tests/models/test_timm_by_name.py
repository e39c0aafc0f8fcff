"""Any timm classifier: its own function and initialisation, weights from files, batch norm that no seed disturbs."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from models.timm_by_name import TimmByName
from tests.models.every_model import EVERY, TINY

SHAPE = (3, 32, 32)


def model(shape: tuple[int, int, int] = SHAPE, **options: Any) -> TimmByName:
    built = TimmByName(shape, 10, **TINY | options)
    built.reset_parameters(torch.Generator().manual_seed(0))
    with torch.no_grad():
        built.readout.weight.normal_(generator=torch.Generator().manual_seed(1))
    return built


def images(n: int = 6, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def trained() -> torch.nn.Module:
    """A timm network whose batch-norm statistics are not those of a new one."""
    torch.manual_seed(5)
    network = timm.create_model("test_resnet", num_classes=7)
    network.train()
    for _ in range(3):
        network(3 * images(16) + 1)
    return network.eval()


def save(network: torch.nn.Module, path: Path, **changes: Tensor) -> str:
    save_file({key: value.contiguous() for key, value in (network.state_dict() | changes).items()}, path)
    return str(path)


def test_a_file_of_weights_gives_timms_features(trained: torch.nn.Module, tmp_path: Path) -> None:
    built = model(weights=save(trained, tmp_path / "w.safetensors"))
    trained.reset_classifier(0)  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(built.network(images()), trained(images()))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += 1
    built.reset_parameters(torch.Generator().manual_seed(3))  # back to the file's, whatever the seed
    torch.testing.assert_close(built.network(images()), trained(images()))


def test_weights_of_colour_images_are_adapted_to_grayscale(trained: torch.nn.Module, tmp_path: Path) -> None:
    built = model((1, 32, 32), weights=save(trained, tmp_path / "w.safetensors"))
    gray = images(shape=(1, 32, 32))
    trained.reset_classifier(0)  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(built.network(gray), trained(gray.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


def test_frozen_statistics_keep_examples_apart_and_unchanged(trained: torch.nn.Module, tmp_path: Path) -> None:
    built = model(weights=save(trained, tmp_path / "w.safetensors"))
    before = {name: buffer.clone() for name, buffer in built.named_buffers()}
    built.train()
    together = built(images())
    alone = torch.cat([built(image[None]) for image in images()])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    for name, buffer in built.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_random_weights_are_warned_of_where_batch_norm_has_no_statistics(caplog: pytest.LogCaptureFixture) -> None:
    model(architecture="test_vit")
    assert not caplog.text
    model()
    assert "test_resnet starts from random weights: its batch norm normalises nothing" in caplog.text


def test_random_weights_are_drawn_as_timm_draws_them() -> None:
    built = model()
    torch.manual_seed(0)
    theirs = timm.create_model("test_resnet", num_classes=0)
    for name, parameter in theirs.named_parameters():
        ours = built.network.get_parameter(name)
        assert ours.shape == parameter.shape
        if parameter.numel() > 500:
            assert ours.std().item() == pytest.approx(parameter.std().item(), rel=0.15), name


def test_images_are_resized_and_transformers_built_for_their_size() -> None:
    assert model(architecture="test_vit")(images()).shape == (6, 10)
    built = model((3, 9, 7), size=48)
    resized = torch.nn.functional.interpolate(images(shape=(3, 9, 7)), (48, 48), mode="bilinear", antialias=True)
    torch.testing.assert_close(built(images(shape=(3, 9, 7))), built.readout(built.network(resized)))
    assert model((3, 9, 7), architecture="test_vit", size=64)(images(shape=(3, 9, 7))).shape == (6, 10)


def test_the_papers_networks_can_be_built() -> None:
    for architecture in ("resnet18", "densenet121"):
        built = EVERY["timm"](SHAPE, architecture=architecture)
        with torch.no_grad():
            assert torch.equal(built(images(2)), torch.zeros(2, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "resnet_18"}, "model.architecture=resnet_18: timm has no such model"),
        ({"architecture": "hf-hub:a/b"}, "timm has no such model"),
        ({"pretrained": True, "weights": "a.safetensors"}, r"model.pretrained=true, model.weights=.*: choose one"),
        ({"weights": "/no.safetensors"}, r"model.weights=/no.safetensors: there is no such .safetensors file"),
        ({"size": 0}, r"model.size=0: must be at least 1"),
        (
            {"architecture": "densenet121", "shape": (3, 8, 8), "size": None},
            r"cannot work on images of 3×8×8.*set model.size",
        ),
        ({"architecture": "vit_tiny_patch16_224", "shape": (3, 8, 8), "size": None}, "cannot work on images of 3×8×8"),
        ({"shape": (300, 1, 1)}, r"vectors of 300 values are not images, which test_resnet needs: choose model=mlp"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    options = {"shape": SHAPE} | options
    with pytest.raises(ValueError, match=message) as caught:
        EVERY["timm"](**options)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_weights_of_the_architecture_are_refused(trained: torch.nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    whole = Path(save(trained, path)).read_bytes()
    with pytest.raises(ValueError, match="is not a complete state dict of test_vit"):
        model(architecture="test_vit", weights=str(path))
    save(trained, path, **{"layer1.0.conv1.weight": torch.zeros(1, 2, 3, 3)})
    with pytest.raises(ValueError, match="is not a complete state dict of test_resnet"):
        model(weights=str(path))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a complete state dict of test_resnet"):
        model(weights=str(path))


def test_pretrained_weights_that_cannot_be_fetched_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def offline(*arguments: Any, pretrained: bool = False, **options: Any) -> torch.nn.Module:
        if pretrained:
            raise ConnectionError("no route\nto host")
        return create(*arguments, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(
        ValueError, match=r"model.pretrained=true: timm's weights of test_resnet are not available \(no rou"
    ):
        model(pretrained=True)


def test_identity_is_that_of_the_weights_content(trained: torch.nn.Module, tmp_path: Path) -> None:
    here, there = (save(trained, tmp_path / name) for name in ("a.safetensors", "b.safetensors"))
    assert TimmByName.identity({"weights": here}) == TimmByName.identity({"weights": there})
    other = save(trained, tmp_path / "c.safetensors", extra=torch.zeros(1))
    assert TimmByName.identity({"weights": here}) != TimmByName.identity({"weights": other})
    assert TimmByName.identity({"weights": None, "size": 3}) == {"weights": None, "size": 3}
