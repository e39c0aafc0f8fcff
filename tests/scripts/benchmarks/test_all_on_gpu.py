"""The command for a machine with a GPU, in small on the CPU: it continues where it stopped, and reports a failure."""

import argparse
import os
import time
from pathlib import Path

import pytest
import torch

from scripts.benchmarks import all_on_gpu


def test_it_writes_a_page_and_continues_where_it_stopped(tmp_path: Path) -> None:
    parts = all_on_gpu.parts("cpu", tmp_path, "", small=True)
    erasers = parts["erasers of 48 values"]
    only = erasers._replace(command=[*erasers.command, "--only", "moments"])
    two = {"erasers of 48 values": only, "wrong": all_on_gpu.Part(["scripts.benchmarks.wrong"], "Nothing.")}
    page, folder = tmp_path / "page.md", tmp_path / "parts"
    options = argparse.Namespace(device="cpu", folder=folder, page=page, minutes=0.0)
    assert all_on_gpu.work(options, two) == 0
    assert not list(folder.iterdir())  # no time for any part
    assert "No time was left for: erasers of 48 values, wrong." in page.read_text()
    options.minutes = 5.0
    assert all_on_gpu.work(options, two) == 1  # one of them fails
    written = page.read_text()
    assert "ours, uint8" in written
    assert "Failed with exit code 1" in written
    assert "No module named scripts.benchmarks.wrong" in written
    assert "Decides nothing by itself. Bar: concept-erasure" in written
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(times) == 2
    assert all_on_gpu.work(options, two) == 1
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times  # nothing is computed again
    only = only._replace(command=[*only.command, "--classes", "4"])
    options.minutes = 0.0
    assert all_on_gpu.work(options, {"erasers of 48 values": only}) == 0
    assert "ours, uint8" not in page.read_text()  # other options: not the same measurement


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        all_on_gpu.main([])
    assert ended.value.code == 2
    assert "no CUDA device: --device cpu --small tries the command itself" in capsys.readouterr().err


def test_a_part_that_takes_too_long_is_stopped_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "written"
    loop = f"while True: open({str(written)!r}, 'a').write('x'); time.sleep(0.02)"
    (tmp_path / "slow.py").write_text(
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {f'import time{chr(10)}{loop}'!r}])\n"
        "print('begun', flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    part = all_on_gpu.run(["slow"], 2.0)
    size = written.stat().st_size
    time.sleep(0.2)
    assert written.stat().st_size == size > 0
    assert part["printed"] == ["begun"]
    assert "Stopped for lack of time, after:" in all_on_gpu.page({"slow": part}, {"slow": ""}, "x", [])


def test_a_long_traceback_displaces_no_rows_and_warnings_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    for code in (0, 1):
        errors = f"print(*range(300), sep=chr(10), file=sys.stderr); sys.exit({code})"
        (tmp_path / f"loud{code}.py").write_text(f"import sys\nprint('row')\nprint('progress …')\n{errors}\n")
        rows = ["row", "progress …"] if code else ["row"]
        assert all_on_gpu.run([f"loud{code}"], 20.0)["printed"] == [*rows, *map(str, range(280, 300))]
