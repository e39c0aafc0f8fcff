"""Under μP activations keep their scale over width, and the best learning rate stays put; without μP neither does.

Tolerances: finite widths add terms of order 1/width, so exponents measured over a fourfold range of narrow
networks are not 0 and 1 exactly. Measured on these seeds (docs/training.md): |exponent| at most 0.1 under μP
for layers whose width grows; the logits' exponent is 0.8 to 1.2 without.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from models.mup import Parametrization
from scripts.studies.mup import (
    PARAMETRIZATIONS,
    TRANSFERS,
    coordinates,
    final_loss_bits,
    movement,
    optimum,
    study,
)

CASES = {
    "mlp": [256, 512, 1024, 2048],
    "mlp, activation gelu": [256, 512, 1024, 2048],
    "mlp, activation swiglu": [256, 512, 1024, 2048],
    "mlp, depth 4": [256, 512, 1024, 2048],
    "lenet": [256, 512, 1024, 2048],
    "resnet, depth 1": [16, 32, 64, 128],
    "convnextv2, depth 1": [10, 20, 30, 40],
    "swinv2, depth 1": [20, 40, 60, 80],
}
# Swin's bias network has 512 units at every width and as many outputs as there are heads, here 1 to 4 in the
# first stage: what its heads learn from one another through it fades as their number grows.
FADING = "cpb_mlp"


def exponents_of(
    model: str, widths: list[int], parametrization: Parametrization, *seeds: int
) -> dict[str, tuple[float, float]]:
    """Return exponents of width in the scales of output and change per layer, after three steps."""
    by_width = [coordinates(model, width, parametrization, steps=3, seeds=seeds) for width in widths]

    def exponent(layer: str, which: int) -> float:
        scales = [layers[layer][-1][which] for layers in by_width]
        return float(np.polyfit(np.log(widths), np.log(scales), 1)[0])

    return {layer: (exponent(layer, 0), exponent(layer, 1)) for layer in by_width[0]}


@pytest.mark.parametrize("model", CASES)
def test_flat_under_mup(model: str) -> None:
    seeds = [0, 1] if "swin" in model else [0]  # its few heads vary most by seed
    exponents = exponents_of(model, CASES[model], "mup", *seeds)
    assert "readout" in exponents
    for layer, (scale, change) in exponents.items():
        if FADING not in layer:
            assert abs(scale) < 0.15, (layer, scale)
            assert -0.3 < change < 0.15, (layer, change)
        assert change < 0.15, (layer, change)
    _, of_logits = exponents["readout"]
    assert abs(of_logits) < 0.15


@pytest.mark.parametrize("model", [model for model in CASES if not model.startswith("mlp, ")])
def test_growing_under_the_standard_parametrisation(model: str) -> None:
    widths = CASES[model] if model == "lenet" else CASES[model][:3]  # the widest takes half the time
    exponents = exponents_of(model, widths, "standard", 0)
    _, of_logits = exponents["readout"]
    assert of_logits > 0.5
    growing = [layer for layer, (_, change) in exponents.items() if change > 0.3]
    assert len(growing) >= len(exponents) / 3, exponents


def test_the_optimum_lies_between_learning_rates_unless_the_best_is_at_an_end_or_beside_a_divergence() -> None:
    losses = {2.0**k: float(np.exp(0.1 * np.log(2.0**k / 0.007) ** 2)) for k in range(-10, -3)}
    assert optimum(losses) == pytest.approx(0.007)
    assert optimum({1e-3: 1.0, 2e-3: 2.0, 4e-3: 3.0}) == 1e-3
    assert optimum({1e-3: 2.0, 2e-3: 1.0, 4e-3: float("inf")}) == 2e-3
    at = [{0.5 * best: 3.0, best: 1.0, 2 * best: 3.0} for best in (0.01, 0.04, 0.02)]
    assert movement(dict(enumerate(at))) == pytest.approx(4.0)


def test_transfer_for_the_mlp_over_an_eightfold_range() -> None:
    rates = [2.0**k for k in range(-9, -3)]  # round both optima, a factor of four apart
    search = dataclasses.replace(TRANSFERS["mlp"], steps=20, seeds=[0])
    mup, standard = (
        movement({width: {lr: final_loss_bits("mlp", width, p, lr, search) for lr in rates} for width in (64, 512)})
        for p in PARAMETRIZATIONS
    )
    assert mup < 1.5
    assert standard > 2


def test_the_command_prints_the_best_rates_and_draws_both_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], real_figures
) -> None:
    few = dataclasses.replace(TRANSFERS["mlp"], widths=[8, 16], steps=2, seeds=[0], learning_rates=[1e-3, 1e-2, 1e-1])
    study({"mlp, depth 1": [8, 16]}, {"mlp": few}, tmp_path)
    assert "moves by" in capsys.readouterr().out
    for name in ("coord_check.svg", "lr_transfer.svg"):
        assert (tmp_path / name).read_text().startswith("<?xml")
