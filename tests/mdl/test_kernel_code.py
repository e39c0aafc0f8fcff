"""The kernel code against refitting, and as a code: it sums to one, sees nothing to come, costs log2 k at worst."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mdl.kernel_code import POWERS, RIDGES, SHARPNESS, KernelCode, mixture_bits
from models.kernel import Kernel

N, K = 300, 10
KERNEL = Kernel((1, 8, 8), K, kernel="ntk", depth=2, bandwidth=0.5)
ORDER = torch.arange(N)


@pytest.fixture(scope="module")
def some(digits: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """350 digits, standardised, in an order."""
    x, z = digits
    drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:350]
    return ((x - x.mean()) / x.std())[drawn], z[drawn]


def refitted(kernel: Tensor, z: Tensor, ridge: float, n: int, i: int) -> tuple[Tensor, float]:
    """Prediction of example i by kernel ridge regression on the first n, and its standard deviation."""
    system = kernel[:n, :n] + ridge * torch.eye(n, dtype=kernel.dtype)
    solved = torch.linalg.solve(system, torch.stack([kernel[:n, i]], 1)).squeeze(1)
    mean = solved @ (F.one_hot(z[:n], K).double() - 1 / K)
    return mean, math.sqrt(kernel[i, i] + ridge - kernel[:n, i] @ solved)


@pytest.mark.parametrize("ridge", [1e-4, 1.0])
def test_one_step_ahead_predictions_are_those_of_refitting_at_every_n(
    some: tuple[Tensor, Tensor], ridge: float
) -> None:
    x, z = some[0][:N], some[1][:N]
    kernel = KERNEL(x, x)
    ((_, factor),) = KernelCode(kernel, z, K, ridges=[ridge]).factors(ORDER)
    mean, deviation = factor.ahead()
    for i in range(N):
        expected, spread = refitted(kernel, z, ridge, i, i)
        assert (mean[i] - expected).abs().max() < 1e-10
        assert abs(float(deviation[i]) - spread) < 1e-10
    residual = F.one_hot(z, K).double() - 1 / K - mean
    torch.testing.assert_close(residual, deviation[:, None] * factor.targets, rtol=0, atol=1e-12)  # the formula


def test_test_predictions_are_those_of_refitting_at_every_size(some: tuple[Tensor, Tensor]) -> None:
    x, z = some
    everything = KERNEL(x, x)
    code = KernelCode(everything[:N, :N], z[:N], K, ridges=[0.01])
    ((_, factor),) = code.factors(ORDER)
    sizes = [1, 57, N]
    predicted = factor.predict(everything[:N, N:].contiguous(), KERNEL.diagonal(x[N:]) + 0.01, sizes)
    for n, (mean, deviation) in zip(sizes, predicted, strict=True):
        for j in range(0, 50, 7):
            expected, spread = refitted(everything, z, 0.01, n, N + j)
            assert (mean[j] - expected).abs().max() < 1e-10
            assert abs(float(deviation[j]) - spread) < 1e-10


def test_a_test_example_is_told_what_the_next_label_would_be(some: tuple[Tensor, Tensor]) -> None:
    x, z = some
    everything, n = KERNEL(x, x), 120
    code = KernelCode(everything[:n, :n], z[:n], K)
    _, said = code.code(ORDER[:n], everything[n:, :n], KERNEL.diagonal(x[n:]), [40, n])
    assert (said.exp().sum(2) - 1).abs().max() < 1e-12
    for size, log_p in zip([40, n], said, strict=True):
        for j in (n, n + 9):
            order = torch.cat([torch.arange(size), torch.tensor([j])])
            bits, _ = KernelCode(everything, z, K).code(order)
            assert float(bits[-1]) == pytest.approx(-float(log_p[j - n, z[j]]) / math.log(2), abs=1e-9)


def test_it_is_a_code_probabilities_sum_to_one_before_the_label_is_seen(some: tuple[Tensor, Tensor]) -> None:
    x, z = some[0][:60], some[1][:60]
    kernel = KERNEL(x, x)
    for i in (0, 1, 17, 59):
        shares = []
        for label in range(K):
            other = z.clone()
            other[i] = label
            bits, _ = KernelCode(kernel, other, K).code(torch.arange(60))
            shares.append(2 ** -float(bits[i]))
        assert sum(shares) == pytest.approx(1, abs=1e-12)


def test_what_comes_later_changes_no_bit_of_what_was_paid(some: tuple[Tensor, Tensor]) -> None:
    x, z = some[0][:N], some[1][:N]
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    paid, _ = KernelCode(KERNEL(x, x), z, K).code(order)
    for i in (0, 1, 99, 250):
        poisoned_x, poisoned_z, later = x.clone(), z.clone(), order[i + 1 :]
        poisoned_x[later], poisoned_z[later] = 1e3 * x[later].flip(0) + 7, (z[later] + 1) % K
        again, _ = KernelCode(KERNEL(poisoned_x, poisoned_x), poisoned_z, K).code(order)
        assert torch.equal(again[: i + 1], paid[: i + 1])
        assert not torch.equal(again[i + 1 :], paid[i + 1 :])


def test_a_constant_predictor_costs_log2_k(some: tuple[Tensor, Tensor]) -> None:
    z = some[1][:N] % 9  # no example has the last class
    nothing = torch.zeros(N, N, dtype=torch.float64)
    bits, said = KernelCode(nothing, z, K).code(ORDER, nothing[:5], torch.zeros(5, dtype=torch.float64), [7, N])
    assert (bits - math.log2(K)).abs().max() < 1e-12
    assert float(bits.sum()) == pytest.approx(N * math.log2(K), abs=1e-9)
    assert (said + math.log(K)).abs().max() < 1e-12


def test_the_mixture_costs_what_the_mean_of_its_members_probabilities_says(some: tuple[Tensor, Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    log_p = torch.rand(40, 12, dtype=torch.float64, generator=generator).log()
    bits = float(mixture_bits(log_p).sum())
    members = -log_p.sum(0) / math.log(2)
    assert bits == pytest.approx(-math.log2(float((2**-members).mean())), rel=1e-12)
    assert float(members.min()) <= bits <= float(members.min()) + math.log2(12)


def test_the_kernel_is_brought_into_order_block_by_block(some: tuple[Tensor, Tensor], monkeypatch) -> None:
    x, z = some[0][:60], some[1][:60]
    whole, _ = KernelCode(KERNEL(x, x), z, K, ridges=[1.0]).code(ORDER[:60].flip(0))

    class Watched(Tensor):
        def __getitem__(self, index: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            rows.append(len(index))
            return self.as_subclass(Tensor)[index]

        def new_empty(self, *size: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return self.as_subclass(Tensor).new_empty(*size)

    rows: list[int] = []
    monkeypatch.setattr("mdl.kernel_code._GATHERED", 25 * 60)
    blocks, _ = KernelCode(KERNEL(x, x).as_subclass(Watched), z, K, ridges=[1.0]).code(ORDER[:60].flip(0))
    assert rows == [25, 25, 10]
    assert torch.equal(blocks, whole)


def test_labels_that_say_nothing_cost_little_more_than_the_uniform_code(some: tuple[Tensor, Tensor]) -> None:
    x = some[0][:N]
    z = torch.randint(K, (N,), generator=torch.Generator().manual_seed(1))
    bits, _ = KernelCode(KERNEL(x, x), z, K).code(ORDER)
    members = len(RIDGES) * 75
    assert float(bits.sum()) < N * math.log2(K) + math.log2(members)


def test_members_are_those_of_the_documented_formula_to_float64s_last_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(6, K, generator=generator, dtype=torch.float64)
    deviation = 0.1 + torch.rand(6, generator=generator, dtype=torch.float64)
    code = KernelCode(torch.eye(6, dtype=torch.float64), torch.zeros(6, dtype=torch.int64), K)
    expected = [(b * mean / deviation[:, None] ** p).log_softmax(1) for p in POWERS for b in SHARPNESS]
    torch.testing.assert_close(code.members(mean, deviation), torch.stack(expected), rtol=1e-13, atol=1e-13)
