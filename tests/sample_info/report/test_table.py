"""Tables of `python -m sample_info`."""

from dataclasses import replace
from pathlib import Path

from harness.result import InformationResult, read_result
from harness.results.arrange import arrange
from sample_info.report.table import headline, tables_of
from tests.runs import write_information_run


def result(root: Path, seeds: tuple[int, ...]) -> InformationResult:
    found = read_result(write_information_run(root, seeds=seeds).directory / "result.json")
    assert isinstance(found, InformationResult)
    return found


def test_the_headline_says_what_a_score_is_to_be_compared_with(tmp_path: Path) -> None:
    found = result(tmp_path, (0,))
    (mean_nats,) = [one.mean_nats for one in found.information["f_si_nats"]]
    assert headline(found) == (
        f"{mean_nats:.2e} nats of F-SI per example, one seed; the top tenth of the examples has 40% of the total, "
        "the largest is 18 times the median"
    )
    silent = [replace(one, median_nats=0.0, share_of_top_tenth=None) for one in found.information["f_si_nats"]]
    assert headline(replace(found, information={**found.information, "f_si_nats": silent})).endswith("one seed")


def test_captions_say_of_how_many_seeds_a_deviation_is(tmp_path: Path) -> None:
    runs = tables_of(arrange([result(tmp_path / "two", (0, 1))]), [])["Runs"]
    assert "±: standard deviation over 2 seeds." in runs.caption
    assert dict(zip(runs.headings, runs.rows[0], strict=True))["largest / median"] == "18"
    single = tables_of(arrange([result(tmp_path / "one", (0,))]), [])
    assert not any("±" in table.caption or "±" in table.markdown() for table in single.values())
