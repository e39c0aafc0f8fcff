"""NVIDIA's Multi-Process Service is started for a block, and ended; without it an error says so."""

import os
from pathlib import Path

import pytest

from scripts.benchmarks.side_by_side import mps


def test_the_service_runs_for_the_block_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(
        f'#!/bin/sh\n[ "$1" = -d ] && echo started in $CUDA_MPS_PIPE_DIRECTORY >> {said} || cat >> {said}\n'
    )
    control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", "before")
    with mps():
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert os.environ["CUDA_MPS_LOG_DIRECTORY"] == folder
    assert said.read_text().splitlines() == [f"started in {folder}", "quit"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert os.environ["CUDA_MPS_LOG_DIRECTORY"] == "before"


def test_a_missing_or_failing_service_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="nvidia-cuda-mps-control is not installed"), mps():
        pass
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
    control.chmod(0o755)
    with pytest.raises(RuntimeError, match="nvidia-cuda-mps-control -d: no device"), mps():
        pass
