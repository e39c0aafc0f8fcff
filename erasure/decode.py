"""From an encoded image to an array of pixels, and from many to one tensor."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import IO, Any, TypeVar

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

_AT_ONCE = 1024  # images decoded side by side

T = TypeVar("T")


def decode(file: Any | IO[bytes], where: str, *, size: int | None, channels: int) -> np.ndarray:
    """Pixels [H, W, C] of one image file, uint8.

    Args:
        file: path or open file.
        where: what to call it in messages.
        size: side in pixels to resize to; None to keep.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.

    Raises:
        ValueError: no image, or one that is cut short.
    """
    try:
        with Image.open(file) as image:
            converted = image.convert("RGB" if channels == 3 else "L")
            if size is not None:
                converted = converted.resize((size, size), Image.Resampling.BILINEAR)
            array = np.asarray(converted)
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise ValueError(f"{where} cannot be read as an image ({error}): replace or delete it") from error
    return array if array.ndim == 3 else array[:, :, None]


def decode_all(items: Iterable[T], read: Callable[[T], np.ndarray], name: Callable[[int], str]) -> Tensor:
    """One uint8 tensor [n, C, H, W] of images that `read` decodes, in order.

    Args:
        items: what to decode; consumed piece by piece.
        read: one item -> its pixels [H, W, C].
        name: position -> what to call the image in messages.

    Raises:
        ValueError: no items, or images of different sizes.
    """
    parts: list[Tensor] = []
    done, shape = 0, None
    with ThreadPoolExecutor() as pool:
        for block in _blocks(items):
            arrays = list(pool.map(read, block))
            shape = shape or arrays[0].shape
            for i, array in enumerate(arrays):
                if array.shape != shape:
                    (h, w), (h0, w0) = array.shape[:2], shape[:2]
                    raise ValueError(
                        f"{name(done + i)} is {w}×{h} but {name(0)} is {w0}×{h0}: "
                        "set dataset.size to resize all to one side"
                    )
            parts.append(torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous())
            done += len(arrays)
    if not parts:
        raise ValueError("no images")
    return torch.cat(parts)


def _blocks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while block := list(islice(iterator, _AT_ONCE)):
        yield block
