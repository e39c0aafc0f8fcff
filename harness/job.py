"""A configuration with its parts resolved: dataset, eraser, model, and the run's id."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor

from conf import Options
from conf.schema import C, Config, Of, command_of, config_of, identifying, validate
from conf.target import Target, require_listed
from erasure.code_identity import code_identity
from erasure.eraser import Eraser
from erasure.pipeline import ERASURE_VERSION, ErasedDataset, erased_dataset
from erasure.source import Source
from erasure.store.cache import Cache
from erasure.store.storage import fingerprint
from harness.device import pick_device
from harness.run import RESULTS_VERSION, Run
from models.classifier import Model

CONTROL = {"name": "control", "_target_": "erasure.IdentityEraser"}  # conf/eraser/control.yaml


@dataclass(frozen=True)
class Job(Generic[Of]):
    """A validated configuration with its parts resolved, before anything is loaded.

    Attributes:
        command: what is done.
        config: the settings.
        source: the dataset.
        checksums: by section and option, of files that options name: what they hold is part of a run's identity,
            where they lie is not.
    """

    command: str
    config: Of
    source: Source
    checksums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, command: str, config: C) -> "Job[C]":
        """Resolve a configuration that `conf.schema.validate` accepted.

        Raises:
            ValueError: a value that its part refuses.
        """
        return Job(command, config, Target(config.dataset).build(Source))

    @classmethod
    def stored(cls, config: Options) -> "Job[Config]":
        """Resolve the configuration that a finished run has stored, perhaps a stranger's.

        Raises:
            ValueError: this version refuses it, or it names a class that no YAML file does.
        """
        require_listed(config)
        command = command_of(config)
        return cls.from_config(command, validate(config, config_of(command)))

    @functools.cached_property
    def device(self) -> torch.device:
        """The device; looked up only for a run that is not finished.

        Raises:
            ValueError: a device that is not there.
        """
        return pick_device(self.config.device)

    @property
    def model(self) -> type[Model]:
        """The class that the model's section names."""
        return Target(self.config.model).resolve(Model)

    @property
    def model_identity(self) -> Options:
        """The options of the model, and of a model within it, that determine its numbers."""
        section = self.config.model
        inner = {key: Target(part).resolve(Model).identity(part) for key, _, part in Target(section).held()}
        return {**self.model.identity(section), **inner}

    @functools.cached_property
    def _source_identity(self) -> Mapping[str, Any]:
        return self.source.identity()  # may read the data's files

    def code(self) -> dict[str, int | str]:
        """Return what identifies the code that computes this run's numbers: see `erasure.code_identity`."""
        model = self.config.model
        sections = [self.config.eraser, model, *(part for _, _, part in Target(model).held())]
        own: dict[str, int | str] = {
            "train": RESULTS_VERSION,
            "erasure": ERASURE_VERSION,
            **self._source_identity["code"],
        }
        for section in sections:
            own |= code_identity(Target(section).resolve())
        return own

    def identity(self) -> str:
        """Return this run's id."""
        described = identifying(self.config.plain)
        for section, named in self.checksums.items():
            described[section] = {**described[section], **named}
        dataset = {key: value for key, value in self._source_identity.items() if key != "code"}
        described |= {"dataset": dataset, "model": self.model_identity}
        return run_id(self.command, described, self.code())

    def run(self) -> Run:
        return Run(self.config.runs_dir, self.identity())

    def control(self) -> "Job[Of]":
        """Return the same job with nothing erased."""
        return replace(self, config=replace(self.config, eraser=CONTROL))


def erased(job: Job, apart: Tensor | None = None) -> ErasedDataset:
    """Return the job's dataset under its eraser, from the cache or built; see `erased_dataset`."""
    target = Target(job.config.eraser)
    dtype, cache = getattr(torch, job.config.dtype), Cache(job.config.cache_dir)
    return erased_dataset(
        job.source, target.resolve(Eraser), target.options, dtype=dtype, cache=cache, apart=apart, device=job.device
    )


def run_id(command: str, described: Options, code: Mapping[str, int | str]) -> str:
    """Return a run's id: readable names, a digest of its configuration, and one of its code.

    Args:
        command: "mdl", "train", ...
        described: JSON-like sections; "dataset", "eraser" and "model" each with a "name". Nothing about
            where or how it runs (device, logger, paths, launcher) belongs here.
        code: what stands for the code, by name: a version, or the digest of a source.
    """
    names = [re.sub(r"[^A-Za-z0-9.]+", "_", described[part]["name"]) for part in ("dataset", "eraser", "model")]
    asked = fingerprint({"verb": command, **described}, length=10)
    return "-".join([command, *names, asked, fingerprint(dict(code), length=8)])
