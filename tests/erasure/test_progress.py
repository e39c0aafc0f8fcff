"""Progress: lines without a terminal, a bar with one, and neither for what is quick."""

import io

import pytest
import torch
from rich.console import Console

from erasure import progress
from erasure.progress import Display, on_progress, report_progress, shown_progress
from erasure.transport import barycenter


def test_lines_say_what_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 4.0, 12.0, 13.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with Display("fit") as display:
        display.update(0.05, "round 1")  # too soon for a line
        display.update(0.25, "round 2")
        display.update(0.30, "round 3")  # too soon after the last
    assert capsys.readouterr().err == "fit  round 2  25%  0:30 left\n", "75 % at 8 s for 20 %"


def test_what_an_earlier_process_did_says_nothing_of_the_pace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 10.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with Display("run") as display:
        display.update(0.8, "read back")
        display.update(0.9, "epoch 2")
    assert capsys.readouterr().err == "run  read back  80%\nrun  epoch 2  90%  0:20 left\n"


def test_a_terminal_has_a_bar_only_of_what_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = io.StringIO(), iter([0.0, 0.9, 0.0, 1.1])
    display = Display("fit")
    display._console = Console(file=terminal, force_terminal=True, width=80)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now, 1.2))
    with display:
        display.update(0.9, "round 1")
    assert not terminal.getvalue()
    with display:
        display.update(0.5, "round 1")
    assert {"round", "50"} <= set(terminal.getvalue().split())


def test_a_barycenter_says_how_far_it_is() -> None:
    shares: list[float] = []
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn(4, 12, 12, dtype=torch.float64, generator=generator)
    with on_progress(lambda _title, done, _detail: shares.append(done)):
        rounds = len(barycenter(roots @ roots.mT, tolerance=1e-12).excess)
    assert len(shares) == rounds - 1
    assert [0.0, *shares, 1.0] == sorted([0.0, *shares, 1.0])
    halfway = shares[len(shares) // 2]
    assert halfway == pytest.approx(0.5, abs=0.15), "in proportion to the rounds"


def test_numerical_code_prints_nothing_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(range(0, 1000, 20))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    report_progress("fit", 0.5, "round 1")
    assert capsys.readouterr() == ("", "")
    with shown_progress():
        report_progress("barycenter", 0.5, "round 1")
        report_progress("barycenter", 0.75, "round 2")
        report_progress("map", 0.25, "class 0")
    assert (
        capsys.readouterr().err == "barycenter  round 1  50%\nbarycenter  round 2  75%  0:20 left\nmap  class 0  25%\n"
    )
    report_progress("fit", 0.5, "round 2")
    assert capsys.readouterr() == ("", "")
