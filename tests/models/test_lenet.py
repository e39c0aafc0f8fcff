"""LeNet has as many parameters as the MLP of its width and depth."""

import itertools

import pytest
import torch

from models.classifier import count_parameters
from models.lenet import LeNet
from models.lenet_sizes import matching_sizes, mlp_parameters
from models.mlp import MLP

SHAPES = [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 33, 47)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("width", [16, 17, 128, 500, 4096])
def test_parameters_match_within_two_percent(shape: tuple[int, int, int], width: int) -> None:
    for depth in (1, 2, 3, 4, 8, 16):
        size = {"width": width, "depth": depth}
        lenet, mlp = (
            count_parameters(model)
            for model in (
                _on_meta(LeNet, shape, **size),
                _on_meta(MLP, shape, **size, activation="relu"),
            )
        )
        assert abs(lenet / mlp - 1) < 0.02, (depth, lenet, mlp)


def _on_meta(kind, shape, **options):
    with torch.device("meta"):
        return kind(shape, 10, **options, parametrization="standard")


def test_sizes_grow_with_width_in_lenets_proportions() -> None:
    sizes = [matching_sizes((3, 32, 32), 10, w, 2) for w in (64, 128, 256, 512)]
    for narrow, wide in itertools.pairwise(sizes):
        assert narrow.first < wide.first
        assert narrow.second < wide.second
        assert narrow.units < wide.units
    for size in sizes:
        assert size.first / size.second == pytest.approx(6 / 16, rel=0.2)
        assert size.units / size.second == pytest.approx(84 / 16, rel=0.2)


def test_what_cannot_be_matched_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.width=1, model\.depth=1: the MLP has 85 parameters, the nearest"):
        LeNet((1, 8, 8), 10, width=1, depth=1, parametrization="mup")
    with pytest.raises(ValueError, match=r"images of 3×8: LeNet needs sides of at least 4"):
        LeNet((1, 3, 8), 10, width=128, depth=2, parametrization="mup")


@pytest.mark.parametrize(("shape", "depth"), [((1, 8, 8), 1), ((3, 33, 47), 3)])
def test_the_formula_counts_the_parameters(shape: tuple[int, int, int], depth: int) -> None:
    lenet = _on_meta(LeNet, shape, width=64, depth=depth)
    assert matching_sizes(shape, 10, 64, depth).parameters(shape, 10, depth) == count_parameters(lenet)
    assert mlp_parameters(shape, 10, 64, depth) == count_parameters(
        _on_meta(MLP, shape, width=64, depth=depth, activation="relu")
    )


def test_a_signal_keeps_its_size_through_the_layers() -> None:
    """He et al. 2015: weights of variance 2 / fan-in, as a ReLU lets half of the power through."""
    lenet = LeNet((3, 32, 32), 10, width=512, depth=4, parametrization="standard")
    lenet.reset_parameters(torch.Generator().manual_seed(0))
    for name, weight in lenet.named_parameters():
        if weight.ndim > 1 and not name.startswith("readout"):
            assert float(weight.detach().var()) * weight[0].numel() == pytest.approx(2, rel=0.1), name
