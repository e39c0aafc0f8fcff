"""Every kind of file to damage: how to write a small example, and how commands read it."""

import contextlib
import hashlib
import io
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.datasets import CIFAR10

from conf.compose import composed
from erasure.dataset import Source
from erasure.datasets.arrays import Arrays
from erasure.datasets.cifar10 import Cifar10
from erasure.datasets.hf import HuggingFace
from erasure.datasets.image_folder import ImageFolder
from erasure.store.cache import Cache
from erasure.store.checked_files import digest, fingerprint, save_tensors
from harness.result import read_result
from harness.results.read import StoredRun as Read
from harness.results.read import read_run
from harness.run_directory import Run
from harness.run_state import state_of
from harness.sweep_files import Sweep
from mdl.__main__ import COMMAND
from mdl.settings import MdlConfig
from sample_info.report.between_runs import read_scores
from train.checkpoint import Checkpoints

_OPTIONS = {"name": "x", "flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
_CHANCE = np.random.default_rng(0)
_PIXELS = _CHANCE.integers(0, 256, (12, 10, 10, 3), dtype=np.uint8)
_RUN = "mdl-x"
_STEP = {"point": {"n": 100, "ce_next_bits": [3.325, 3.301], "epochs": [7, 9]}, "losses": [[100, 0, 1, None, 3.31]]}
_TINY = (
    "model=linear", "train=quick", "train.max_epochs=2", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled",
    "device=cpu",
)  # fmt: skip


def encoded_image(pixels: np.ndarray, kind: str = "png", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes:
        name: in the table.
        write: whole files into an empty folder.
        damaged: pattern of those to damage.
        read: the folder -> what identifies the values, and the values; JSON-like. A step that is to be computed again
            is None.
        own_data: the values are the user's to change.
        context: what writing and reading need around them.
    """

    name: str
    write: Callable[[Path], object]
    damaged: str
    read: Callable[[Path], tuple[str, Any]]
    own_data: bool = False
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def _carried_out(runs: Path, cache: Path) -> tuple[Run, Any]:
    config = composed("mdl", [*_TINY, f"runs_dir={runs}", f"cache_dir={cache}"], MdlConfig)
    experiment = COMMAND.experiment(config)
    return experiment.run, experiment.carry_out(COMMAND.prepare, COMMAND.axes)


def _finished(place: Path) -> Run:
    run, _ = _carried_out(place, place / "cache")
    shutil.rmtree(place / "cache")
    return run


def _only(place: Path) -> Path:
    (directory,) = place.glob("mdl-*")
    return directory


def _shown(place: Path) -> Read:
    try:
        return read_run(_only(place))
    except ValueError as error:
        raise ValueError(f"{_only(place)}: {error}") from error  # as the report shows it


def _continued(place: Path) -> tuple[str, Any]:
    again = Run(place, _only(place).name)
    if again.result is None:
        again.start("")
    return "", again.result


def _state(place: Path) -> tuple[str, Any]:
    state = state_of(_only(place), 0)
    if state.name == "failed" and str(place) in state.detail:  # the file, by name: not what the run wrote itself
        raise ValueError(state.detail)
    return "", [state.name, state.detail]


def _unfinished(place: Path) -> None:
    run = _finished(place)
    (run.directory / "result.json").unlink()
    run.fail(RuntimeError("the loss is not finite at epoch 17"))


def _described(place: Path) -> tuple[str, Any]:
    config = _shown(place).config
    return fingerprint(config), config


def _write_checkpoints(place: Path) -> None:
    checkpoints = Checkpoints(place / _RUN, 0.0)
    for epoch in (1, 2):
        checkpoints.save("100-0", ({"w": torch.full((20,), float(epoch))}, {"epoch": epoch}))


def _checkpoint(place: Path) -> tuple[str, Any]:
    tensors, values = Checkpoints(place / _RUN, 0.0).load("100-0") or ({}, {})
    return "", torch.equal(tensors["w"], torch.full((20,), float(values["epoch"])))  # the last, or the one before


def _cached(place: Path) -> tuple[str, Any]:
    tensors, values = Cache(place).fetch("entry", lambda: ({"images": torch.arange(60.0)}, {"gap": 0.25}))
    return "", [digest(tensors["images"]), values]


def _scores(place: Path) -> tuple[str, Any]:
    problems = list[str]()
    stored = read_scores(place, problems.append, [0, 1])
    if problems:
        raise ValueError(*problems)  # as tables and the report show it
    return "", stored and digest(stored.tensors["f_si_nats"])


def _write_scores(place: Path) -> None:
    index, values = torch.arange(20), torch.linspace(0, 1, 40).reshape(2, 20)
    tensors = {"index": index, "given_label": index % 3, "f_si_nats": values}
    save_tensors(place / "scores.safetensors", tensors, {"seeds": [0, 1]})


def _write_sweep(place: Path) -> None:
    Sweep(place, "mdl", []).fail("a", "no memory", 1)


def _sweep(place: Path) -> tuple[str, Any]:
    error, exit_code = Sweep(place, "mdl", []).error_of("a")
    if "no memory" not in error:
        raise ValueError(error)
    return "", exit_code


def _images(suffix: str, kind: str, **options: Any) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        for i, pixels in enumerate(_PIXELS):
            path = place / "train" / "ab"[i % 2] / f"{i:02}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded_image(pixels, kind, **options))

    return write


def _source(kind: type[Source], file: str = "", **options: Any) -> Callable[[Path], tuple[str, Any]]:
    """Read a dataset whose `root`, or `path` of a `file`, is in the folder."""

    def read(place: Path) -> tuple[str, Any]:
        where = {"path": f"{place}/{file}"} if file else {"root": str(place)}
        source = kind(**where, **options, **_OPTIONS)
        raw = source.load()
        return source.content(), [digest(raw.train.images), raw.train.labels.tolist()]

    return read


def _write_parquet(place: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    cells = [{"bytes": encoded_image(pixels), "path": None} for pixels in _PIXELS]
    table = pyarrow.table({"image": cells, "label": [i % 2 for i in range(len(cells))]})
    pyarrow.parquet.write_table(table, place / "images.parquet")


def _cifar10() -> dict[str, bytes]:
    """CIFAR-10's files with four images each, the training batches first."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {name: {"data": np.full((4, 3072), i, np.uint8), "labels": [0, 1, 2, 3]} for i, name in enumerate(names)}
    return {
        name: pickle.dumps(each)
        for name, each in (batches | {"batches.meta": {"label_names": [*"abcdefghij"]}}).items()
    }


@contextlib.contextmanager
def _small_cifar10() -> Iterator[None]:
    """Theirs are the checksums."""
    listed = [[name, hashlib.md5(content).hexdigest()] for name, content in _cifar10().items()]
    meta = CIFAR10.meta | {"md5": listed[-1][1]}
    with mock.patch.multiple(CIFAR10, train_list=listed[:5], test_list=listed[5:6], meta=meta):
        yield


def _write_cifar10(place: Path) -> None:
    for name, content in _cifar10().items():
        (place / CIFAR10.base_folder).mkdir(exist_ok=True)
        (place / CIFAR10.base_folder / name).write_bytes(content)


_VECTORS = {"x": torch.from_numpy(_PIXELS.reshape(12, -1)[:, :7] / 255), "y": torch.arange(12) % 3}


def _write_stopped_run(place: Path) -> None:
    """A run that was killed when all its steps were done."""
    with mock.patch.object(Run, "finish", side_effect=KeyboardInterrupt), contextlib.suppress(KeyboardInterrupt):
        _carried_out(place / "runs", place / "cache")


def _whole_run(place: Path) -> tuple[str, Any]:
    _, result = _carried_out(place / "runs", place / "cache")
    return "", [result.run_id, result.mdl, result.curve, result.final]


FORMATS: Sequence[Format] = (
    Format("step-*.json", lambda place: Run(place, _RUN).step("100", lambda: _STEP), "*/step-*.json",
           lambda place: ("", Run(place, _RUN).read_step("100"))),
    Format("result.json in a table", _finished, "*/result.json", lambda p: ("", read_result(_only(p) / "result.json"))),
    Format("result.json in the report", _finished, "*/result.json", lambda p: ("", _shown(p).result)),
    Format("result.json in the status", _finished, "*/result.json", _state),
    Format("result.json of a run", _finished, "*/result.json", _continued),
    Format("state.json", _unfinished, "*/state.json", _state),
    Format("config.yaml in the report", _unfinished, "*/config.yaml", _described, own_data=True),
    Format("the error of a run of a sweep", _write_sweep, "*.json", _sweep),
    Format("checkpoint", _write_checkpoints, "*/checkpoint-*.safetensors", _checkpoint),
    Format("cache entry", lambda place: _cached(place), "entry.safetensors", _cached),
    Format("scores.safetensors", _write_scores, "scores.safetensors", _scores),
    Format("a stopped run", _write_stopped_run, "*/*/*.*", _whole_run),
    Format("png", _images("png", "png"), "*/*/*.png", _source(ImageFolder, size=None, channels=3), own_data=True),
    Format("jpeg", _images("jpg", "jpeg", quality=90), "*/*/*.jpg", _source(ImageFolder, size=None, channels=3),
           own_data=True),
    Format("npz", lambda place: np.savez(place / "a.npz", x=_VECTORS["x"].numpy(), y=_VECTORS["y"].numpy()), "a.npz",
           _source(Arrays, "a.npz"), own_data=True),
    Format("safetensors", lambda place: save_file(_VECTORS, place / "a.safetensors"), "a.safetensors",
           _source(Arrays, "a.safetensors"), own_data=True),
    Format("parquet", _write_parquet, "images.parquet", _source(HuggingFace, "images.parquet", test_split=None),
           own_data=True),
    Format("cifar10's pickles", _write_cifar10, "*/*", _source(Cifar10), context=_small_cifar10),
)  # fmt: skip
