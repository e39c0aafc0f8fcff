"""Wrong inputs to the library (erasure.inputs): one sentence each, with the value, what is allowed and the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    ConceptMoments,
    Eraser,
    GradientEraser,
    GradientOrdersEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
    TruncatedQleaceEraser,
    erase,
    fit_layers,
    fold,
)
from erasure.certificate import certify

X = torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TINY = X * torch.tensor([1.0, 1e-170, 1.0, 1.0], dtype=torch.float64)
Z = torch.arange(60) % 3
NAMES = ["a", "b", "c"] * 20
NETWORK = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
BATCHES = [(X.float(), Z)]
fit, quadratic = LeaceEraser.fit, QleaceEraser.fit


def scrub(modules: Any, batches: Any = BATCHES, **options: Any) -> object:
    return fit_layers(NETWORK, batches, modules, num_classes=3, **options)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "an update without labels": (lambda: ClassMoments(4, 3).update(X, None), "z is None: pass one label per example"),
    "ids as labels": (
        lambda: fit(X, 30_000_000 - Z),
        "z holds the label 30000000 for 60 examples, and labels count classes from 0: pass numpy.unique",
    ),
    "ids among concepts": (lambda: fit(X, {"a": Z, "b": 2**62 - Z}), r"z\['b'\] holds the label 461168601842738790"),
    "real labels for class moments": (
        lambda: ClassMoments.fit(X, X[:, 0] / 0),
        "z has dtype torch.float64: labels are",
    ),
    "two concepts of one name": (lambda: fit(X, {1: Z, "1": Z == 0}), "z has two concepts of the name '1': give each"),
    "no concept": (lambda: fit(X, {}), "z holds no concept: give at least one column"),
    "a short concept": (lambda: fit(X, {"a": Z, "b": X[:3, 0]}), r"z\['b'\] has shape \(3,\): expected one value per"),
    "num_classes of concepts": (lambda: fit(X, {"a": Z}, num_classes=3), "num_classes=3 is for one concept of classes"),
    "num_classes and keep": (
        lambda: SplinceEraser.fit(X, Z, keep=X[:, 0], num_classes=3),
        "num_classes=3 counts the classes of one concept: leave it out where keep is passed",
    ),
    "a constant z beside what is kept": (
        lambda: SplinceEraser.fit(X, 0 * Z, keep=X[:, 0]),
        "z is the same for all examples: there is nothing to erase",
    ),
    "values that overflow": (
        lambda: fit(X * 1e200, Z),
        r"x has values as large as \de\+200, whose squares overflow: divide",
    ),
    "values that underflow": (
        lambda: fit(X * 1e-200, Z),
        r"x has no value above \de-200, and squares underflow: multiply",
    ),
    "a concept that overflows": (
        lambda: fit(X, X[:, 0] * 1e200),
        r"z has values as large as \de\+200, whose squares overflow",
    ),
    "one concept that underflows": (
        lambda: fit(X, {"a": Z, "b": X[:, 0] * 1e-200}),
        r"z\['b'\] has no value above \de-200, and squares underflow",
    ),
    "a column that underflows": (
        lambda: fit(TINY, Z),
        r"column 1 of x varies by less than 1e-150, and squares underflow: multiply it, or leave it out",
    ),
    "a column of a concept that underflows": (
        lambda: fit(X, TINY[:, :2]),
        r"column 1 of z varies by less than 1e-150, and squares underflow",
    ),
    "a certificate of a column that underflows": (
        lambda: certify(TINY, X, Z),
        r"column 1 of x varies by less than 1e-150, and squares underflow",
    ),
    "half a dimension": (lambda: fit(X, Z, dim=4.0), "dim=4.0: give a whole number"),  # pyright: ignore[reportArgumentType]
    "a boolean dimension": (lambda: ConceptMoments(True, 1), "dim=True: give a whole number"),
    "half a class": (lambda: fit(X, Z, num_classes=3.0), "num_classes=3.0: give a whole number"),  # pyright: ignore[reportArgumentType]
    "half a column": (lambda: ConceptMoments(4, {"a": 2.0}), r"concepts\['a'\]=2.0: give a whole number"),  # pyright: ignore[reportArgumentType]
    "half a direction": (
        lambda: AlfQleaceEraser.fit(X, Z, num_directions=1.5),
        "num_directions=1.5: give a whole number",
    ),
    "a boolean tolerance": (lambda: fit(X, Z, rank_tolerance=True), "rank_tolerance=True: give a number"),
    "labels from 1 for QLEACE": (lambda: quadratic(X, Z + 1), "labels start at 0; subtract the smallest label"),
    "labels of -1 and 1": (lambda: fit(X, 2 * (Z % 2) - 1), "label -1 is out of range: labels run from 0 to 1"),
    "a label left out": (lambda: quadratic(X, torch.where(Z == 1, 3, Z)), "class 1 has 0: number the classes"),
    "one class of three": (lambda: fit(X, 0 * Z, num_classes=3), "all examples are of one class: there is nothing to"),
    "a single class": (lambda: quadratic(X, 0 * Z), "all examples are of one class: there is nothing to"),
    "a class with one example": (lambda: quadratic(X[:4], Z[:4]), "needs at least 2 examples, but class 1 has 1"),
    "no class": (lambda: fit(X, torch.eye(3)[Z], num_classes=0), "num_classes=0: .* needs at least 2 classes"),
    "too few classes": (lambda: fit(X, Z, num_classes=2), "label 2 is out of range: labels run from 0 to 1"),
    "other lengths": (lambda: fit(X, Z[:50]), r"z has shape \(50,\): expected one label per example, \[60\]"),
    "real z of another length": (lambda: fit(X, X[:50]), r"z has shape \(50, 4\): expected \[60, 4\]"),
    "real labels for QLEACE": (lambda: quadratic(X, Z.double()), "QleaceEraser needs classes, and z holds none"),
    "real z with NaN": (lambda: fit(X, X[:, 0] / 0), "z holds values that are not finite"),
    "a constant z": (lambda: fit(X, torch.ones(60)), "z is the same for all examples: there is nothing to erase"),
    "no examples": (lambda: fit(X[:0], Z[:0]), r"x has shape \(0, 4\): there are no values to fit an eraser to"),
    "one axis": (lambda: fit(X[:, 0], Z), r"x has shape \(60,\): examples are rows, \[n, d\]; pass x\[:, None\]"),
    "NaN": (
        lambda: fit(torch.where(X > 1, torch.nan, X), Z),
        r"x holds values that are not finite .*, first in example \d+: clean",
    ),
    "dim that does not fit": (lambda: fit(X, Z, dim=3), r"x has shape \(60, 4\): expected \[n, ...\] with 3 values"),
    "shrinkage": (
        lambda: fit(X, Z, shrinkage=True),
        "shrinkage is not an option of LeaceEraser: it has rank_tolerance",
    ),
    "an unknown option": (
        lambda: AlfQleaceEraser.fit(X, Z, directions=2),
        "directions is not an option of AlfQleaceEraser: it has num_directions, target",
    ),
    "a negative tolerance": (lambda: fit(X, Z, rank_tolerance=-1), r"rank_tolerance=-1: a fraction .* in \[0, 1\)"),
    "too many directions": (lambda: RandomEraser.fit(X, Z, num_directions=5), "must lie between 0 and 4"),
    "kept and erased": (lambda: SplinceEraser.fit(X, Z, keep=Z == 0), "share a direction of x, which cannot be"),
    "no coordinates": (lambda: ClassMoments(0, 3), "dim=0: an example needs at least one coordinate"),
    "a concept without columns": (lambda: ConceptMoments(4, 0), "concepts=0: each concept needs at least one column"),
    "moments of another size": (
        lambda: ClassMoments(4, 3).merge(ClassMoments(5, 3)),
        "cannot merge moments of 3 classes in 5 dimensions into moments of 3 classes in 4 dimensions",
    ),
    "integers to erase": (lambda: fit(X, Z)(X.long()), "x has dtype torch.int64: .*convert it to float first"),
    "another dimension": (lambda: fit(X, Z)(X[:, :3]), r"x has shape \(60, 3\): expected \[n, ...\] with 4 values"),
    "labels not given": (lambda: OracleLeaceEraser.fit(X, Z)(X), "pass the labels .*; without labels: LeaceEraser or"),
    "a dtype of integers": (lambda: fit(X, Z).to(torch.int64), r"to\(torch.int64, None\): .* dtype of torch.float64,"),
    "two dtypes": (lambda: fit(X, Z).to(torch.half, torch.half), "give at most a device and one dtype of"),
    "a label never seen": (lambda: OracleLeaceEraser.fit(X, Z)(X, Z + 1), "label 3 is out of range"),
    "fewer erased examples": (lambda: certify(X, X[:10], Z), r"original has shape \(60, 4\), erased \(10, 4\)"),
    "an unknown module": (lambda: scrub(["2"]), "the network has no module '2'; it has 0, 1$"),
    "modules as one string": (lambda: scrub("10"), r"modules='10': give a list of names, \['10'\]"),
    "no batch": (lambda: scrub(["0"], []), "no batch: nothing to fit erasers on"),
    "labels in a network": (
        lambda: scrub(["0"], eraser=OracleLeaceEraser),
        "needs labels, which a network",
    ),
    "an eraser by name": (lambda: scrub(["0"], eraser="leace"), "eraser='leace': give a class such as LeaceEraser"),
    "no token left": (lambda: scrub(["0"], [(X.float(), Z, 0 * Z)]), "no example is left: the mask is 0"),
    "no label left": (lambda: scrub(["0"], ignore_index=-1, batches=[(X.float(), -1 + 0 * Z)]), "no example is left"),
    "labels of three tokens of two": (
        lambda: scrub(["0"], [(X.float().view(30, 2, 4), Z.view(20, 3).repeat(2, 1)[:30], Z.view(30, 2) > 0)]),
        r"z has shape \(40, 3\): expected one label per example, \[40\]",
    ),
    "a real label to ignore": (
        lambda: fit_layers(NETWORK, [(X.float(), Z.float().masked_fill(Z == 0, -100))], ["0"]),
        "z holds ignore_index=-100 among real numbers, where it would count as a value",
    ),
    "a fold into a convolution": (
        lambda: fold(nn.Conv2d(4, 4, 1), fit(X, Z)),
        "Conv2d is no plain torch.nn.Linear, or Conv1D of transformers",
    ),
    "a fold into a layer without values": (
        lambda: fold(nn.LazyLinear(4), fit(X, Z)),
        "LazyLinear is no plain torch.nn.Linear",
    ),
    "a fold of a name": (lambda: fold(nn.Linear(4, 4), "leace"), "eraser is 'leace': give a fitted eraser"),  # pyright: ignore[reportArgumentType]
    "moments of no examples": (
        lambda: RandomEraser.from_moments(ClassMoments(4, 3), num_directions=2),
        r"moments of no examples: call update\(x, z\) first",
    ),
    "a random edit of constants": (lambda: RandomEditEraser.fit(0 * X, Z), "all examples are alike: there is nothing"),
    "an unknown reference": (
        lambda: RandomEditEraser.fit(X, Z, reference="foo"),
        "reference='foo': choose one of leace, oracle_leace, qleace, alf_qleace$",
    ),
    "an edit size in a string": (lambda: RandomEditEraser.fit(X, Z, edit_size="0.5"), "edit_size='0.5': give a number"),
    "a target in a string": (lambda: AlfQleaceEraser.fit(X, Z, target="0.5"), "target='0.5': give a number"),
    "a tolerance of NaN": (
        lambda: quadratic(X, Z, tolerance=torch.nan),
        "tolerance=nan: must be at least 0, and finite",
    ),
    "an infinite tolerance": (
        lambda: quadratic(X, Z, tolerance=torch.inf),
        "tolerance=inf: must be at least 0, and finite",
    ),
    "a tolerance below zero": (lambda: quadratic(X, Z, tolerance=-1e-8), "tolerance=-1e-08: must be at least 0"),
    "half an iteration": (lambda: GradientEraser(max_iterations=2.5), "max_iterations=2.5: give a whole number"),  # pyright: ignore[reportArgumentType]
    "directions in a string": (lambda: GradientOrdersEraser(directions="3"), "directions='3': give a whole number"),  # pyright: ignore[reportArgumentType]
    "a kind of shrinkage": (
        lambda: TruncatedQleaceEraser.fit(X, Z, shrinkage="oas"),
        "shrinkage='oas': choose True or False",
    ),
    "a hook on no module": (lambda: erase(NETWORK, {"7": fit(X, Z)}).__enter__(), "the network has no module '7'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_gets_one_clear_sentence(name: str) -> None:
    call, sentence = WRONG[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 240


def test_files(tmp_path: Path) -> None:
    eraser = fit(X, Z)
    eraser.save(tmp_path / "new" / "folder" / "eraser.safetensors")  # folders are made
    with pytest.raises(IsADirectoryError, match="is a folder, name a file in it"):
        eraser.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing.safetensors"):
        Eraser.load(tmp_path / "missing.safetensors")


def test_read_only_arrays_are_taken_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    array = X.numpy().copy()
    array.flags.writeable = False
    erased = fit(array, Z)(array)
    torch.testing.assert_close(torch.from_numpy(erased), fit(X, Z)(X), rtol=0, atol=1e-12)
    assert not recwarn.list
