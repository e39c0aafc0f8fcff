"""The command for a machine with a GPU, in small on the CPU: a part is done once, and a failure is printed."""

import json
import re
from pathlib import Path

import pytest
import torch

from scripts.benchmarks import all_on_gpu


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Two of its parts, of which one fails."""
    parts = all_on_gpu.parts("cpu", tmp_path, "", small=True)
    erasers = [*parts["erasers of 48 values"], "--only", "moments", "leace"]
    two = {"erasers of 48 values": erasers, "wrong": ["scripts.benchmarks.wrong"]}
    monkeypatch.setattr(all_on_gpu, "parts", lambda *_, **__: two)


def test_it_writes_a_page_and_goes_on_where_it_stopped(few, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--device", "cpu", "--small", "--folder", str(tmp_path / "parts"), "--page", str(tmp_path / "page.md")]
    assert all_on_gpu.main([*run, "--minutes", "0"]) == 0
    assert "no time was left for erasers of 48 values, wrong: the same command goes on" in capsys.readouterr().out
    assert all_on_gpu.main(run) == 1  # one of them fails
    page = (tmp_path / "page.md").read_text()
    assert re.search(r"^ ?moments +ours, uint8", page, re.MULTILINE)
    assert re.search("Failed with exit code 1:\n\n```\n.*No module named scripts.benchmarks.wrong\n```", page)
    erasers = json.loads((tmp_path / "parts" / "erasers of 48 values.json").read_text())
    assert all(work in "\n".join(erasers["printed"]) for work in ("moments", "LEACE fit"))
    capsys.readouterr()
    assert all_on_gpu.main(run) == 1
    assert "…" not in capsys.readouterr().out  # nothing is done again


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        all_on_gpu.main([])
    assert ended.value.code == 2
    assert "no CUDA device: --device cpu --small tries the command itself" in capsys.readouterr().err
