"""The CNN of appendix A.3 is the paper's, layer by layer, and works on images smaller than the paper's."""

import torch
import torch.nn.functional as F
from torch import nn

from models.classifier import count_parameters
from models.cnn import CNN


def paper(channels: int, positions: int, outputs: int) -> nn.Sequential:
    """The table of appendix A.3, in PyTorch's own layers."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.Conv2d(64, 256, 3), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256 * positions, 256), nn.ReLU(),
        nn.Linear(256, outputs),
    )  # fmt: skip


def ours(shape: tuple[int, int, int]) -> CNN:
    model = CNN(shape, 2, width=32, depth=1, parametrization="mup")
    model.reset_parameters(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.readout.weight.normal_(generator=torch.Generator().manual_seed(1))
    return model


def test_it_computes_what_the_papers_table_says() -> None:
    for shape, positions in (((1, 28, 28), 9), ((3, 32, 20), 4)):
        model, reference = ours(shape), paper(shape[0], positions, 2)
        assert count_parameters(model) == count_parameters(reference)
        for theirs, parameter in zip(reference.parameters(), model.parameters(), strict=True):
            theirs.data.copy_(parameter)
        x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(2))
        torch.testing.assert_close(model.double()(x.double()), reference.double()(x.double()))


def test_small_images_get_zeros_around_them() -> None:
    model, x = ours((1, 8, 9)), torch.randn(5, 1, 8, 9, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(model(x), paper_on(model, F.pad(x, (5, 6, 6, 6))))


def paper_on(model: CNN, x: torch.Tensor) -> torch.Tensor:
    reference = paper(1, 1, 2)
    for theirs, parameter in zip(reference.parameters(), model.parameters(), strict=True):
        theirs.data.copy_(parameter)
    return reference(x)
