"""Image folders in their real format on disk, whole and broken."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from erasure import image_decoding
from erasure.dataset import RawImages
from erasure.datasets.image_folder import ImageFolder
from erasure.image_cache import raw_images
from erasure.store.cache import Cache


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
    assert folder(tmp_path).example_names(torch.tensor([3, 1])) == ["train/dog/000.png", "train/cat/001.png"]


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
    with pytest.raises(ValueError, match=r"class folder .*train/cat has no images: put images there, or remove it"):
        folder(tmp_path).load()
    (tmp_path / "train" / "cat").rmdir()
    with pytest.raises(ValueError, match="found one class in train/, need at least 2 folders"):
        folder(tmp_path).load()
    (tmp_path / "test").rename(tmp_path / "val")
    (tmp_path / "test").mkdir()
    with pytest.raises(ValueError, match=r"test has no class folders: put images in .*/test/<class>/, or rename it"):
        folder(tmp_path).content()
    with pytest.raises(ValueError, match="channels=2: choose 3 for colour or 1"):
        image_decoding.decode_all([], size=None, channels=2)
    with pytest.raises(ValueError, match="size=0: the side of images"):
        image_decoding.decode_all([], size=0, channels=3)


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


def test_a_decompression_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, "train", 2, side=16)
    for pixels in (200, 100):  # a warning, and an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
        with pytest.raises(ValueError, match=r"000\.png cannot be read .*\(Image size \(256 pixels\) exceeds"):
            folder(tmp_path).load()


def grey(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, np.uint8)).save(path)


def per_class(raw: RawImages) -> dict[str, int]:
    return dict(zip(raw.class_names, raw.train.labels.bincount().tolist(), strict=True))


def test_every_format_and_deeper_folders_are_read_and_what_is_left_out_is_counted(tmp_path: Path, caplog) -> None:
    for i, suffix in enumerate(("png", "JPG", "webp", "tif", "bmp", "gif", "ppm", "jfif")):
        grey(tmp_path / "train" / "cat" / f"{i}.{suffix}", 10)
    for i in range(3):
        grey(tmp_path / "train" / "dog" / "more" / "still more" / f"{i}.png", 200)
    grey(tmp_path / "train" / "dog" / "0.png", 200)
    raw = folder(tmp_path).load()
    assert per_class(raw) == {"cat": 8, "dog": 4}
    values = raw.train.images[:, 0, 0, 0].tolist()
    assert [value > 100 for value in values] == [False] * 8 + [True] * 4
    assert caplog.messages == []
    before = folder(tmp_path).content()
    train = tmp_path / "train"
    grey(train / ".ipynb_checkpoints" / "0.png", 0)
    grey(train / "dog" / "._0.png", 0)
    grey(train / "__MACOSX" / "dog" / "._0.png", 0)
    grey(train / "loose.png", 0)
    grey(tmp_path / "holdout" / "cat" / "0.png", 0)
    for name in ("cat/notes.txt", "dog/a.heic"):
        (train / name).write_bytes(b"no image")
    assert per_class(folder(tmp_path).load()) == {"cat": 8, "dog": 4}
    assert caplog.messages == [f"{tmp_path}: left out: holdout/, 3 files that are no images in a class folder"]
    assert folder(tmp_path).content() == before
    write_images(tmp_path, "test", 1)
    assert folder(tmp_path).content() != before


def test_links_are_followed_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "elsewhere", "train", 3)
    (tmp_path / "data" / "train").mkdir(parents=True)
    for name in ("cat", "dog"):
        (tmp_path / "data" / "train" / name).symlink_to(tmp_path / "elsewhere" / "train" / name)
    assert per_class(folder(tmp_path / "data").load()) == {"cat": 3, "dog": 3}
    for target in ("elsewhere", "elsewhere/train/dog"):
        deeper = tmp_path / "elsewhere" / "train" / "cat" / "deep"
        deeper.symlink_to(tmp_path / target)
        with pytest.raises(ValueError, match=r"cat/deep is a link to a folder, which is not read: copy the folder"):
            folder(tmp_path / "data").content()
        deeper.unlink()
    pipe = tmp_path / "elsewhere" / "train" / "dog" / "z.png"
    for make in (os.mkfifo, lambda path: path.symlink_to("nothing.png")):
        make(pipe)
        with pytest.raises(ValueError, match=r"dog/z\.png is no regular file, or a link to nothing"):
            folder(tmp_path / "data").content()
        pipe.unlink()


def test_splits_of_unequal_sizes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 2)
    write_images(tmp_path, "test", 1, side=10)
    with pytest.raises(ValueError, match=r"images are 3×8×8, but test images are 3×10×10 .*: give one side .* size="):
        folder(tmp_path).load()
    assert folder(tmp_path, size=6).load().train.images.shape == (4, 3, 6, 6)


@pytest.mark.parametrize(("name", "right"), [("Test", "test"), ("testing", "test"), ("Validation", "validation")])
def test_a_split_of_a_similar_name_is_refused_unless_another_is_read(tmp_path: Path, name: str, right: str) -> None:
    write_images(tmp_path, "train", 2)
    write_images(tmp_path, name, 1)
    with pytest.raises(ValueError, match=f"{name}: the folder of this split must be called {right}: rename it"):
        folder(tmp_path).content()
    write_images(tmp_path, "val", 1)
    assert len(folder(tmp_path).load().train) == 4
