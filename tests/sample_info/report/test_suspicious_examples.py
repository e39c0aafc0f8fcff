"""The most suspicious examples of a run, by name."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from harness.results.arrange import arrange
from harness.results.read import read_runs
from harness.results.table import Table
from harness.run_directory import Run
from sample_info.report.suspicious_examples import suspicious_examples
from tests.made_up_runs import write_information_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of twelve examples of two classes and two seeds; example i has a mean SI of i nats.

    Both networks trained without example 3 contradict its label, one each those of examples 1 and 8. F-SI falls with i.
    """
    run = write_information_run(tmp_path, seeds=(0, 1))
    examples = pd.DataFrame({"index": [100 + i for i in range(12)], "name": [f"train/{i}.png" for i in range(12)]})
    examples["label"] = [i % 2 for i in range(12)]
    examples["given_label"] = [1 - i % 2 if i == 7 else i % 2 for i in range(12)]
    examples["class"] = ["NA" if i % 2 else "dog" for i in range(12)]
    examples["left_out_label"] = 1
    examples["f_si_nats"] = range(12, 0, -1)
    seeds = [
        examples.assign(
            seed=seed,
            si_nats=[i + change for i in range(12)],
            left_out_correct=[int(i not in wrong) for i in range(12)],
        )
        for seed, change, wrong in ((0, -3, (1, 3)), (1, 3, (3, 8)))
    ]
    pd.concat(seeds).to_csv(run.directory / "scores.csv", index=False)
    return run


def tables(run: Run, most: int = 10) -> tuple[Sequence[Table], list[str]]:
    """The tables of suspicious examples of a folder of runs, and what was noted."""
    notes: list[str] = []
    return [*suspicious_examples(arrange(read_runs([run.directory.parent])), notes.append, most).values()], notes


ORDER = [3, 8, 1, 11, 10, 9, 7, 6, 5, 4]


def test_contradicted_examples_come_first_then_those_with_the_largest_mean_score(run: Run) -> None:
    (table,), notes = tables(run)
    assert notes == []
    assert list(table.headings) == ["rank", "name", "label", "predicted", "contradicted by", "SI (nats)"]
    assert [row[:2] for row in table.rows] == [[f"{rank}", f"train/{i}.png"] for rank, i in enumerate(ORDER, 1)]
    assert table.rows[0][2:] == ["NA", "NA", "2 of 2", "3.00e+00"]
    assert table.rows[6][2:] == ["dog", "NA", "0 of 2", "7.00e+00"], "the label that the network was given, its class"


def test_one_seed_needs_no_count_of_networks(run: Run) -> None:
    path = run.directory / "scores.csv"
    scores = pd.read_csv(path, keep_default_na=False)
    scores[scores["seed"] == 0].to_csv(path, index=False)
    (table,), _ = tables(run)
    assert list(table.headings) == ["rank", "name", "label", "predicted", "SI (nats)"]
    assert [row[1] for row in table.rows[:4]] == [f"train/{i}.png" for i in (3, 1, 11, 10)]


WHOLE = "index,label,given_label,left_out_correct,left_out_label,name,class,si_nats\n"


ROWS = "0,0,1,0,n,a,inf", "0,0,1,0,n,a,b", "0,0,b,0,n,a,1", f"{9**30},0,1,0,n,a,1"


@pytest.mark.parametrize("damage", ["", "index,label\n1,2\n", WHOLE, *(f"{WHOLE}1,{row}\n" for row in ROWS)])
def test_a_damaged_file_is_a_line(run: Run, damage: str) -> None:
    path = run.directory / "scores.csv"
    path.write_text(damage)
    shown, notes = tables(run)
    assert shown == []
    (line,) = notes
    assert line.startswith(f"{path}: no table of suspicious examples")


def test_a_missing_file_and_a_link_are_a_line(run: Run, tmp_path: Path) -> None:
    path = run.directory / "scores.csv"
    outside = path.rename(tmp_path / "outside.csv")
    assert "No such file" in tables(run)[1][0]
    path.symlink_to(outside)
    shown, (line,) = tables(run)
    assert shown == []
    assert "a link, which is not read" in line
