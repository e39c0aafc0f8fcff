"""Crops and flips, one per example, against torchvision-style padding and slicing done by hand."""

import pytest
import torch
import torch.nn.functional as F

from erasure.dataset import LabelledImages
from train.device_images import DeviceImages


def images(n: int = 6, c: int = 3, h: int = 5, w: int = 4, **options) -> DeviceImages:
    generator = torch.Generator().manual_seed(0)
    part = LabelledImages(torch.rand(n, c, h, w, generator=generator), torch.arange(n))
    options = {"padding": 0, "flip": False} | options
    return DeviceImages(part, torch.full((c,), 0.5), torch.full((c,), 2.0), device=torch.device("cpu"), **options)


def test_images_are_standardised_per_channel() -> None:
    data = images()
    original = torch.rand(6, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(data.images, (original - 0.5) / 2)
    assert data.image_shape == (3, 5, 4)


@pytest.mark.parametrize("flip", [False, True])
def test_every_view_is_a_crop_of_the_padded_image_mirrored_or_not(flip: bool) -> None:
    data = images(padding=2, flip=flip)
    assert data.num_views == 25 * (1 + flip)
    padded = F.pad(data.images, (2, 2, 2, 2))
    for view in range(data.num_views):
        mirrored, offset = divmod(view, 25)
        dy, dx = divmod(offset, 5)
        expected = padded[:, :, dy : dy + 5, dx : dx + 4]
        seen, labels = data.augmented(torch.arange(6), torch.full((6,), view))
        assert torch.equal(seen, expected.flip(-1) if mirrored else expected)
        assert labels.tolist() == list(range(6))


def test_each_example_of_a_batch_has_its_own_view() -> None:
    data = images(padding=1, flip=True)
    index = torch.tensor([[0, 1, 1], [5, 0, 2]])
    view = torch.tensor([[3, 17, 4], [0, 3, 9]])
    batch, labels = data.augmented(index, view)
    assert batch.shape == (2, 3, 3, 5, 4)
    assert torch.equal(labels, index)
    for s in range(2):
        for b in range(3):
            alone, _ = data.augmented(index[s, b][None], view[s, b][None])
            assert torch.equal(batch[s, b], alone[0])


def test_without_padding_and_flip_the_only_view_is_the_image() -> None:
    data = images()
    assert data.num_views == 1
    index = torch.tensor([4, 2])
    assert torch.equal(data.augmented(index, torch.zeros(2, dtype=torch.long))[0], data.plain(index)[0])
