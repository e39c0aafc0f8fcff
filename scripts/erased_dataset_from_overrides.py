"""The experiment of a command line with an eraser, and its dataset, for scripts that look at erased images."""

from collections.abc import Sequence

from conf.check import ConfigError
from conf.compose import composed
from erasure.pipeline import ErasedDataset
from harness.experiment import Experiment, erased
from mdl.settings import MdlConfig


def job_under(eraser: str, overrides: Sequence[str]) -> Experiment:
    """Return the experiment of `python -m mdl OVERRIDES` with an eraser.

    Raises:
        ConfigError: the overrides choose an eraser, too.
    """
    if chosen := [word for word in overrides if word.startswith("eraser=")]:
        named = chosen[0].partition("=")[2].replace(",", " ")
        raise ConfigError(f"{chosen[0]}: has no effect here: choose with --eraser {named}")
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
