"""Pixels of images of every mode, and images that are broken."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from erasure.image_decoding import decode, decode_all


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(image: Image.Image, channels: int = 3, kind: str = "PNG", **options) -> np.ndarray:
    return decode(encoded(image, kind, **options), "a.png", size=None, channels=channels)


COLOURS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
GREYS = COLOURS[:, :, 0]


def test_palettes_black_and_white_and_opaque_alpha_keep_their_pixels() -> None:
    few = COLOURS // 64 * 64
    palette = Image.fromarray(few).convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    assert np.array_equal(decoded(palette), few)
    assert np.array_equal(decoded(Image.fromarray(GREYS > 127), 1)[:, :, 0], 255 * (GREYS > 127))
    opaque = Image.fromarray(COLOURS)
    opaque.putalpha(255)
    assert np.array_equal(decoded(opaque), COLOURS)
    assert np.array_equal(decoded(palette, transparency=bytes([255] * 256)), few)


def test_colours_of_16_bits_keep_their_higher_byte() -> None:
    content = b"P6 8 6 65535\n" + (COLOURS.astype(">u2") * 257).tobytes()
    assert np.array_equal(decode(content, "a.ppm", size=None, channels=3), COLOURS)


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


def tiff_of_four_bands() -> bytes:
    """A TIFF of four values per pixel, as cameras of many bands write them: colours and one of unknown meaning."""
    depth, data = struct.pack("<4H", 8, 8, 8, 8), bytes(3 * 2 * 4)
    fields = [(256, 4, 1, 2), (257, 4, 1, 3), (258, 3, 4, 8), (262, 3, 1, 2), (273, 4, 1, 8 + len(depth))]
    fields += [(277, 3, 1, 4), (278, 4, 1, 3), (279, 4, 1, len(data)), (338, 3, 1, 0)]
    entries = b"".join(struct.pack("<HHII", *field) for field in fields)
    directory = struct.pack("<H", len(fields)) + entries + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + len(depth) + len(data)) + depth + data + directory


def png_with_a_transparent_value() -> bytes:
    """A grayscale PNG of two pixels of four bits, of which the first is marked as transparent."""
    chunks = {b"IHDR": struct.pack(">IIBBBBB", 2, 1, 4, 0, 0, 0, 0), b"tRNS": struct.pack(">H", 0xD),
              b"IDAT": zlib.compress(bytes([0, 0xD1])), b"IEND": b""}  # fmt: skip
    parts = (
        struct.pack(">I", len(of)) + kind + of + struct.pack(">I", zlib.crc32(kind + of)) for kind, of in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


CORRUPT_EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\xff"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"not an image",
            r"a cannot be read as an image of 8 bits \(cannot identify image file\): replace or delete it",
        ),
        (encoded(Image.fromarray(GREYS.astype(np.float32)), "TIFF"), "its values have mode F"),
        (encoded(Image.fromarray(GREYS.astype(np.int32)), "TIFF"), "its values have mode I"),
        (encoded(Image.fromarray(GREYS.astype(np.uint16))), "its values have mode I.*save it with 8 bits"),
        (b"P5 1 1 65535\n\xd9\x03", "its values have mode I"),
        (tiff_of_four_bands(), "it has 4 values per pixel"),
        (png_with_a_transparent_value(), "a value of 4 bits is marked as transparent"),
        (encoded(Image.fromarray(COLOURS), "EPS"), "its format is EPS"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-9], "a cannot be read as an image"),
        (encoded(Image.fromarray(COLOURS), "JPEG", exif=CORRUPT_EXIF), "a cannot be read as an image"),
    ],
)
def test_what_has_no_clear_meaning_or_is_cut_is_named(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        decode_all([("a", content)], size=None, channels=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "TIFF", "MPO"])
def test_of_several_frames_the_first_is_read(kind: str) -> None:
    first, second = Image.new("RGB", (8, 6), "black"), Image.new("RGB", (8, 6), "white")
    assert not decoded(first, 3, kind, save_all=True, append_images=[second]).any()


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "BMP", "GIF", "PPM"])
def test_other_formats_keep_their_pixels_and_are_refused_when_cut(kind: str) -> None:
    few = COLOURS // 128 * 255  # GIF has 256 colours
    content = encoded(Image.fromarray(few), kind, **({"lossless": True} if kind == "WEBP" else {}))
    whole = decode(content, "a", size=None, channels=3)
    assert np.array_equal(whole, few)
    for cut in range(len(content) // 4, len(content)):
        try:
            assert np.array_equal(decode(content[:cut], "a", size=None, channels=3), whole)
        except ValueError:
            continue


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
