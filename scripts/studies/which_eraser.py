"""Probes of held-out data after every eraser: five kinds of probes on four datasets (docs/which_eraser.md).

    python -m scripts.studies.which_eraser --data CIFAR --out docs/which_eraser.json

Erasers and probes are fitted to the training part of each split of a dataset; all figures are of the test part. A cell
is one eraser on one split. Finished cells are written to OUT at once and are read back; OUT_tables.md has the tables as
a page shows them. CIFAR is a folder of images, one folder per class in each of train/ and test/.
"""

import argparse
import functools
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from conf.command_process import exit_code
from erasure import (
    AlfQleaceEraser,
    Eraser,
    GradientEraser,
    IdentityEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    QuantileEraser,
    RandomEditEraser,
    RandomEraser,
)
from erasure.datasets.image_folder import ImageFolder
from erasure.progress import Display
from erasure.store.atomic_files import write_text
from erasure.store.checked_files import digest, fingerprint, read_json, write_json
from harness.results.table import Table
from scripts.command_line import argument_parser
from scripts.images_for_benchmarks import DIGITS, SPLITS

_VERSION = 1  # of this study's computation; erasers have versions too
_SIDE = 16  # of the photographs
_WIDTH = 64  # hidden units of the small network
_PROBED = 5_000  # most training examples of a probe; erasers take all
_SLOW = 256  # most dimensions for erasers that iterate over examples
_ROUNDS = 15  # most rounds of INLP
_CHANCE = 0.02  # INLP stops at this accuracy above that of the largest class


class Part(NamedTuple):
    """Examples [n, d] in float64 and their labels [n]."""

    x: Tensor
    z: Tensor


@dataclass(frozen=True)
class Split:
    """The three parts of a dataset under one seed; only gradient erasure sees the spare one."""

    train: Part
    spare: Part
    test: Part


@dataclass(frozen=True)
class Cell:
    """One eraser on one split of one dataset.

    Attributes:
        key: fingerprint of the data and of the code that the figures depend on.
        edit: mean of ‖x' - x‖² over test examples, relative to their mean squared distance to the training mean.
        seconds: of fitting the eraser and erasing all three parts.
        accuracy: fraction of test examples whose class the probe names, by probe.
    """

    dataset: str
    eraser: str
    seed: int
    key: str
    edit: float
    seconds: float
    accuracy: dict[str, float]


def datasets(folder: Path | None) -> dict[str, Callable[[], Part]]:
    loaders = {"breast cancer": breast_cancer, "digits": digits, "hidden states": digits}
    return loaders | ({} if folder is None else {"CIFAR-10": functools.partial(photographs, folder)})


def digits() -> Part:
    raw = DIGITS.load().train
    return Part(raw.images.flatten(1).double() / 16, raw.labels)


def breast_cancer() -> Part:
    from sklearn.datasets import load_breast_cancer

    x, z = load_breast_cancer(return_X_y=True)
    return Part(torch.from_numpy(x).double(), torch.from_numpy(z).long())


def photographs(folder: Path) -> Part:
    """Return the images of both splits of a folder, 16 x 16, averaged."""
    raw = ImageFolder(name="images", root=str(folder), size=_SIDE, channels=3, **SPLITS).load()
    parts = [raw.train, *([] if raw.test is None else [raw.test])]
    images = torch.cat([part.images for part in parts]).flatten(1).double() / 255
    return Part(images, torch.cat([part.labels for part in parts]))


def split(name: str, data: Part, seed: int) -> Split:
    """Draw a training part of 60 %, a spare part and a test part of 20 % each, and normalise them.

    Images and hidden states are divided by one number, the measurements of the breast cancer data by their standard
    deviations, all from the training part. Of photographs 10,000 are for training.
    """
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(seed))
    held_out = min(len(order) // 5, 1_500)
    train, spare, test = order[2 * held_out :], order[:held_out], order[held_out : 2 * held_out]
    x = data.x
    if name == "hidden states":
        x = hidden_states(x, data.z, train, seed)
    centred = x - x[train].mean(0)
    scale = centred[train].square().mean(0).sqrt()
    if name != "breast cancer":
        scale = scale.square().mean().sqrt()
    x = centred / scale
    return Split(*(Part(x[rows], data.z[rows]) for rows in (train, spare, test)))


def hidden_states(x: Tensor, z: Tensor, train: Tensor, seed: int) -> Tensor:
    """Train a small network on the training part; return the states of its second hidden layer [n, 64], float64."""
    torch.manual_seed(seed)
    states = nn.Sequential(nn.Linear(x.shape[1], _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.GELU())
    model = nn.Sequential(states, nn.Linear(_WIDTH, int(z.max()) + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    inputs = (x - x[train].mean()).float() / float(x[train].std())
    for _ in range(20):
        for rows in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), z[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return states(inputs).double()


@dataclass(frozen=True)
class Method:
    """A way to erase.

    Attributes:
        apply: returns the three erased parts of a split.
        sees: mark in the tables of what it needs of held-out data: † labels, ‡ all held-out examples together.
        version: of the numbers that `apply` computes.
        slow: left out above 256 dimensions.
    """

    apply: Callable[[Split, int], list[Tensor]]
    sees: str = ""
    version: int = 1
    slow: bool = False


def library(eraser_class: type[Eraser], sees: str = "", **options: Any) -> Method:
    """Return the method of an eraser of the library, fitted to the training part."""

    def apply(parts: Split, seed: int) -> list[Tensor]:
        drawn = {"seed": seed} if eraser_class in (RandomEraser, RandomEditEraser) else {}
        eraser = eraser_class.fit(parts.train.x, parts.train.z, **options, **drawn)
        return [eraser(part.x, part.z if eraser.uses_labels else None) for part in _parts(parts)]

    return Method(apply, sees, eraser_class.version)


def gradient(parts: Split, seed: int) -> list[Tensor]:  # noqa: ARG001 nothing is drawn
    """Optimise all three parts together towards the training part's moments."""
    eraser = GradientEraser.fit(parts.train.x, parts.train.z, weights=(120.0, 120.0, 1.0))
    x, z = (torch.cat(both) for both in zip(*_parts(parts), strict=True))
    return [*eraser(x, z).split([len(part.z) for part in _parts(parts)])]


def concept_erasure(parts: Split, seed: int) -> list[Tensor]:  # noqa: ARG001 nothing is drawn
    """Erase by concept-erasure's LEACE with its defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from concept_erasure import LeaceEraser as Theirs

    eraser = Theirs.fit(parts.train.x, nn.functional.one_hot(parts.train.z))
    return [eraser(part.x) for part in _parts(parts)]


def inlp(parts: Split, seed: int) -> list[Tensor]:  # noqa: ARG001 nothing is drawn
    """Project out linear classifiers, one after another: INLP (Ravfogel et al. 2020).

    Fits a linear classifier to four fifths of the training part and projects out the span of its weights, until its
    accuracy on the last fifth is that of the largest class, within two points.
    """
    x, z = parts.train
    mean, projection = x.mean(0), torch.eye(x.shape[1], dtype=x.dtype)
    fitted = len(x) * 4 // 5
    chance = float(z.bincount().max()) / len(z)
    for _ in range(_ROUNDS):
        projected = (x - mean) @ projection
        classifier = fitted_quietly(logistic(), projected[:fitted].numpy(), z[:fitted].numpy())
        if classifier.score(projected[fitted:].numpy(), z[fitted:].numpy()) <= chance + _CHANCE:
            break
        _, sizes, rows = torch.linalg.svd(torch.from_numpy(classifier.coef_).to(x) @ projection, full_matrices=False)
        rows = rows[sizes > 1e-8 * sizes[0]]
        projection = projection - (projection @ rows.T) @ rows
    return [(part.x - mean) @ projection + mean for part in _parts(parts)]


METHODS: Mapping[str, Method] = {
    "control": library(IdentityEraser),
    "random, ALF-QLEACE's rank": library(RandomEraser),
    "random, LEACE's edit": library(RandomEditEraser, reference="leace"),
    "INLP": Method(inlp),
    "LEACE, concept-erasure": Method(concept_erasure),
    "LEACE": library(LeaceEraser),
    "ALF-QLEACE": library(AlfQleaceEraser),
    "oracle LEACE": library(OracleLeaceEraser, "†"),
    "quantile": library(QuantileEraser, "†"),
    "QLEACE": library(QleaceEraser, "†"),
    "gradient": Method(gradient, "‡", GradientEraser.version, slow=True),
}


def _parts(parts: Split) -> list[Part]:
    return [parts.train, parts.spare, parts.test]


def logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, max_iter=100, tol=1e-3)


def fitted_quietly(probe: Any, x: np.ndarray, z: np.ndarray) -> Any:
    """Fit a probe without the warning that its iterations are limited, on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return probe.fit(x, z)


class KernelMachine:
    """A support vector machine on a kernel matrix, one against one, which is faster than libsvm's own kernels."""

    def __init__(self, kernel: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        from sklearn.svm import SVC

        self._machine, self._kernel = SVC(C=1.0, kernel="precomputed", decision_function_shape="ovr"), kernel

    def fit(self, x: np.ndarray, z: np.ndarray) -> "KernelMachine":
        self._x = x
        self._machine.fit(self._kernel(x, x), z)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        decision = self._machine.decision_function(self._kernel(x, self._x))
        return decision > 0 if decision.ndim == 1 else decision.argmax(1)


def probes(x: np.ndarray, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield the five kinds of probes by name, for training examples [n, d]."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
    from sklearn.neural_network import MLPClassifier

    gamma = 1 / max(float(x.var(0).sum()), 1e-12)  # scikit-learn's "scale" for coordinates of mean zero
    yield "linear", logistic()
    yield "quadratic", KernelMachine(lambda a, b: polynomial_kernel(a, b, degree=2, gamma=gamma, coef0=1))
    yield "RBF SVM", KernelMachine(lambda a, b: rbf_kernel(a, b, gamma=gamma))
    yield "MLP", MLPClassifier((128,), alpha=1e-2, max_iter=40, random_state=seed)
    yield "forest", RandomForestClassifier(100, min_samples_leaf=2, random_state=seed)


def accuracies(train: Tensor, test: Tensor, parts: Split, seed: int) -> dict[str, float]:
    """Return the accuracy on the erased test part of each kind of probe, fitted to the erased training part."""
    x, z = train[:_PROBED].numpy(), parts.train.z[:_PROBED].numpy()
    return {
        name: float((fitted_quietly(probe, x, z).predict(test.numpy()) == parts.test.z.numpy()).mean())
        for name, probe in probes(x, seed)
    }


def compute(dataset: str, eraser: str, seed: int, key: str, parts: Split) -> Cell:
    """Erase a split and probe what is left."""
    start = time.perf_counter()
    train, _, test = METHODS[eraser].apply(parts, seed)
    seconds = time.perf_counter() - start
    x, mean = parts.test.x, parts.train.x.mean(0)
    edit = float((test - x).square().sum() / (x - mean).square().sum())
    return Cell(dataset, eraser, seed, key, edit, seconds, accuracies(train, test, parts, seed))


def planned(dim: int) -> list[str]:
    without = set() if importlib.util.find_spec("concept_erasure") else {"LEACE, concept-erasure"}
    return [name for name, method in METHODS.items() if not (method.slow and dim > _SLOW) and name not in without]


def read(path: Path) -> dict[tuple[str, str, int], Cell]:
    """Return the cells of a file of results; none if there is no file."""
    if not path.exists():
        return {}
    rows = read_json(path).get("cells")
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds no results of this command: name another file with --out")
    return {(row["dataset"], row["eraser"], row["seed"]): Cell(**row) for row in rows}


def run(options: argparse.Namespace) -> dict[tuple[str, str, int], Cell]:
    """Compute the missing cells, write each to the file of results, and return all."""
    cells = read(options.out)
    loaded = {name: load() for name, load in datasets(options.data).items()}  # or a wrong folder is known too late
    with Display("which eraser") as display:
        for i, (dataset, data) in enumerate(loaded.items()):
            content = digest(data.x) + digest(data.z)
            plan = [(seed, name) for seed in range(options.seeds) for name in planned(data.x.shape[1])]
            parts: dict[int, Split] = {}
            for done, (seed, name) in enumerate(plan):
                display.update((i + done / len(plan)) / len(loaded), f"{dataset}, {name}, split {seed + 1}")
                key = fingerprint([_VERSION, content, METHODS[name].version])
                known = cells.get((dataset, name, seed))
                if known is None or known.key != key:
                    parts = parts if seed in parts else {seed: split(dataset, data, seed)}
                    cells[dataset, name, seed] = compute(dataset, name, seed, key, parts[seed])
                    write_json(options.out, {"cells": [asdict(cell) for cell in cells.values()]})
    return cells


def tables(cells: Mapping[tuple[str, str, int], Cell]) -> list[Table]:
    """Return one table per dataset, a row per eraser: the edit, and the accuracy of each kind of probe, in %."""
    result = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells.values()):
        rows = []
        for eraser, method in METHODS.items():
            selected = [cell for cell in cells.values() if (cell.dataset, cell.eraser) == (dataset, eraser)]
            if selected:
                edit = fmean(cell.edit for cell in selected)
                shown = [
                    f"{100 * fmean(cell.accuracy[probe] for cell in selected):.1f}" for probe in selected[0].accuracy
                ]
                rows.append([f"{eraser} {method.sees}".strip(), f"{edit:.3f}", *shown])
        probed_by = next(cell.accuracy for cell in cells.values() if cell.dataset == dataset)
        result.append(Table(dataset, (), ["eraser", "edit", *probed_by], rows, title=dataset))
    return result


def markdown(cells: Mapping[tuple[str, str, int], Cell]) -> str:
    """Return all tables as a page shows them."""
    titled = {table.title[0].upper() + table.title[1:]: table.markdown() for table in tables(cells)}
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in titled.items())


def show(options: argparse.Namespace) -> int:
    if options.seeds < 1:
        raise ValueError(f"--seeds={options.seeds}: must be at least 1")
    torch.set_num_threads(1)
    cells = run(options)
    for table in tables(cells):
        table.show(table.title)
    page = options.out.with_name(f"{options.out.stem}_tables.md")
    write_text(page, markdown(cells) + "\n")
    print(f"results: {options.out}\ntables: {page}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.which_eraser", __doc__, seeds=5)
    parser.add_argument("--data", type=Path, help="folder of photographs; without it they are left out")
    parser.add_argument("--out", type=Path, default=Path("which_eraser.json"), help="file of results")
    return exit_code(functools.partial(show, parser.parse_args(arguments)), "mdl")


if __name__ == "__main__":
    raise SystemExit(main())
