"""README's own code does what README says."""

import re
import textwrap
from pathlib import Path
from typing import Any

import torch
import yaml

from erasure import ClassMoments

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return [textwrap.dedent(block) for block in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)]


def test_the_eraser_in_readme_is_whole() -> None:
    code = next(block for block in blocks("python") if "class Shrink" in block)
    section = yaml.safe_load(next(block for block in blocks("yaml") if "Shrink" in block))
    names: dict[str, Any] = {"__name__": "shrink"}
    exec(code, names)
    assert section["name"] == "shrink"
    assert section["_target_"] == "erasure.erasers.shrink.Shrink"
    x, z = torch.randn(60, 3, 2), torch.arange(60) % 3
    eraser = names["Shrink"].fit_moments(ClassMoments.fit(x, z), share=section["share"])
    torch.testing.assert_close(eraser(x), (x + x.mean(0)) / 2)


def test_the_library_snippet_runs() -> None:
    snippet = next(block for block in blocks("python") if "LeaceEraser.from_moments" in block)
    names: dict[str, Any] = {"x": torch.randn(60, 3, 2), "z": torch.arange(60) % 3}
    exec(snippet, names)
    means = torch.stack([names["x_erased"][names["z"] == j].mean(0) for j in range(3)])
    assert (means - means.mean(0)).abs().max() < 1e-6
