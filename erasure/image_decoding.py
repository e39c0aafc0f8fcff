"""Decoding of image files to pixels, one or many."""

import logging
import re
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erasure.optional_packages import needs

with needs("images"):
    from PIL import Image, ImageOps

VERSION = 2  # raise it when the same file gives other pixels; it is part of the identity of decoded datasets

SUFFIXES = {  # of files that are read as images, in lower case
    ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff",
    ".webp",
}  # fmt: skip

_AT_ONCE = 1024  # images decoded in parallel
_FORMATS = {  # formats that Pillow decodes itself; for others it may start programs (Ghostscript)
    "AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "SGI", "TGA", "TIFF", "WEBP",
}  # fmt: skip
_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}
_ORIENTATION = 0x0112  # EXIF tag
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLES_PER_PIXEL = 258, 262, 277  # TIFF tags
_ON_WHITE = "have transparent pixels, which were put on white"
_FIRST_FRAME = "have several frames, of which the first is read"
_MARKER = re.compile(rb"\xff+([^\x00\xff])")  # any number of 0xff may go before it (ITU T.81, B.1.1.2)
_SCAN_END = re.compile(rb"\xff[^\x00\xff]")  # a marker; 0xff among a JPEG's coded values is followed by 0x00
_RESTARTS = range(0xD0, 0xD8)
_AFTER_SCAN = {0xC4, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)}  # markers that may end a scan

log = logging.getLogger(__name__)


class _RefusedError(ValueError):
    """An intact image whose values have no clear meaning as 8-bit grey or colour."""


def decode(
    file: str | Path | bytes,
    where: str,
    *,
    size: int | None,
    channels: int,
    remarks: list[tuple[str, str]] | None = None,
) -> np.ndarray:
    """Decode one image file to pixels [H, W, C] uint8, rotated by its EXIF orientation.

    16-bit values lose their lower 8 bits; palettes, CMYK and YCbCr become colours; transparent pixels are put on white.
    The first frame of an animation or of several pages is read. Colour profiles are not applied.

    Args:
        file: path or content of the file.
        where: name of the image in messages.
        size: side in pixels to resize to; None to keep the size.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
        remarks: list to which descriptions of lost parts of the image are appended, with `where`.

    Raises:
        ValueError: no image, a damaged or truncated one, or values of unknown range.
    """
    try:
        encoded = file if isinstance(file, bytes) else Path(file).read_bytes()
        _require_whole(encoded)
        remarks = [] if remarks is None else remarks
        with Image.open(BytesIO(encoded)) as image:
            several = getattr(image, "is_animated", False)
            if several and image.format != "MPO":  # which holds previews and depth maps of a camera
                remarks.append((_FIRST_FRAME, where))
            image.load()
            seen = _eight_bits(image)
            if seen.mode == "RGBA":
                seen = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
                remarks.append((_ON_WHITE, where))
            converted = seen.convert("RGB" if channels == 3 else "L")
        if size is not None:
            converted = converted.resize((size, size), Image.Resampling.BILINEAR)
        array = np.asarray(converted)
    except _RefusedError as error:
        raise ValueError(f"{where} {error}") from None
    except Exception as error:  # Pillow raises errors of any type for damaged files
        reason = re.sub(r" <[^>]*>", "", " ".join(str(error).split()))[:160] or type(error).__name__  # no objects
        raise ValueError(f"{where} cannot be read as an image ({reason}): replace or delete it") from error
    return array if array.ndim == 3 else array[:, :, None]


def _require_whole(encoded: bytes) -> None:
    """Raise an error for other formats, and for damage that Pillow ignores."""
    with Image.open(BytesIO(encoded)) as image:
        if image.format not in _FORMATS:
            raise _RefusedError(f"is a file of format {image.format}, which is not read: save it as .png")
        if image.format == "PNG":
            depth, colour_type = encoded[24:26]
            if depth != 8 and colour_type in (0, 2) and "transparency" in image.info:  # Pillow would not find the value
                raise _RefusedError(
                    f"marks a value of {depth} bits as transparent, which is not read: save it with an alpha channel"
                )
            image.verify()  # the chunks' checksums
        elif image.format == "JPEG":
            _require_whole_scans(encoded)


def _require_whole_scans(encoded: bytes) -> None:
    """Check that a JPEG's scans end at allowed markers, the last at the end of the image."""
    position, restarts = 2, False
    while (match := _MARKER.match(encoded, position)) is None or match[1] != b"\xd9":
        if match is None:
            raise ValueError("it ends early" if position >= len(encoded) else f"no marker at byte {position}")
        marker, position = match[1][0], match.end()
        restarts |= marker == 0xDD
        position += int.from_bytes(encoded[position : position + 2], "big")
        while marker == 0xDA:  # coded values follow, up to a marker that does not belong to them
            match = _SCAN_END.search(encoded, position)
            if match is None:
                raise ValueError("it ends early")
            position, ending = match.start(), encoded[match.start() + 1]
            if ending in _RESTARTS and restarts:
                position += 2
                continue
            if ending not in _AFTER_SCAN:
                raise ValueError(f"stray marker {ending:#x} among its coded values")
            break


def _eight_bits(image: Image.Image) -> Image.Image:
    """Convert to an image of 8 bits per value; RGBA if pixels are transparent, and only then."""
    # "I" has 32 bits, but Pillow uses it for PGM, scaled to 16 bits, and before version 11.3 for 16-bit PNG
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if not sixteen and image.mode not in _MODES:
        raise _RefusedError(f"has values of mode {image.mode}, whose range is not known: save it with 8 or 16 bits")
    tags = getattr(image, "tag_v2", {})
    if (samples := tags.get(_SAMPLES_PER_PIXEL, 1)) > len(image.getbands()):
        raise _RefusedError(f"has {samples} values per pixel: save it as grayscale or RGB")
    if sixteen and (bits := tags.get(_BITS_PER_SAMPLE, (16,))[0]) != 16:
        scaled = f"multiply its values by {2 ** (16 - bits)} and save it with 16 bits"
        raise _RefusedError(f"has {bits} bits per value, which Pillow does not scale to 16: {scaled}")
    if sixteen and tags.get(_PHOTOMETRIC) == 0:
        raise _RefusedError("has 16 bits per value and 0 for white, which Pillow does not invert: save it as .png")
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if sixteen:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))  # as Pillow reads 16-bit colours
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return image.convert("RGB") if image.getchannel("A").getextrema()[0] == 255 else image
    return image


def decode_all(files: Iterable[tuple[str, str | Path | bytes]], *, size: int | None, channels: int) -> Tensor:
    """Decode image files, in order, to one uint8 tensor [n, C, H, W]; warnings of Pillow are errors.

    Args:
        files: name in messages, and path or content, of each file; consumed block by block.
        size: see `decode`.
        channels: see `decode`.

    Raises:
        ValueError: no files, or images of different sizes.
    """
    parts: list[Tensor] = []
    remarks: list[tuple[str, str]] = []

    def read(file: tuple[str, str | Path | bytes]) -> np.ndarray:
        return decode(file[1], file[0], size=size, channels=channels, remarks=remarks)

    left, first = iter(files), ("", (0, 0))
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor() as pool,
    ):  # filters apply to the whole process, including threads
        warnings.filterwarnings("error", module=r"PIL\.")
        while block := list(islice(left, _AT_ONCE)):
            arrays = list(pool.map(read, block))
            first = first if parts else (block[0][0], arrays[0].shape)
            for (where, _), array in zip(block, arrays, strict=True):
                if array.shape != first[1]:
                    (h, w), (h0, w0) = array.shape[:2], first[1][:2]
                    raise ValueError(
                        f"{where} is {w}×{h} but {first[0]} is {w0}×{h0}: give one side for all with size=PIXELS"
                    )
            parts.append(torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous())
    if not parts:
        raise ValueError("no images")
    for what in sorted({what for what, _ in remarks}):
        files_of = [where for other, where in remarks if other == what]
        log.warning("%d images %s: %s is one", len(files_of), what, min(files_of))
    return torch.cat(parts)
