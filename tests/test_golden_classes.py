"""Every class of ours that a YAML names, its `version`, and numbers that it must reproduce.

Where a change moves them on purpose, raise the class's `version` (so that no cached dataset and no result of the old
code is taken for one of the new) and put the new numbers here.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from conf.compose import composed
from conf.groups import choices, keys
from conf.target_class import TARGETS, Target, target_of
from erasure.dataset import Source
from erasure.datasets.cumulants import Cumulants
from erasure.datasets.digits import Digits
from mdl.settings import MdlConfig
from tests.conf.test_yaml import MANDATORY
from tests.erasure.datasets.test_hf import write_cifarnet
from tests.erasure.datasets.test_image_folder import folder, write_images
from tests.erasure.datasets.test_joined_datasets import mixture
from tests.erasure.datasets.test_shuffled_labels import shuffled
from tests.erasure.datasets.test_text import TRAIN as TEXTS
from tests.erasure.datasets.test_text import write_glove, write_imdb
from tests.erasure.made_up_datasets import OPTIONS, write_cifar10, write_mnist, write_svhn
from tests.models.every_model import EVERY

ERASERS: dict[str, float] = {
    "alf_qleace": -0.482683359,
    "control": 87.2875299,
    "gradient": 20.9081967,
    "gradient_orders": -51.2174532,
    "gradient_published": 2.45074478,
    "leace": 1.29417139,
    "oracle_leace": -6.38313928,
    "qleace": -63.0957885,
    "qleace_truncated": -57.0276228,
    "random": 1.18583141,
    "random_edit": 18.666728,
}
MODELS: dict[str, list[float]] = {
    "linear": [0.0, -9.91772679, 2.0],
    "quadratic": [0.0, 4.09984517, 2.0],
    "cubic": [0.0, -23.9410038, 2.0],
    "timm": [6.92521212, 0.916163151, 47.0],
    "mlp-relu": [3.83241873, -2.23495125, 11.3137085],
    "mlp-gelu": [3.97817671, -2.66159068, 11.3137085],
    "mlp-swiglu": [3.26584368, -8.34203044, 11.3137085],
    "lenet": [1.33758864, 0.776990677, 12.6100709],
    "cnn": [4.27028666, 2.75462966, 40.0],
    "resnet": [4.38761838, 1.18712767, 62.3538291],
    "convnextv2": [-4.31309603, 8.17811274, 197.989899],
    "swinv2": [-10.1605331, 0.753394529, 206.47518],
}
SOURCES: dict[str, float] = {
    "Digits": 1424.96762,
    "Arrays": -46.1822147,
    "ImageFolder": 25.331645,
    "HuggingFace": -3700.28098,
    "MeanWordVectors": 1.35471280,
    "Cifar10": 13215.9263,
    "Svhn": 36348.6957,
    "Mnist": 11211.2757,
    "JoinedDatasets": 3967.53491,
    "ShuffledLabels": 1443.28453,
    "Cumulants": 5.51508148,
}


def projected(x: Tensor) -> float:
    """One number that moves with every value and every exchange of values."""
    flat = x.detach().double().flatten()
    return float((flat * torch.arange(1, len(flat) + 1, dtype=torch.float64).cos()).sum())


def target(group: str, choice: str) -> Target:
    return target_of(group, composed("mdl", [f"{group}={choice}", *MANDATORY.get(choice, [])], MdlConfig).plain[group])


def test_everything_that_a_yaml_names_has_a_version_of_its_own() -> None:
    classes = [target_of(group, keys(group, choice)).resolve() for group in TARGETS for choice in choices(group)]
    assert [kind.__name__ for kind in classes if not isinstance(vars(kind).get("version"), int)] == []


@pytest.mark.parametrize("choice", choices("eraser"))
def test_erasers(choice: str, digits: tuple[Tensor, Tensor]) -> None:
    x, z = digits
    if choice == "gradient":  # what singular covariances leave open moves with rounding
        x = x[..., 2:4, 2:6]  # vary in every class
    described = target("eraser", choice)
    shorter = {kind: {"max_iterations": 3} for kind in ("gradient", "gradient_orders")}
    shorter["gradient_published"] = {"max_iterations": 1}  # later ones move with the number of threads
    eraser = described.resolve().fit(x, z, **described.options | shorter.get(choice, {}))
    rounding = 1e-3 if choice == "qleace_truncated" else 1e-6  # float32 products
    assert projected(eraser(x, z)) == pytest.approx(ERASERS[choice], rel=rounding)


@pytest.mark.parametrize("name", EVERY)
def test_models(name: str) -> None:
    """Initial weights, logits at weights none of which is zero, learning rates."""
    model = EVERY[name]()
    model.reset_parameters(torch.Generator().manual_seed(0))
    numbers = [sum(projected(p) for p in model.parameters())]
    model.double()
    for p in model.parameters():
        p.data += 0.1 * torch.arange(p.numel(), dtype=torch.float64).cos().view_as(p)
    images = torch.arange(2 * 64, dtype=torch.float64).sin().view(2, 1, 8, 8)
    numbers += [projected(model(images)), sum(model.learning_rates().values())]
    assert numbers == pytest.approx(MODELS[name], rel=1e-5)


def _arrays(root: Path, _: pytest.MonkeyPatch) -> Source:
    root.mkdir()
    np.savez(root / "a.npz", x=np.arange(60.0).reshape(20, 3), y=np.arange(20) % 2)
    described = target("dataset", "arrays")
    return Target({**described.section, "path": str(root / "a.npz")}, Source).build()


def _folder(root: Path, _: pytest.MonkeyPatch) -> Source:
    write_images(root, "train", 3)
    return folder(root, size=5, channels=1)


def _hub(root: Path, _: pytest.MonkeyPatch) -> Source:
    write_cifarnet(root)
    return Target({**target("dataset", "cifarnet").section, "path": str(root)}, Source).build()


def _texts(root: Path, _: pytest.MonkeyPatch) -> Source:
    write_imdb(root, TEXTS, TEXTS)
    section = {**target("dataset", "imdb").section, "path": str(root), "vectors": str(write_glove(root / "glove.txt"))}
    return Target(section, Source).build()


def _digits(*_: object) -> Digits:
    return Digits(name="digits", **OPTIONS)


WRITTEN: dict[str, Callable[[Path, pytest.MonkeyPatch], Source]] = {
    "Digits": _digits,
    "Arrays": _arrays,
    "ImageFolder": _folder,
    "HuggingFace": _hub,
    "MeanWordVectors": _texts,
    "Cifar10": lambda root, patch: write_cifar10(root, patch)[0],
    "Svhn": lambda root, patch: write_svhn(root, patch)[0],
    "Mnist": lambda root, patch: write_mnist(root, patch)[0],
    "JoinedDatasets": lambda *_: mixture({"a": _digits(), "b": _digits()}, size=5, channels=1, images_per_part=50),
    "ShuffledLabels": lambda *_: shuffled(_digits()),
    "Cumulants": lambda *_: Cumulants(name="c", n=20, d=4, mean=0.5, covariance=0.5, skewness=1, kurtosis=1, **OPTIONS),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_sources(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = WRITTEN[name](tmp_path / "data", monkeypatch)
    assert type(source).__name__ == name
    raw = source.load()
    assert projected(raw.train.images) + projected(raw.train.labels) == pytest.approx(SOURCES[name], rel=1e-7)
