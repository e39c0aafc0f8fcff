"""python -m sample_info: how much each training example tells a network that the others do not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import cli
from conf.schema import Config, validate

if TYPE_CHECKING:
    from harness.job import Job

AXES = {"information/*": "seed"}


def work(config: Config) -> cli.Work:
    from harness.job import Work
    from sample_info.examples import load
    from sample_info.scoring import score

    return Work(job_of(config), load, score, AXES)


def job_of(config: Mapping[str, Any]) -> "Job":
    """The job that a configuration describes, on the classes that it names."""
    from harness.job import Job
    from sample_info.examples import restricted
    from sample_info.problem import checksum_of
    from sample_info.references.registry import require_known
    from sample_info.settings import SampleInfoSettings, summary_model

    config = config if isinstance(config, Config) else validate(config, VERB.sections)  # a finished run's
    settings = config.settings(SampleInfoSettings)
    require_known(settings.references.methods)
    summary_model(config)  # refuses what it does not have
    job = restricted(Job.from_config("sample_info", config), settings)
    if settings.initial_weights is None:
        return job
    return replace(job, checksums={"sample_info": {"initial_weights": checksum_of(settings.initial_weights)}})


def result(path: Path) -> Any:
    from harness.result import read_result

    return read_result(path)


def headline(result: Mapping[str, Any]) -> str:
    from harness.compare import Spread

    information = Spread.of([one["mean_nats"] for one in result["information"]["f_si_nats"]])
    return f"{information:.2e} nats of F-SI per example"


def summarise(results: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Tables and figures, printed and written to `directory`."""
    from harness.compare import arrange
    from harness.style import colour
    from sample_info.report.comparison import agreements, few_enough, movements, read_scores_or_note
    from sample_info.report.figures import agreement_figure, movement_figure, save, summaries_figure
    from sample_info.report.table import panel, print_tables, sections, summarised, write_tables

    grid = arrange(results)
    runs_dir = Path(results[0]["config"]["runs_dir"])
    problems: list[str] = []
    stored = {result["run_id"]: read_scores_or_note(runs_dir / result["run_id"], problems) for result in results}
    moved = movements(grid, lambda result: stored[result["run_id"]])
    alike, left_out = few_enough(agreements(grid, lambda result: stored[result["run_id"]]))
    tables = sections(grid, moved, alike)
    print_tables(tables)
    for line in [*problems, *left_out]:
        print(line)
    print(f"table: {write_tables(tables, directory / 'table.md')}")
    for result in results:
        for name in ("scores.png", "summaries.png") if result["summaries"] else ("scores.png",):
            print(f"figure: {runs_dir / result['run_id'] / name}")
    panels = [panel(result["summaries"], result["config"], f"{row} · {one}") for row, one, result in summarised(grid)]
    drawn = {
        "agreement.png": alike and (lambda: agreement_figure(alike)),
        "movement.png": moved and (lambda: movement_figure(moved, lambda eraser: colour(eraser, grid.columns))),
        "summaries.png": len(panels) > 1 and (lambda: summaries_figure(panels)),
    }
    for name, make in drawn.items():
        if make:
            print(f"figure: {save(make, directory / name)}")
    print(f"scores: {', '.join(str(runs_dir / result['run_id'] / 'scores.csv') for result in results)}")


VERB = cli.Verb(
    name="sample_info",
    purpose="how much each training example tells a network that the others do not, before or after erasure",
    sections={"sample_info": "sample_info.settings.SampleInfoSettings", "logger": "harness.logger.LoggerSettings"},
    work=work,
    result=result,
    headline=headline,
    summarise=summarise,
)

if __name__ == "__main__":
    cli.main(VERB)
