"""python -m sample_info: the information that each training example gives a network beyond the others."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # before a conf.py, train.py or models/ in the current folder

from harness.command import Command, main

if TYPE_CHECKING:
    from harness.experiment import Compute, Experiment, Prepared
    from harness.results.read import StoredRun
    from sample_info.result import InformationResult
    from sample_info.settings import SampleInfoConfig

_FIGURES = ("scores.png", "summaries.png")  # in each run's directory


def experiment(config: "SampleInfoConfig") -> "Experiment[SampleInfoConfig]":
    """Return the experiment of a configuration, on the classes that it names."""
    from conf.unread_options import require_read
    from erasure.datasets.class_subset import ClassSubset
    from harness.experiment import Experiment
    from sample_info.data_summarization import summary_model
    from sample_info.trained_weights import checksum_of

    require_read(config, config.unread_options())
    settings = config.sample_info
    described = Experiment.from_config("sample_info", config).require_network()
    if settings.summaries.trained:
        summary_model(config)  # raises ValueError for options that the model lacks
    if settings.classes != "all":
        described = replace(described, source=ClassSubset.of(described.source, settings.classes))
    checksums = {}
    if settings.initial_weights is not None:
        checksums["initial_weights"] = checksum_of(settings.initial_weights)
    return replace(described, checksums={"sample_info": checksums})


def prepare(experiment: "Experiment[SampleInfoConfig]") -> "tuple[Prepared, Compute]":
    """Load an experiment's examples, and return them with the function that scores them."""
    from sample_info.scored_examples import prepare as prepare_data
    from sample_info.scores_run import score

    return prepare_data(experiment), score


def headline(result: "InformationResult") -> str:
    from harness.statistics import Spread, seeds_text

    scores = Spread.of([one.mean_nats for one in result.information["f_si_nats"]])
    return f"{scores:.2e} nats of F-SI per example, {seeds_text(len(result.seeds))}"


def summarise(runs: "Sequence[StoredRun]", directory: Path) -> None:
    """Print tables and the paths of figures, and write both to `directory`."""
    from harness.results.arrange import arrange, colours_of
    from harness.results.table import show
    from sample_info.report.between_runs import compare_scores
    from sample_info.report.suspicious_examples import suspicious_examples
    from sample_info.report.tables import tables_of

    frames, problems = arrange(runs), list[str]()
    between = compare_scores(frames, problems.append) if len(runs) > 1 else ([], [])
    suspicious = suspicious_examples(frames, problems.append)
    show([*tables_of(frames, *between), *suspicious.values()], directory / "table.md")
    for line in problems:
        print(line)
    drawn = [path for run in runs for name in _FIGURES if (path := run.directory / name).exists()]
    if len(runs) > 1:
        from harness.results.figures import draw_parts  # imports matplotlib
        from sample_info.report.figures import figures_of

        for kind, figure in figures_of(frames, *between).items():
            drawn += draw_parts(*figure, colours_of(frames), directory / f"{kind}.png")
    for path in drawn:
        print(f"figure: {path}")
    print(f"scores: {', '.join(str(run.directory / 'scores.csv') for run in runs)}")


COMMAND = Command(
    name="sample_info",
    purpose="how much each training example tells a network that the others do not, before or after erasure",
    experiment=experiment,
    prepare=prepare,
    headline=headline,
    summarise=summarise,
)

if __name__ == "__main__":
    main(COMMAND)
