"""Fixtures that all tests share: the digits, small settings, the command line in-process."""

import copy
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from torch import Tensor

from erasure.datasets.digits import Digits

if TYPE_CHECKING:  # tests/erasure runs where there is nothing but the library, too
    from conf.cli import Command
    from train.settings import TrainSettings

_BUSY: Any = {"suppress_health_check": [HealthCheck.too_slow]}  # says something of the machine alone
hypothesis_settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25, **_BUSY)
hypothesis_settings.register_profile("thorough", deadline=None, max_examples=400)
hypothesis_settings.load_profile("repeatable")

REPOSITORY = Path(__file__).parent.parent
_AT_ONCE = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_configure() -> None:
    """Share the cores between the tests that run at once, and the processes that they start."""
    threads = max(1, torch.get_num_threads() // _AT_ONCE)
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # such a process does not compile torch again


@pytest.fixture(scope="session", autouse=True)
def quick_harness() -> Iterator[Callable[..., None] | None]:
    """Parse each YAML file of conf/ once, and write PDFs without content: a third of a composition, half of a figure.

    Configurations that a user's folder adds to are read anew. `real_pdfs` writes whole PDFs.
    """
    if find_spec("hydra") is None or find_spec("matplotlib") is None:  # the library alone
        yield None
        return
    from hydra._internal.config_repository import ConfigRepository
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    from conf.groups import CONF

    read, parsed, print_pdf = ConfigRepository.load_config, {}, FigureCanvasPdf.print_pdf

    def read_once(self: ConfigRepository, config_path: str) -> Any:
        folders = tuple(source.path for source in self.sources if source.scheme() == "file")
        if folders != (str(CONF),):
            return read(self, config_path)
        if config_path not in parsed:
            parsed[config_path] = read(self, config_path)
        return copy.deepcopy(parsed[config_path])  # what is composed changes it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigRepository, "load_config", read_once)
        patch.setattr(FigureCanvasPdf, "print_pdf", _empty_pdf)
        yield print_pdf


def _empty_pdf(self: object, file: IO[bytes], **_: object) -> None:
    file.write(b"%PDF-1.4 (empty: see tests/conftest.py)")


@pytest.fixture
def real_pdfs(quick_harness: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write PDFs as matplotlib does."""
    from matplotlib.backends import backend_pdf

    monkeypatch.setattr(backend_pdf.FigureCanvasPdf, "print_pdf", quick_harness)


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
    from conf import cli

    monkeypatch.chdir(tmp_path)

    def run(command: "Command", *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", [command.name, *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(command)
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
