"""python -m sample_info: how much each training example tells a network that the others do not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conf import cli
from sample_info.comparison import require_known
from sample_info.problem import load, restricted
from sample_info.references import REFERENCES
from sample_info.scoring import score
from sample_info.settings import SampleInfoSettings
from sample_info.trained_weights import checksum_of
from train.compare import Spread, arrange
from train.job import Job, carry_out
from train.logger import LoggerSettings

AXES = {"information/*": "seed"}


def run(config: Mapping[str, Any], group: str | None) -> dict[str, Any]:
    return carry_out(_job(config), load, score, axes=AXES, group=group)


def directory(config: Mapping[str, Any]) -> Path:
    return _job(config).run().directory


def _job(config: Mapping[str, Any]) -> Job:
    settings = SampleInfoSettings(**config["sample_info"])
    require_known(settings.references, REFERENCES)
    job = restricted(Job.from_config("sample_info", config), settings)
    if settings.initial_weights is None:
        return job
    return replace(job, checksums={"sample_info": {"initial_weights": checksum_of(settings.initial_weights)}})


def headline(result: Mapping[str, Any]) -> str:
    information = Spread.of([one["mean_nats"] for one in result["information"]["f_si_nats"]])
    return f"{information:.2e} nats of F-SI per example"


def summarise(results: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Table and figures, printed and written to `directory`."""
    from sample_info.movement import draw_movements, movements
    from sample_info.table import print_tables, write_tables

    grid = arrange(results)
    runs_dir = Path(results[0]["config"]["runs_dir"])
    moved = movements(grid, runs_dir)
    print_tables(grid, moved)
    for result in results:
        print(f"figure: {runs_dir / result['run_id'] / 'scores.png'}")
    if moved:
        print(f"figure: {draw_movements(moved, grid, directory / 'movement.png')}")
    print(f"table: {write_tables(grid, moved, directory / 'table.md')}")
    print(f"scores: {', '.join(str(runs_dir / result['run_id'] / 'scores.csv') for result in results)}")


VERB = cli.Verb(
    name="sample_info",
    purpose="how much each training example tells a network that the others do not, before or after erasure",
    sections={"sample_info": SampleInfoSettings, "logger": LoggerSettings},
    run=run,
    directory=directory,
    headline=headline,
    summarise=summarise,
)

if __name__ == "__main__":
    cli.main(VERB)
