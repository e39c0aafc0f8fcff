"""The experiment of a command line with an eraser, and its dataset, for scripts that look at erased images."""

import argparse
from collections.abc import Sequence

from conf.check import ConfigError
from conf.compose import composed
from erasure.pipeline import ErasedDataset
from harness.experiment import Experiment, erased
from mdl.settings import MdlConfig


def parse_with_erasers(
    parser: argparse.ArgumentParser, erasers: Sequence[str], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Parse overrides and --erasers, which are `erasers` by default.

    Words after --erasers may be separated by commas, and overrides may follow.
    """
    parser.add_argument("overrides", nargs="*", help="as for python -m mdl, e.g. dataset=digits")
    parser.add_argument("--erasers", nargs="+", metavar="NAME", default=list(erasers), help="rows")
    options = parser.parse_args(arguments)
    names = [word for word in options.erasers if "=" not in word]
    options.overrides += [word for word in options.erasers if "=" in word]
    options.erasers = [name for word in names for name in word.split(",") if name]
    if chosen := [word for word in options.overrides if word.startswith("eraser=")]:
        parser.error(f"{chosen[0]}: has no effect here: choose with --erasers {chosen[0].partition('=')[2]}")
    if not options.erasers:
        parser.error("--erasers: names no eraser, e.g. --erasers leace")
    return options


def job_under(eraser: str, overrides: Sequence[str]) -> Experiment:
    """Return the experiment of `python -m mdl OVERRIDES` with an eraser.

    Raises:
        ConfigError: the overrides choose an eraser, too.
    """
    if chosen := [word for word in overrides if word.startswith("eraser=")]:
        last = chosen[0].removeprefix("eraser=").rpartition(",")[2]
        raise ConfigError(f"{chosen[0]}: has no effect here: choose one with --eraser {last}")
    return Experiment.from_config("mdl", composed("mdl", [*overrides, f"eraser={eraser}"], MdlConfig))


def erased_by(eraser: str, overrides: Sequence[str]) -> ErasedDataset:
    """Return the dataset of that experiment."""
    return erased(job_under(eraser, overrides))


def require_images(dataset: ErasedDataset) -> None:
    """Refuse datasets that are not images.

    Raises:
        ValueError: the examples are vectors.
    """
    values, height, width = dataset.example_shape
    if height == width == 1:
        raise ValueError(f"no images: its examples are vectors of {values} values, which cannot be shown")
