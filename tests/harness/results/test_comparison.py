"""Pairing of runs with their control, and families of differences that are corrected together."""

from harness.result import TrainResult
from harness.results.arrange import arrange
from harness.results.statistics import holm, paired_difference
from tests.results import made_up


def run(eraser: str = "control", losses: list[float] | None = None, width: int = 8) -> TrainResult:
    losses = losses or [1.0, 2.0]
    sections = {"dataset": {"name": "digits"}, "eraser": {"name": eraser}, "model": {"name": "mlp", "width": width}}
    seeds = list(range(len(losses)))
    config = {**sections, "seeds": seeds, "runs_dir": "nowhere"}
    found = made_up(config=config, seeds=seeds, final={"loss_bits": losses, "accuracy": losses})
    assert isinstance(found, TrainResult)
    return found


def test_differences_are_those_of_erased_runs_with_a_control_in_their_row() -> None:
    entries = arrange([run(), run("leace"), run("leace", width=9)]).entries
    compared = [(str(entry.row), str(entry.eraser)) for entry in entries if entry.loss_difference is not None]
    assert compared == [("digits · mlp (width=8)", "leace")]
    assert [entry.missing for entry in entries] == ["", "", "not run", ""]
    assert [entry.is_control for entry in entries] == [True, False, False, False]


def test_what_stands_in_one_table_is_corrected_together() -> None:
    runs = [run(losses=[1.0, 2.0, 3.0]), run("leace", [1.5, 2.4, 3.6]), run("qleace", [1.4, 2.5, 3.4])]
    alone = [paired_difference(one.final.loss_bits, runs[0].final.loss_bits) for one in runs[1:]]
    found = [entry.loss_difference for entry in arrange(runs).entries]
    assert found == [None, *holm(dict(enumerate(alone))).values()]
