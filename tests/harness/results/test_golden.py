"""Tables of kept runs are the same to the last digit as before."""

from pathlib import Path

import pytest

from harness.results.arrange import by_dataset
from harness.results.read import read_runs
from scripts.report.tables import tables_of

ROOT = Path(__file__).parents[3]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.csv"))


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    comparisons = by_dataset(read_runs([ROOT / "docs/study"]))
    return {table.name: table.csv() for comparison in comparisons for table in tables_of(comparison)}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_a_kept_table_has_the_same_numbers(golden: Path, tables: dict[str, str]) -> None:
    assert tables[golden.stem] == golden.read_text(encoding="utf-8")


def test_there_are_golden_tables() -> None:
    assert len(GOLDEN) == 2
