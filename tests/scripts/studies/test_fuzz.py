"""A sample of the fuzz study, and that it tells what is bad from what is good."""

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.studies import fuzz as study
from scripts.studies.formats import FORMATS, Format
from scripts.studies.fuzz import GOOD, fuzz, main


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_no_damage_becomes_a_wrong_number_code_a_hang_or_a_traceback(tmp_path: Path, kind: Format) -> None:
    outcomes = list(fuzz(tmp_path, 3, 0, [kind]))
    assert len(outcomes) == 3
    assert not [outcome for outcome in outcomes if outcome.kind not in GOOD]


def read_number(place: Path) -> tuple[str, object]:
    return "", (place / "a.txt").read_bytes()


def unpickle(place: Path) -> tuple[str, object]:
    try:
        pickle.loads((place / "a.txt").read_bytes())
    except Exception as error:
        raise ValueError(f"{place} is damaged") from error
    return "", None


def wait(place: Path) -> tuple[str, object]:
    if (place / "a.txt").read_bytes() != WHOLE:
        time.sleep(60)
    return "", None


def fail(place: Path) -> tuple[str, object]:
    if (place / "a.txt").read_bytes() != WHOLE:
        raise KeyError("loss")
    return "", None


def mumble(place: Path) -> tuple[str, object]:
    if (place / "a.txt").read_bytes() != WHOLE:
        raise ValueError("something is wrong")
    return "", None


WHOLE = pickle.dumps(None)


@pytest.mark.parametrize(
    ("read", "kind", "cases"),
    [
        (read_number, "wrong number", 4),
        (unpickle, "code run", 600),
        (wait, "hang", 1),
        (fail, "traceback", 4),
        (mumble, "unclear line", 4),
    ],
)
def test_a_careless_reader_is_found(tmp_path: Path, monkeypatch, read: Callable, kind: str, cases: int) -> None:
    monkeypatch.setattr(study, "_LIMIT_S", 1)
    careless = Format("careless", lambda place: (place / "a.txt").write_bytes(WHOLE), "a.txt", read)
    assert kind in {outcome.kind for outcome in fuzz(tmp_path, cases, 0, [careless])}


def test_the_table_and_the_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    careless = Format("careless", lambda place: (place / "a.txt").write_bytes(WHOLE), "a.txt", fail)
    for formats, code in ((FORMATS[:2], 0), ([careless], 1)):
        monkeypatch.setattr(study, "FORMATS", formats)
        assert main(["--cases", "4"]) == code
        shown = capsys.readouterr()
        assert "all 4" in shown.out
        assert ("KeyError: 'loss'" in shown.err) == bool(code)
