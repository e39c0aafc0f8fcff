"""The configuration of a run: checked, frozen settings made from composed YAML files.

A command's configuration is a dataclass with the fields of `Config` and the command's own sections; their types are the
schema. The sections of dataset, eraser and model each name a class, and their options are its keyword-only arguments. A
new eraser, model or dataset therefore needs no entry here.
"""

import os
import re
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue
from pydantic import ConfigDict, Field

from conf import Options
from conf.check import CLOSED, ConfigError, check, keyword_only
from conf.run_identity import unhashed
from conf.target_class import TARGETS, check_target

VARIABLES = "experiment"  # section of variables for other sections and for sweeps; not part of a run


@dataclass(frozen=True, kw_only=True)
class LoggerSettings:
    """Options of `conf/logger`.

    Args:
        mode: "offline" writes to the run's directory (upload later with `wandb sync`); "online" needs an
            account; "disabled" writes nothing.
        project: W&B project.
        entity: W&B user or team; None for the account's default.
        init_timeout_s: seconds to wait for the server before falling back to offline.
        finish_timeout_s: seconds to wait for uploads at a run's end; files not uploaded by then stay on disk.
    """

    mode: Literal["online", "offline", "disabled"] = unhashed("offline")
    project: str = unhashed("erasure-mdl")
    entity: str | None = unhashed(None)
    init_timeout_s: Annotated[float, Field(gt=0)] = unhashed(30.0)
    finish_timeout_s: Annotated[float, Field(gt=0)] = unhashed(300.0)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of a run: the fields that all commands share.

    Args:
        dataset: name, class and options of the dataset (`conf.target_class.Target`).
        eraser: name, class and options of the eraser.
        model: name, class and options of the model.
        logger: options of W&B.
        seeds: distinct, non-negative seeds; each gives one training per size.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: data type of the erased images on disk.
        runs_dir: folder of results.
        cache_dir: folder of erased datasets.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    # options and sections that distinguish rows of a table instead of tables: "mdl.code", "sample_info"
    row_options: ClassVar[tuple[str, ...]] = ()

    dataset: Options
    eraser: Options
    model: Options
    logger: LoggerSettings = unhashed(LoggerSettings())
    seeds: list[int]
    device: str = unhashed("auto")
    dtype: Literal["float32", "float64", "float16", "bfloat16"]
    runs_dir: str = unhashed("runs")
    cache_dir: str = unhashed("cache")

    def __post_init__(self) -> None:
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds={self.seeds}: need at least one, all different and none negative, e.g. seeds=[0,1,2]"
            )
        for key in ("runs_dir", "cache_dir"):
            if not getattr(self, key).strip():
                raise ConfigError(f"{key}=: names no folder: choose one, {key}=FOLDER")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ConfigError(f"device={self.device}: computes nothing here; choose auto, cpu, cuda or cuda:N")

    @classmethod
    def resolved(cls, options: Options) -> Options:
        """Return a configuration in which options that depend on other options have their values.

        Raises:
            ConfigError: an option has no value for these other options.
        """
        return options

    @classmethod
    def sections(cls) -> list[str]:
        """Return the command's own sections of options, e.g. `["train", "mdl"]` for `mdl`."""
        shared = {f.name for f in fields(Config)}
        return [key for key, kind in keyword_only(cls).items() if is_dataclass(kind) and key not in shared]

    @classmethod
    def table_sections(cls) -> list[str]:
        """Return the command's own sections whose options distinguish tables: those not in `row_options` as a whole."""
        return [section for section in cls.sections() if section not in cls.row_options]

    @property
    def plain(self) -> Options:
        """The configuration as in files: dictionaries, and lists in place of tuples."""
        return asdict(self, dict_factory=_with_lists)


def _with_lists(items: list[tuple[str, Any]]) -> Options:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in items}


C = TypeVar("C", bound=Config)
C_co = TypeVar("C_co", bound=Config, covariant=True)  # type of the configuration in a `harness.experiment.Experiment`


def plain(config: DictConfig) -> Options:
    """Return a composed configuration as plain containers, references resolved and ~ in paths expanded.

    Raises:
        ConfigError: a mandatory value is missing.
    """
    try:
        container = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} is missing: set it with {error.full_key}=VALUE") from None
    assert isinstance(container, dict)
    return {str(key): _expanded(value) for key, value in container.items()}


def _expanded(value: Any) -> Any:
    """Return a value with ~/ at the beginning of texts expanded, as in shells."""
    if isinstance(value, dict):
        return {key: _expanded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_expanded(one) for one in value]
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value  # noqa: PTH111


def validate(config: Options, kind: type[C]) -> C:
    """Check a configuration of plain containers, and convert it to a command's settings.

    Raises:
        ConfigError: an unknown or missing key, or an invalid value; suggests the nearest key.
    """
    options = {key: value for key, value in config.items() if key != VARIABLES}
    checked = check("", kind.resolved(options), kind)
    return replace(checked, **{part: check_target(part, getattr(checked, part), part) for part in TARGETS})
