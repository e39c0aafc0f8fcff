"""Image folders in their real format on disk, whole and broken."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from erasure.datasets.image_folder import ImageFolder
from erasure.image_cache import raw_images
from erasure.image_decoding import decode, decode_all
from erasure.source import RawImages
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
    broken.write_bytes(b"not an image")
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
    with pytest.raises(ValueError, match="found 1 class with images in train/, need at least 2"):
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


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(image: Image.Image, channels: int = 3, kind: str = "PNG", **options) -> np.ndarray:
    return decode(encoded(image, kind, **options), "a.png", size=None, channels=channels)


COLOURS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
GREYS = COLOURS[:, :, 0]


def test_of_sixteen_bits_the_upper_eight_are_kept() -> None:
    values = np.array([[38217, 16187, 2458, 0, 255, 256, 65535]], dtype=np.uint16)
    assert decoded(Image.fromarray(values), 1)[0, :, 0].tolist() == [149, 63, 9, 0, 0, 1, 255]
    assert decoded(Image.fromarray(values), 3)[0, 2].tolist() == [9, 9, 9]


def test_palettes_black_and_white_and_opaque_alpha_keep_their_pixels() -> None:
    few = COLOURS // 64 * 64
    palette = Image.fromarray(few).convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    assert np.array_equal(decoded(palette), few)
    assert np.array_equal(decoded(Image.fromarray(GREYS > 127), 1)[:, :, 0], 255 * (GREYS > 127))
    opaque = Image.fromarray(COLOURS)
    opaque.putalpha(255)
    assert np.array_equal(decoded(opaque), COLOURS)
    assert np.array_equal(decoded(palette, transparency=bytes([255] * 256)), few)


def test_cmyk_and_orientation() -> None:
    ink = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    assert decode(encoded(ink, "JPEG"), "a.jpg", size=None, channels=3)[4, 4].tolist() == [0, 255, 255]
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    assert np.array_equal(decoded(Image.fromarray(COLOURS), exif=exif), np.rot90(COLOURS, -1))


def transparent() -> Image.Image:
    image = Image.fromarray(COLOURS)
    image.putalpha(Image.fromarray(GREYS))
    return image


def test_transparent_pixels_are_put_on_white() -> None:
    share = GREYS[:, :, None] / 255
    expected = share * COLOURS + (1 - share) * 255
    assert np.abs(decoded(transparent()) - expected).max() <= 1
    one = int(GREYS[0, 0])
    marked = decoded(Image.fromarray(GREYS), 1, transparency=one)[:, :, 0]
    assert np.array_equal(marked, np.where(one == GREYS, 255, GREYS))


def test_what_was_put_on_white_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_images(tmp_path, "train", 3)
    for name in ("000", "002"):
        transparent().resize((8, 8)).save(tmp_path / "train" / "dog" / f"{name}.png")
    folder(tmp_path).load()
    (line,) = caplog.messages
    assert line == (f"2 images have transparent pixels, which were put on white: {tmp_path}/train/dog/000.png is one")


def tiff(dtype: type) -> bytes:
    return encoded(Image.fromarray(GREYS.astype(dtype)), "TIFF")


CORRUPT_EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\xff"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tiff(np.float32), "a has values of mode F, whose range is not known"),
        (tiff(np.int32), "a has values of mode I, whose range is not known"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-2], r"a cannot be read as an image \(it ends early\)"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-9], "a cannot be read as an image"),
        (encoded(Image.fromarray(COLOURS), "JPEG", exif=CORRUPT_EXIF), "a cannot be read as an image"),
    ],
)
def test_what_has_no_clear_meaning_or_is_cut_is_named(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        decode_all([("a", content)], size=None, channels=3)
    assert "\n" not in str(caught.value)


def test_a_decompression_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, "train", 2, side=16)
    for pixels in (200, 100):  # a warning, and an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
        with pytest.raises(ValueError, match=r"000\.png cannot be read .*\(Image size \(256 pixels\) exceeds"):
            folder(tmp_path).load()


def flipped(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << position % 8
    return bytes(changed)


@pytest.mark.parametrize("damage", [flipped, lambda content, position: content[:position]], ids=["flip", "cut"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_no_damage_that_a_container_can_tell_passes(kind: str, damage: Callable[[bytes, int], bytes]) -> None:
    """Every byte of a PNG; of a JPEG every cut, as its coded values have no checksum."""
    content = encoded(Image.fromarray(COLOURS), kind)
    whole = decode(content, "a", size=None, channels=3)
    passed = 0
    for position in range(len(content)):
        try:
            pixels = decode(damage(content, position), "a", size=None, channels=3)
        except ValueError:
            continue
        passed += not np.array_equal(pixels, whole)
    assert (passed == 0) == (kind == "PNG" or damage is not flipped)
