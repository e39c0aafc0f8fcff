"""Square-root factors of covariances against their definition."""

from typing import Any

import pytest
import torch

from erasure import ClassMoments, ConceptMoments, LeaceEraser
from erasure.covariance_factor import CovarianceFactor


def covariance(rank: int, d: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    root = torch.randn(d, rank, dtype=torch.float64, generator=generator)
    root = root * torch.logspace(0, -6, d, dtype=torch.float64)[:, None]  # pixels of very different contrast
    return root @ root.T


@pytest.mark.parametrize(("rank", "full"), [(30, True), (12, True), (7, False), (1, False)])
def test_the_factor_squares_to_the_covariance(rank: int, full: bool) -> None:
    sigma = covariance(rank)
    factor = CovarianceFactor(sigma, torch.zeros(12, dtype=torch.float64))
    assert factor.full_rank == full
    r = 12 if full else rank
    f = factor.multiply(torch.eye(r, dtype=torch.float64))
    scale = sigma.diagonal().sqrt()
    torch.testing.assert_close((f @ f.T) / scale / scale[:, None], sigma / scale / scale[:, None], rtol=0, atol=1e-12)
    inverse = factor.solve(torch.eye(12, dtype=torch.float64))
    torch.testing.assert_close(inverse @ f, torch.eye(r, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(factor.solve_transposed(torch.eye(r, dtype=torch.float64)), inverse.T)


def test_constant_coordinates_are_left_out() -> None:
    sigma = torch.diag(torch.tensor([1.0, 0.0, 4.0, 1e-33], dtype=torch.float64))
    factor = CovarianceFactor(sigma, torch.full((4,), 0.3, dtype=torch.float64))
    assert factor.full_rank
    assert factor.solve(torch.ones(4, 1, dtype=torch.float64)).flatten().tolist() == [1.0, 0.5]
    assert factor.matrix.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    assert CovarianceFactor(0 * sigma, torch.ones(4, dtype=torch.float64)).solve(torch.ones(4, 2).double()).shape == (
        0,
        2,
    )


def test_a_singular_covariance_that_rounding_lets_through_is_still_singular() -> None:
    """Cholesky's last pivot of a singular matrix is noise, and as often positive as not."""
    passed = 0
    for seed in range(40):
        root = torch.randn(12, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        sigma = root @ root.T
        passed += not bool(
            torch.linalg.cholesky_ex(sigma / sigma.diagonal().sqrt() / sigma.diagonal().sqrt()[:, None])[1]
        )
        factor = CovarianceFactor(sigma)
        assert (factor.rank, factor.full_rank) == (11, False)
        assert float(factor.solve(torch.eye(12, dtype=torch.float64)).norm()) < 1e4
    assert passed > 5


def test_a_rank_that_so_few_examples_cannot_have_is_refused() -> None:
    sigma = covariance(7)
    assert CovarianceFactor(sigma, examples=8).rank == 7
    with pytest.raises(ValueError, match="7 examples has rank 7, above the possible 6: rounding passes for variance"):
        CovarianceFactor(sigma, examples=7)


def test_noise_of_the_data_s_precision_is_not_variance() -> None:
    """Rounding of float32 passes for variance in float64, and an eraser of it amplifies rounding a million times."""
    root = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = root @ torch.randn(5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noise = 1 + torch.randn(4000, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for dtype, roundings in ((torch.float32, 10), (torch.bfloat16, 0)):
        epsilon = torch.finfo(dtype).eps
        states = (exact * (1 + roundings * epsilon * noise)).to(dtype).double()
        assert CovarianceFactor(torch.cov(states.T)).rank == 8
        assert CovarianceFactor(torch.cov(states.T), epsilon=epsilon).rank == 5
        far = (exact + 100).to(dtype).double()
        assert CovarianceFactor(torch.cov(far.T), far.mean(0), epsilon=epsilon).rank <= 5


@pytest.mark.parametrize("width", [6, 16, 64, 128])
def test_erasers_of_low_rank_states_hardly_amplify_rounding(width: int) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        linear, norm = torch.nn.Linear(width, width), torch.nn.LayerNorm(width)
        z = torch.arange(4000) % 4
        x = torch.randn(4000, width) + torch.randn(4, width)[z]
        with torch.no_grad():
            states = norm(LeaceEraser.fit(linear(x), z).to(torch.float32)(linear(x)))
        eraser, half = LeaceEraser.fit(states, z), LeaceEraser.fit(states.bfloat16(), z)
        assert torch.linalg.matrix_norm(eraser.left @ eraser.right, 2) < 1e3
        error = half.to(torch.float32)(states.bfloat16()).double() - half(states.bfloat16().double())
        assert float((error / states.std(0)).abs().max()) < 0.05


def test_moments_carry_the_least_precision_of_their_data() -> None:
    x, z = torch.randn(20, 3), torch.arange(20) % 2
    both: list[Any] = [ClassMoments(3, 2), ConceptMoments(3, 2)]
    for moments in both:
        assert moments.update(x.double(), z).epsilon == torch.finfo(torch.float64).eps
        assert moments.update(x, z).epsilon == torch.finfo(torch.float32).eps
        other = type(moments)(3, 2).update(x.bfloat16(), z)
        assert moments.merge(other).epsilon == torch.finfo(torch.bfloat16).eps
        assert type(moments)(3, 2).load_state_dict(moments.state_dict()).epsilon == moments.epsilon
