"""What every verb does around its own computation: identity, skip if finished, data, logger, result."""

import functools
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import torch
import yaml

from conf.schema import Target
from erasure.cache import Cache
from erasure.eraser import Eraser
from erasure.pipeline import ErasedDataset, erased_dataset
from erasure.source import Source
from models.classifier import Classifier, count_parameters
from train.data import DeviceImages, to_device
from train.ensemble import Ensemble
from train.examples import example_row
from train.interruption import interruptible
from train.logger import Logger, LoggerSettings
from train.run import Run, run_id
from train.settings import TrainSettings
from train.stacking import STACKING

log = logging.getLogger(__name__)

NUMBERS = (
    "dataset",
    "eraser",
    "model",
    "train",
    "mdl",
    "sample_info",
    "seeds",
    "dtype",
)  # sections that determine results
HOW = {  # options in them that do not
    "train": ("stack", "checkpoint_every_s"),
    "mdl": ("order",),
    "sample_info": ("batch_size", "memory_gib"),
}
CONTROL = {"name": "control", "_target_": "erasure.IdentityEraser"}  # conf/eraser/control.yaml


@dataclass(frozen=True)
class Job:
    """A validated configuration with its parts resolved, before anything is loaded.

    Attributes:
        verb: what is done.
        config: all sections.
        source: the dataset.
        checksums: by section and option, of files that options name: what they hold is part of a run's identity,
            where they lie is not.
    """

    verb: str
    config: Mapping[str, Any]
    source: Source
    checksums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @functools.cached_property
    def settings(self) -> TrainSettings:
        """How networks are trained, where the verb trains any."""
        return TrainSettings(**self.config["train"])

    @classmethod
    def from_config(cls, verb: str, config: Mapping[str, Any]) -> "Job":
        """Resolve a configuration that `conf.schema.validate` accepted.

        Raises:
            ValueError: a value that its part refuses.
        """
        source = Target(config["dataset"]).build(Source)
        if "train" in config:
            TrainSettings(**config["train"])  # refuses what it does not like before anything is loaded
        return cls(verb, config, source)

    @functools.cached_property
    def device(self) -> torch.device:
        """Where it runs; not asked for a run that has finished.

        Raises:
            ValueError: a device that is not there.
        """
        return pick_device(self.config["device"])

    @property
    def model_identity(self) -> dict[str, Any]:
        """What of the model's section determines its numbers."""
        target = Target(self.config["model"])
        return dict(target.resolve(Classifier).identity(target.section))

    def identity(self, eraser: Mapping[str, Any] | None = None) -> str:
        """This run's id, or that of the same run with another eraser."""
        described = {section: self.config[section] for section in NUMBERS if section in self.config}
        for section, options in HOW.items():
            if section in described:
                described[section] = {k: v for k, v in described[section].items() if k not in options}
        for section, named in self.checksums.items():
            described[section] = {**described[section], **named}
        described |= {"dataset": self.source.identity(), "model": self.model_identity}
        if eraser is not None:
            described["eraser"] = dict(eraser)
        return run_id(self.verb, described)

    def run(self) -> Run:
        return Run(self.config["runs_dir"], self.identity())

    def control(self) -> Run:
        """The control run with the same dataset, model and seeds."""
        return Run(self.config["runs_dir"], self.identity(CONTROL))


class Loaded(Protocol):
    """A job's data and whatever its verb needs beside it, loaded."""

    @property
    def dataset(self) -> ErasedDataset: ...

    @property
    def described(self) -> Mapping[str, Any]:
        """Its share of `result.json`: "seeds", "num_classes", "train_size", "parameters"."""
        ...


L = TypeVar("L", bound=Loaded)


@dataclass(frozen=True)
class Bench:
    """A job's data and architecture, loaded and on the device."""

    job: Job
    dataset: ErasedDataset
    data: Mapping[str, DeviceImages]
    ensemble: Ensemble

    @property
    def num_classes(self) -> int:
        return len(self.dataset.class_names)

    @property
    def seeds(self) -> Sequence[int]:
        return self.job.config["seeds"]

    @property
    def described(self) -> Mapping[str, Any]:
        """What result.json says of it."""
        return {
            "seeds": list(self.seeds),
            "num_classes": self.num_classes,
            "train_size": len(self.data["train"]),
            "parameters": count_parameters(self.ensemble.model),
        }


def erased(job: Job) -> ErasedDataset:
    """The job's dataset under its eraser, from the cache or built."""
    target = Target(job.config["eraser"])
    dtype, cache = getattr(torch, job.config["dtype"]), Cache(job.config["cache_dir"])
    return erased_dataset(job.source, target.resolve(Eraser), target.options, dtype=dtype, cache=cache)


def load(job: Job) -> Bench:
    """Erase (or fetch) the dataset, bring it to the device, build the architecture."""
    dataset = erased(job)
    data = to_device(dataset, crop_padding=job.settings.crop_padding, flip=job.source.flip, device=job.device)
    shape, k = data["train"].image_shape, len(dataset.class_names)
    model = Target(job.config["model"]).build(Classifier, shape, k)
    return Bench(job, dataset, data, Ensemble(model.to(job.device), _precision(job)))


def carry_out(
    job: Job,
    load: Callable[[Job], L],
    compute: Callable[[L, Run, Logger], Mapping[str, Any]],
    *,
    axes: Mapping[str, str],
    group: str | None = None,
) -> dict[str, Any]:
    """Run a job once: a finished run's result is read back, an unfinished one is (re)started.

    Args:
        job: what to run.
        load: the verb's data and architecture.
        compute: the verb's own part; returns its share of `result.json`.
        axes: W&B metric patterns and the metric that is their x axis.
        group: W&B group, e.g. the sweep.
    """
    run = job.run()
    if (result := run.result) is not None:
        log.info("%s has finished before: nothing to train", run.id)
        run.tidy()
        return result
    _ = job.device  # one that is not there is noticed before anything is written
    with interruptible(at_once=True), run.exclusive():
        if (result := run.result) is not None:
            log.info("%s was finished by another process: nothing to train", run.id)
            return result
        return _carry_out(job, run, load, compute, axes, group)


def _carry_out(
    job: Job,
    run: Run,
    load: Callable[[Job], L],
    compute: Callable[[L, Run, Logger], Mapping[str, Any]],
    axes: Mapping[str, str],
    group: str | None,
) -> dict[str, Any]:
    # sections that say how and where, too: the record should be complete
    run.start(yaml.safe_dump(dict(job.config), sort_keys=False, allow_unicode=True))
    started = time.time()
    try:
        with run.logging():
            bench = load(job)
            names = [job.config[part]["name"] for part in ("dataset", "eraser", "model")]
            with Logger(
                LoggerSettings(**job.config["logger"]),
                run_id=run.id,
                verb=job.verb,
                group=group,
                tags=names,
                config=job.config,
                directory=run.directory,
                axes=axes,
            ) as logger:
                certificate = {name: asdict(c) for name, c in bench.dataset.certificate.items()}
                logger.summarise({f"certificate/{s}/{k}": v for s, c in certificate.items() for k, v in c.items()})
                logger.image("examples/test", lambda: example_row(bench.dataset), ", ".join(bench.dataset.class_names))
                computed = compute(bench, run, logger)
                result = {
                    "run_id": run.id,
                    "verb": job.verb,
                    "config": dict(job.config),
                    **bench.described,
                    **computed,
                    "certificate": certificate,
                    "timing": {
                        "seconds": round(time.time() - started, 3),
                        "started": started,
                        "stacking": run.part(STACKING),
                    },
                    "versions": versions(job.device),
                }
                logger.result(result)
                run.finish(result)
    except BaseException as error:
        run.fail(error)
        raise
    return result


def pick_device(name: str) -> torch.device:
    """The device named by the configuration; "auto" takes a GPU if there is one.

    Raises:
        ValueError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name}: not a device; choose auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices; try device=auto")
    return device


def versions(device: torch.device) -> dict[str, str]:
    """Versions and hardware that a reader needs to repeat a run."""
    hardware = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    )
    libraries = ("torch", "schedulefree", "numpy", "scikit-learn")
    return {"python": platform.python_version(), "device": f"{device} ({hardware})"} | {
        name: version(name) for name in ("erasure-mdl", *libraries)
    }


def _precision(job: Job) -> torch.dtype:
    wanted = job.settings.precision
    if wanted == "auto":
        wanted = "bfloat16" if job.device.type == "cuda" else "float32"
    return getattr(torch, wanted)
