"""Erasers in scikit-learn: pipelines, cross-validation, clones and data frames."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import erasure
from erasure import Eraser, LeaceEraser, SplinceEraser
from erasure.sklearn import ConceptEraser

IRIS: Any = load_iris(return_X_y=True)
X, Y = IRIS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("eraser", "classes"), [("leace", None), ("alf_qleace", True), ("random", True)])
def test_scikit_learns_own_checks(eraser: str, classes: bool | None) -> None:  # which have classes as floats
    checks = check_estimator(ConceptEraser(eraser, classes=classes), on_skip=None, on_fail=None)
    assert len(checks) > 30
    failed = [f"{check['check_name']}: {check['exception']}" for check in checks if check["status"] == "failed"]
    assert failed == []


def test_it_erases_what_the_eraser_erases() -> None:
    transformer = ConceptEraser().fit(X, Y)
    expected = LeaceEraser.fit(X, Y)(X)
    np.testing.assert_array_equal(transformer.transform(X), expected)
    np.testing.assert_array_equal(ConceptEraser().fit_transform(X, Y), expected)
    assert [*transformer.get_feature_names_out(["a", "b", "c", "d"])] == ["a", "b", "c", "d"]  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable]
    assert transformer.transform(X.astype(np.float32)).dtype == np.float32
    pickle.dumps(transformer)  # as scikit-learn's parallel searches do
    copied = copy.deepcopy(transformer)
    np.testing.assert_array_equal(copied.transform(X), expected)


def test_a_linear_model_behind_it_stays_at_chance() -> None:
    cancer: Any = load_breast_cancer(return_X_y=True)
    X, y = cancer
    chance = max(np.mean(y), 1 - np.mean(y))
    scores = [
        cross_val_score(make_pipeline(StandardScaler(), eraser, LogisticRegression()), X, y, cv=4).mean()
        for eraser in (ConceptEraser("control"), ConceptEraser("leace"))
    ]
    assert scores[0] > 0.95
    assert abs(scores[1] - chance) < 0.02


def test_options_are_parameters() -> None:
    transformer = ConceptEraser("random", num_directions=2, seed=3)
    assert transformer.get_params() == {"eraser": "random", "classes": None, "num_directions": 2, "seed": 3}
    copies: Any = clone([transformer.fit(X, Y), ConceptEraser(LeaceEraser)])
    assert copies[0].get_params() == transformer.get_params()
    assert copies[1].get_params() == {"eraser": LeaceEraser, "classes": None}
    assert vars(transformer.eraser_)["left"].shape == (4, 2)
    pipeline = make_pipeline(ConceptEraser("random"), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, {"concepteraser__num_directions": [0, 4]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"concepteraser__num_directions": 0}
    with pytest.raises(
        ValueError, match="target is no parameter of ConceptEraser.*: it has classes, eraser, num_directions"
    ):
        transformer.set_params(target=0.5)
    assert transformer.set_params(eraser="alf_qleace", target=0.5).target == 0.5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "give",
    [
        lambda y: y + 1,
        lambda y: np.array(["setosa", "versicolor", "virginica"])[y],
        lambda y: pd.Series(y / 2).astype("category"),
        lambda y: pd.Series(y).map({0: "x", 1: "y", 2: "z"}).astype("category"),
        lambda y: y.tolist(),
    ],
)
def test_labels_of_any_kind_are_classes(give: Any) -> None:
    transformer = ConceptEraser().fit(X, give(Y))
    assert len(transformer.classes_) == 3
    np.testing.assert_allclose(transformer.transform(X), LeaceEraser.fit(X, Y)(X), atol=1e-12)


AGES = np.random.default_rng(1).integers(20, 60, 150).astype(float)


def test_floats_are_real_numbers_whole_or_not() -> None:
    fractional = AGES + np.r_[0.5, np.zeros(149)]
    for ages in (AGES, fractional, AGES[:, None], pd.DataFrame({"age": AGES})):
        transformer = ConceptEraser().fit(X, ages)
        assert transformer.eraser_.removed == 1  # pyright: ignore[reportAttributeAccessIssue]
        assert not hasattr(transformer, "classes_")
    np.testing.assert_array_equal(ConceptEraser().fit(X, AGES).transform(X), LeaceEraser.fit(X, AGES)(X))


def test_an_option_says_what_are_classes() -> None:
    floats = ConceptEraser(classes=True).fit(X, Y * 1e19 + 3.0)
    np.testing.assert_array_equal(floats.classes_, [3.0, 1e19, 2e19])
    np.testing.assert_allclose(floats.transform(X), LeaceEraser.fit(X, Y)(X), atol=1e-12)
    integers = ConceptEraser(classes=False).fit(X, AGES.astype(int))
    np.testing.assert_allclose(integers.transform(X), LeaceEraser.fit(X, AGES)(X), atol=1e-12)
    hot = ConceptEraser("alf_qleace").fit(X, np.eye(3, dtype=int)[Y])  # says by itself that it is classes
    np.testing.assert_allclose(hot.transform(X), ConceptEraser("alf_qleace").fit(X, Y).transform(X), atol=1e-10)
    frame = pd.DataFrame({"a": Y * 1.0, "b": Y % 2 * 1.0})
    erased = ConceptEraser(classes=True).fit(X, frame).transform(X)
    assert LinearRegression().fit(erased, np.eye(3)[Y]).score(erased, np.eye(3)[Y]) <= 1e-12


FRAME_OF_CONCEPTS = {"age": AGES, "species": np.array(["setosa", "versicolor", "virginica"])[Y], "flag": Y > 1}


@pytest.mark.parametrize("kind", ["pandas", "categories"])
def test_columns_of_a_frame_are_concepts_by_their_own_types(kind: str) -> None:
    frame: Any = {
        "pandas": pd.DataFrame,
        "categories": lambda columns: pd.DataFrame(columns).astype({"species": "category"}),
    }[kind](FRAME_OF_CONCEPTS)
    x = np.c_[X, np.random.default_rng(2).normal(size=(150, 3))]
    transformer = ConceptEraser().fit(x, frame)
    assert transformer.eraser_.removed == 3  # age, and three species, of which the flag is one  # pyright: ignore[reportAttributeAccessIssue]
    erased = transformer.transform(x)
    for columns in (AGES[:, None], np.eye(3)[Y]):
        assert LinearRegression().fit(erased, columns).score(erased, columns) <= 1e-12


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.Series(Y.astype(str)).where(Y > 0), "y holds (nan|None): pass only numbers, or only strings"),
        (pd.Series(Y.astype(str)).astype("category").where(Y > 0), "y holds nan: pass only numbers"),
        (pd.DataFrame({"sex": pd.Series(Y.astype(str)).where(Y > 0), "age": AGES}), "sex holds (nan|None): pass only"),
        (np.where(Y > 0, AGES, np.nan), "Input y contains NaN"),
        (np.where(Y > 0, AGES, np.inf), "Input y contains infinity"),
        (np.ma.masked_equal(Y, 1), "y is a numpy.ma.*MaskedArray: pass"),
        ({"a": Y}, "y holds {'a': .*pass only numbers"),
    ],
)
def test_concepts_that_are_more_than_their_numbers_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ConceptEraser().fit(X, y)
    assert "\n" not in str(caught.value)


def test_examples_that_are_more_than_their_numbers_are_refused() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    fitted = ConceptEraser().fit(X, Y)
    pyarrow = pytest.importorskip("pyarrow")
    for x, message in (
        (np.ma.masked_less(X, 2), "X is a numpy.ma.*MaskedArray: pass"),
        (frame.assign(a=pd.to_datetime(["2020-01-01"] * 150)), "X holds Timestamp.*: pass only numbers"),
        (frame.assign(a=pd.Series(Y).astype("category")), "X holds values of type category: pass its .to_numpy"),
        (pyarrow.table({name: frame[name] for name in frame}), "X is a pyarrow.*Table: pass"),
        (torch.tensor(X).to_sparse(), "X is a Tensor, sparse"),
        (X.astype("M8[s]"), r"X has dtype datetime64\[s\]: convert"),
        (X.astype("m8[s]"), r"X has dtype timedelta64\[s\]: convert"),
        (np.zeros(X.shape, [("a", float)]), r"X has dtype \[\('a', '<f8'\)\]: convert"),
    ):
        for call in (lambda x=x: ConceptEraser().fit(x, Y), lambda x=x: fitted.transform(x)):
            with pytest.raises(ValueError, match=message):
                call()
    with pytest.raises(ValueError, match="the same row labels in another order"):
        ConceptEraser().fit(frame, pd.Series(Y, index=np.arange(150)[::-1]))
    expected = fitted.transform(X)
    np.testing.assert_allclose(fitted.transform(torch.tensor(X, requires_grad=True)), expected, atol=1e-12)
    np.testing.assert_allclose(fitted.transform(torch.tensor(X).bfloat16()), expected, atol=0.1)


def test_other_concepts() -> None:
    real = X[:, 2:] + np.random.default_rng(0).normal(size=(150, 2))
    frame = pd.DataFrame({"length": real[:, 0], "species": Y.astype(str)})
    for concept, columns in [(real[:, 0], real[:, :1]), (real, real), (np.eye(3, dtype=int)[Y], np.eye(3)[Y])]:
        erased = ConceptEraser().fit(X, concept).transform(X)
        assert LinearRegression().fit(X, columns).score(X, columns) > 0.3
        assert LinearRegression().fit(erased, columns).score(erased, columns) <= 1e-12
    several = ConceptEraser().fit(X, frame)
    assert not hasattr(several, "classes_")
    erased = several.transform(X)
    for columns in (real[:, :1], np.eye(3)[Y]):
        assert LinearRegression().fit(erased, columns).score(erased, columns) <= 1e-12


def test_the_concept_may_differ_from_the_target_of_the_pipeline() -> None:
    concept = (X[:, 0] > 5.8).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = ConceptEraser("splince").set_fit_request(concept=True)
        pipeline = make_pipeline(eraser, LinearRegression().set_fit_request(sample_weight=False))
        pipeline.fit(X, Y, concept=concept)
    erased = pipeline[0].transform(X)
    np.testing.assert_allclose(erased, SplinceEraser.fit(X, concept, keep=Y)(X), atol=1e-12)
    assert LinearRegression().fit(erased, concept).score(erased, concept) <= 1e-12


def test_data_frames_give_what_set_output_says() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"], index=np.arange(150)[::-1])
    assert isinstance(ConceptEraser().fit(frame, Y).transform(frame), np.ndarray)
    erased: Any = ConceptEraser().set_output(transform="pandas").fit(frame, Y).transform(frame)
    assert erased.columns.equals(frame.columns)
    assert erased.index.equals(frame.index)
    np.testing.assert_allclose(erased, LeaceEraser.fit(X, Y)(X), atol=1e-12)
    with pytest.raises(ValueError, match="feature names should match"):
        ConceptEraser().fit(frame, Y).transform(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize(
    ("transformer", "x", "y", "message"),
    [
        (ConceptEraser("qleace"), X, Y, "eraser='qleace': choose one of .* that needs no labels"),
        (ConceptEraser(erasure.QleaceEraser), X, Y, "choose one of .* that needs no labels"),
        (ConceptEraser("leice"), X, Y, r"eraser='leice': choose one of .*leace.*, or a class derived from"),
        (ConceptEraser(Eraser.load), X, Y, "choose one of"),  # pyright: ignore[reportArgumentType]
        (ConceptEraser(shrinkage=True), X, Y, "shrinkage is not an option of LeaceEraser: it has rank_t"),
        (ConceptEraser("control", seed=1), X, Y, "seed is not an option of IdentityEraser: it has none"),
        (ConceptEraser(), X, None, "requires y to be passed"),
        (ConceptEraser(), X, np.zeros(150, int), "y has only one class, 0: pass a concept that varies"),
        (ConceptEraser(), X, np.zeros(150), "z is the same for all examples: there is nothing to erase"),
        (ConceptEraser(), X, Y[:100], "inconsistent numbers of samples"),
        (
            ConceptEraser("alf_qleace"),
            X,
            X[:, 0] + 0.05,
            r"needs classes, and y holds real numbers.*: .*classes=True\)",
        ),
        (ConceptEraser(classes=False), X, Y.astype(str), "y holds .*'0'.*, expected numbers, as classes=False says"),
        (ConceptEraser(classes="yes"), X, Y, "classes='yes': choose True, False or None"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_inputs(transformer: ConceptEraser, x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformer.fit(x, y)


def test_sparse_matrices_and_unfitted_transformers_are_refused() -> None:
    with pytest.raises(TypeError, match="Sparse data was passed"):
        ConceptEraser().fit(csr_matrix(X), Y)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ConceptEraser().transform(X)


@pytest.mark.parametrize(
    "turned",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x.astype(np.float32)[::-1, ::-1],
        lambda x: pd.DataFrame(x).iloc[::-1],
        lambda x: pd.DataFrame(x)[[3, 1, 2, 0]],
        lambda x: pd.DataFrame(x)[[1, 0]],
    ],
)
def test_reversed_rows_and_columns_are_taken(turned: Callable[[Any], Any]) -> None:
    x = turned(X)
    plain = np.ascontiguousarray(x)
    transformer = ConceptEraser().fit(x, Y)
    expected = ConceptEraser().fit(plain, Y).transform(plain)
    np.testing.assert_allclose(np.asarray(transformer.transform(x)), expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(x), plain)  # as it was


def test_reversed_columns_in_a_column_transformer() -> None:
    frame = pd.DataFrame(X, columns=[*"abcd"])
    both = ColumnTransformer([("e", ConceptEraser(), ["b", "a"])]).fit(frame, Y)
    expected = LeaceEraser.fit(X[:, :2], Y)(X[:, :2])
    np.testing.assert_allclose(np.asarray(both.transform(frame)), expected[:, ::-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("labels", [[3, 7, 9], ["black", "grey", "white"]])
@pytest.mark.parametrize("eraser", ["alf_qleace", "leace"])
def test_a_class_of_one_example_is_called_by_its_label(labels: list[Any], eraser: str) -> None:
    y = np.array([*labels[:2]] * 30 + [labels[2]])
    with pytest.raises(ValueError, match=f"every class needs at least 2 examples, but class {labels[2]} has 1:"):
        ConceptEraser(eraser).fit(X[:61], y)
    ConceptEraser(eraser).fit(X[:60], y[:60])  # without the class
