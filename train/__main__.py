"""python -m train: one training on the whole training split; loss curves and final losses."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # before a conf.py, train.py or models/ in the current folder

from harness.command import Command, main

if TYPE_CHECKING:
    from harness.experiment import Compute, Experiment, Prepared
    from harness.results.read import StoredRun
    from train.result import TrainResult
    from train.settings import TrainConfig


def experiment(config: "TrainConfig") -> "Experiment[TrainConfig]":
    """Return the experiment of a configuration."""
    from conf.unread_options import no_effect, require_read
    from harness.experiment import Experiment

    described = Experiment.from_config("train", config.with_precision()).require_network()
    if config.train.protocol != "standard":
        raise ValueError("train.protocol=published: is a procedure of python -m mdl; use that, or train=paper")
    require_read(config, {"train.published": no_effect("python -m train", "python -m mdl train=published")})
    return described


def prepare(experiment: "Experiment[TrainConfig]") -> "tuple[Prepared, Compute]":
    """Load an experiment's data, and return it with the function that trains."""
    from train.prepared_training import prepare as prepare_data
    from train.whole_split_training import train_on_everything

    return prepare_data(experiment), train_on_everything


def headline(result: "TrainResult") -> str:
    from harness.statistics import Spread

    test, train = Spread.of(result.final.loss_bits), Spread.of(result.final.train_loss_bits or [])
    return f"test {test.mean:.4f}, training {train.mean:.4f} bits per label"


def summarise(runs: Sequence["StoredRun"], directory: Path) -> None:
    """Print a table of final losses and draw loss curves for each dataset and setting; write both to `directory`.

    Runs with `counterparts` get a second table and figure, on the order in which networks learn the counterparts.
    """
    from harness.results.arrange import arrange
    from harness.results.figures import draw_each
    from harness.results.table import show_with_csv
    from train import learning_order_report
    from train.final_losses_report import draw_loss_curves, table_of

    frames = arrange(runs)
    show_with_csv([*map(table_of, frames)], directory / "table.md")
    draw_each(draw_loss_curves, frames, directory / "loss_curves.png")
    if followed := arrange([run for run in runs if getattr(run.result, "counterparts", None)]):
        show_with_csv([*map(learning_order_report.table_of, followed)], directory / "learning_order.md")
        draw_each(learning_order_report.draw, followed, directory / "learning_order.png")


COMMAND = Command(
    name="train",
    purpose="train networks on the whole of a dataset, before or after erasure; loss curves and final losses",
    experiment=experiment,
    prepare=prepare,
    headline=headline,
    summarise=summarise,
    axes={"loss/*": "loss/epoch", "live/*": "live/epoch"},  # live: logged while this process trains
)

if __name__ == "__main__":
    main(COMMAND)
