"""Finding runs in folders: each once, and what a reader has to know about those that cannot be shown."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from conf.groups import choices, keys
from erasure.store.storage import DamagedFileError, NoDigestError, read_json
from harness.cell import Found
from harness.excess import blocks_of, sizes_of
from harness.result import MdlResult, result_of, unknown_keys
from harness.run import RESULT, STATE
from harness.state import read_state
from harness.trained import published_units

RUN_FILES = {"config.yaml", STATE, RESULT}  # any of them makes a folder a run's

INFORMATION = "sample_info"  # the verb that scores examples, and whose runs have tables of their own
_LEARNING_BITS = 10.0  # what codes that learn label by label may pay above the uniform one in all: log2 375 at most
_TOLERANCE = 1e-6  # relative; results are stored in full, sums may be ordered differently


class UnusableError(ValueError):
    """A run that cannot be part of a report; the message says why."""


@dataclass
class Reading:
    """All that was found: runs, each once, and what a reader has to know about the rest, a line each."""

    runs: list[Found] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def finished(self) -> list[Found]:
        return [run for run in self.runs if run.result is not None]


def read_runs(
    roots: Sequence[Path], progress: Callable[[int, int], None] = lambda *_: None, *, unchecked: bool = False
) -> Reading:
    """Read every run below `roots`.

    Args:
        roots: folders to search.
        progress: called with how many of how many have been read.
        unchecked: take results without a checksum, as earlier versions wrote them, too.
    """
    reading = Reading()
    directories = [directory for root in roots for directory in run_directories(root)]
    by_id: dict[str, Found] = {}
    for i, directory in enumerate(dict.fromkeys(d.resolve() for d in directories)):
        progress(i, len(directories))
        try:
            found = read_run(directory, unchecked=unchecked)
        except UnusableError as error:
            reading.problems.append(f"{directory}: {error}")
            continue
        other = by_id.get(found.id)
        if other is not None:
            found = _better(other, found, reading.problems)
        by_id[found.id] = found
    reading.runs = list(by_id.values())
    for run in reading.runs:
        reading.problems += [f"{run.directory}: {line}" for line in [*run.remarks, *_unknown_parts(run)]]
    reading.problems += _version_problems(reading.finished)
    return reading


def run_directories(root: Path) -> Iterator[Path]:
    """Folders below `root`, itself included, that hold a run; in the order of their names."""
    for folder, inner, files in os.walk(root, followlinks=True):
        if RUN_FILES & set(files):
            inner.clear()
            yield Path(folder)
        inner[:] = sorted(name for name in inner if not name.startswith("."))


def read_run(directory: Path, *, unchecked: bool = False) -> Found:
    """One run's directory.

    Raises:
        UnusableError: it has neither a result nor a configuration that can be read, or one that is not what was
            written, or contradicts itself.
    """
    remarks = []
    try:
        result = read_json(directory / RESULT)
    except FileNotFoundError:
        return _unfinished(directory)
    except NoDigestError as error:
        if not unchecked:
            reason = "has no checksum, of an earlier version or edited: run it again, or show it with --unchecked"
            raise UnusableError(f"{RESULT} {reason}") from error
        result = error.values
        remarks.append(f"{RESULT} has no checksum: shown unchecked")
    except (OSError, DamagedFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else "edited or damaged"
        raise UnusableError(f"{RESULT} cannot be used ({reason}): delete it, and run it again") from error
    try:
        found = result_of(result)
    except ValueError as error:
        raise UnusableError(f"{RESULT} {error}") from error
    if isinstance(found, MdlResult):
        _check(found)
    if unknown := unknown_keys(result):
        remarks.append(f"unknown keys in {RESULT}, not shown: {', '.join(unknown)}")
    return Found.finished(found, directory, remarks)


def _check(result: MdlResult) -> None:
    """Recompute every codelength from its curve: nats, or another unit's numbers, do not pass.

    What labels up to the first size cost the curve does not say: the uniform code, or less, where they are coded one by
    one, and little more for what a code that learns from them pays for its mixture.

    Raises:
        UnusableError: the codelengths are not those of the learning curve in bits.
    """
    curve, total = result.curve, result.train_size
    sizes, uniform = sizes_of(result), math.log2(result.num_classes)
    for s, seed in enumerate(result.seeds):
        (first, loss), *later = blocks_of(result, s)
        dearest = uniform + _LEARNING_BITS / first
        bits = first * min(max(loss, 0.0), dearest) + sum(labels * bits for labels, bits in later)
        expected = {
            "total_bits": bits,
            "bits_per_sample": bits / total,
            "published": published_units(sizes, [p.ce_test_bits[s] for p in curve][: len(sizes) - 1]),
        }
        for key, value in expected.items():
            if not math.isclose(getattr(result.mdl, key)[s], value, rel_tol=_TOLERANCE):
                raise UnusableError(
                    f"mdl.{key} of seed {seed} is {getattr(result.mdl, key)[s]:.6g}, but its curve in bits gives "
                    f"{value:.6g}: mixed units?"
                )


def _unfinished(directory: Path) -> Found:
    """A run without result.json: its configuration says where it belongs."""
    try:
        # not libyaml's loader, which a file of 100,000 brackets kills
        config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        names = [config[part]["name"] for part in ("dataset", "eraser", "model")]
        seeds = list(config["seeds"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnusableError(f"no result.json, and no configuration ({reason})") from error
    assert all(names)
    try:
        state = read_state(directory)[0]
    except (OSError, DamagedFileError):
        state = "unfinished"
    verb = next((verb for verb in ("mdl", INFORMATION) if verb in config), "train")
    shown = "not shown" if verb == INFORMATION else "shown as incomplete"
    remarks = [f"no result.json: {state}, {shown}"]
    return Found(directory.name, directory, config, verb, seeds, None, state, remarks)


def _better(first: Found, second: Found, problems: list[str]) -> Found:
    """Which of two directories with one run id to keep: a finished one, the newer of two that differ."""
    if first.result is None or second.result is None:
        return first if first.result is not None else second
    if first.result == second.result:
        return first
    kept, left = sorted((first, second), key=lambda run: -run.result.timing.started if run.result else 0.0)
    problems.append(
        f"{left.directory}: differs from {kept.directory}, which has the same run id and is newer: left out"
    )
    return kept


def _unknown_parts(run: Found) -> Iterator[str]:
    for part, known in KNOWN.items():
        section = run.config[part]
        if (name := section["name"]) not in known and section.get("_target_") not in _NAMED_BY_AN_OPTION:
            yield f"unknown {part} {name!r}, shown as it is"


KNOWN = {part: choices(part) for part in ("dataset", "eraser", "model")}
_NAMED_BY_AN_OPTION = {  # timm's by their architecture, empirical kernels by their network
    keys(part, choice)["_target_"] for part in KNOWN for choice in KNOWN[part] if "$" in keys(part, choice)["name"]
}


def _version_problems(runs: Sequence[Found]) -> list[str]:
    """Whether results of different versions of erasure-mdl stand side by side."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        assert run.result is not None
        versions.setdefault(str(run.result.versions.get("erasure-mdl")), []).append(run.id)
    if len(versions) < 2:
        return []
    counts = "; ".join(f"{version}: {len(ids)} runs, e.g. {ids[0]}" for version, ids in sorted(versions.items()))
    return [f"results of different versions of erasure-mdl stand side by side ({counts})"]
