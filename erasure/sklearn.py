"""Erasers as scikit-learn transformers, for pipelines and cross-validation."""

from typing import Any, Self

import numpy as np
import torch

from erasure.concept_moments import named_concepts
from erasure.eraser import Eraser, options_of, require_known
from erasure.erasers.alf_qleace import AlfQleaceEraser
from erasure.erasers.identity import IdentityEraser
from erasure.erasers.leace import LeaceEraser
from erasure.erasers.random import RandomEraser
from erasure.erasers.random_edit import RandomEditEraser
from erasure.erasers.splince import SplinceEraser
from erasure.inputs import as_array, as_tensor, is_one_hot, is_pandas, require_same_rows
from erasure.moments import FewExamplesError
from erasure.optional_packages import needs

with needs("sklearn"):
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils import Tags, assert_all_finite
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

_FLOATS = [np.float64, np.float32]
_ERASERS: dict[str, type[Eraser]] = {  # that need no labels to erase
    "alf_qleace": AlfQleaceEraser,
    "control": IdentityEraser,
    "leace": LeaceEraser,
    "random": RandomEraser,
    "random_edit": RandomEditEraser,
    "splince": SplinceEraser,
}


class ConceptEraser(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """An eraser as a scikit-learn transformer.

    The concept to erase is `y`, or `concept` if `y` is the target of a later step. With metadata routing enabled, a
    pipeline passes `concept` on: `ConceptEraser().set_fit_request(concept=True)`.

    Integers, booleans, strings and categories are classes. Values of a floating type are real numbers, whole or not.
    "leace" and "splince" also erase real numbers, several labels per example [n, m], and data frames, in which each
    column is a concept of its own type. "splince" keeps the covariance with `y`. Erasers that need the labels of the
    examples they erase, such as QLEACE, are refused because `transform(X)` has none.

    Args:
        eraser: "leace", "splince", "alf_qleace", "random", "random_edit", "control", or an `Eraser` class that does
            not use labels.
        classes: True if values are classes even if they are floats; False if values are real numbers even if they are
            integers, such as ages; None to decide by their type.
        options: options of the eraser, such as `num_directions`.

    Attributes:
        eraser_: the fitted `erasure.Eraser`.
        classes_: sorted labels of the concept; only where it holds classes.

    Raises:
        ValueError: an unknown eraser or option, or one that needs labels; raised by `fit`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import cross_val_score
        >>> from sklearn.pipeline import make_pipeline
        >>> from erasure.sklearn import ConceptEraser
        >>> X, y = load_digits(return_X_y=True)
        >>> bool(cross_val_score(make_pipeline(ConceptEraser(), LogisticRegression()), X, y, cv=3).mean() < 0.15)
        True
    """

    def __init__(self, eraser: str | type[Eraser] = "leace", *, classes: bool | None = None, **options: Any) -> None:
        self.eraser = eraser
        self.classes = classes
        vars(self).update(options)

    def fit(self, X: Any, y: Any = None, *, concept: Any = None) -> Self:
        """Fit the eraser.

        Args:
            X: examples [n, d], an array or a data frame.
            y: concept to erase, [n] or [n, m]; if `concept` is passed, the label that "splince" keeps.
            concept: concept to erase instead of `y`.
        """
        kind, params = self._kind(), self.get_params()
        options = require_known(kind, {name: params[name] for name in params.keys() - {"eraser", "classes"}})
        erased = y if concept is None else concept
        if erased is None:
            raise ValueError("requires y to be passed, but the target y is None: it is the concept to erase")
        if not (self.classes is None or isinstance(self.classes, bool)):
            raise ValueError(f"classes={self.classes!r}: choose True, False or None")
        require_same_rows(X, {"y": y, "concept": concept}, x_name="X")
        x: Any = validate_data(self, _plain(X), dtype=_FLOATS, ensure_min_samples=2)
        name = "y" if concept is None else "concept"
        z, classes = _encoded(erased, name, self.classes)
        for one in z.values() if isinstance(z, dict) else [z]:
            check_consistent_length(x, one)
        one_hot = not isinstance(z, dict) and is_one_hot(as_tensor(z, name))
        if classes is None and not one_hot and not kind.any_concept:
            raise ValueError(
                f"eraser={self.eraser!r}: {kind.__name__} needs classes, and {name} holds real numbers or several "
                "labels: pass integers or strings, or ConceptEraser(..., classes=True)"
            )
        vars(self).pop("classes_", None)
        if classes is not None:
            self.classes_ = classes
        preserved = {}
        if kind is SplinceEraser and y is not None and concept is not None:
            preserved["keep"] = _encoded(y, "y", None)[0]
        try:
            self.eraser_ = kind.fit(as_tensor(x, "X"), z, **preserved, **options)
        except FewExamplesError as error:
            raise FewExamplesError(error.sizes, () if classes is None else classes.tolist()) from None
        return self

    def transform(self, X: Any) -> Any:
        """Erase the concept from examples [n, d]."""
        check_is_fitted(self)
        x: Any = validate_data(self, _plain(X), dtype=_FLOATS, reset=False)
        return self.eraser_(as_tensor(x, "X")).numpy()

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the eraser and its options by name."""
        return {name: value for name, value in vars(self).items() if not (name.startswith("_") or name.endswith("_"))}

    def set_params(self, **params: Any) -> Self:
        """Set the eraser and its options by name, including options that have not been set before.

        Raises:
            ValueError: the eraser does not have an option.
        """
        kind = _class_of(params.get("eraser", self.eraser))
        known = {*self.get_params(), *(options_of(kind) if kind else params)}  # `fit` refuses an unknown eraser
        if unknown := params.keys() - known:
            raise ValueError(f"{min(unknown)} is no parameter of {self!r}: it has {', '.join(sorted(known))}")
        vars(self).update(params)
        return self

    def _kind(self) -> type[Eraser]:
        """Return the class of the eraser; raise ValueError for one that cannot be used without labels."""
        kind = _class_of(self.eraser)
        if kind is None or kind.uses_labels:
            raise ValueError(
                f"eraser={self.eraser!r}: choose one of {', '.join(_ERASERS)}, or a class derived from erasure.Eraser "
                "that needs no labels, which transform(X) does not have"
            )
        return kind

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _class_of(eraser: Any) -> type[Eraser] | None:
    """Return the eraser class of a name or of a class, or None if there is none."""
    kind = _ERASERS.get(eraser) if isinstance(eraser, str) else eraser
    return kind if isinstance(kind, type) and issubclass(kind, Eraser) else None


def _encoded(y: Any, name: str, classes: bool | None) -> tuple[Any, np.ndarray | None]:
    """Return a concept in a form that `Eraser.fit` takes, and its labels if it holds classes.

    Args:
        y: concept, [n] or [n, m], or a frame of several; a series may hold categories.
        name: its name in error messages.
        classes: whether its values are classes; None to decide by their type.
    """
    if is_pandas(y) and y.ndim == 2:
        named = named_concepts(y, name)
        if len(named) > 1:
            return {key: _encoded(one, key, classes)[0] for key, one in named.items()}, None
        (y,) = named.values()
    categorical = str(getattr(y, "dtype", "")) == "category"
    if categorical or not (isinstance(y, np.ndarray | list | tuple | torch.Tensor) or is_pandas(y)):
        y = np.asarray(y)  # of any kind that scikit-learn takes
    y = as_array(y, name)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name=name)
    real = classes is False or (y.dtype.kind == "f" and classes is None and not categorical)
    if real and y.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {y.flat[0]!r}, expected numbers, as classes=False says")
    if real or (y.ndim == 2 and y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all()):  # or several labels
        return y.astype(np.float64), None
    if y.ndim == 2:
        return {f"{name}[{j}]": _encoded(column, name, True)[0] for j, column in enumerate(y.T)}, None
    labels, z = np.unique(column_or_1d(y), return_inverse=True)
    if len(labels) < 2:
        raise ValueError(f"{name} has only one class, {labels.tolist()[0]!r}: pass a concept that varies")
    return z, labels


def _plain(X: Any) -> Any:
    """Return examples in a form that scikit-learn converts to the same plain numbers."""
    if isinstance(X, torch.Tensor) or (isinstance(X, list | tuple) and X and isinstance(X[0], torch.Tensor)):
        return as_array(as_tensor(X, "X"), "X")
    no_numbers = getattr(getattr(X, "dtype", None), "kind", None) in ("M", "m", "V")  # dates, durations, structures
    if no_numbers or isinstance(X, np.ma.MaskedArray) or hasattr(X, "columns"):
        as_array(X, "X")  # refuses what scikit-learn would turn into numbers
    return X
