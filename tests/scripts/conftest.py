"""Reports without figures."""

import pytest


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build reports without figures, which take most of their time."""
    monkeypatch.setattr("scripts.report.__main__.draw_figures", lambda *_: None)
