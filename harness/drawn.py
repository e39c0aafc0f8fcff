"""Figures that cost seconds to draw, and are drawn once: a finished sweep that is launched again copies its own."""

import functools
import inspect
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from erasure.store.storage import fingerprint, replacing
from harness import style
from harness.result import Result, as_json


def drawn_once(draw: functools.partial[Any], path: Path, results: Sequence[Result]) -> Path:
    """Draw `results` to `path`, or copy what the same code drew of the same results before.

    Args:
        draw: draws to the path it is given; the text of its module stands for what it draws.
        path: of the figure; others of other sweeps are kept beside its folder, in `.figures`.
    """
    code = [inspect.getsource(module) for module in (inspect.getmodule(draw.func), style) if module]
    kept = path.parent.parent / ".figures" / f"{fingerprint([as_json(results), code])}{path.suffix}"
    if kept.exists():
        shutil.copyfile(kept, path)
        return path
    draw(path)
    with replacing(kept) as temporary:
        shutil.copyfile(path, temporary)
    return path
