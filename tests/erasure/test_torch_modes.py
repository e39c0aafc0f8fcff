"""Inside `torch.autocast` statistics, erasers and certificates are what they are outside."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    ConceptMoments,
    Eraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
    TruncatedQleaceEraser,
)
from erasure.certificate import certify
from erasure.transport import barycenter

Z = torch.arange(120) % 3
BYTES = (
    torch.randint(0, 60, (120, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    * (Z[:, None] + 1).byte()
)
X = BYTES.float() / 255
OPTIONS: dict[type[Eraser], dict[str, Any]] = {
    AlfQleaceEraser: {"num_directions": 2},
    RandomEraser: {"num_directions": 2},
}
KINDS = [LeaceEraser, OracleLeaceEraser, SplinceEraser, QleaceEraser, TruncatedQleaceEraser, RandomEditEraser, *OPTIONS]


def same_with_autocast(compute: Callable[[], Any]) -> bool:
    outside = compute()
    with torch.autocast("cpu", torch.bfloat16):
        inside = compute()
    return all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_erasers_are_fitted_and_applied_in_their_own_precision(kind: type[Eraser]) -> None:
    def erased() -> list[Tensor]:
        eraser = kind.fit(X, Z, **OPTIONS.get(kind, {}))
        return [*eraser.state_dict().values(), eraser(X, Z), eraser.to(torch.float32)(X, Z)]

    assert same_with_autocast(erased)


def test_moments_and_what_is_computed_from_them() -> None:
    def moments() -> list[Tensor]:
        exact, real = ClassMoments.fit(BYTES, Z), ConceptMoments.fit(X, X[:, :2])
        pooled = ClassMoments(8, 3, pooled=True).update(X, Z)  # added to the sums when they are read
        return [exact.covariances, real.cross, pooled.total, QleaceEraser.from_moments(exact).maps]

    assert same_with_autocast(moments)
    covariances = ClassMoments.fit(X, Z).covariances
    assert same_with_autocast(lambda: [barycenter(covariances).covariance])
    assert same_with_autocast(
        lambda: list(map(torch.tensor, certify(X, X + 0.01, Z, ClassMoments.fit(X, Z)).numbers().values()))
    )
