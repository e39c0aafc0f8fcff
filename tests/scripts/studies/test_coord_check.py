"""Activations keep their scale over width under μP, and do not under the standard parametrisation.

Tolerances: finite widths add terms of order 1/width, so exponents measured over a fourfold range of narrow
networks are not 0 and 1 exactly. Measured on these seeds (docs/training.md): |exponent| at most 0.1 under μP
for layers whose width grows; the logits' exponent is 0.8 to 1.2 without.
"""

from pathlib import Path

import pytest

from scripts.studies import coord_check
from scripts.studies.coord_check import coordinates, slope, slopes
from scripts.studies.mup_helpers import Architecture

CASES = {
    "mlp": [256, 512, 1024, 2048],
    "mlp:activation=gelu": [256, 512, 1024, 2048],
    "mlp:activation=swiglu": [256, 512, 1024, 2048],
    "mlp:depth=4": [256, 512, 1024, 2048],
    "lenet": [256, 512, 1024, 2048],
    "resnet:depth=1": [16, 32, 64, 128],
    "convnextv2:depth=1": [10, 20, 30, 40],
    "swinv2:depth=1": [20, 40, 60, 80],
}
# Swin's bias network has 512 units at every width and as many outputs as there are heads, here 1 to 4 in the
# first stage: what its heads learn from one another through it fades as their number grows.
FADING = "cpb_mlp"
STEPS = 3


def measured(model: str, widths: list[int], parametrization, *seeds: int):
    architecture = Architecture.parse(model)
    by_width = {
        width: coordinates(architecture, width, parametrization, lr=1e-3, steps=STEPS, seeds=seeds) for width in widths
    }
    return slopes(by_width, STEPS)


@pytest.mark.parametrize("model", CASES)
def test_flat_under_mup(model: str) -> None:
    exponents = measured(
        model, CASES[model], "mup", *([0, 1] if "swin" in model else [0])
    )  # its few heads vary most by seed
    assert "readout" in exponents
    for layer, (scale, change) in exponents.items():
        if FADING not in layer:
            assert abs(scale) < 0.15, (layer, scale)
            assert -0.3 < change < 0.15, (layer, change)
        assert change < 0.15, (layer, change)
    _, of_logits = exponents["readout"]
    assert abs(of_logits) < 0.15


@pytest.mark.parametrize("model", [model for model in CASES if not model.startswith("mlp:")])
def test_growing_under_the_standard_parametrisation(model: str) -> None:
    widths = CASES[model] if model == "lenet" else CASES[model][:3]  # the widest takes half the time
    exponents = measured(model, widths, "standard", 0)
    _, of_logits = exponents["readout"]
    assert of_logits > 0.5
    growing = [layer for layer, (_, change) in exponents.items() if change > 0.3]
    assert len(growing) >= len(exponents) / 3, exponents


def test_slope_is_the_exponent() -> None:
    assert slope([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)
    assert slope([1, 2, 4, 8], [5.0] * 4) == pytest.approx(0.0)


def test_the_command_prints_a_table_and_draws_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], real_figures
) -> None:
    figure = tmp_path / "figure.png"
    small = ["--model", "mlp:depth=1", "--widths", "8", "16", "32", "64", "--steps", "2", "--seeds", "0"]
    assert coord_check.main([*small, "--out", str(figure)]) == 0
    shown = capsys.readouterr().out
    assert "hidden.0" in shown
    assert "readout" in shown
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps=0: must be at least 1"),
        (["--widths", "8", "16", "8"], "--widths=[8, 16, 8]: needs at least 4 different widths"),
    ],
)
def test_bad_values_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        coord_check.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
