"""The toy dataset of Harutyunyan et al. 2021: SGD ends near least squares, and the command says what it found."""

from pathlib import Path

import torch

from scripts.studies.toy_information import draw, information, study, train


def test_sgd_ends_near_least_squares_and_examples_that_fit_badly_tell_more() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = draw(80, generator)
    solution = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    weights = train(x[None], y[None], 200, generator, epochs=70)
    torch.testing.assert_close(weights.mean(0), solution, rtol=0, atol=0.05)
    ranked = (x @ solution - y).abs().argsort().tolist()
    best, worst = (information(x, y, i, 150, 2, generator, epochs=70)[0] for i in (ranked[0], ranked[-1]))
    assert worst.bound > 0.2 > best.bound > 0


def test_it_prints_three_examples_and_draws_the_last(tmp_path: Path, capsys, real_figures) -> None:
    assert study(tmp_path / "toy.png", runs=20, draws=2, epochs=70) == 0
    assert capsys.readouterr().out.count(" nats") == 3
    assert (tmp_path / "toy.png").stat().st_size > 10_000
