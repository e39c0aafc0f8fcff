"""Codelengths of single labels in a report, of real runs."""

import csv
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from harness.example_bits import CodedBits
from mdl.__main__ import COMMAND as MDL
from scripts.report.__main__ import main

CODED = ["train=quick", "train.max_epochs=8", "mdl=quick", "model=linear", "seeds=[0,1]", "logger.mode=disabled"]


def code(bits: list[list[float]], trained_on: list[list[int]], seeds: tuple[int, ...] = (0, 1)) -> CodedBits:
    return CodedBits(seeds, torch.arange(4), torch.tensor([0, 0, 1, 0]), torch.tensor(bits), torch.tensor(trained_on))


def same(values: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


def test_information_is_what_a_label_costs_less_than_by_its_share() -> None:
    nan = torch.nan
    coded = code([[0.0, 1.0, 1.0, 9.0], [0.0, 2.0, 3.0, 9.0]], [[5, 5, 5, 0], [0, 5, 5, 0]])
    of_zero = -torch.tensor(0.75).log2().item()
    same(coded.information, [of_zero, of_zero - 1.5, 2 - 2.0, nan])
    other = code([[0.5, 0.5, 0.0, 0.0]], [[5, 5, 0, 5]], seeds=(1,))
    same(coded.above(other), [nan, 1.5, nan, nan])
    assert coded.reliability is None  # two labels that both seeds coded by a network
    assert other.reliability is None
    rows = [[1.0, 2.0, 3.0, 9.0], [2.0, 4.0, 6.0, 0.0], [3.0, 2.0, 1.0, 9.0]]
    assert code(rows, [[5, 5, 5, 0]] * 3, (0, 1, 2)).reliability == pytest.approx((1 - 1 - 1) / 3)


def test_a_report_says_what_labels_cost_and_shows_the_images(command, tmp_path: Path, real_figures) -> None:
    assert command(MDL, "-m", "eraser=control,leace", *CODED).code == 0
    out = tmp_path / "report"
    assert main(["runs", "--out", str(out), "--grids", "--cache-dir", "cache"]) == 0
    (path,) = (out / "tables").glob("mdl-*-examples.csv")
    control, leace = csv.DictReader(path.open())
    assert int(control["examples"]) > 1200
    assert float(control["information_bits_mean"]) > 1 > 0.1 > float(leace["information_bits_mean"])
    assert -1 < float(control["correlation_between_seeds"]) < 1
    difference = float(control["information_bits_mean"]) - float(leace["information_bits_mean"])
    assert float(leace["above_control_bits_mean"]) == pytest.approx(difference, rel=0.1)
    page = (out / "index.html").read_text()
    assert "What single labels cost: digits" in page
    (figure,) = (out / "figures").glob("*-examples.png")
    with Image.open(figure) as image:
        assert min(image.size) > 300
    assert f'src="figures/{figure.name}"' in page
    assert 'src="figures/digits-erasers.png"' in page
