"""Versions in a result, where there is no git to ask for the commit."""

from pathlib import Path

import pytest
import torch

from harness.versions import versions


def test_without_git_the_commit_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versions(torch.device("cpu"))["commit"] == ""
