"""Image folders in their real format on disk, whole and broken."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from erasure.dataset import RawImages
from erasure.datasets.image_folder import ImageFolder
from erasure.image_cache import raw_images
from erasure.store.cache import Cache
from tests.erasure.test_image_decoding import transparent


def write_images(
    root: Path, split: str, per_class: int, *, side: int = 8, suffix: str = ".png", mode: str = "RGB"
) -> None:
    generator = np.random.default_rng(0)
    for label in ("cat", "dog"):
        folder = root / split / label
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(per_class):
            shape = (side, side) if mode == "L" else (side, side, 3)
            pixels = generator.integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{i:03}{suffix}")


def folder(root: Path, **changes) -> ImageFolder:
    options = {
        "size": None,
        "channels": 3,
        "flip": True,
        "validation_size": None,
        "test_fraction": 0.2,
        "split_seed": 0,
    }
    return ImageFolder(name="pets", root=str(root), **(options | changes))


def test_png_pixels_come_back_exactly_sorted_by_class_and_name(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 3)
    write_images(tmp_path, "test", 2, suffix=".JPG")
    raw = folder(tmp_path).load()
    assert raw.class_names == ("cat", "dog")
    assert raw.train.images.shape == (6, 3, 8, 8)
    assert raw.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    first = np.asarray(Image.open(tmp_path / "train" / "dog" / "000.png"))
    assert torch.equal(raw.train.images[3], torch.from_numpy(first.copy()).permute(2, 0, 1))
    assert raw.test is not None
    assert len(raw.test) == 4


def test_grayscale_and_size_are_converted(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 2, mode="L")
    write_images(tmp_path, "val", 1, side=12)
    assert folder(tmp_path, size=6).load().train.images.shape == (4, 3, 6, 6)
    raw = folder(tmp_path, channels=1, size=6).load()
    assert raw.train.images.shape == (4, 1, 6, 6)
    assert raw.test is not None
    assert raw.test.images.shape == (2, 1, 6, 6)


def test_identity_is_that_of_the_files_not_of_their_place(tmp_path: Path) -> None:
    for place in ("here", "there"):
        write_images(tmp_path / place, "train", 2)
    here, there = folder(tmp_path / "here"), folder(tmp_path / "there")
    assert here.identity() == there.identity()
    (tmp_path / "there" / "train" / "cat" / "000.png").unlink()
    assert here.identity() != there.identity()


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"root=.*nowhere: no folder .*train; expected images in"):
        folder(tmp_path / "nowhere").load()
    write_images(tmp_path, "train", 2)
    broken = tmp_path / "train" / "cat" / "001.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"001\.png cannot be read as an image"):
        folder(tmp_path).load()
    Image.new("RGB", (9, 5)).save(broken)
    with pytest.raises(ValueError, match=r"001\.png is 9×5 but .*000\.png is 8×8: give one side for all with size="):
        folder(tmp_path).load()


def test_one_class_or_unknown_test_classes_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 2)
    write_images(tmp_path, "test", 1)
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "cow")
    with pytest.raises(ValueError, match="classes that train/ lacks: cow"):
        folder(tmp_path).load()
    for path in (tmp_path / "train" / "cat").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"class folder .*train/cat has no \*\.png or \*\.jpg: put images there"):
        folder(tmp_path).load()
    (tmp_path / "train" / "cat").rmdir()
    (tmp_path / "train" / "dog" / "000.png").rename(tmp_path / "train" / "dog.png")
    with pytest.raises(
        ValueError, match="found 1 class .*, need at least 2 folders; 1 images lie in train/ itself: move"
    ):
        folder(tmp_path).load()


def test_images_changed_under_the_same_names_and_sizes_are_another_dataset(tmp_path: Path) -> None:
    write_images(tmp_path / "data", "train", 12, side=4)
    source, cache = folder(tmp_path / "data"), Cache(tmp_path / "cache")
    before, identity = raw_images(source, cache).train.images, source.identity()
    paths = sorted((tmp_path / "data").rglob("*.png"))
    contents = {path: path.read_bytes() for path in paths}
    assert len({len(content) for content in contents.values()}) == 1
    for path, other in zip(paths, reversed(paths), strict=True):
        status = path.stat()
        path.write_bytes(contents[other])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as rsync and cp -p do
    assert source.identity() != identity
    assert torch.equal(raw_images(source, cache).train.images, before.flip(0))


def test_images_changed_while_they_are_read_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "data", "train", 2)
    load = ImageFolder.load

    def load_and_change(source: ImageFolder) -> RawImages:
        raw = load(source)
        Image.new("RGB", (8, 8)).save(tmp_path / "data" / "train" / "cat" / "000.png")
        return raw

    monkeypatch.setattr(ImageFolder, "load", load_and_change)
    with pytest.raises(ValueError, match="dataset pets was changed while it was read"):
        raw_images(folder(tmp_path / "data"), Cache(tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*.safetensors"))


def test_what_was_put_on_white_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_images(tmp_path, "train", 3)
    for name in ("000", "002"):
        transparent().resize((8, 8)).save(tmp_path / "train" / "dog" / f"{name}.png")
    folder(tmp_path).load()
    (line,) = caplog.messages
    assert line == (f"2 images have transparent pixels, which were put on white: {tmp_path}/train/dog/000.png is one")


def test_a_decompression_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, "train", 2, side=16)
    for pixels in (200, 100):  # a warning, and an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
        with pytest.raises(ValueError, match=r"000\.png cannot be read .*\(Image size \(256 pixels\) exceeds"):
            folder(tmp_path).load()
