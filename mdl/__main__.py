"""python -m mdl: the prequential description length of a dataset's labels, for one eraser and one model."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf import cli
from harness.compare import Spread, arrange, by_setting
from harness.drawn import drawn_once
from harness.job import Job, carry_out
from harness.logger import LoggerSettings
from harness.run import read_result
from mdl.chunks import ChunkSettings
from mdl.prequential import AXES, prequential
from train.bench import load, training_job
from train.settings import TrainSettings


def _job(config: Mapping[str, Any]) -> Job:
    ChunkSettings(**config["mdl"])  # refuses what it does not like before anything is loaded
    return training_job("mdl", config)


def run(config: Mapping[str, Any], group: str | None) -> dict[str, Any]:
    return carry_out(_job(config), load, prequential, axes=AXES, group=group)


def directory(config: Mapping[str, Any]) -> Path:
    return _job(config).run().directory


def headline(result: Mapping[str, Any]) -> str:
    code = Spread.of(result["mdl"]["bits_per_sample"])
    return f"{code} bits per label"


def summarise(results: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Table and figure of the comparison, printed and written to `directory`."""
    from mdl.figure import draw
    from mdl.table import print_run, print_table, write_tables

    if len(results) == 1:
        (only,) = results
        print_run(only)
        control = training_job("mdl", only["config"]).control()
        if control.result is None:
            print("no control run to compare with yet: add -m eraser=control,NAME to the same command")
        elif control.id != only["run_id"]:
            results = [control.result, only]
    grids = by_setting(results)
    for setting, grid in grids.items():
        print_table(grid, setting)
    tables = write_tables(grids, directory)
    figure = drawn_once(functools.partial(draw, arrange(results)), directory / "comparison.png", results)
    print(f"figure: {figure}\ntables: {', '.join(map(str, tables))}")


VERB = cli.Verb(
    name="mdl",
    purpose="how many bits per label it takes a network to learn a dataset, before or after erasure",
    sections={"train": TrainSettings, "mdl": ChunkSettings, "logger": LoggerSettings},
    run=run,
    directory=directory,
    result=read_result,
    headline=headline,
    summarise=summarise,
)

if __name__ == "__main__":
    cli.main(VERB)
