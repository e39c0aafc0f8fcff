"""Comparison with concept-erasure, as docs/guide/concept_erasure_users.md has it: where both agree, and where not."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC
from torch import Tensor

import erasure
from erasure import ClassMoments, Eraser, LeaceEraser, OracleLeaceEraser, QleaceEraser
from erasure.transport import transport_map

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*")
theirs = pytest.importorskip("concept_erasure", reason="concept-erasure is in the group dev")

D, K = 12, 3
PAGE = (Path(__file__).parents[2] / "docs/guide/concept_erasure_users.md").read_text()
SNIPPETS = re.findall(r"```python\n(# .*?\n.*?)```", PAGE, re.DOTALL)


def classes(sizes: tuple[int, ...] = (400, 400, 400), seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes of unlike means and covariances, float64 [n, D], shuffled."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(n, D, generator=generator, dtype=torch.float64)
        @ torch.randn(D, D, generator=generator, dtype=torch.float64)
        + torch.randn(D, generator=generator, dtype=torch.float64)
        for n in sizes
    ]
    order = torch.randperm(sum(sizes), generator=generator)
    return torch.cat(parts)[order], torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[order]


def one_hot(z: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(z, K).double()


def mean_gap(x: Tensor, z: Tensor) -> float:
    m = ClassMoments.fit(x, z)
    return float((m.means - m.mean).norm(dim=1).max())


@pytest.mark.parametrize("sizes", [(400, 400, 400), (100, 300, 800)])
def test_leace_is_the_same_without_shrinkage_batch_by_batch(sizes: tuple[int, ...]) -> None:
    x, z = classes(sizes)
    fitter = theirs.LeaceFitter(D, K, shrinkage=False, dtype=torch.float64)
    moments = ClassMoments(D, K)
    for batch, labels in zip(x.split(100), z.split(100), strict=True):
        fitter.update(batch, one_hot(labels))
        moments.update(batch, labels)
    assert mean_gap(x, z) > 1
    torch.testing.assert_close(LeaceEraser.from_moments(moments)(x), fitter.eraser(x), rtol=0, atol=1e-9)


def test_their_default_shrinks_the_covariance() -> None:
    x, z = classes((20, 20, 20))
    centred = x - x.mean(0)
    whitening = torch.linalg.pinv(torch.linalg.cholesky(centred.T @ centred / len(x)))
    ours, shrunk = (erased - x for erased in (LeaceEraser.fit(x, z)(x), theirs.LeaceEraser.fit(x, one_hot(z))(x)))
    assert mean_gap(x + ours, z) < 1e-10
    assert mean_gap(x + shrunk, z) < 1e-10
    assert (ours @ whitening.T).norm() < (1 - 1e-3) * (
        shrunk @ whitening.T
    ).norm()  # the metric that LEACE minimises in


def test_oracle_leace_is_the_same() -> None:
    x, z = classes((100, 300, 800))
    eraser = theirs.OracleEraser.fit(x, one_hot(z))
    torch.testing.assert_close(OracleLeaceEraser.fit(x, z)(x, z), eraser(x, one_hot(z)), rtol=0, atol=1e-9)


def test_qleace_is_the_same_of_classes_of_equal_size() -> None:
    """To a thousandth of the spread: ours ends once the edit cannot shrink by 2e-6 of the variance, theirs goes on."""
    x, z = classes()
    both = QleaceEraser.fit(x, z)(x, z), theirs.QuadraticEraser.fit(x, z, shrinkage=False)(x, z)
    ours, erased = ((x_erased - x).square().sum(1).mean() for x_erased in both)
    torch.testing.assert_close(ours, erased, rtol=1e-6, atol=0)
    for x_erased in both:
        covariances = ClassMoments.fit(x_erased, z).covariances
        assert (covariances - covariances[0]).abs().max() < 1e-11 * covariances[0].trace()
    assert (both[0] - both[1]).square().mean().sqrt() < 1e-3 * x.std()


def test_qleace_moves_to_the_mean_of_examples_theirs_to_that_of_classes() -> None:
    x, z = classes((100, 300, 800))
    ours, erased = QleaceEraser.fit(x, z)(x, z), theirs.QuadraticEraser.fit(x, z, shrinkage=False)(x, z)
    torch.testing.assert_close(ours.mean(0), x.mean(0), rtol=0, atol=1e-9)
    middle = torch.stack([x[z == j].mean(0) for j in range(K)]).mean(0)
    torch.testing.assert_close(erased.mean(0), middle, rtol=0, atol=1e-9)
    assert (ours - x).square().sum() < (erased - x).square().sum()


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[snippet.split("\n")[0][2:] for snippet in SNIPPETS])
def test_snippets_of_the_page(snippet: str) -> None:
    x, z = classes()
    torch.manual_seed(0)
    norms = [torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)]
    parts = [torch.nn.Linear(D, D), norms[0], torch.nn.Linear(D, D), torch.nn.ReLU(), norms[1], torch.nn.Linear(D, K)]
    names: dict[str, Any] = {
        **{name: getattr(erasure, name) for name in erasure.__all__},
        **{"concept_erasure": theirs, "torch": torch, "transport_map": transport_map, "d": D, "k": K},
        **{"x": x, "z": z, "ages": x[:, :2] + x.roll(1, 0)[:, :2], "model": torch.nn.Sequential(*parts).double()},
        "one_hot": torch.nn.functional.one_hot,
    }
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exec(snippet, names)
    finally:
        torch.set_default_dtype(default)
    if "ConceptScrubber" in snippet:  # theirs hooks a network of transformers only
        names["theirs"] = scrubbed(names["model"], x, z)
        torch.testing.assert_close(names["scrubbed"](x), names["ours"], rtol=0, atol=1e-5)
    tolerance = 1e-5 if "fit_layers" in snippet else 1e-9  # fit_layers rounds erasers to float32
    torch.testing.assert_close(names["ours"], names["theirs"], rtol=0, atol=tolerance)


def scrubbed(model: torch.nn.Sequential, x: Tensor, z: Tensor) -> Tensor:
    """Return what a network gives whose normalisations are erased by concept-erasure."""
    for module in model:
        x = module(x).detach()
        if isinstance(module, torch.nn.LayerNorm):
            x = theirs.LeaceEraser.fit(x, one_hot(z), shrinkage=False)(x)
    return x


def test_the_tables_are_complete() -> None:
    """Every public name, and every option of a fitter, is in a first column."""
    cells = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {re.split(r"[=(]", name)[0] for cell in cells for name in re.findall(r"`(.*?)`", cell)}
    fitters = (theirs.LeaceFitter, theirs.OracleFitter, theirs.QuadraticFitter, theirs.ConceptScrubber)
    sizes = {"x_dim", "z_dim", "num_classes"}
    options = {name for one in fitters for name in inspect.signature(one).parameters} - sizes
    assert named == {*theirs.__all__} | options


def learnable(k: int, n: int, d: int) -> tuple[Tensor, Tensor]:
    """Return examples of scikit-learn's classification problem, as their tests draw them."""
    x, z = make_classification(n, d, n_classes=k, n_informative=k, n_redundant=0, random_state=42)
    return torch.from_numpy(x), torch.from_numpy(z)


@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("kind", ["one-hot", "real"])
@pytest.mark.parametrize("eraser", [LeaceEraser, OracleLeaceEraser])
def test_their_test_of_linear_erasure(eraser: type[Eraser], kind: str, k: int) -> None:
    """No linear model learns anything; the map is idempotent, of low rank, keeps the mean, and edits least."""
    x, z = learnable(k, 2048, 64)
    concept = torch.nn.functional.one_hot(z).double()
    if kind == "real":
        concept = concept + torch.randn(concept.shape, generator=torch.Generator().manual_seed(0))
    fitted = eraser.fit(x, concept)
    erased = fitted(x, concept)
    centred = erased - erased.mean(0)
    before, after, seen = x.numpy(), erased.numpy(), concept.numpy()
    assert LinearRegression().fit(before, seen).score(before, seen) > 0.01
    assert LinearRegression().fit(after, seen).score(after, seen) <= 1e-12
    if kind == "one-hot":
        assert abs(LogisticRegression(C=1e6, tol=1e-2).fit(x - x.mean(0), z).coef_).max() > 0.05
        assert abs(LogisticRegression(C=1e6, tol=1e-9).fit(centred, z).coef_).max() < 2e-9
        probe = LinearSVC(dual=False, intercept_scaling=10**6, tol=2e-9)  # pyright: ignore[reportArgumentType]
        assert abs(probe.fit(erased, z).coef_).max() < 2e-9
    torch.testing.assert_close(erased.mean(0), x.mean(0), rtol=0, atol=1e-10)
    assert int((torch.linalg.svdvals(x - erased) > 2e-9).sum()) <= k
    oracle = OracleLeaceEraser.fit(x, concept)(x, concept)
    assert (oracle - x).square().sum() <= (erased - x).square().sum() * (1 + 1e-12)
    if isinstance(fitted, LeaceEraser):
        torch.testing.assert_close(fitted(erased), erased, rtol=0, atol=1e-10)
        require_least_edit(x, fitted)


def require_least_edit(x: Tensor, eraser: LeaceEraser) -> None:
    """Check first-order optimality in a random norm, over all projections with the same null space."""
    d, r = eraser.left.shape
    generator = torch.Generator().manual_seed(1)
    norm = torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5
    right = eraser.right.clone().requires_grad_()
    rows = torch.linalg.solve(right @ eraser.left, right)  # B A = I
    ((x - eraser.mean) @ rows.T @ eraser.left.T @ norm).square().mean().backward()
    assert right.grad is not None
    assert float(right.grad.norm()) < 1e-9
    assert r > 0


@pytest.mark.parametrize("k", [2, 5, 20])
def test_their_test_of_quadratic_erasure(k: int) -> None:
    x, z = learnable(k, 2048, 32)
    erased = QleaceEraser.fit(x, z)(x, z)
    priors = z.bincount().double() / len(z)
    chance = float(-(priors * priors.log()).sum())
    probe = QuadraticDiscriminantAnalysis(store_covariance=True)
    assert log_loss(z, probe.fit(x, z).predict_proba(x)) < 0.9 * chance
    assert log_loss(z, probe.fit(erased, z).predict_proba(erased)) > chance - 1e-2  # QDA divides by n_j - 1
    covariances = ClassMoments.fit(erased, z).covariances
    torch.testing.assert_close(covariances[1:], covariances[:-1], rtol=0, atol=1e-9)
    assert mean_gap(erased, z) < 1e-10
