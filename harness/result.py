"""Results of finished runs: result.json is read, checked and converted here, whoever wrote it.

Keys are stable. Keys added later have the default None, because older runs lack them; None is not written.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from conf import Options
from conf.check import adapter
from conf.commands import result_type
from erasure.certificate import Certificate
from erasure.store.checked_files import DamagedFileError, read_json
from harness.limits import require_config, require_plain
from harness.result_fields import Endings, Final, Part, SharpDrops, Timing, Whole
from harness.run_ids import command_of, require_run_id

LONGEST_ERROR = 300  # characters of an error
VERSION = 1  # of the format; raise it when a key's meaning changes
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Result(Part):
    """A result of any command.

    Except in `config`, `seeds`, `summaries` and `certificate`, every list has one entry per seed, also in nested parts.
    `curve` is a list of points that contain such lists (`per_seed`).

    Attributes:
        data: digest of content and options of the dataset, equal for runs on the same examples; None in results before
            version 0.4.0 (`Experiment.data_digest`).
        dim: number of values of an example.
        smallest_class: number of training examples of the smallest class.
    """

    command: str
    run_id: str
    config: Options
    seeds: list[Whole]
    num_classes: Whole
    train_size: Whole
    parameters: Whole
    certificate: dict[str, Certificate]  # by split
    timing: Timing = field(default_factory=Timing)
    versions: dict[str, str]
    code: dict[str, int | str] = field(default_factory=dict)
    curves_checksum: str | None = None
    data: str | None = None
    dim: int | None = None
    smallest_class: int | None = None
    version: int = VERSION
    compared: ClassVar[Sequence[str]] = ()  # columns of `by_seed` whose differences to the control tables may show

    def named(self, part: str) -> str:
        """Return the name of the dataset, eraser or model."""
        return str(self.config[part]["name"])

    def require_consistent(self) -> None:
        """Check that the parts of a result agree, as tables and figures assume.

        Raises:
            ValueError: a part is missing or contradicts the others; the message names it.
        """
        if self.version > VERSION:
            raise ValueError(f"has format version {self.version}, and this code reads up to {VERSION}")
        for name, values in per_seed(self):
            if len(values) != len(self.seeds):
                raise ValueError(f"{name} has {len(values)} numbers for {len(self.seeds)} seeds")
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ValueError(f"seeds={self.seeds}: needs at least one, all different")
        if self.num_classes < 2 or self.train_size < 1:
            raise ValueError(f"has {self.num_classes} classes and {self.train_size} training examples: too few")
        for split, measured in self.certificate.items():
            sizes = (measured.mean_gap, measured.covariance_gap, measured.edit_size)
            if min(sizes) < 0 or not 0 <= (measured.out_of_range or 0.0) <= 1:
                raise ValueError(f"certificate.{split} holds sizes below 0, or a share that is none")

    def by_seed(self) -> dict[str, Sequence[Any]]:
        """Return the command's columns of `harness.results.load(...).runs`, each with a value per seed."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TrainedResult(Result):
    """A result of a command that trains networks."""

    final: Final
    sharp_drop: SharpDrops | None = None
    compared: ClassVar[Sequence[str]] = ("test_loss_bits",)

    @property
    def trainings(self) -> Sequence[Endings]:
        """Trainings by size, the largest last."""
        raise NotImplementedError

    @property
    def coding(self) -> Sequence[Endings]:
        """Trainings whose losses enter a codelength."""
        return ()

    @property
    def test_losses(self) -> Sequence[tuple[int, Sequence[float]]]:
        """Training sizes and the test losses at each, an entry per seed; empty where there is one size alone."""
        return ()

    def require_consistent(self) -> None:
        super().require_consistent()
        for split in ("train", "test"):
            if split not in self.certificate:
                raise ValueError(f"lacks certificate.{split}")

    def by_seed(self) -> dict[str, Sequence[Any]]:
        last = self.trainings[-1]
        columns: dict[str, Sequence[Any] | None] = {
            "test_loss_bits": self.final.loss_bits,
            "accuracy": self.final.accuracy,
            "train_loss_bits": self.final.train_loss_bits,
            "validation_loss_bits": self.final.validation_loss_bits,
            "end_train_loss_bits": self.final.end_train_loss_bits,
            "epochs": last.epochs,
            "best_epoch": last.best_epoch,
            "ended": last.ended,
        }
        if self.sharp_drop is not None:
            columns |= {"sharp_drop_bits": self.sharp_drop.bits, "sharp_drop_epoch": self.sharp_drop.epoch}
        if last.left_plateau is not None:
            columns["final_on_plateau"] = [not left for left in last.left_plateau]
        if every := [training.untrained for training in self.trainings if training.untrained is not None]:
            columns["untrained"] = [sum(of_seed) for of_seed in zip(*every, strict=True)]
        return {name: values for name, values in columns.items() if values is not None}


def per_seed(part: Any, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield names and values of the per-seed lists of a result, e.g. "final.loss_bits", "curve.1024.ce_test_bits"."""
    others = ("config", "seeds", "summaries", "certificate") if isinstance(part, Result) else ()
    for name, value in (vars(part) if is_dataclass(part) else part).items():
        if name in others:
            continue
        if name == "curve":
            for point in value:
                yield from per_seed(point, f"{prefix}curve.{point.n}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", value
        elif is_dataclass(value) or isinstance(value, dict):
            yield from per_seed(value, f"{prefix}{name}.")


def as_json(part: Any) -> Any:
    """Return a part as plain values for result.json, without optional keys that are None.

    Fields with metadata {"written": True} are written even if they are None.
    """
    if is_dataclass(part):
        optional = [f for f in fields(part) if f.default is None and isinstance(part, Part)]
        lacking = {f.name for f in optional if not f.metadata.get("written")}
        written = {name: value for name, value in vars(part).items() if value is not None or name not in lacking}
        return {name: as_json(value) for name, value in written.items()}
    if isinstance(part, Mapping):
        return {key: as_json(value) for key, value in part.items()}
    return [as_json(value) for value in part] if isinstance(part, (list, tuple)) else part


def parsed(kind: type[T], values: Any) -> T:
    """Check values from a JSON file, and convert them to a type.

    Raises:
        ValueError: keys are missing or wrong; names all missing keys, or the first wrong one.
    """
    try:
        return adapter(kind).validate_python(values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        missing = [".".join(map(str, one["loc"])) for one in errors if one["type"] == "missing"]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}") from None
        key, message = ".".join(map(str, errors[0]["loc"])), errors[0]["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        raise ValueError(f"{key} holds {errors[0]['input']!r}: {message}"[:LONGEST_ERROR] if key else message) from None


def result_of(values: Options) -> Result:
    """Return a result of its command's type from its fields, read from a file or just computed.

    Unknown keys are left out.

    Raises:
        ValueError: a field is missing, wrong, beyond `harness.limits` or contradicts others; the message is one line.
    """
    require_plain(values)
    command = str(values.get("command"))
    require_config(values.get("config"), command)
    result = parsed(result_type(command), values)
    result.require_consistent()
    require_run_id(result.run_id)
    if command_of(result.run_id) != command:
        raise ValueError(f"is of the command {command}, and of the run {result.run_id}")
    return result


def read_result(path: Path) -> Result:
    """Read the result.json of a finished run, which may be untrusted.

    Raises:
        FileNotFoundError: the run has not finished.
        DamagedFileError: the file was not written by the run of this directory, in this version; says why.
        ValueError: the file cannot be opened.
    """
    remedy = "launch the run again, which keeps this file aside"
    try:
        result = result_of(read_json(path))
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:  # runs_dir is a file
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; {remedy}") from error
    except ValueError as error:
        raise DamagedFileError(f"{path} is no result of this version: {error}; {remedy}") from error
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): make it readable, or choose another runs_dir"
        ) from error
    if result.run_id != path.absolute().parent.name:
        raise DamagedFileError(f"{path} is of the run {result.run_id}: give its directory that name, or {remedy}")
    return result
