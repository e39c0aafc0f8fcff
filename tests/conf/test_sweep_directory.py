"""A sweep's own files, which somebody else may have edited."""

from pathlib import Path

import pytest

from conf.sweep_directory import Sweep
from erasure.store.storage import read_json

ENDED = {"overrides": ["eraser=leace"], "exit_code": 0, "run_id": "a", "result": "a/result.json"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a/result.json", "b/result.json", "was edited or damaged: its checksum does not match its content"),
        ('"digest"', '"other"', "has no checksum: it was edited, or something else wrote it"),
        ("{", "[{", "is damaged ("),
    ],
)
def test_an_edited_outcome_is_not_believed(tmp_path: Path, before: str, after: str, said: str) -> None:
    sweep, path = Sweep(tmp_path), tmp_path / "job-00000.json"
    sweep.record(0, ENDED)
    assert sweep.outcomes() == [ENDED]
    assert read_json(path) == ENDED
    path.write_text(path.read_text().replace(before, after, 1))
    (outcome,) = sweep.outcomes()
    assert outcome["exit_code"] == 1
    assert "result" not in outcome
    assert outcome["error"].startswith(f"{path} {said}")
    assert outcome["error"].endswith("launch the sweep again")


def test_other_files_of_the_folder_are_passed_over(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.record(3, ENDED)
    (tmp_path / "job-note.json").write_text("{}")
    assert sweep.recorded() == {3}
