"""Networks that go by the image, networks that go by the map, and one trained on digits that went through theirs."""

from pathlib import Path

import pytest
import torch

from erasure.store.storage import read_json
from scripts.studies.readers import Heard, main
from train.__main__ import VERB as TRAIN

TINY = ["model=mlp", "model.width=16", "train=quick", "train.max_epochs=8", "seeds=[0,1]", "logger.mode=disabled"]


def test_who_goes_by_the_image_and_who_by_the_map() -> None:
    labels = torch.tensor([0, 1, 2, 2])
    slopes = torch.arange(3)[:, None].expand(3, 3, 4)
    means = torch.arange(3)[:, None, None].expand(3, 3, 4)
    assert Heard.of(labels.expand(3, 3, 4), labels) == Heard(1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    assert Heard.of(means, labels) == Heard(1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    assert Heard.of(slopes, labels) == Heard(1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0)
    none = Heard.of(torch.zeros(3, 3, 4, dtype=torch.int64), labels)
    assert none == Heard(0.25, 0.25, 3 / 8, 0.25, 3 / 8, 3 / 8, 0.375)


def test_networks_trained_on_the_digits(command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--eraser", "oracle_leace"]) == 2
    assert "train the network first, python -m train model=mlp" in capsys.readouterr().err
    assert command(TRAIN, "-m", "eraser=control,oracle_leace", *TINY).code == 0
    capsys.readouterr()
    assert main([*TINY, "--eraser", "oracle_leace"]) == 0
    lines = [line.partition(" ± ")[0].split() for line in capsys.readouterr().out.splitlines()]
    right = {cells[0]: float(cells[-1]) for cells in lines if cells and cells[0] in ("control", "oracle")}
    (own,) = Path("runs").glob("train-digits-oracle_leace-*/result.json")
    (control,) = Path("runs").glob("train-digits-control-*/result.json")
    accuracy = [100 * sum(read_json(path)["final"]["accuracy"]) / 2 for path in (control, own)]
    assert right["oracle"] == pytest.approx(accuracy[1], abs=0.06), "as the run's own test images"
    assert right["control"] < accuracy[0] - 5, "which has not seen the erased"


@pytest.mark.parametrize("eraser", ["leace", "gradient"])
def test_an_eraser_without_maps_of_classes_is_one_line(eraser: str, command, capsys) -> None:
    assert main([*TINY, "--eraser", eraser]) == 2
    assert capsys.readouterr().err.startswith(f"eraser={eraser}: has no map for each class; choose qleace")
