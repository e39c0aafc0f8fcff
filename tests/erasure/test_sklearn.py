"""Erasers in scikit-learn: pipelines, cross-validation, clones and data frames."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import erasure
from erasure import Eraser, LeaceEraser, SplinceEraser
from erasure.sklearn import _ERASERS, ConceptEraser

IRIS: Any = load_iris(return_X_y=True)
X, Y = IRIS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("eraser", ["leace", "alf_qleace", "random"])
def test_scikit_learns_own_checks(eraser: str) -> None:
    checks = check_estimator(ConceptEraser(eraser), on_skip=None, on_fail=None)
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
    copied = pickle.loads(pickle.dumps(transformer))  # in memory, as scikit-learn's parallel searches do
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
    assert transformer.get_params() == {"eraser": "random", "num_directions": 2, "seed": 3}
    copies: Any = clone([transformer.fit(X, Y), ConceptEraser(LeaceEraser)])
    assert copies[0].get_params() == transformer.get_params()
    assert copies[1].get_params() == {"eraser": LeaceEraser}
    assert vars(transformer.eraser_)["left"].shape == (4, 2)
    pipeline = make_pipeline(ConceptEraser("random"), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, {"concepteraser__num_directions": [0, 4]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"concepteraser__num_directions": 0}
    with pytest.raises(ValueError, match="target is no parameter of ConceptEraser.*: it has eraser, num_directions"):
        transformer.set_params(target=0.5)
    assert transformer.set_params(eraser="alf_qleace", target=0.5).target == 0.5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "give",
    [
        lambda y: y + 1,
        lambda y: np.array(["setosa", "versicolor", "virginica"])[y],
        lambda y: y.astype(float),
        lambda y: pd.Series(y).map({0: "x", 1: "y", 2: "z"}).astype("category"),
        lambda y: y.tolist(),
    ],
)
def test_labels_of_any_kind_are_classes(give: Any) -> None:
    transformer = ConceptEraser().fit(X, give(Y))
    assert len(transformer.classes_) == 3
    np.testing.assert_allclose(transformer.transform(X), LeaceEraser.fit(X, Y)(X), atol=1e-12)


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


def test_data_frames_give_data_frames() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"], index=np.arange(150)[::-1])
    erased = ConceptEraser().fit(frame, Y).transform(frame)
    assert isinstance(erased, pd.DataFrame)
    assert erased.columns.equals(frame.columns)
    assert erased.index.equals(frame.index)
    np.testing.assert_allclose(erased, LeaceEraser.fit(X, Y)(X), atol=1e-12)
    assert isinstance(ConceptEraser().set_output(transform="pandas").fit(X, Y).transform(X), pd.DataFrame)
    with pytest.raises(ValueError, match="feature names should match"):
        ConceptEraser().fit(frame, Y).transform(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize("eraser", [name for name, kind in _ERASERS.items() if kind.uses_labels])
def test_erasers_that_need_labels_say_why_they_cannot(eraser: str) -> None:
    with pytest.raises(ValueError, match=r"maps each class in its own way, and transform\(X\) has no labels; use the"):
        ConceptEraser(eraser).fit(X, Y)


@pytest.mark.parametrize(
    ("transformer", "x", "y", "message"),
    [
        (ConceptEraser("leice"), X, Y, r"eraser='leice': choose one of .*leace.*, or a class derived from"),
        (ConceptEraser(Eraser.load), X, Y, "choose one of"),  # pyright: ignore[reportArgumentType]
        (ConceptEraser(shrinkage=True), X, Y, "shrinkage is not an option of leace: it has rank_tolerance"),
        (ConceptEraser("control", seed=1), X, Y, "seed is not an option of control: it has none"),
        (ConceptEraser(), X, None, "requires y to be passed"),
        (ConceptEraser(), X, np.zeros(150), "y has only one class, .*0.0.*: there is nothing to erase"),
        (ConceptEraser(), X, Y[:100], "inconsistent numbers of samples"),
        (ConceptEraser("alf_qleace"), X, X[:, 0] + 0.05, "AlfQleaceEraser needs classes, and z holds none"),
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


def test_every_eraser_has_a_name() -> None:
    public = [getattr(erasure, name) for name in erasure.__all__]
    erasers = {one for one in public if isinstance(one, type) and issubclass(one, Eraser)}
    assert {*_ERASERS.values()} == erasers - {Eraser}
