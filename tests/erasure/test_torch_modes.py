"""Statistics, erasers and certificates do not depend on modes of torch: autocast, inference mode, default dtype."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    PublishedGradientEraser,
    QleaceEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
    TruncatedQleaceEraser,
)
from erasure.certificate import certify
from erasure.matched_samples import counterpart
from erasure.torch_modes import default_modes
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
    PublishedGradientEraser: {"max_iterations": 3},
}
KINDS = [LeaceEraser, OracleLeaceEraser, SplinceEraser, QleaceEraser, TruncatedQleaceEraser, RandomEditEraser, *OPTIONS]


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def same_in_any_mode(compute: Callable[[], Any]) -> bool:
    outside = compute()
    for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), float64_by_default()):
        with mode:
            inside = compute()
        if not all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True)):
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_erasers_are_fitted_and_applied_in_their_own_precision(kind: type[Eraser]) -> None:
    def erased() -> list[Tensor]:
        eraser = kind.fit(X, Z, **OPTIONS.get(kind, {}))
        return [*eraser.state_dict().values(), eraser(X, Z), eraser.to(torch.float32)(X, Z)]

    assert same_in_any_mode(erased)


def test_moments_and_what_is_computed_from_them() -> None:
    def moments() -> list[Tensor]:
        exact, real = ClassMoments.fit(BYTES, Z), ConceptMoments.fit(X, X[:, :2])
        pooled = ClassMoments(8, 3, pooled=True).update(X, Z)  # added to the sums when they are read
        return [exact.covariances, real.cross, pooled.total, QleaceEraser.from_moments(exact).maps]

    assert same_in_any_mode(moments)
    assert same_in_any_mode(lambda: counterpart("independent", X, Z))
    covariances = ClassMoments.fit(X, Z).covariances
    assert same_in_any_mode(lambda: [barycenter(covariances).covariance])
    assert same_in_any_mode(
        lambda: [torch.tensor([*certify(X, X + 0.01, Z, ClassMoments.fit(X, Z)).numbers().values()]).float()]
    )


def test_the_default_dtype_is_restored_once_the_last_of_several_threads_has_ended() -> None:
    first_has_begun, second_has_begun, first_has_ended = (threading.Event() for _ in range(3))
    seen = []

    @default_modes()
    def first() -> None:
        first_has_begun.set()
        second_has_begun.wait(10)

    @default_modes()
    def second() -> None:
        second_has_begun.set()
        first_has_ended.wait(10)
        seen.append(torch.get_default_dtype())

    torch.set_default_dtype(torch.float64)
    try:
        threads = [threading.Thread(target=function) for function in (first, second)]
        threads[0].start()
        first_has_begun.wait(10)
        threads[1].start()
        threads[0].join()
        first_has_ended.set()
        threads[1].join()
        assert seen == [torch.float32]
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
