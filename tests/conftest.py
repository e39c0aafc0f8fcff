"""Fixtures that all tests share: the digits, small settings, the command line in-process."""

import copy
import dataclasses
import gc
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from torch import Tensor

from erasure.datasets.digits import Digits

if TYPE_CHECKING:  # tests/erasure also runs where there is nothing but the library
    from harness.command import Command
    from train.settings import TrainSettings

_BUSY: Any = {"suppress_health_check": [HealthCheck.too_slow]}  # says something of the machine alone
hypothesis_settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25, **_BUSY)
hypothesis_settings.register_profile("thorough", deadline=None, max_examples=400)
hypothesis_settings.load_profile("repeatable")

REPOSITORY = Path(__file__).parent.parent


def pytest_configure() -> None:
    """Compute on one thread: tests run at once, and their sums do not depend on the number of cores.

    This also holds for the processes that they start, and for what pytest's workers import.
    """
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # such a process does not compile torch again


def pytest_collection_finish() -> None:
    """Collect garbage less often, and never what was imported: scanning it takes a twentieth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20)


@pytest.fixture(scope="session", autouse=True)
def quick_harness() -> Iterator[dict[str, Callable[..., Any]]]:
    """Leave out what takes time and most tests do not look at: two thirds of a tiny run.

    Nothing waits for the disk, as no test cuts the power. Each YAML file of conf/ is parsed once, each selection of
    them is merged once, and a configuration is composed once, not a first time for its `hydra.mode`; those that a
    user's folder adds to are read anew. Figures are neither laid out nor rendered; `real_figures` does it, with the
    methods that this fixture yields.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(gc, "unfreeze", lambda: None)  # called where a process ends, as a command does
        if find_spec("hydra") is None or find_spec("matplotlib") is None:  # the library alone
            yield {}
            return
        from hydra._internal import defaults_list
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.config_repository import ConfigRepository, IConfigRepository
        from hydra._internal.hydra import Hydra
        from matplotlib.figure import Figure
        from PIL import Image

        from conf.groups import CONF

        read, merge = ConfigRepository.load_config, ConfigLoaderImpl._compose_config_from_defaults_list
        choices_by_key: Any = getattr(defaults_list, "_create_interpolation_map", None)  # Hydra 1.4 has none
        png = io.BytesIO()
        loaded: dict[object, Any] = {}

        def once(key: object, repository: Any, load: Callable[[], Any]) -> Any:
            if [source.path for source in repository.get_sources() if source.scheme() == "file"] != [str(CONF)]:
                return load()
            if key not in loaded:
                loaded[key] = load()
            return copy.deepcopy(loaded[key])  # what is composed changes it

        def read_once(self: ConfigRepository, config_path: str) -> Any:
            return once(config_path, self, lambda: read(self, config_path))

        def merge_once(self: ConfigLoaderImpl, defaults: list[Any], repo: IConfigRepository) -> Any:
            return once(repr(defaults), repo, lambda: merge(self, defaults, repo))

        def choices_if_used(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
            used = any(default.is_interpolation() for default in defaults if not default.is_self())
            return choices_by_key(overrides, defaults, self_added) if used else None

        def leave_blank(figure: Figure, file: Any, **options: Any) -> None:
            if isinstance(file, io.BytesIO):  # as `harness.figure_helpers` does
                file.write(blank[options["format"]])
            else:
                real["savefig"](figure, file, **options)

        patch.setattr(ConfigRepository, "load_config", read_once)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge_once)
        patch.setattr(defaults_list, "_create_interpolation_map", choices_if_used, raising=False)
        patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        Image.new("L", (9, 9)).save(png, "png")
        blank = {"png": png.getvalue(), "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>', "pdf": b"%PDF-1.4 (empty)"}
        quick: dict[str, Callable[..., Any]] = {
            "draw_without_rendering": lambda _: None,
            "get_tightbbox": lambda figure: figure.bbox_inches,
            "savefig": leave_blank,
        }
        real = {name: getattr(Figure, name) for name in quick}
        for name, method in quick.items():
            patch.setattr(Figure, name, method)
        yield real


@pytest.fixture
def real_figures(quick_harness: dict[str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay figures out and render them."""
    for name, method in quick_harness.items():
        monkeypatch.setattr(f"matplotlib.figure.Figure.{name}", method)


@pytest.fixture(scope="session")
def digits_source() -> Digits:
    pytest.importorskip("sklearn", reason="needs the extra digits")
    return Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)


@pytest.fixture(scope="session")
def digits(digits_source: Digits) -> tuple[Tensor, Tensor]:
    """All 1,797 digits, float64 [n, 1, 8, 8] in 0..1, and their labels."""
    raw = digits_source.load()
    return raw.train.images.double() / raw.max_value, raw.train.labels


@pytest.fixture
def settings() -> "TrainSettings":
    """Training that ends in a second."""
    from train.settings import TrainSettings

    return TrainSettings(
        lr=3e-3,
        betas=(0.9, 0.999),
        weight_decay=0.0,
        warmup_steps=10,
        batch_size=32,
        max_epochs=6,
        patience_steps=8,
        plateau_steps=0,
        min_improvement_bits=1e-3,
        eval_every=1,
        min_epoch_steps=4,
        crop_padding=0.125,
        precision="float32",
        eval_batch_size=512,
        stack="all",
        checkpoint_every_s=120.0,
    )


# an eraser as a user writes it
ERASER = '''
from dataclasses import dataclass
from torch import Tensor
from erasure.eraser import Eraser
from erasure.moments import ClassMoments

@dataclass(frozen=True)
class {name}(Eraser):
    """Mine."""
    mean: Tensor
    num_classes: int

    @classmethod
    def from_moments(cls, moments: ClassMoments) -> "{name}":
        return cls(moments.mean, moments.num_classes)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return {result}
'''


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., type]:
    """Write a module into a folder of the user's, import it as a new process would, and give its class `Mine`."""
    monkeypatch.syspath_prepend(tmp_path / "user")

    def write(text: str, module: str = "mine", name: str = "Mine") -> type:
        path = tmp_path / "user" / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for known in [name for name in sys.modules if name.startswith("mine")]:
            monkeypatch.delitem(sys.modules, known)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return getattr(importlib.import_module(module), name)

    return write


@dataclasses.dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run a command's command line in this process, in an empty working directory."""
    from harness.command import main

    monkeypatch.chdir(tmp_path)

    def run(command: "Command", *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", [command.name, *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(command)
        shown = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), shown.out, shown.err)

    return run


def gaps(x: Tensor, z: Tensor, reference: Tensor) -> tuple[float, float]:
    """Relative gaps between class means and between class covariances, computed the plain way.

    Independent of `ClassMoments` and `certify`, which are tested against it.
    """
    x, reference = x.flatten(1).double(), reference.flatten(1).double()
    centred = reference - reference.mean(0)
    total = centred.T @ centred / len(reference)
    classes = [x[z == j] for j in z.unique()]
    means = torch.stack([c.mean(0) for c in classes])
    covariances = torch.stack([(c - c.mean(0)).T @ (c - c.mean(0)) / len(c) for c in classes])
    weights = torch.tensor([len(c) / len(x) for c in classes], dtype=torch.float64)
    average = (weights[:, None, None] * covariances).sum(0)
    mean_gap = (means - x.mean(0)).norm(dim=1).max() / total.trace().sqrt()
    covariance_gap = (covariances - average).flatten(1).norm(dim=1).max() / total.norm()
    return float(mean_gap), float(covariance_gap)
