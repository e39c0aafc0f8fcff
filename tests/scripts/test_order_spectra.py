"""Table and figure of the order spectrum, of images and of vectors, and one line for what it cannot do."""

from pathlib import Path

import numpy as np
import pytest

from scripts import order_spectra


def test_what_erasers_leave_of_the_digits(tmp_path: Path, capsys: pytest.CaptureFixture, real_figures) -> None:
    out = tmp_path / "of" / "digits"
    assert order_spectra.main([f"cache_dir={tmp_path}", "--erasers", "control", "leace", "--out", str(out)]) == 0
    assert f"figure: {out}.svg" in capsys.readouterr().out
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in out.with_suffix(".md").read_text().split("\n")
    ]
    assert [row[:3] for row in table[2:10:2]] == [
        ["control", "train", "1,295"],
        ["control", "test", "359"],
        ["LEACE", "train", "1,295"],
        ["LEACE", "test", "359"],
    ]
    assert [float(row[4].split()[0]) > 0.5 for row in table[2:10:2]] == [True, True, False, False]
    assert "test, 10 directions" in out.with_suffix(".svg").read_text()


def test_vectors_have_a_spectrum_too(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(90, 5)), y=np.arange(90) % 2)
    options = ["--erasers", "control", "--out", str(tmp_path / "a")]
    assert order_spectra.main(["dataset=arrays", f"dataset.path={path}", f"cache_dir={tmp_path}", *options]) == 0
    assert (tmp_path / "a.md").read_text().count("| control | train |") == 1  # 10 and 30 directions of five


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert order_spectra.main(["dataset=digit", f"cache_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith("unknown dataset=digit: did you mean digits?")
    with pytest.raises(SystemExit, match="2"):
        order_spectra.main(["eraser=leace,qleace"])
    assert ": eraser=leace,qleace: has no effect here: choose with --erasers leace,qleace" in capsys.readouterr().err
    assert order_spectra.main(["dataset=digits,mnist"]) == 2
    assert capsys.readouterr().err.startswith("dataset=digits,mnist: takes one value; ")
