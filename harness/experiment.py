"""An experiment: settings, an id, and one run, which is claimed, computed or resumed, stored and logged."""

import contextlib
import functools
import logging
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

import torch
import yaml
from torch import Tensor

from conf import Options
from conf.command_process import make_folder
from conf.groups import preset
from conf.run_identity import identifying
from conf.schema import C, C_co
from conf.target_class import Target, target_of
from conf.terminal import PrintableFormatter, printable
from erasure.code_identity import code_identity
from erasure.dataset import Source
from erasure.datasets.class_subset import positions
from erasure.eraser import Eraser
from erasure.image_cache import whole_images
from erasure.pipeline import ERASURE_VERSION, ErasedDataset, erased_dataset
from erasure.store.cache import Cache
from erasure.store.checked_files import fingerprint
from erasure.store.lease import LeaseLostError
from erasure.store.regular_files import open_regular, require_plain_folder
from erasure.threads import threads_for
from harness.device_and_precision import pick_device
from harness.interruption import interruptible
from harness.limits import require_config
from harness.logger import Logger, example_row
from harness.result import Result, as_json, result_of
from harness.run_directory import RESULTS_VERSION, Run
from harness.run_ids import run_id
from harness.versions import versions
from models.any_module import AnyModule
from models.classifier import Classifier, Model, is_repeatable

log = logging.getLogger(__name__)

Compute = Callable[[Any, Run, Logger], Result]  # takes what is `Prepared`
Prepare = Callable[[Any], tuple["Prepared[Any]", Compute]]  # takes an `Experiment`


@dataclass(frozen=True)
class Experiment(Generic[C_co]):
    """A validated configuration with its dataset resolved.

    Model and eraser are looked up when needed.

    Attributes:
        command: name of a command, see `conf.commands`.
        config: the settings.
        source: the dataset, not loaded yet.
        checksums: checksums of the files that options name, by section and option. The run's identity contains a file's
            content, not its path.
    """

    command: str
    config: C_co
    source: Source
    checksums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, command: str, config: C) -> "Experiment[C]":
        """Resolve a configuration that `conf.schema.validate` accepted.

        Raises:
            ValueError: the dataset refuses a value, or `harness.limits` would refuse to read it.
        """
        try:
            require_config(config.plain, command)
        except ValueError as error:
            raise ValueError(f"the configuration {error}: choose a value within these limits") from None
        return Experiment(command, config, Target(config.dataset, Source).build())

    @functools.cached_property
    def device(self) -> torch.device:
        """The device, which need not exist if the run has finished.

        Raises:
            ValueError: the device does not exist.
        """
        return pick_device(self.config.device)

    @property
    def model(self) -> type[Model]:
        """The class that the model's section names."""
        return Target(self.config.model, Model).resolve()

    @property
    def model_identity(self) -> Options:
        """The options of the model and of its nested models that affect results."""
        section = self.config.model
        inner = Target(section, Model).nested_sections()
        parts = {key: target_of(kind, part).resolve().identity(part) for key, kind, part in inner}
        return {**self.model.identity(section), **parts}

    @functools.cached_property
    def _source_identity(self) -> Mapping[str, Any]:
        return self.source.identity()  # may read the data's files

    @property
    def data_digest(self) -> str:
        """Digest of content, options and code of the whole dataset, even if the run uses only some classes."""
        return fingerprint({key: value for key, value in self._source_identity.items() if key != "classes"})

    @functools.cached_property
    def split_positions(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """The positions in the dataset and the labels of each split's examples, [n] int64 each."""
        return positions(self.source, whole_images(self.source, Cache(self.config.cache_dir)))

    def code_identity(self) -> dict[str, int | str]:
        """Return versions and digests of the code that computes this run's numbers; see `erasure.code_identity`."""
        model = Target(self.config.model, Model)
        inner = (target_of(kind, part) for _, kind, part in model.nested_sections())
        code_versions: dict[str, int | str] = {
            "results": RESULTS_VERSION,
            "erasure": ERASURE_VERSION,
            **self._source_identity["code"],
        }
        for target in (Target(self.config.eraser, Eraser), model, *inner):
            code_versions |= code_identity(target.resolve())
        return code_versions

    def identity(self) -> str:
        """Return this run's id."""
        described = identifying(self.config.plain, self.command)
        for section, named in self.checksums.items():
            described[section] = {**described[section], **named}
        dataset = {key: value for key, value in self._source_identity.items() if key != "code"}
        described |= {"dataset": dataset, "model": self.model_identity}
        return run_id(self.command, described, self.code_identity())

    @functools.cached_property
    def run(self) -> Run:
        """The run's directory and the files in it, whether or not it exists yet."""
        return Run(self.config.runs_dir, self.identity())

    def require_network(self) -> "Experiment[C_co]":
        """Return this experiment if its model is a network.

        Raises:
            ValueError: the model has no weights to train.
        """
        if not issubclass(self.model, Classifier):
            name = self.config.model["name"]
            raise ValueError(
                f"model={name}: has no weights, and python -m {self.command} needs a network, e.g. model=mlp; "
                f"python -m mdl model={name} computes the codelength of the labels with this model"
            )
        return self

    def control(self) -> "Experiment[C_co]":
        """Return the same experiment with nothing erased."""
        return replace(self, config=replace(self.config, eraser=preset("eraser", "control")))

    def carry_out(
        self, prepare: Prepare, axes: Mapping[str, str], group: str | None = None, *, wait: bool = True
    ) -> Result | None:
        """Start or continue the run, and return its result.

        Args:
            prepare: function that loads the data; see `harness.command.Command`.
            axes: for patterns of W&B metrics, the metric on their x axis.
            group: W&B group, e.g. the sweep.
            wait: whether to wait while another process computes the run; if false, None is returned in that case.
        """
        run = self.run
        make_folder("runs_dir", self.config.runs_dir)
        require_plain_folder(run.directory)
        make_folder("cache_dir", self.config.cache_dir)
        _ = self.device  # a missing device is an error before anything is written
        with interruptible(at_once=True), run.claim(wait=wait) as claimed:
            if not claimed:
                return None
            if (result := run.result) is not None:
                log.info("%s was finished by another process: nothing to compute", run.id)
                return result
            try:
                # the complete configuration, including settings outside the run's identity such as device
                run.start(yaml.safe_dump(self.config.plain, sort_keys=False, allow_unicode=True))
                with log_file(run.directory):
                    return self._computed(prepare, axes, group)
            except LeaseLostError:  # this process was stopped, or could not write, for too long
                if (result := run.result) is None:
                    raise
                log.info("another process has taken over %s and finished it", run.id)
                return result
            except BaseException as error:
                run.fail(error)
                raise

    def _computed(self, prepare: Prepare, axes: Mapping[str, str], group: str | None) -> Result:
        """Load the data, compute, and write result.json."""
        started, run, config = time.time(), self.run, self.config.plain
        prepared, compute = prepare(self)
        dataset = prepared.dataset
        names = [config[part]["name"] for part in ("dataset", "eraser", "model")]
        wandb_options = {"id": run.id, "group": group, "job_type": self.command, "tags": names, "config": config}
        with Logger(self.config.logger, wandb_options, run.directory, axes) as logger:
            for split, certificate in dataset.certificate.items():
                numbers = certificate.numbers().items()
                logger.summarise({f"certificate/{split}/{key}": value for key, value in numbers})
            logger.image("examples/test", lambda: example_row(dataset), ", ".join(dataset.class_names))
            with threads_for(prepared.step_multiply_adds):
                computed = compute(prepared, run, logger)
            seconds = run.seconds()
            timed = replace(computed, timing=replace(computed.timing, seconds=seconds, started=started))
            result = result_of(as_json(timed))  # the same checks as when it is read
            logger.summarise({"result/seconds": seconds, "result/parameters": result.parameters})
            run.finish(result)
        return result


@dataclass(frozen=True)
class Prepared(ABC, Generic[C_co]):
    """An experiment with its erased dataset; commands add the other data that they load before computing."""

    experiment: Experiment[C_co]
    dataset: ErasedDataset

    @property
    def num_classes(self) -> int:
        return len(self.dataset.class_names)

    @property
    def seeds(self) -> Sequence[int]:
        return self.experiment.config.seeds

    def result_fields(self) -> dict[str, Any]:
        """Return the fields that results of all commands have; timing is added when the run ends."""
        experiment, dataset = self.experiment, self.dataset
        return {
            "command": experiment.command,
            "run_id": experiment.run.id,
            "config": experiment.config.plain,
            "seeds": list(self.seeds),
            "num_classes": self.num_classes,
            "train_size": self.train_size,
            "parameters": self.parameters,
            "certificate": dict(dataset.certificate),
            "versions": versions(experiment.device),
            "code": experiment.code_identity(),
            "data": experiment.data_digest,
            "dim": dataset.dim,
            "smallest_class": dataset.smallest_class,
        }

    @property
    def train_size(self) -> int:
        """The number of training examples."""
        return len(self.dataset.splits["train"])

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of fitted parameters."""

    @property
    @abstractmethod
    def step_multiply_adds(self) -> float:
        """The number of multiplications in a step of the computation, which determines its number of threads."""


def erased(experiment: Experiment, left_out: Tensor | None = None) -> ErasedDataset:
    """Return the experiment's erased dataset, read from the cache or built; see `erased_dataset`."""
    target = Target(experiment.config.eraser, Eraser)
    dtype, cache = getattr(torch, experiment.config.dtype), Cache(experiment.config.cache_dir)
    return erased_dataset(
        experiment.source,
        target.resolve(),
        target.options,
        dtype=dtype,
        cache=cache,
        left_out=left_out,
        device=experiment.device,
    )


def network(experiment: Experiment, section: Options, input_shape: Sequence[int], num_outputs: int) -> Classifier:
    """Build the network that a section names.

    Raises:
        ValueError: equal generators give different initial weights.
    """
    target = Target(section, Classifier)
    try:
        model = target.build(tuple(input_shape), num_outputs)
    except Exception as error:
        error.add_note(f"in {target.path}({', '.join(f'{key}={value}' for key, value in target.options.items())})")
        raise
    if not is_repeatable(model):
        raise ValueError(
            f"{target.path}.reset_parameters must draw from the generator it is given: with equal generators it has "
            "drawn different weights, so that no run could be repeated; pass generator=generator to torch's functions"
        )
    if isinstance(model, AnyModule):
        log.info(
            "%s: without μP, one train.lr need not suit all widths: a subclass of models.classifier.Classifier can "
            "have μP and stacked layers",
            target.path,
        )
    return model.to(experiment.device)


@contextlib.contextmanager
def log_file(directory: Path) -> Iterator[None]:
    """Copy log records, and the traceback of a failure, into log.txt; add the path of this file to the error."""
    path, root = directory / "log.txt", logging.getLogger()
    with open_regular(path, "a") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
        try:
            yield
        except LeaseLostError:
            raise  # the file belongs to the process that took over
        except Exception as error:  # excludes interruptions such as Ctrl-C
            file.write(printable(traceback.format_exc(), lines=True))
            error.add_note(f"traceback in {path}")
            raise
        finally:
            root.removeHandler(handler)
