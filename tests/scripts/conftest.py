"""Reports without figures, and launches that are only noted."""

from pathlib import Path

import pytest


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build reports without figures, which take most of their time."""
    monkeypatch.setattr("scripts.report.draw_figures", lambda *_: {})


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Commands that were to be run; none is."""
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []
    ended = type("Ended", (), {"returncode": 0})()
    run = "scripts.manage_sweep.relaunch.subprocess.run"
    monkeypatch.setattr(run, lambda words, **_: commands.append(words) or ended)
    return commands
