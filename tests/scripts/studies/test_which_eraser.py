"""The study of erasers: its page has the numbers of its results, and a small one runs and is read back."""

from pathlib import Path

import pytest

from scripts.studies import which_eraser
from scripts.studies.which_eraser import Part, main, markdown, read

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_shows_the_kept_results() -> None:
    printed = markdown(read(DOCS / "which_eraser.json")).split("### ")
    _, *shown = (DOCS / "which_eraser.md").read_text(encoding="utf-8").split("### ")
    assert len(shown) >= 2
    assert {table.strip() for table in shown} <= {table.strip() for table in printed}


def test_every_dataset_has_every_eraser_on_as_many_splits() -> None:
    cells = read(DOCS / "which_eraser.json").values()
    for dataset in {cell.dataset for cell in cells}:
        seeds = {(cell.eraser, cell.seed) for cell in cells if cell.dataset == dataset}
        erasers = {eraser for eraser, _ in seeds}
        assert len(seeds) == len(erasers) * len({seed for _, seed in seeds})
        missing = {*which_eraser.METHODS} - erasers
        assert missing == ({"gradient"} if dataset == "CIFAR-10" else set())


def test_a_small_study_erases_probes_and_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some() -> Part:
        whole = which_eraser.breast_cancer()
        return Part(whole.x[:200, :5], whole.z[:200])

    monkeypatch.setattr(which_eraser, "datasets", lambda folder: {"breast cancer": some})
    methods = {name: which_eraser.METHODS[name] for name in ("control", "LEACE", "QLEACE")}
    monkeypatch.setattr(which_eraser, "METHODS", methods)
    out = tmp_path / "found.json"
    assert main(["--seeds", "1", "--out", str(out)]) == 0
    cells = read(out)
    assert {eraser for _, eraser, _ in cells} == {*methods}
    control, leace = (cells["breast cancer", eraser, 0] for eraser in ("control", "LEACE"))
    assert control.edit == 0 < leace.edit
    assert leace.accuracy["linear"] < control.accuracy["linear"]
    monkeypatch.setattr(which_eraser, "compute", None)  # nothing is computed again
    assert main(["--seeds", "1", "--out", str(out)]) == 0
    assert (tmp_path / "found_tables.md").read_text().startswith("### Breast cancer")


def test_results_of_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from erasure.store.checked_files import write_json

    write_json(tmp_path / "other.json", {"x": 1})
    assert main(["--out", str(tmp_path / "other.json")]) == 2
    assert "holds no results of this command" in capsys.readouterr().err
