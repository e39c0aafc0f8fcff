"""Small images of a run's most suspicious examples, stored with its scores and shown by reports."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from erasure.store.checked_files import load_tensors
from erasure.store.regular_files import DamagedFileError, regular
from harness.results.read import Note
from sample_info.scored_examples import Examples

SHOWN = 20
_SIDE = 64  # pixels at most
_LARGEST_BYTES = 2**30


def thumbnails(examples: Examples, order: Tensor) -> dict[str, Tensor]:
    """Return small images of the first examples of an order [n], as the network saw them; empty for vectors.

    Returns:
        `thumbnails`, [m, 1 or 3, H, W] uint8, and `thumbnail_index`, [m], the positions in the training split.
    """
    if examples.x[0, 0].numel() == 1:
        return {}
    chosen = order[:SHOWN]
    images = (
        examples.dataset.pixels(examples.stored(examples.x[chosen.to(examples.x.device)]).cpu()).float().clamp(0, 1)
    )
    if images.shape[1] != 3:
        images = images.mean(1, keepdim=True)
    shrunk = [max(1, min(side, side * _SIDE // max(images.shape[2:]))) for side in images.shape[2:]]
    images = torch.nn.functional.interpolate(images, shrunk, mode="area")
    return {"thumbnails": (255 * images).round().byte(), "thumbnail_index": examples.index[chosen]}


def read_thumbnails(directory: Path, note: Note) -> Mapping[int, str]:
    """Return a run's thumbnails as `data:` addresses of PNGs, by position; empty for vectors and for older runs.

    `note` is called with one line if the file is damaged.
    """
    path = directory / "scores.safetensors"
    try:
        tensors, _ = load_tensors(regular(path, _LARGEST_BYTES))
        images, index = tensors.get("thumbnails"), tensors.get("thumbnail_index")
        if images is None or index is None:
            return {}
        sides = range(1, _SIDE + 1)
        if not (
            images.dtype == torch.uint8
            and images.ndim == 4
            and images.shape[1] in (1, 3)
            and images.shape[2] in sides
            and images.shape[3] in sides
            and index.dtype == torch.int64
            and index.shape == images.shape[:1]
            and len(index) <= SHOWN
        ):
            raise DamagedFileError(f"{path} has thumbnails of other shapes than a run writes")
    except FileNotFoundError:
        return {}
    except (OSError, DamagedFileError) as error:
        note(f"{error}: no thumbnails of suspicious examples")
        return {}
    return {position: _address(image) for position, image in zip(index.tolist(), images, strict=True)}


def _address(image: Tensor) -> str:
    """Return the `data:` address of an image [C, H, W] as PNG."""
    png = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()).save(png, "PNG")
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
