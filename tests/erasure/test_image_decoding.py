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


def test_of_sixteen_bits_the_upper_eight_are_kept() -> None:
    values = np.array([[38217, 16187, 2458, 0, 255, 256, 65535]], dtype=np.uint16)
    assert decoded(Image.fromarray(values), 1)[0, :, 0].tolist() == [149, 63, 9, 0, 0, 1, 255]
    assert decoded(Image.fromarray(values), 3)[0, 2].tolist() == [9, 9, 9]
    pgm = b"P5 7 1 65535\n" + values.astype(">u2").tobytes()
    assert decode(pgm, "a.pgm", size=None, channels=1)[0, :, 0].tolist() == [149, 63, 9, 0, 0, 1, 255]
    assert decode(b"P2 3 1 4095\n0 2048 4095\n", "a.pgm", size=None, channels=1)[0, :, 0].tolist() == [0, 128, 255]


def test_twelve_bits_are_refused_until_they_are_scaled_to_sixteen() -> None:
    values = np.array([[0, 16, 2048, 4095]], dtype=np.uint16)
    packed = bytes.fromhex("".join(f"{value:03x}" for value in values[0]))
    with pytest.raises(ValueError, match=r"a has 12 bits per value, .*: multiply its values by 16 and save it with 16"):
        decode(layered_tiff(values[:, :, None], photometric=1, bits=12, data=packed), "a", size=None, channels=1)
    assert decoded(Image.fromarray(values * 16), 1, "TIFF")[0, :, 0].tolist() == [0, 1, 128, 255]


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


def tiff(dtype: type) -> bytes:
    return encoded(Image.fromarray(GREYS.astype(dtype)), "TIFF")


def layered_tiff(values: np.ndarray, *, photometric: int, bits: int = 0, data: bytes = b"") -> bytes:
    """A TIFF of any number of values per pixel [H, W, values], as cameras of many bands write them."""
    height, width, samples = values.shape
    bits, data = bits or 8 * values.dtype.itemsize, data or values.tobytes()
    depth = struct.pack(f"<{samples}H", *[bits] * samples).ljust(4, b"\0")
    fields = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, samples, bits), (262, 3, 1, photometric)]
    fields += [(273, 4, 1, 8 + len(depth)), (277, 3, 1, samples), (278, 4, 1, height), (279, 4, 1, len(data))]
    if samples > 3:
        fields.append((338, 3, 1, 0))  # one more value, of no known meaning
    if samples > 2:
        fields[2] = (258, 3, samples, 8)  # where `depth` is
    entries = b"".join(struct.pack("<HHII", *field) for field in fields)
    start = 8 + len(depth) + len(data)
    directory = struct.pack("<H", len(fields)) + entries + bytes(4)
    return b"II*\0" + struct.pack("<I", start) + depth + data + directory


def png_with_a_transparent_value(depth: int) -> bytes:
    """A grayscale PNG of two pixels, of which the first is marked as transparent."""
    data = bytes([0, 0xD9, 0x03, 0x03, 0xE8]) if depth == 16 else bytes([0, 0xD1])
    chunks = {b"IHDR": struct.pack(">IIBBBBB", 2, 1, depth, 0, 0, 0, 0),
              b"tRNS": struct.pack(">H", 0xD903 if depth == 16 else 0xD),
              b"IDAT": zlib.compress(data), b"IEND": b""}  # fmt: skip
    parts = (
        struct.pack(">I", len(of)) + kind + of + struct.pack(">I", zlib.crc32(kind + of)) for kind, of in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


CORRUPT_EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\xff"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not an image", r"a cannot be read as an image \(cannot identify image file\): replace or delete it"),
        (tiff(np.float32), "a has values of mode F, whose range is not known"),
        (tiff(np.int32), "a has values of mode I, whose range is not known"),
        (layered_tiff(np.zeros((3, 2, 4), np.uint8), photometric=2), "a has 4 values per pixel: save it as grayscale"),
        (layered_tiff(np.zeros((3, 2, 1), np.uint16), photometric=0), "a has 16 bits per value and 0 for white"),
        (
            png_with_a_transparent_value(16),
            "a marks a value of 16 bits as transparent, which is not read: save it with",
        ),
        (png_with_a_transparent_value(4), "a marks a value of 4 bits as transparent"),
        (encoded(Image.fromarray(COLOURS), "EPS"), "a is a file of format EPS, which is not read: save it as .png"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-2], r"a cannot be read as an image \(it ends early\)"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-9], "a cannot be read as an image"),
        (encoded(Image.fromarray(COLOURS), "JPEG", exif=CORRUPT_EXIF), "a cannot be read as an image"),
    ],
)
def test_what_has_no_clear_meaning_or_is_cut_is_named(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        decode_all([("a", content)], size=None, channels=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "TIFF", "MPO"])
def test_of_several_frames_the_first_is_read_which_a_line_says(kind: str, caplog) -> None:
    first, second = Image.new("RGB", (8, 6), "black"), Image.new("RGB", (8, 6), "white")
    content = encoded(first, kind, save_all=True, append_images=[second])
    assert not decode_all([("a", content), ("b", encoded(first))], size=None, channels=3).any()
    expected = [] if kind == "MPO" else ["1 images have several frames, of which the first is read: a is one"]
    assert caplog.messages == expected  # the further frames of a photograph are its previews


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


def test_a_jpeg_may_have_fill_bytes_before_its_markers() -> None:
    content = encoded(Image.fromarray(COLOURS), "JPEG")
    padded, position = content[:2], 2
    while content[position + 1] != 0xDA:
        end = position + 2 + int.from_bytes(content[position + 2 : position + 4], "big")
        padded, position = padded + b"\xff\xff" + content[position:end], end
    padded += b"\xff" + content[position:-2] + b"\xff\xff" + content[-2:]
    filled, plain = (decode(one, "a", size=None, channels=3) for one in (padded, content))
    assert np.array_equal(filled, plain)
    for cut in (position, len(padded) - 1):
        with pytest.raises(ValueError, match="a cannot be read as an image"):
            decode(padded[:cut], "a", size=None, channels=3)


def test_a_jpeg_whose_end_is_filled_with_zeros_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    content = encoded(Image.fromarray(noise), "JPEG")
    for arrived in range(len(content) // 2, len(content) - 2, 17):
        with pytest.raises(ValueError, match="a cannot be read as an image"):
            decode(content[:arrived].ljust(len(content), b"\0"), "a", size=None, channels=3)


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
