"""Labels read off erased images by who knows what became of each class, and not where all became the same."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from scripts.studies.label_leakage import affine_maps, by_subspace, decode, main, subspaces

LEVELS = 16


def written(maps: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Images [n, d] of whole grey levels, the same moved by the maps [k, d, d] of their classes, and the classes."""
    k, d, _ = maps.shape
    labels = torch.arange(40 * k) % k
    before = torch.randint(LEVELS + 1, (len(labels), d), generator=generator).double() / LEVELS
    return before, torch.einsum("nd,nde->ne", before, maps[labels]) + labels[:, None] * 0.01, labels


def test_maps_of_classes_are_a_message_and_one_map_of_all_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    class_maps = torch.eye(12).double() + 0.1 * torch.randn(3, 12, 12, generator=generator, dtype=torch.float64)
    before, after, labels = written(class_maps, generator)
    possible, nearest = decode(after, affine_maps(after, before, labels), LEVELS)
    assert possible[torch.arange(len(labels)), labels].all()
    assert possible.double().mean() < 0.5
    assert torch.equal(nearest, labels)
    before, after, labels = written(class_maps[:1].expand(3, -1, -1), generator)
    after = after - labels[:, None] * 0.01
    possible, nearest = decode(after, affine_maps(after, before, labels), LEVELS)
    assert possible.all()
    assert not nearest.any()  # all the same


def test_subspaces_of_classes_tell_them_apart_and_one_of_all_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    class_bases = torch.linalg.qr(torch.randn(3, 12, 4, generator=generator, dtype=torch.float64))[0]
    for bases, accuracy in ((class_bases, 1.0), (class_bases[:1].expand(3, -1, -1), 1 / 3)):
        images = torch.einsum(
            "nr,ndr->nd", torch.randn(300, 4, generator=generator, dtype=torch.float64), bases[labels]
        )
        fitted = subspaces(images[:150], labels[:150])
        assert [basis.shape[1] for basis in fitted] == [4, 4, 4]
        said, _ = by_subspace(images[150:], torch.zeros(12), fitted)
        assert (said == labels[150:]).double().mean() == pytest.approx(accuracy, abs=0.15)


def test_classes_of_the_digits_moved_by_their_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--eraser", "oracle_leace", f"cache_dir={tmp_path}"]) == 0
    rows = {
        line[0]: line[1:] for line in map(str.split, capsys.readouterr().out.splitlines()) if line
    }  # the last table's
    images, own_in_range, classes, left, right = rows["test"]
    assert (images, own_in_range, right) == ("359", "100.0%", "100.0%")
    assert 1 <= float(classes) < 10
    assert 0 <= float(left) < 3.32


@pytest.mark.parametrize("eraser", ["leace", "gradient"])
def test_an_eraser_without_maps_of_classes_is_one_line(eraser: str, tmp_path: Path, capsys) -> None:
    assert main(["--eraser", eraser, f"cache_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith(f"eraser={eraser}: has no map for each class; choose qleace")


@pytest.mark.parametrize("word", ["eraser=control", "eraser=qleace,control"])
def test_an_eraser_among_the_overrides_is_one_line_with_the_option(word: str, tmp_path: Path, capsys) -> None:
    assert main([word, f"cache_dir={tmp_path}"]) == 2
    remedy = capsys.readouterr().err.removeprefix(f"{word}: has no effect here: choose one with ").split()
    assert main([f"cache_dir={tmp_path}", *remedy]) == 2
    assert "eraser=control: has no map for each class" in capsys.readouterr().err


def test_more_values_than_images_of_a_class_are_refused() -> None:
    with pytest.raises(ValueError, match="class 0 has 5 training images of 6 values each; fitting"):
        affine_maps(torch.rand(10, 6), torch.rand(10, 6), torch.arange(10) % 2)
