"""Wrong inputs to the library (erasure.inputs): one sentence each, with the value, what is allowed and the remedy."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.masked import masked_tensor

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


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([X[0], X[1, :2]])


def scrub(modules: Any, batches: Any = BATCHES, **options: Any) -> object:
    return fit_layers(NETWORK, batches, modules, num_classes=3, **options)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "string labels": (
        lambda: fit(X, np.array(NAMES)),
        r"z holds 'a', expected numbers: number the classes first",
    ),
    "a list of strings": (lambda: fit(X, NAMES), "z holds 'a', expected numbers: .*searchsorted"),
    "object labels": (lambda: fit(X, np.array([0, None] * 30)), r"z has no value for 30 of 60 examples \(None at 1\)"),
    "a list with NaN": (
        lambda: fit(X, [float("nan"), *NAMES[1:]]),
        r"no value for 1 of 60 examples \(nan at 0\): drop",
    ),
    "strings and numbers": (lambda: fit(X, [1, *NAMES[1:]]), "z holds 1 and 'b': give numbers alone, or strings alone"),
    "masked labels": (lambda: fit(X, np.ma.masked_equal(Z.numpy(), 1)), "z has 20 masked values: drop or fill in"),
    "masked examples": (
        lambda: fit(np.ma.masked_less(X.numpy(), -3), Z),
        r"x has \d masked values: .*, then pass x.data",
    ),
    "dates": (
        lambda: fit(X, Z.numpy().astype("M8[D]")),
        r"z holds values of type datetime64\[D\], which are not numbers",
    ),
    "durations": (lambda: fit(X.numpy().astype("m8[s]"), Z), r"x holds values of type timedelta64\[s\], .* days$"),
    "dates in a list": (lambda: fit(X, [date(2020, 1, 1 + i % 3) for i in range(60)]), r"z holds datetime.date\(2020"),
    "a structured array": (
        lambda: fit(np.zeros(60, [("a", float), ("b", float)]), Z),
        "x is a structured array: pass its fields as columns",
    ),
    "a complex concept": (lambda: fit(X, Z + 1j), "z is complex: pass real and imaginary parts as separate"),
    "a complex object": (lambda: fit(X, np.array([1j, 2] * 30, dtype=object)), "z is complex: pass real and"),
    "a masked tensor": (lambda: fit(X, masked_tensor(X[:, 0], X[:, 0] > 0)), "z is a masked tensor: drop or fill in"),
    "a nested tensor": (lambda: fit(nested(), Z), "x is a nested tensor: give each example as many values"),
    "8-bit floats": (lambda: fit(X.to(torch.float8_e5m2), Z), "x has dtype torch.float8_e5m2: convert it to float32"),
    "tensors of different shapes": (lambda: fit([X[0], X[1, :2]], [0, 1]), "x holds tensors of different shapes"),  # pyright: ignore[reportArgumentType]
    "no labels": (lambda: fit(X, None), "z is None: pass an array of one value per example"),
    "an update without labels": (lambda: ClassMoments(4, 3).update(X, None), "z is None: pass one label per example"),
    "ids as labels": (
        lambda: fit(X, 30_000_000 - Z),
        "z holds the label 30000000 for 60 examples, and labels count classes from 0: number the classes first",
    ),
    "ids among concepts": (lambda: fit(X, {"a": Z, "b": 2**62 - Z}), r"z\['b'\] holds the label 461168601842738790"),
    "labels above 2^63": (lambda: fit(X, Z.numpy().astype(np.uint64) + 2**63), r"z holds integers of 2\^63 and more"),
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
    "strings to keep": (
        lambda: SplinceEraser.fit(X, Z, keep=NAMES),
        r"keep holds 'a', expected numbers: .*unique\(keep",
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
    "too few classes": (lambda: fit(X, Z, num_classes=2), "label 2 is out of range: labels run from 0 to 1"),
    "other lengths": (lambda: fit(X, Z[:50]), r"z has shape \(50,\): expected one label per example, \[60\]"),
    "real z of another length": (lambda: fit(X, X[:50]), r"z has shape \(50, 4\): expected \[60, 4\]"),
    "real labels for QLEACE": (lambda: quadratic(X, Z.double()), "QleaceEraser needs classes, and z holds none"),
    "real z with NaN": (lambda: fit(X, X[:, 0] / 0), "z holds values that are not finite"),
    "a constant z": (lambda: fit(X, torch.ones(60)), "z is the same for all examples: there is nothing to erase"),
    "no examples": (lambda: fit(X[:0], Z[:0]), r"x has shape \(0, 4\): there are no values to fit an eraser to"),
    "one axis": (lambda: fit(X[:, 0], Z), r"x has shape \(60,\): examples are rows, \[n, d\]; pass x\[:, None\]"),
    "a number": (lambda: fit(1.0, Z), r"x has shape \(\): examples are rows"),  # pyright: ignore[reportArgumentType]
    "rows of different lengths": (lambda: fit([[1.0, 2.0], [1.0]], [0, 1]), "x holds rows of different lengths"),  # pyright: ignore[reportArgumentType]
    "strings": (lambda: fit(np.array([["a"] * 4] * 60), Z), "x holds 'a', expected numbers: give one number for each"),
    "NaN": (
        lambda: fit(torch.where(X > 1, torch.nan, X), Z),
        r"x holds values that are not finite .*, first in example \d+: clean",
    ),
    "complex numbers": (lambda: fit(X.to(torch.complex128), Z), "x is complex: pass real and imaginary parts"),
    "a sparse tensor": (lambda: fit(X.to_sparse(), Z), r"x is a sparse matrix, and erasure would fill it: .*to_dense"),
    "dim that does not fit": (lambda: fit(X, Z, dim=3), r"x has shape \(60, 4\): expected \[n, ...\] with 3 values"),
    "shrinkage": (
        lambda: fit(X, Z, shrinkage=True),
        "shrinkage is not an option of LeaceEraser: it has rank_tolerance; .* in docs/guide/library.md",
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
    "strings among the coordinates": (
        lambda: fit(np.array([[1, "a"]] * 60, dtype=object), Z),
        "x holds 'a', expected numbers: give one number for each coordinate",
    ),
    "an eraser by name": (lambda: scrub(["0"], eraser="leace"), "eraser='leace': give a class such as LeaceEraser"),
    "no token left": (lambda: scrub(["0"], [(X.float(), Z, 0 * Z)]), "no example is left: the mask is 0"),
    "no label left": (lambda: scrub(["0"], ignore_index=-1, batches=[(X.float(), -1 + 0 * Z)]), "no example is left"),
    "labels of three tokens of two": (
        lambda: scrub(["0"], [(X.float().view(30, 2, 4), Z.view(20, 3).repeat(2, 1)[:30], Z.view(30, 2) > 0)]),
        r"z has shape \[30, 3\]: expected one value per example or token, \[30, 2\]$",
    ),
    "a real label to ignore": (
        lambda: fit_layers(NETWORK, [(X.float(), Z.float().masked_fill(Z == 0, -100))], ["0"]),
        "z holds ignore_index=-100 among real numbers, where it would count as a value",
    ),
    "a fold into a convolution": (
        lambda: fold(nn.Conv2d(4, 4, 1), fit(X, Z)),
        r"Conv2d\(.* is not linear: only torch.nn.Linear and Conv1D of transformers can be folded",
    ),
    "a fold into a layer without values": (
        lambda: fold(nn.LazyLinear(4), fit(X, Z)),
        r"the weights of LazyLinear\(.* have no values yet: pass a batch through the layer first",
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


@pytest.mark.filterwarnings("ignore::UserWarning:torch")  # kinds of tensors that torch may still change
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_gets_one_clear_sentence(name: str) -> None:
    call, sentence = WRONG[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 240


def test_files(tmp_path: Path) -> None:
    eraser, moments = fit(X, Z), ClassMoments.fit(X, Z)
    eraser.save(tmp_path / "new" / "folder" / "eraser.safetensors")  # folders are made
    moments.save(tmp_path / "moments.safetensors")
    with pytest.raises(IsADirectoryError, match="is a folder, name a file in it"):
        eraser.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing.safetensors"):
        Eraser.load(tmp_path / "missing.safetensors")
    with pytest.raises(ValueError, match=r"holds class moments \(ClassMoments\): LeaceEraser.load reads"):
        LeaceEraser.load(tmp_path / "moments.safetensors")
    with pytest.raises(ValueError, match=r"holds .*LeaceEraser: give a file of ClassMoments.save"):
        ClassMoments.load(tmp_path / "new" / "folder" / "eraser.safetensors")


def test_lists_data_frames_and_read_only_arrays_work(recwarn: pytest.WarningsRecorder) -> None:
    pandas = pytest.importorskip("pandas")
    eraser = fit(X, Z)
    expected = eraser(X)
    array = X.numpy()
    array.flags.writeable = False
    kinds: list[Any] = [X.tolist(), pandas.DataFrame(array), np.asarray(X)[::-1][::-1], X.numpy().astype(">f8")]
    for x in kinds:
        for z in (Z.numpy(), Z.tolist(), pandas.Series(Z.numpy(), dtype="Int64"), Z.numpy().astype(object)):
            erased = LeaceEraser.fit(x, z)(x)
            assert isinstance(erased, np.ndarray)
            torch.testing.assert_close(torch.from_numpy(erased), expected, rtol=0, atol=1e-12)
    assert not recwarn.list
