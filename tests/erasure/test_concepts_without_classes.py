"""Concepts that are not classes: real numbers, several labels per example, several concepts at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEraser,
)
from erasure.certificate import Certificate, ConceptCertificate, certify
from erasure.concept_moments import ConceptMoments

D, N = 6, 500


def draw(kind: str) -> tuple[Tensor, Any]:
    """Return examples [N, D] and a concept that moves their mean."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(N, D, generator=generator, dtype=torch.float64)
    real = torch.randn(N, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 1e3]) + 5
    labels = torch.rand(N, 3, generator=generator) < torch.tensor([0.5, 0.2, 0.7])
    z: Any = {
        "real": real[:, 0],
        "two columns": real,
        "labels": labels,
        "zeros and ones": labels.long(),
        "several": {"age": real[:, 0], "group": torch.arange(N) % 3, "tags": labels},
    }[kind]
    columns = torch.cat([real / real.std(0), labels, torch.arange(N)[:, None] % 3], 1).double()
    mixing = torch.randn(columns.shape[1], D, generator=generator, dtype=torch.float64)
    return noise @ torch.randn(D, D, generator=generator, dtype=torch.float64) + columns @ mixing, z


def columns_of(z: Any) -> Tensor:
    """Return all columns of a concept, classes as one-hot."""
    if isinstance(z, dict):
        return torch.cat([columns_of(one) for one in z.values()], 1)
    if z.ndim == 1 and not z.is_floating_point():
        return torch.nn.functional.one_hot(z).double()
    return z.reshape(len(z), -1).double()


def linear_r2(x: Tensor, z: Any) -> float:
    """Return the largest R² of a column of z in a least-squares fit with an intercept."""
    z = columns_of(z)
    features = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    residual = z - features @ torch.linalg.lstsq(features, z, driver="gelsd").solution
    return float((1 - residual.square().sum(0) / (z - z.mean(0)).square().sum(0)).max())


KINDS = pytest.mark.parametrize("kind", ["real", "two columns", "labels", "zeros and ones", "several"])


@KINDS
@pytest.mark.parametrize("eraser", [LeaceEraser, OracleLeaceEraser])
def test_no_linear_model_predicts_the_concept(eraser: type[Eraser], kind: str, tmp_path: Path) -> None:
    x, z = draw(kind)
    assert linear_r2(x, z) > 0.25
    fitted = eraser.fit(x, z)
    erased = fitted(x, z)
    assert linear_r2(erased, z) <= 1e-12
    torch.testing.assert_close(erased.mean(0), x.mean(0), rtol=0, atol=1e-10)
    fitted.save(tmp_path / "eraser.safetensors")
    assert torch.equal(Eraser.load(tmp_path / "eraser.safetensors")(x, z), erased)


def test_leace_is_the_projection_of_the_theorem() -> None:
    x, z = draw("two columns")
    centred, z = x - x.mean(0), z - z.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / N)
    whiten = vectors @ (values.rsqrt()[:, None] * vectors.T)
    u = torch.linalg.svd(whiten @ centred.T @ z, full_matrices=False).U
    expected = x - centred @ (torch.linalg.inv(whiten) @ u @ u.T @ whiten).T
    torch.testing.assert_close(LeaceEraser.fit(x, z)(x), expected, rtol=0, atol=1e-10)


def test_oracle_leace_is_the_residual_of_the_regression_on_the_concept() -> None:
    x, z = draw("two columns")
    features = torch.cat([z, torch.ones(N, 1, dtype=z.dtype)], 1)
    predicted = features @ torch.linalg.lstsq(features, x, driver="gelsd").solution
    expected = x - predicted + x.mean(0)
    torch.testing.assert_close(OracleLeaceEraser.fit(x, z)(x, z), expected, rtol=0, atol=1e-10)


def test_classes_as_a_concept_are_erased_as_classes_are() -> None:
    x, z = draw("several")
    labels = z["group"]
    expected = LeaceEraser.fit(x, labels)(x)
    one_hot = torch.nn.functional.one_hot(labels)
    for same in (one_hot, one_hot.double(), {"group": labels}, 3.0 * one_hot.double() - 1):
        torch.testing.assert_close(LeaceEraser.fit(x, same)(x), expected, rtol=0, atol=1e-10)


def test_several_concepts_at_once_are_erased_as_one_after_another() -> None:
    x, z = draw("several")
    joint = LeaceEraser.fit(x, z)
    assert joint.removed == 6  # one of age, two of three classes, three tags
    for names in (["age", "group", "tags"], ["tags", "age", "group"]):
        erased = x
        for name in names:
            erased = LeaceEraser.fit(erased, z[name])(erased)
        torch.testing.assert_close(joint(x), erased, rtol=0, atol=1e-7)
    alone = LeaceEraser.fit(x, z["age"])(x)
    assert linear_r2(alone, z["tags"]) > 0.1, "the other concepts stay where only one is erased"


def test_the_moments_of_several_concepts_hold_those_of_each() -> None:
    x, z = draw("several")
    moments = ConceptMoments.fit(x, z)
    for names in (["group"], ["age", "tags"], ["age", "group", "tags"]):
        alone = ConceptMoments.fit(x, {name: z[name] for name in names})
        expected, found = alone.whitened_cross(), moments.whitened_cross(names)
        torch.testing.assert_close(found @ found.T, expected @ expected.T, rtol=1e-9, atol=1e-9)  # whatever their basis
    with pytest.raises(ValueError, match="no concept 'height': there are age, group, tags"):
        moments.positions(["age", "height"])


@KINDS
def test_batches_and_shards_give_the_moments_of_one_pass(kind: str) -> None:
    x, z = draw(kind)
    whole = ConceptMoments.fit(x, z)

    def part(rows: slice) -> Any:
        return {name: one[rows] for name, one in z.items()} if isinstance(z, dict) else z[rows]

    first, second = (ConceptMoments(D, whole.concepts) for _ in range(2))
    for start in range(0, 300, 100):
        first.update(x[start : start + 100], part(slice(start, start + 100)))
    state = second.update(x[300:], part(slice(300, None))).state_dict()
    first.merge(ConceptMoments(D, whole.concepts).load_state_dict(state))
    assert first.n == N
    for name in ("mean", "total", "cross", "concept_mean", "concept_covariance"):
        expected = getattr(whole, name)
        torch.testing.assert_close(getattr(first, name), expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("integers", "other"),
    [
        (1_700_000_000 + torch.arange(N) % 100, torch.float32),  # seconds; float32 holds every 128th
        (2000 + torch.arange(N) % 3, torch.bfloat16),  # holds every eighth year
        (70_000 + torch.arange(N) % 50, torch.float16),  # holds nothing above 65,504
    ],
)
def test_integers_keep_their_digits_beside_floats(integers: Tensor, other: torch.dtype) -> None:
    x, _ = draw("real")
    x[:, 0] += 3 * (integers - integers.min())
    z = {"integers": integers, "other": torch.rand(N, generator=torch.Generator().manual_seed(1)).to(other)}
    moments = ConceptMoments(D, {"integers": 1, "other": 1}).update(x, z)
    expected = (integers - integers.min()).double().var(correction=0)
    torch.testing.assert_close(moments.concept_covariance[0, 0], expected)
    erased = LeaceEraser.from_moments(moments)(x)
    assert linear_r2(x, integers.double()) > 0.5
    assert linear_r2(erased, integers.double() - integers.min()) < 1e-10
    rows = [torch.tensor([7, 1_700_000_001]), torch.tensor([0.5, 2.0])]
    assert ClassMoments.fit(rows * 2, [0, 0, 1, 1]).mean[1] == 850_000_001.5  # pyright: ignore[reportArgumentType]


def test_values_for_tokens_and_for_their_sequences() -> None:
    x, z = draw("real")
    tokens = x.reshape(100, 5, D)
    per_token = LeaceEraser.fit(tokens, z.reshape(100, 5, 1))
    torch.testing.assert_close(per_token(tokens).reshape(N, D), LeaceEraser.fit(x, z)(x), rtol=0, atol=1e-10)
    shared = LeaceEraser.fit(tokens, z[:100], dim=D)
    expected = LeaceEraser.fit(x, z[:100].repeat_interleave(5))
    torch.testing.assert_close(shared(tokens).reshape(N, D), expected(x), rtol=0, atol=1e-10)


def test_numbers_that_may_be_of_vectors_or_of_examples_are_refused() -> None:
    x, z = draw("real")
    tokens, z = x.reshape(100, 5, D), z.reshape(100, 5)
    for concept, dim in ((z, None), (z, D), ({"age": z, "group": torch.arange(100) % 3}, None)):
        with pytest.raises(ValueError, match=r"may be one number per vector or 5 per example: pass z.*\[..., None\]"):
            LeaceEraser.fit(tokens, concept, dim=dim)
    five, flat = ConceptMoments.fit(tokens, z[:, None].expand(-1, 5, -1)), ConceptMoments.fit(tokens.flatten(1), z)
    assert (five.dim, flat.dim, five.concepts, flat.concepts) == (D, 5 * D, {"z": 5}, {"z": 5})
    torch.testing.assert_close(five.cross, ConceptMoments.fit(x, z.repeat_interleave(5, 0)).cross)
    torch.testing.assert_close(ConceptMoments(D, 5).update(tokens, z).cross, five.cross)  # five columns are expected


@pytest.mark.parametrize("kind", ["two columns", "labels", "zeros and ones", "several"])
def test_several_columns_for_tokens_and_for_their_sequences(kind: str) -> None:
    """Examples [100, 5, D], and a concept of m columns as [100, 5, m], or as [100, m] where tokens share it."""
    x, z = draw(kind)
    tokens, moments = x.reshape(100, 5, D), ConceptMoments.fit(x, z)

    def each(of: Callable[[Tensor], Tensor]) -> Any:
        return {name: of(values) for name, values in z.items()} if isinstance(z, dict) else of(z)

    for whole, parts in (
        (z, each(lambda values: values.reshape(100, 5, *values.shape[1:]))),
        (each(lambda values: values[:100].repeat_interleave(5, 0)), each(lambda values: values[:100])),
    ):
        expected, per_token = ConceptMoments.fit(x, whole), ConceptMoments(D, moments.concepts).update(tokens, parts)
        assert per_token.n == N
        for name in ("mean", "total", "cross", "concept_mean", "concept_covariance"):
            torch.testing.assert_close(getattr(per_token, name), getattr(expected, name), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="z has shape"):
        ConceptMoments(D, moments.concepts).update(tokens, each(lambda values: values[:20]))


def test_the_certificate_has_the_r2_of_the_best_linear_prediction() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, z = draw("two columns")
    for erased, rank in ((x, D), (LeaceEraser.fit(x, z)(x), D - 2)):
        certificate = certify(x, erased, z)
        assert isinstance(certificate, ConceptCertificate)
        seen, concept = erased.numpy(), z.numpy()
        expected = linear_model.LinearRegression().fit(seen, concept).score(seen, concept)
        assert certificate.linear_r2 == pytest.approx(expected, abs=1e-9)
        assert certificate.linear_chance == pytest.approx(rank / (N - 1), rel=0.5)
    assert certify(x, LeaceEraser.fit(x, z)(x), z).linear_r2 <= 1e-12  # pyright: ignore[reportOptionalOperand]
    assert certify(x, x, z).edit_size == 0
    assert isinstance(certify(x, x, torch.arange(N) % 3), Certificate)


@pytest.mark.parametrize("eraser", [QleaceEraser, AlfQleaceEraser, RandomEraser])
@pytest.mark.parametrize("kind", ["real", "several"])
def test_other_erasers_say_that_they_need_classes(eraser: type[Eraser], kind: str) -> None:
    x, z = draw(kind)
    with pytest.raises(ValueError, match=r"Eraser needs classes, and z holds none: give one integer per example"):
        eraser.fit(x, z)
    with pytest.raises(ValueError, match="only LEACE, oracle LEACE and SPLINCE erase such a concept"):
        eraser.from_moments(ConceptMoments.fit(x, z))  # pyright: ignore[reportArgumentType]


def test_class_labels_stored_as_floats_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    x = draw("real")[0]
    LeaceEraser.fit(x, torch.arange(N) % 3)
    assert not caplog.messages
    LeaceEraser.fit(x, (torch.arange(N) % 3).double())
    assert caplog.messages == ["z holds the floats 0 to 2: erased as one real number, not as classes"]


def test_moments_of_other_concepts_are_not_merged() -> None:
    with pytest.raises(ValueError, match=r"cannot merge ConceptMoments of 3 dimensions and \{z: 2\}, n=0 into"):
        ConceptMoments(3, 1).merge(ConceptMoments(3, 2))
    with pytest.raises(
        ValueError, match=r"cannot merge ClassMoments of 2 .* into ConceptMoments .*: give ConceptMoments"
    ):
        ConceptMoments(3, 2).merge(ClassMoments(3, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"cannot merge ConceptMoments .* into moments of 2 .*: give ClassMoments"):
        ClassMoments(3, 2).merge(ConceptMoments(3, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"cannot merge .* give the same coordinates and concepts, in order"):
        ConceptMoments(3, {"a": 1, "b": 1}).merge(ConceptMoments(3, {"b": 1, "a": 1}))
    with pytest.raises(ValueError, match=r"z has the concepts height: expected age"):
        ConceptMoments(3, {"age": 1}).update(torch.randn(4, 3), {"height": torch.randn(4)})
    with pytest.raises(ValueError, match="z has two concepts of the name '1'"):
        ConceptMoments.fit(torch.randn(4, 3), {"age": torch.randn(4), 1: torch.randn(4), "1": torch.randn(4)})
    assert isinstance(ClassMoments(3, 2), ClassMoments)
