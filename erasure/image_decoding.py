"""Decoding of image files to pixels, one or many."""

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
_FORMATS = {"AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP"}  # Pillow starts programs for others
_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}  # of 8 bits
_SAMPLES_PER_PIXEL = 277  # TIFF tag


def decode(file: str | Path | bytes, where: str, *, size: int | None, channels: int) -> np.ndarray:
    """Decode one image file to pixels [H, W, C] uint8, rotated by its EXIF orientation.

    Palettes, CMYK and YCbCr become colours; transparent pixels are put on white. The first frame of an animation or of
    several pages is read. Colours of 16 bits are reduced to 8. Colour profiles are not applied.

    Args:
        file: path or content of the file.
        where: name of the image in messages.
        size: side in pixels to resize to; None to keep the size.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.

    Raises:
        ValueError: no image, a damaged or truncated one, or grey values of more than 8 bits.
    """
    try:
        encoded = file if isinstance(file, bytes) else Path(file).read_bytes()
        with Image.open(BytesIO(encoded)) as image:
            _require_known_values(image, encoded)
            if image.format == "PNG":
                Image.open(BytesIO(encoded)).verify()  # the chunks' checksums
            seen = ImageOps.exif_transpose(image)
        if seen.has_transparency_data:
            seen = seen.convert("RGBA")
            seen = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
        converted = seen.convert("RGB" if channels == 3 else "L")
        if size is not None:
            converted = converted.resize((size, size), Image.Resampling.BILINEAR)
        array = np.asarray(converted)
    except Exception as error:  # Pillow raises errors of any type for damaged files
        reason = re.sub(r" <[^>]*>", "", " ".join(str(error).split()))[:160] or type(error).__name__  # no objects
        raise ValueError(
            f"{where} cannot be read as an image of 8 bits ({reason}): replace or delete it, or save it with 8 bits"
        ) from error
    return array if array.ndim == 3 else array[:, :, None]


def _require_known_values(image: Image.Image, encoded: bytes) -> None:
    """Refuse values that have no clear meaning as 8-bit grey or colour, or whose meaning Pillow would lose."""
    if image.format not in _FORMATS:
        raise ValueError(f"its format is {image.format}")
    if image.mode not in _MODES:
        raise ValueError(f"its values have mode {image.mode}")
    if (samples := getattr(image, "tag_v2", {}).get(_SAMPLES_PER_PIXEL, 1)) > len(image.getbands()):
        raise ValueError(f"it has {samples} values per pixel")
    if image.format == "PNG" and image.mode != "P" and "transparency" in image.info and (depth := encoded[24]) != 8:
        raise ValueError(f"a value of {depth} bits is marked as transparent")


def decode_all(files: Iterable[tuple[str, str | Path | bytes]], *, size: int | None, channels: int) -> Tensor:
    """Decode image files, in order, to one uint8 tensor [n, C, H, W]; warnings of Pillow are errors.

    Args:
        files: name in messages, and path or content, of each file; consumed block by block.
        size: see `decode`.
        channels: see `decode`.

    Raises:
        ValueError: no files, images of different sizes, or another `size` or number of channels.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels={channels}: choose 3 for colour or 1 for grayscale")
    if size is not None and size < 1:
        raise ValueError(f"size={size}: the side of images in pixels is at least 1")
    parts: list[Tensor] = []

    def read(file: tuple[str, str | Path | bytes]) -> np.ndarray:
        return decode(file[1], file[0], size=size, channels=channels)

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
    return torch.cat(parts)
