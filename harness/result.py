"""Results of finished runs: result.json, with the fields of `harness.result_fields`, is checked and read here alone.

Keys are stable. A key that was added later has the default None: older runs lack it, and None is not written.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from conf import Options
from conf.run_identity import without_retired
from erasure.certificate import Certificate
from erasure.store.checked_files import DamagedFileError, read_json
from harness.result_fields import Bits, Coded, Part, Timing, Trained, TrainedOnce, Whole
from harness.sample_info_fields import Information

_LONGEST = 300  # characters of an error
VERSION = 1  # of the format; raise it when a key's meaning changes
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Result(Part):
    """A result of any command.

    Every list outside `config`, `seeds`, `summaries` and `certificate` holds one entry per seed, also in nested parts.
    The exception is `curve`, whose points hold such lists (`per_seed`).

    Attributes:
        dim: values of an example.
        smallest_class: training examples of the smallest class.
    """

    command: str
    run_id: str
    config: Options
    seeds: list[Whole]
    num_classes: Whole
    train_size: Whole
    parameters: Whole
    certificate: dict[str, Certificate]  # by split
    timing: Timing
    versions: dict[str, str]
    code: dict[str, int | str] = field(default_factory=dict)
    curves_checksum: str | None = None
    dim: int | None = None
    smallest_class: int | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version > VERSION:
            raise ValueError(f"has format version {self.version}, and this code reads up to {VERSION}")
        for part in ("dataset", "eraser", "model"):
            if not isinstance(self.config.get(part), Mapping) or "name" not in self.config[part]:
                raise ValueError(f"lacks config.{part}.name")
        for name, values in per_seed(self):
            if len(values) != len(self.seeds):
                raise ValueError(f"{name} has {len(values)} numbers for {len(self.seeds)} seeds")

    @property
    def directory(self) -> Path:
        """Directory that the run wrote it to."""
        return Path(self.config["runs_dir"]) / self.run_id

    def named(self, part: str) -> str:
        """Return the name of the dataset, eraser or model."""
        return str(self.config[part]["name"])

    def require_consistent(self) -> None:
        """Check that the parts of a complete result agree, as tables and figures assume.

        Raises:
            ValueError: names what is missing or contradicts the rest.
        """
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ValueError(f"seeds={self.seeds}: needs at least one, all different")
        if self.num_classes < 2 or self.train_size < 1:
            raise ValueError(f"has {self.num_classes} classes and {self.train_size} training examples: too few")
        for split, measured in self.certificate.items():
            sizes = (measured.mean_gap, measured.covariance_gap, measured.edit_size)
            if min(sizes) < 0 or not 0 <= (measured.out_of_range or 0.0) <= 1:
                raise ValueError(f"certificate.{split} holds sizes below 0, or a share that is none")


@dataclass(frozen=True, kw_only=True)
class TrainedResult(Result, Trained):
    """A result of a command that trains networks."""

    def require_consistent(self) -> None:
        super().require_consistent()
        for split in ("train", "test"):
            if split not in self.certificate:
                raise ValueError(f"lacks certificate.{split}")


@dataclass(frozen=True, kw_only=True)
class MdlResult(TrainedResult, Coded):
    """A result of `python -m mdl`; the label entropy is that of the training labels, which older results lack."""

    label_entropy_bits: Bits | None = None

    @property
    def sizes(self) -> list[int]:
        """The ends of the blocks of labels: all training sizes, and N where nothing was trained on everything."""
        sizes = [point.n for point in self.curve]
        return sizes if sizes[-1] == self.train_size else [*sizes, self.train_size]

    def blocks(self, s: int) -> list[tuple[int, float]]:
        """Return labels and bits per label of each block of seed number s; the first pays what the others leave."""
        losses = [point.ce_next_bits[s] for point in self.curve if point.ce_next_bits]
        later = [(after - before, loss) for (before, after), loss in zip(pairwise(self.sizes), losses, strict=True)]
        first = self.mdl.total_bits[s] - sum(labels * loss for labels, loss in later)
        return [(self.sizes[0], first / self.sizes[0]), *later]

    def require_consistent(self) -> None:
        super().require_consistent()
        sizes = [point.n for point in self.curve]
        if len(sizes) < 2 or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)) or sizes[-1] > self.train_size:
            raise ValueError(f"curve has the sizes {sizes}: needs two or more, each larger than the one before")
        nothing_next = [point.n for point in self.curve if point.ce_next_bits is None]
        if nothing_next != sizes[-1:] and (nothing_next or sizes[-1] == self.train_size):
            raise ValueError("curve: every size but that of all training examples, and no other, has ce_next_bits")
        last = self.curve[-1]
        for name, values in (("loss_bits", last.ce_test_bits), ("accuracy", last.test_accuracy)):
            if values is not None and values != (final := getattr(self.final, name)):
                raise ValueError(f"final.{name} is {final}, but the learning curve ends at {values}"[:_LONGEST])


@dataclass(frozen=True, kw_only=True)
class TrainResult(TrainedResult, TrainedOnce):
    """A result of `python -m train`."""


@dataclass(frozen=True, kw_only=True)
class InformationResult(Result, Information):
    """A result of `python -m sample_info`."""

    def require_consistent(self) -> None:
        super().require_consistent()
        if "f_si_nats" not in self.information:
            raise ValueError("lacks information.f_si_nats")
        if self.summaries is not None:
            self.summaries.require_consistent(len(self.seeds))


_COMMAND = "verb"  # key of the command in result.json; the old name, so that older results can be read
COMMANDS: Mapping[str, type[Result]] = {"mdl": MdlResult, "train": TrainResult, "sample_info": InformationResult}


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
    """Return a part as result.json holds it, without the optional keys that are None.

    Metadata {"written": True} marks a field that is written even if it is None.
    """
    if is_dataclass(part):
        optional = [f for f in fields(part) if f.default is None and isinstance(part, Part)]
        lacking = {f.name for f in optional if not f.metadata.get("written")}
        written = {name: value for name, value in vars(part).items() if value is not None or name not in lacking}
        if isinstance(part, Result):
            written = {_COMMAND: written.pop("command"), **written}
        return {name: as_json(value) for name, value in written.items()}
    if isinstance(part, Mapping):
        return {key: as_json(value) for key, value in part.items()}
    return [as_json(value) for value in part] if isinstance(part, (list, tuple)) else part


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def parsed(kind: type[T], values: Any) -> T:
    """Convert values from a JSON file to a type, checking them.

    Raises:
        ValueError: names all keys that are missing, or the first that is wrong.
    """
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        missing = [".".join(map(str, one["loc"])) for one in errors if one["type"] == "missing"]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}") from None
        key, message = ".".join(map(str, errors[0]["loc"])), errors[0]["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        raise ValueError(f"{key} holds {errors[0]['input']!r}: {message}"[:_LONGEST] if key else message) from None


def result_of(values: Options) -> Result:
    """Return a result from its fields, read from a file or just computed, as the type of its command.

    Keys that the type does not have are left out, and so are options that no longer exist.

    Raises:
        ValueError: says in one line what is missing or wrong.
    """
    command = str(values.get(_COMMAND))
    if command not in COMMANDS:
        raise ValueError(f"{_COMMAND} is {values.get(_COMMAND)!r}, not one of {', '.join(COMMANDS)}")
    if isinstance(config := values.get("config"), dict):
        values = {**values, "config": without_retired(config)}
    return parsed(COMMANDS[command], {**values, "command": command})


_REMEDY = "launch the run again, which keeps this file aside"


def read_result(path: Path) -> Result:
    """Read a finished run's result.json.

    Raises:
        DamagedFileError: it is not what a run of this or an earlier version wrote; says why.
        ValueError: it is missing or cannot be opened.
    """
    try:
        result = result_of(read_json(path))
        result.require_consistent()
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; {_REMEDY}") from error
    except ValueError as error:
        raise DamagedFileError(f"{path} is no result of this version: {error}; {_REMEDY}") from error
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): make it readable, or choose another runs_dir"
        ) from error
    return result
