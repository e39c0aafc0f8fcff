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
    train = tmp_path / "train"
    assert caplog.messages == [
        f"{train}: 3 images in deeper folders belong to the class whose folder they are below: "
        f"{train}/dog/more/still more/0.png is one"
    ]
    before = folder(tmp_path).content()
    caplog.clear()
    grey(train / ".ipynb_checkpoints" / "0.png", 0)
    grey(train / "__MACOSX" / "cat" / "0.png", 0)
    grey(train / "dog" / "._0.png", 0)
    grey(train / "loose.png", 0)
    for name in ("cat/notes.txt", "cat/Thumbs.db", "dog/a.heic", "dog/b.heic", "dog/LICENSE"):
        (train / name).write_bytes(b"no image")
    assert per_class(folder(tmp_path).load()) == {"cat": 8, "dog": 4}
    assert caplog.messages[0] == (
        f"{train}: left out: 1 .db files, 2 .heic files, 1 .txt files, 1 files of other kinds, 3 hidden files, "
        "1 images outside class folders"
    )
    assert folder(tmp_path).content() == before


@pytest.mark.parametrize("names", [("Train", "Test"), ("training", "testing"), ("TRAIN", "Validation")])
def test_splits_are_known_by_either_name_in_any_case(tmp_path: Path, names: tuple[str, str]) -> None:
    write_images(tmp_path, names[0], 3)
    write_images(tmp_path, names[1], 2)
    source = folder(tmp_path)
    raw, before = source.load(), source.content()
    assert raw.test is not None
    assert (len(raw.train), len(raw.test)) == (6, 4)
    Image.new("RGB", (8, 8)).save(tmp_path / names[1] / "cat" / "000.png")
    assert source.content() != before


def test_folders_that_are_not_read_are_counted(tmp_path: Path, caplog) -> None:
    for split, n in (("train", 3), ("test", 2), ("val", 4), ("holdout", 1)):
        write_images(tmp_path, split, n)
    (tmp_path / "docs").mkdir()
    raw = folder(tmp_path).load()
    assert raw.test is not None
    assert len(raw.test) == 4
    assert caplog.messages == [
        f"{tmp_path}/holdout: left out: 2 images, as train/ and test/ are read",
        f"{tmp_path}/val: left out: 8 images, as train/ and test/ are read",
    ]
    content = folder(tmp_path).content()
    (tmp_path / "val" / "empty").mkdir()
    grey(tmp_path / "val" / "new" / "0.png", 0)
    assert folder(tmp_path).content() == content
    grey(tmp_path / "test" / "cat" / "new.png", 0)
    assert folder(tmp_path).content() != content


def test_a_test_folder_without_classes_is_said(tmp_path: Path, caplog) -> None:
    write_images(tmp_path, "train", 3)
    grey(tmp_path / "test" / "0.png", 0)
    assert folder(tmp_path).load().test is None
    assert f"{tmp_path}/test: left out: 1 images outside class folders" in caplog.messages
    assert f"{tmp_path}/test: no image in a class folder; a part of {tmp_path}/train is held out" in caplog.text


def test_what_a_class_folder_has_in_place_of_images_is_said(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 2)
    (tmp_path / "train" / "cow").mkdir()
    for i in range(3):
        (tmp_path / "train" / "cow" / f"{i}.heic").write_bytes(b"")
    with pytest.raises(ValueError, match="train/cow has no images, but 3 .heic files: put images there, or remove it"):
        folder(tmp_path).content()


def test_links_are_followed_once_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "elsewhere", "train", 3)
    (tmp_path / "data" / "train").mkdir(parents=True)
    for name in ("cat", "dog"):
        (tmp_path / "data" / "train" / name).symlink_to(tmp_path / "elsewhere" / "train" / name)
    loop = tmp_path / "elsewhere" / "train" / "cat" / "again"
    loop.symlink_to(tmp_path / "elsewhere")
    assert per_class(folder(tmp_path / "data").load()) == {"cat": 3, "dog": 3}
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
