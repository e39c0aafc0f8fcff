"""python -m mdl: the prequential description length of a dataset's labels, for one eraser and one model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # before a conf.py, train.py or models/ in the current folder

from harness.command import Command, main

if TYPE_CHECKING:
    from harness.experiment import Compute, Experiment, Prepared
    from harness.results.read import StoredRun
    from mdl.result import MdlResult
    from mdl.settings import LabelCode, MdlConfig


def experiment(config: "MdlConfig") -> "Experiment[MdlConfig]":
    """Return the experiment of a configuration.

    Raises:
        ValueError: incompatible options.
    """
    from conf.unread_options import require_read
    from harness.experiment import Experiment
    from mdl.settings import LabelCode, unread_options

    described = Experiment.from_config("mdl", config.with_precision())
    code = label_code(described)
    unread = unread_options(code, config.model["name"])
    require_read(config, unread)
    if code is LabelCode.PUBLISHED and config.mdl.num_chunks < 3:
        raise ValueError(
            f"mdl.num_chunks={config.mdl.num_chunks}: {code.value} trains on all sizes but the last, and "
            "needs two: set mdl.num_chunks to at least 3"
        )
    return described


def label_code(experiment: "Experiment[MdlConfig]") -> "LabelCode":
    """Return which code of the labels an experiment computes."""
    from mdl.settings import LabelCode
    from models.kernel import KernelModel

    if issubclass(experiment.model, KernelModel):
        return LabelCode.KERNEL
    if experiment.config.train.protocol == "published":
        return LabelCode.PUBLISHED
    return LabelCode.REPLAY if experiment.config.mdl.code == "replay" else LabelCode.BLOCKS


def prepare(experiment: "Experiment[MdlConfig]") -> "tuple[Prepared, Compute]":
    """Load an experiment's data, and return it with the function that computes the code."""
    from mdl.settings import LabelCode

    match label_code(experiment):
        case LabelCode.KERNEL:
            from mdl.kernel_code import code_labels as compute
            from mdl.kernel_code import prepare as prepare_data
        case LabelCode.PUBLISHED:
            from mdl.published_procedure import prepare as prepare_data
            from mdl.published_procedure import published as compute
        case LabelCode.REPLAY:
            from mdl.block_code import prepare as prepare_data
            from mdl.replay_code import replay as compute
        case LabelCode.BLOCKS:
            from mdl.block_code import code_labels as compute
            from mdl.block_code import prepare as prepare_data
    return prepare_data(experiment), compute


def headline(result: "MdlResult") -> str:
    from harness.statistics import Spread, seeds_text

    bits = Spread.of(result.mdl.bits_per_sample)
    return f"{bits} bits per label, {seeds_text(len(result.seeds))}"


def summarise(runs: Sequence["StoredRun"], directory: Path) -> None:
    """Print a table and draw figures for each dataset and setting, and write both to `directory`."""
    from harness.results.arrange import arrange
    from harness.results.comparison import with_controls
    from harness.results.figures import draw_each
    from harness.results.table import show_with_csv
    from mdl.codelength_report import draw_learning_curves, table_of

    compared, without = with_controls(runs)
    if without:
        which = f" {without} of {len(runs)} runs" if len(runs) > 1 else ""
        print(f"no finished control run to compare{which} with: add control to eraser=, as in -m eraser=control,NAME")
    frames = arrange(compared)
    show_with_csv([*map(table_of, frames)], directory / "table.md")
    draw_each(draw_learning_curves, frames, directory / "comparison.png")


COMMAND = Command(
    name="mdl",
    purpose="how many bits per label it takes a network to learn a dataset, before or after erasure",
    experiment=experiment,
    prepare=prepare,
    headline=headline,
    summarise=summarise,
    axes={"mdl/*": "mdl/n", "loss/*": "loss/epoch"},  # n is the training size
)

if __name__ == "__main__":
    main(COMMAND)
