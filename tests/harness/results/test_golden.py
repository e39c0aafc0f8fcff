"""Tables of kept runs are the same to the last digit as before."""

import csv
import io
from pathlib import Path

import pytest

from harness.results.arrange import arrange
from harness.results.read import read_runs
from mdl.codelength_report import table_of

ROOT = Path(__file__).parents[3]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.csv"))


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return {table.name: table.csv() for table in map(table_of, arrange(read_runs([ROOT / "docs/study"])))}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_a_kept_table_has_the_same_numbers(golden: Path, tables: dict[str, str]) -> None:
    name, _, _ = golden.stem.rpartition("-")
    kept = list(csv.DictReader(io.StringIO(golden.read_text(encoding="utf-8"))))
    rows = list(csv.DictReader(io.StringIO(tables[name])))
    assert [{column: row[column] for column in kept[0]} for row in rows] == kept


def test_there_are_golden_tables() -> None:
    assert len(GOLDEN) == 2
