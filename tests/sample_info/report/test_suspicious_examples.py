"""The most suspicious examples of a run, by name."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sample_info.report.suspicious_examples import suspicious_examples
from sample_info.result import InformationResult
from tests.made_up_runs import write_information_run


@pytest.fixture
def run(tmp_path: Path) -> InformationResult:
    """A run of twelve examples of two classes and two seeds; example i has a mean F-SI of i nats."""
    result = write_information_run(tmp_path, seeds=(0, 1)).result
    assert isinstance(result, InformationResult)
    result = replace(result, config={**result.config, "runs_dir": str(tmp_path)})
    examples = pd.DataFrame({"index": [100 + i for i in range(12)], "name": [f"train/{i}.png" for i in range(12)]})
    examples["label"] = [i % 2 for i in range(12)]
    examples["given_label"] = [1 - i % 2 if i == 7 else i % 2 for i in range(12)]
    examples["class"] = ["NA" if i % 2 else "dog" for i in range(12)]
    examples["left_out_label"] = 1
    seeds = [
        examples.assign(seed=seed, f_si_nats=[i + change for i in range(12)]) for seed, change in ((0, -3), (1, 3))
    ]
    pd.concat(seeds).to_csv(result.directory / "scores.csv", index=False)
    return result


def test_ten_examples_with_the_largest_mean_score_are_named(run: InformationResult) -> None:
    notes: list[str] = []
    table = suspicious_examples(run, notes.append)
    assert table is not None
    assert not notes
    assert list(table.headings) == ["rank", "name", "label", "predicted", "F-SI (nats)"]
    assert [row[:2] for row in table.rows] == [[f"{i + 1}", f"train/{11 - i}.png"] for i in range(10)]
    assert table.rows[0][2:] == ["NA", "NA", "1.10e+01"]
    assert table.rows[4][2:] == ["dog", "NA", "7.00e+00"], "the label that the network was given, and its class"


def test_examples_of_older_runs_are_called_by_their_row(run: InformationResult) -> None:
    path = run.directory / "scores.csv"
    pd.read_csv(path, keep_default_na=False).drop(columns=["name", "left_out_label"]).to_csv(path, index=False)
    table = suspicious_examples(run, print)
    assert table is not None
    assert list(table.headings) == ["rank", "name", "label", "F-SI (nats)"]
    assert table.rows[0][1] == "row 111"


@pytest.mark.parametrize("damage", ["", "index,label\n1,2\n", None])
def test_a_missing_or_damaged_file_is_a_line(run: InformationResult, damage: str | None) -> None:
    path, notes = run.directory / "scores.csv", list[str]()
    path.unlink()
    if damage is not None:
        path.write_text(damage)
    assert suspicious_examples(run, notes.append) is None
    (line,) = notes
    assert line.startswith(f"{path}: no table of suspicious examples")
