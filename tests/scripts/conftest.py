"""Reports without figures."""

import pytest


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build reports without figures, which take most of their time."""
    monkeypatch.setattr("scripts.report.draw_figures", lambda *_: {})
