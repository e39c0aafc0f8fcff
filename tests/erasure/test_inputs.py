"""Arrays, frames and tensors of every kind, as examples and as concepts (erasure.inputs)."""

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.masked import masked_tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    ConceptMoments,
    Eraser,
    GradientEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    QuantileEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
    TruncatedQleaceEraser,
    fit_layers,
    order_spectrum,
)
from erasure.certificate import certify
from erasure.matched_samples import counterpart
from erasure.sklearn import ConceptEraser

pandas = pytest.importorskip("pandas")
csr_matrix = pytest.importorskip("scipy.sparse").csr_matrix
pyarrow = pytest.importorskip("pyarrow")

GENERATOR = np.random.default_rng(0)
Z = np.arange(120) % 3
X = GENERATOR.normal(size=(120, 5)) + np.eye(5)[Z] * 2
R = X[:, 0] + GENERATOR.normal(size=120)
FRAME = {"g": Z, "h": R}
ROWS = GENERATOR.permutation(120)


def spread_of_means(x: Any, z: np.ndarray) -> float:
    means = np.stack([np.asarray(x)[z == j].mean(0) for j in np.unique(z)])
    return float(np.ptp(means, axis=0).max())


CLASSES: dict[str, Any] = {
    "int8": Z.astype(np.int8),
    "a list of tensors": list(torch.tensor(Z)),
    "a list": Z.tolist(),
    "objects": Z.astype(object),
    "[n, 1]": Z[:, None],
    "a frame of one column": pandas.DataFrame({"g": Z}),
    "one-hot": np.eye(3, dtype=int)[Z],
    "one-hot as wide as x": np.eye(5)[Z],
    "one-hot with an unused column": np.eye(4, dtype=int)[Z],
    "dummies of pandas": pandas.get_dummies(pandas.Series(Z).astype(pandas.CategoricalDtype([0, 1, 2, 3, 4, 5]))),
    "labels from 1": Z + 1,
    "a label left out": np.where(Z == 1, 3, Z),
    "another index": pandas.Series(Z, index=range(500, 620)),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_classes_in_every_form(name: str) -> None:
    z = CLASSES[name]
    np.testing.assert_allclose(LeaceEraser.fit(X, z)(X), LeaceEraser.fit(X, Z)(X), atol=1e-10)
    np.testing.assert_allclose(OracleLeaceEraser.fit(X, z)(X, z), OracleLeaceEraser.fit(X, Z)(X, Z), atol=1e-10)
    assert spread_of_means(LeaceEraser.fit(X, z)(X), Z) < 1e-12


@pytest.mark.parametrize(
    "z",
    [R[:, None], R.astype(object), pandas.DataFrame({"age": R}), torch.nn.Parameter(torch.tensor(R))],
    ids=lambda z: type(z).__name__,
)
def test_real_numbers_are_real_numbers_in_every_form(z: Any) -> None:
    np.testing.assert_allclose(LeaceEraser.fit(X, z)(X), LeaceEraser.fit(X, R)(X), atol=1e-10)
    np.testing.assert_allclose(OracleLeaceEraser.fit(X, z)(X, z), OracleLeaceEraser.fit(X, R)(X, R), atol=1e-10)


@pytest.mark.parametrize("frame", [pandas.DataFrame, dict])
def test_columns_of_a_frame_are_concepts_by_their_own_types(frame: Any) -> None:
    eraser = LeaceEraser.fit(X, frame(FRAME))
    assert eraser.removed == 3  # two of three classes, one of a real number
    erased = eraser(X)
    assert spread_of_means(erased, Z) < 1e-12
    assert abs(np.corrcoef(erased[:, 0], R)[0, 1]) < 1e-12
    moments = ConceptMoments(5, {"g": 3, "h": 1}).update(X, frame(FRAME))
    torch.testing.assert_close(moments.cross, ConceptMoments.fit(X, FRAME).cross)


EXAMPLES: dict[str, Any] = {
    "bool": X > 0,
    "objects": X.astype(object),
    "rows in reverse": X[::-1],
    "a list of lists": X.tolist(),
    "a list of tensors": list(torch.tensor(X)),
    "a list of bfloat16": list(torch.tensor(X).bfloat16()),
    "columns of two levels": pandas.DataFrame(X, columns=pandas.MultiIndex.from_product([["a"], range(5)])),
}


def as_numbers(x: Any) -> Any:
    rows = [row.double() if isinstance(row, torch.Tensor) else row for row in x] if isinstance(x, list) else x
    return np.asarray(rows, dtype=np.float64)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_their_numbers(name: str) -> None:
    x = EXAMPLES[name]
    numbers = as_numbers(x)
    moments, expected = ClassMoments.fit(x, Z), ClassMoments.fit(numbers, Z)
    torch.testing.assert_close(moments.means, expected.means, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moments.total, expected.total, rtol=1e-12, atol=1e-12)
    concept = ConceptMoments.fit(x, R)
    torch.testing.assert_close(concept.cross, ConceptMoments.fit(numbers, R).cross, rtol=1e-12, atol=1e-12)


def test_erased_arrays_have_the_type_of_the_examples() -> None:
    eraser = LeaceEraser.fit(X, Z)
    for dtype in (np.float16, np.float32, np.float64):
        assert eraser(X.astype(dtype)).dtype == dtype
    frame: Any = pandas.DataFrame(X).astype("float32")
    assert eraser(frame).dtype == np.float32
    for kind in (torch.float64, torch.bfloat16):
        rows: Any = [torch.tensor(row, dtype=kind, requires_grad=True) for row in X]
        np.testing.assert_allclose(eraser(rows), eraser(X), atol=0.1)


DATE = datetime.date(2020, 1, 1)
REFUSED: dict[str, tuple[Any, str]] = {
    "a pyarrow table": (pyarrow.table({"a": R}), r"is a pyarrow\..*Table: pass a dense tensor"),
    "a pyarrow array": (pyarrow.array(Z), r"is a pyarrow\..*Int64Array: pass a dense tensor"),
    "a sparse matrix": (csr_matrix(np.eye(3)[Z]), r"is a scipy\..*csr_matrix: pass a dense tensor"),
    "a masked array": (np.ma.masked_equal(Z, 1), "is a numpy.ma.*MaskedArray: .* without masked or missing values"),
    "a number": (1.0, "is a builtins.float: pass a dense tensor"),
    "nothing": (None, "is a builtins.NoneType: pass a dense tensor"),
    "nullable integers": (
        pandas.Series(Z, dtype="Int64").mask(Z == 2),
        r"holds values of type Int64: pass its \.to_numpy\(\)",
    ),
    "pandas with pyarrow": (
        pandas.Series(R, dtype="double[pyarrow]"),
        r"holds .* type double\[pyarrow\]: pass its \.to_numpy\(\)",
    ),
    "categories": (pandas.Series(Z).astype("category"), r"holds values of type category: pass its \.to_numpy\(\)"),
    "periods": (
        pandas.Series(pandas.period_range("2020", periods=120)),
        r"holds .* type period\[.*\]: pass its \.to_numpy\(\)",
    ),
    "objects of dates": (
        pandas.Series(pandas.to_datetime(["2020-01-01"] * 120)).astype(object),
        r"holds Timestamp\('2020-01-01 00:00:00'\): pass only numbers",
    ),
    "dates": (Z.astype("M8[D]"), r"has dtype datetime64\[D\]: convert it to real numbers, as float64"),
    "durations": (Z.astype("m8[s]"), r"has dtype timedelta64\[s\]: convert it"),
    "dates in a list": ([DATE] * 120, r"holds datetime.date\(2020, 1, 1\): pass only numbers"),
    "a structured array": (np.zeros(120, [("a", float), ("b", float)]), r"has dtype \[\('a', '<f8'\), .*: convert it"),
    "complex numbers": (R + 1j, "has dtype complex128: convert it to real numbers"),
    "a complex object": (np.array([1j, 2] * 60, dtype=object), r"holds 1j: pass only numbers"),
    "16-bit integers without sign": (Z.astype(np.uint16), "has dtype uint16: convert it"),
    "integers above 2^63": (Z.astype(np.uint64) + 2**63, "has dtype uint64: convert it"),
    "big-endian numbers": (R.astype(">f8"), "has dtype >f8: convert it"),
    "long doubles": (R.astype(np.longdouble), "has dtype float128: convert it"),
    "a missing value": (np.array([0, None] * 60, dtype=object), "holds None: pass only numbers, .* and none missing"),
    "strings": (np.array(["a", "b"] * 60), "holds 'a', expected numbers; .*return_inverse=True"),
    "strings with NaN": ([float("nan"), *"ab" * 59, "b"], "holds nan: pass only numbers, or only strings"),
    "strings and numbers": ([1, *"ab" * 59, "b"], "holds 1: pass only numbers, or only strings"),
    "rows of different lengths": ([[1.0, 2.0], [1.0]] * 60, "holds rows of different lengths"),
    "tensors of different shapes": ([torch.ones(2), torch.ones(1)] * 60, "holds tensors of different shapes"),
    "a masked tensor": (masked_tensor(torch.tensor(R), torch.tensor(R) > 0), "is a MaskedTensor, .* masked, of torch"),
    "a nested tensor": (
        torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
        "is a Tensor, .*nested.* of torch",
    ),
    "a sparse tensor": (torch.eye(120).to_sparse(), "is a Tensor, sparse.*, of torch.float32: pass a dense"),
    "a complex tensor": (torch.tensor(R + 1j), "is a Tensor of torch.complex128: pass a dense torch.Tensor of real"),
    "8-bit floats": (torch.tensor(X).to(torch.float8_e5m2), "is a Tensor of torch.float8_e5m2: pass a dense"),
    "a tensor of uint16": (torch.tensor(Z).to(torch.uint16), "is a Tensor of torch.uint16: pass a dense"),
    "complex tensors among others": (
        [torch.tensor([1 + 9j, 2]), *torch.ones(119, 2)],
        "is a Tensor of torch.complex64: pass a dense",
    ),
    "8-bit floats and integers": (
        [torch.ones(2).to(torch.float8_e5m2), *torch.ones(119, 2).long()],
        "is a Tensor of torch.float8_e5m2: pass a dense",
    ),
    "uint64 and floats": (
        [torch.ones(2, dtype=torch.uint64), *torch.ones(119, 2)],
        "is a Tensor of torch.uint64: pass a dense",
    ),
    "sparse and dense tensors": ([torch.ones(2).to_sparse(), *torch.ones(119, 2)], "is a Tensor, sparse"),
    "lists of bfloat16": ([[torch.ones(2).bfloat16()]] * 120, r"cannot be read as an array \(Got unsupported"),
    "lists with gradients": (
        [[torch.ones(2).requires_grad_()]] * 120,
        r"cannot be read as an array \(Can't call",
    ),
    "groups of rows": (pandas.DataFrame({"a": Z, "b": R}).groupby("a"), "is a pandas.*DataFrameGroupBy: pass a dense"),
}


@pytest.mark.filterwarnings("ignore::UserWarning:torch")  # kinds of tensors that torch may still change
@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_as_examples_and_as_concept(name: str) -> None:
    wrong, message = REFUSED[name]
    for call, called in (
        (lambda: LeaceEraser.fit(wrong, Z), "x"),
        (lambda: ConceptMoments.fit(wrong, R), "x"),
        (lambda: LeaceEraser.fit(X, Z)(wrong), "x"),
        (lambda: LeaceEraser.fit(X, wrong), "z"),
        (lambda: LeaceEraser.fit(X, {"a": Z, "b": wrong}), r"z\['b'\]"),
    ):
        with pytest.raises(ValueError, match=f"^{called} {message}") as caught:
            call()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 240


@pytest.mark.parametrize("dtype", ["Int64", "category", "int64[pyarrow]"])
def test_the_remedy_for_columns_of_pandas_own_types_keeps_classes_classes(dtype: str) -> None:
    concept = LeaceEraser.fit(X, pandas.Series(Z).astype(dtype).to_numpy())  # float64 would make them real numbers
    torch.testing.assert_close(concept(X), LeaceEraser.fit(X, Z)(X))


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (pandas.Series(Z / 1.0).where(Z > 0), "z holds values that are not finite"),
        (pandas.Series(Z, index=ROWS), r"same row labels in another order: pass z.loc\[x.index\], or z.to_numpy\(\)"),
        (pandas.DataFrame(np.c_[Z, R], columns=["g", "g"]), "z has two concepts of the name 'g': give each a name of"),
        (pandas.DataFrame(index=range(120)), "z holds no concept"),
        (pandas.DataFrame({"g": Z, "h": pandas.Categorical(Z)}), r"z\['h'\] holds values of type category"),
    ],
)
def test_concepts_that_are_more_than_their_numbers_are_refused(z: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeaceEraser.fit(pandas.DataFrame(X), z)


def test_rows_in_another_order_are_refused_wherever_labels_come_with_examples() -> None:
    frame, z = pandas.DataFrame(X), pandas.Series(Z, index=ROWS)
    for call in (
        lambda: QleaceEraser.fit(X, Z)(frame, z),
        lambda: ClassMoments(5, 3).update(frame, z),
        lambda: ClassMoments.fit(frame, z),
        lambda: ConceptMoments.fit(frame, {"g": z}),
        lambda: SplinceEraser.fit(frame, Z, keep=z),
        lambda: LeaceEraser.fit(X, {"g": pandas.Series(Z), "h": z}),
        lambda: OracleLeaceEraser.fit(X, {"g": Z})(frame, {"g": z}),
        lambda: ConceptEraser().fit(frame, concept={"g": z}),
        lambda: certify(frame, X, {"g": z}),
        lambda: fit_layers(torch.nn.Sequential(torch.nn.Identity()), [(frame, {"g": z})], ["0"]),
        lambda: counterpart("independent", frame, z),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ValueError, match="same row labels in another order"):
            call()


def test_a_class_without_examples_is_fine_where_its_covariance_is_not_needed() -> None:
    for kind in (LeaceEraser, OracleLeaceEraser):
        np.testing.assert_allclose(kind.fit(X, Z, num_classes=5)(X, Z), kind.fit(X, Z)(X, Z), atol=1e-12)
    never_seen = OracleLeaceEraser.fit(X, Z, num_classes=5)(X, 0 * Z + 4)
    np.testing.assert_allclose(never_seen, X, atol=1e-12)  # not moved
    for kind in (QleaceEraser, AlfQleaceEraser):
        with pytest.raises(ValueError, match="every class needs at least 2 examples, but class 3 has 0, class 4 has 0"):
            kind.fit(X, np.eye(5)[Z])


def test_kept_concepts_may_be_constant_and_are_kept_in_full_range() -> None:
    np.testing.assert_allclose(SplinceEraser.fit(X, Z, keep=0 * R)(X), LeaceEraser.fit(X, Z)(X), atol=1e-10)
    with pytest.raises(ValueError, match=r"z\['y'\] has values as large as .*, whose squares overflow"):
        SplinceEraser.fit(X, Z, keep=R * 1e200)


CLASS_MEANS = (np.eye(3, 5) + 1)[Z]  # without variance within a class
NOTHING_LEFT: dict[str, tuple[type[Eraser], Any, Any, dict[str, Any]]] = {
    "as many classes as dimensions": (LeaceEraser, X, np.arange(120) % 20, {}),
    "collinear float32": (LeaceEraser, np.c_[X[:, :2], X[:, :1] + X[:, 1:2], 0 * Z + 0.1].astype(np.float32), Z, {}),
    "quadratic directions": (AlfQleaceEraser, X * (1 + Z[:, None]), Z, {"target": None, "num_directions": 5}),
    "random directions": (RandomEraser, X, Z, {"num_directions": 5}),
    "an edit of everything": (RandomEditEraser, X, Z, {"edit_size": 1.0}),
    "one direction, nothing kept": (SplinceEraser, X[:, :1], X[:, 0], {"keep": 0 * R}),
    "class means": (OracleLeaceEraser, CLASS_MEANS, Z, {}),
    "a linear function": (OracleLeaceEraser, R[:, None] * np.arange(3.0), R, {}),
    "quantiles of class means": (QuantileEraser, CLASS_MEANS, Z, {}),
    "truncated maps of class means": (TruncatedQleaceEraser, CLASS_MEANS, Z, {}),
}


@pytest.mark.parametrize("name", NOTHING_LEFT)
def test_a_warning_says_that_nothing_is_left(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind, x, z, options = NOTHING_LEFT[name]
    message = f"{kind.__name__} removes all dimensions in which x varies: every example becomes their mean"
    assert np.ptp(kind.fit(x, z, **options)(x, z), axis=0).max() < 1e-6
    assert message in caplog.text
    caplog.clear()
    less = {"num_directions": 1, "edit_size": 0.9}
    kind.fit(X, Z, **{option: less[option] for option in options.keys() & less})
    assert not caplog.messages


def test_well_separated_classes_of_bfloat16_keep_their_variance(caplog: pytest.LogCaptureFixture) -> None:
    z = torch.arange(400) % 2
    x = (0.01 * torch.randn(400, 1, generator=torch.Generator().manual_seed(0)) + z[:, None]).bfloat16()
    erased = OracleLeaceEraser.fit(x, z)(x.double(), z)
    assert float(erased.std()) == pytest.approx(0.01, rel=0.1)
    assert not caplog.messages


def in_inference_mode(path: Path) -> tuple[list[ClassMoments], ConceptMoments, list[Eraser]]:
    x, z = torch.tensor(X), torch.tensor(Z)
    with torch.inference_mode():
        moments = [ClassMoments.fit(x, z), ClassMoments.fit(x, z, pooled=True), ClassMoments(5, 3).update(x, z)]
        moments += [ClassMoments(5, 3).load_state_dict(moments[0].state_dict()), ClassMoments.fit(x, z).rescale(1.0)]
        concept = ConceptMoments.fit(x, torch.tensor(R))
        eraser = LeaceEraser.fit(x, z)
        eraser.save(path / "eraser")
        erasers = [eraser, QleaceEraser.fit(x, z), OracleLeaceEraser.from_moments(moments[0]), eraser.to("cpu")]
        erasers += [eraser.to(torch.float32), Eraser.load(path / "eraser")]
    return moments, concept, erasers


def test_what_is_fitted_in_inference_mode_can_be_used_after_it(tmp_path: Path) -> None:
    moments, concept, erasers = in_inference_mode(tmp_path)
    x, z = torch.tensor(X), torch.tensor(Z)
    twice = LeaceEraser.fit(torch.cat([x, 2 * x]), torch.cat([z, z]))(x)
    for one in moments:
        torch.testing.assert_close(LeaceEraser.from_moments(one)(x), LeaceEraser.fit(x, z)(x), rtol=0, atol=1e-10)
        torch.testing.assert_close(LeaceEraser.from_moments(one.update(2 * x, z))(x), twice, rtol=0, atol=1e-10)
    again = ConceptMoments.fit(torch.cat([x, x]), torch.tensor(np.r_[R, -R]))
    torch.testing.assert_close(concept.update(x, -R).cross, again.cross, rtol=0, atol=1e-10)
    for eraser in erasers:
        batch = x.clone().requires_grad_()
        eraser(batch, z).sum().backward()
        assert batch.grad is not None
        assert bool(batch.grad.isfinite().all())


def test_examples_that_require_gradients_are_fitted_and_measured_without_them() -> None:
    x, z = torch.tensor(X), torch.tensor(Z)
    states = x.clone().requires_grad_() * 1.0  # as a network gives them outside torch.no_grad
    for kind in (QuantileEraser, LeaceEraser):
        fitted = kind.fit(states, z)
        assert not any(tensor.requires_grad for tensor in fitted.state_dict().values())
    moved = GradientEraser(max_iterations=2).fit_transform(states, z)
    assert torch.equal(moved, GradientEraser(max_iterations=2).fit_transform(x, z))
    (spectrum,) = order_spectrum(states, z, directions=[2], orders=2)
    assert not spectrum.shares.requires_grad
    with warnings.catch_warnings(action="error"):
        assert certify(states, states, z) == certify(x, x, z)
