"""What every verb does around its own computation: identity, skip if finished, data, logger, result."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
import yaml
from torch import Tensor

from conf import Options
from conf.schema import Config, Target
from conf.verbs import identifying
from erasure.code_identity import code_identity
from erasure.eraser import Eraser
from erasure.pipeline import ERASURE_VERSION, ErasedDataset, erased_dataset
from erasure.source import Source
from erasure.store.cache import Cache
from harness.device import pick_device, versions
from harness.examples import example_row
from harness.interruption import interruptible
from harness.logger import Logger, LoggerSettings
from harness.result import Information, Result, result_of
from harness.run import RESULTS_VERSION, Run, run_id
from harness.trained import Timing, Trained
from models.classifier import Model

log = logging.getLogger(__name__)

CONTROL = {"name": "control", "_target_": "erasure.IdentityEraser"}  # conf/eraser/control.yaml


T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A validated configuration with its parts resolved, before anything is loaded.

    Attributes:
        verb: what is done.
        config: all sections; a `Config`, but of a run that has finished and is only asked for its identity.
        source: the dataset.
        checksums: by section and option, of files that options name: what they hold is part of a run's identity,
            where they lie is not.
    """

    verb: str
    config: Options
    source: Source
    checksums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, verb: str, config: Options) -> "Job":
        """Resolve a configuration that `conf.schema.validate` accepted.

        Raises:
            ValueError: a value that its part refuses.
        """
        return cls(verb, config, Target(config["dataset"]).build(Source))

    @functools.cached_property
    def device(self) -> torch.device:
        """Where it runs; not asked for a run that has finished.

        Raises:
            ValueError: a device that is not there.
        """
        return pick_device(self.config["device"])

    def settings(self, kind: type[T]) -> T:
        """The section of this type."""
        assert isinstance(self.config, Config)
        return self.config.settings(kind)

    @property
    def model(self) -> type[Model]:
        """The class that the model's section names."""
        return Target(self.config["model"]).resolve(Model)

    @property
    def model_identity(self) -> Options:
        """What of the model's section, and of a model within it, determines its numbers."""
        section = self.config["model"]
        inner = {key: Target(part).resolve(Model).identity(part) for key, _, part in Target(section).held()}
        return {**self.model.identity(section), **inner}

    @functools.cached_property
    def _source_identity(self) -> Mapping[str, Any]:
        return self.source.identity()  # may read the data's files

    def code(self, eraser: Options | None = None) -> dict[str, int | str]:
        """What stands for the code that computes this run's numbers: see `erasure.code_identity`."""
        model = self.config["model"]
        sections = [eraser or self.config["eraser"], model, *(part for _, _, part in Target(model).held())]
        own: dict[str, int | str] = {
            "train": RESULTS_VERSION,
            "erasure": ERASURE_VERSION,
            **self._source_identity["code"],
        }
        for section in sections:
            own |= code_identity(Target(section).resolve())
        return own

    def identity(self, eraser: Options | None = None) -> str:
        """This run's id, or that of the same run with another eraser."""
        described = identifying(self.config)
        for section, named in self.checksums.items():
            described[section] = {**described[section], **named}
        dataset = {key: value for key, value in self._source_identity.items() if key != "code"}
        described |= {"dataset": dataset, "model": self.model_identity}
        if eraser is not None:
            described["eraser"] = dict(eraser)
        return run_id(self.verb, described, self.code(eraser))

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
Share = Trained | Information  # what a verb computes of its result


def erased(job: Job, apart: Tensor | None = None) -> ErasedDataset:
    """The job's dataset under its eraser, from the cache or built; see `erased_dataset`."""
    target = Target(job.config["eraser"])
    dtype, cache = getattr(torch, job.config["dtype"]), Cache(job.config["cache_dir"])
    return erased_dataset(
        job.source, target.resolve(Eraser), target.options, dtype=dtype, cache=cache, apart=apart, device=job.device
    )


@dataclass(frozen=True)
class Work(Generic[L]):
    """A job, and how its verb does it.

    Attributes:
        job: what to run.
        load: the verb's data and architecture.
        compute: the verb's own part; returns its share of the result.
        axes: W&B metric patterns and the metric that is their x axis.
        share: computes what no other process computes of the run's parts; whether all are computed then. None where
            one process computes the whole run.
    """

    job: Job
    load: Callable[[Job], L]
    compute: Callable[[L, Run, Logger], Share]
    axes: Mapping[str, str]
    share: Callable[[L, Run], bool] | None = None

    @property
    def directory(self) -> Path:
        """Where the run is, or would be."""
        return self.job.run().directory

    def carry_out(self, group: str | None = None, *, wait: bool = True) -> Result | None:
        """Run it once: a finished run's result is read back, an unfinished one is (re)started.

        Args:
            group: W&B group, e.g. the sweep.
            wait: for another process that computes it; otherwise the answer is None then.
        """
        run = self.job.run()
        if (result := run.result) is not None:
            log.info("%s has finished before: nothing to train", run.id)
            run.tidy()
            return result
        _ = self.job.device  # one that is not there is noticed before anything is written
        with interruptible(at_once=True):
            bench = None
            if self.share is not None:
                with _under_way(self.job, run):
                    bench = self.load(self.job)
                    if not self.share(bench, run) and not wait:
                        return None
            with run.exclusive(wait=wait) as ours:
                if not ours:
                    return None
                if (result := run.result) is not None:
                    log.info("%s was finished by another process: nothing to train", run.id)
                    return result
                with _under_way(self.job, run):
                    return _carry_out(self, run, group, bench)


@contextlib.contextmanager
def _under_way(job: Job, run: Run) -> Iterator[None]:
    """Note that a run is computed, what is logged meanwhile, and why it ends early if it does."""
    # sections that say how and where, too: the record should be complete
    run.start(yaml.safe_dump(dict(job.config), sort_keys=False, allow_unicode=True))
    try:
        with run.logging():
            _tell_changes(job, run)
            yield
    except BaseException as error:
        run.fail(error)
        raise


def _carry_out(work: Work[L], run: Run, group: str | None, bench: L | None) -> Result:
    job = work.job
    started = time.time()
    bench = bench or work.load(job)
    names = [job.config[part]["name"] for part in ("dataset", "eraser", "model")]
    with Logger(
        job.settings(LoggerSettings),
        run_id=run.id,
        verb=job.verb,
        group=group,
        tags=names,
        config=job.config,
        directory=run.directory,
        axes=work.axes,
    ) as logger:
        for split, certificate in bench.dataset.certificate.items():
            logger.summarise({f"certificate/{split}/{key}": value for key, value in certificate.numbers().items()})
        logger.image("examples/test", lambda: example_row(bench.dataset), ", ".join(bench.dataset.class_names))
        share = work.compute(bench, run, logger)
        own = {f.name: getattr(share, f.name) for f in fields(share)}
        seconds = round(time.time() - started, 3)
        timing = replace(own.pop("timing", Timing()), seconds=seconds, started=started)
        about = {"run_id": run.id, "verb": job.verb, "config": dict(job.config), "code": job.code()}
        about |= {"certificate": dict(bench.dataset.certificate), "versions": versions(job.device)}
        result = result_of({**about, **bench.described, **own, "timing": timing})
        logger.summarise({"result/seconds": seconds, "result/parameters": result.parameters})
        logger.result(result)
        run.finish(result)
    return result


def _tell_changes(job: Job, run: Run) -> None:
    """Say what has changed since a finished run that would otherwise be this one."""
    if (earlier := run.before_code_changed()) is not None:
        now, then = job.code(), earlier.code
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        log.info("%s would be this run, but the code of %s has changed since", earlier.run_id, ", ".join(changed))
