"""Finished runs as tidy pandas frames: a row per run and seed, per training size, per epoch.

    from harness.results import load
    results = load("runs/")
    results.runs.groupby(["model", "eraser"])["bits_per_label"].agg(["mean", "std"])

Foreign, damaged and unfinished runs never raise errors: `problems` and `unfinished` list them with the reason.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from conf import flatten
from conf.commands import config_of
from conf.run_identity import identifying
from erasure.store.checked_files import fingerprint
from harness.result import Result
from harness.results.read import StoredRun, read_runs
from harness.results.run_settings import as_text, setting, without_paths

# columns that always exist; those of commands (`Result.by_seed`) follow: docs/api/results.md
RUNS = (
    "run_id", "command", "directory", "dataset", "eraser", "model", "seed", "setting", "pair_id", "model_pair_id",
    "eraser_id", "data", "code", "started", "seconds", "parameters", "num_classes", "train_size",
)  # fmt: skip
LOSSES = ("run_id", "seed", "epoch", "train_loss_bits", "validation_loss_bits")
UNFINISHED = ("run_id", "command", "directory", "dataset", "eraser", "model", "seeds", "state")
_POINT = {  # column of `Results.curve` -> list in a point of `curve` in result.json, with a value per seed
    "next_loss_bits": "ce_next_bits",
    "calibrated_next_loss_bits": "ce_next_calibrated_bits",
    "test_loss_bits": "ce_test_bits",
    "train_loss_bits": "ce_train_bits",
    "validation_loss_bits": "ce_validation_bits",
    "accuracy": "test_accuracy",
    **{name: name for name in ("epochs", "best_epoch", "ended", "untrained", "left_plateau")},
}
CURVE = ("run_id", "seed", "n", *_POINT)


@dataclass
class Results:
    """Finished runs as frames.

    Attributes:
        runs: one row per run and seed, with the columns `RUNS`, the command's numbers, its options and the certificate.
        curve: learning curves, one row per run, seed and training size.
        unfinished: runs without a result.
        problems: one line for each file or run that could not be read, and for whatever is odd about the others.
    """

    runs: pd.DataFrame
    curve: pd.DataFrame
    unfinished: pd.DataFrame
    problems: list[str]
    _stored: list[StoredRun] = field(default_factory=list, repr=False)

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Losses over epochs of the trainings on everything, read from disk on first use.

        Missing and damaged files are left out, with a line in `problems`.
        """
        rows = [
            (run.id, seed, *row)
            for run in self._stored
            for seed, curve in run.loss_curves(self.problems.append).items()
            for row in zip(curve.epochs.astype(int), curve.train_bits, curve.validation_bits, strict=True)
        ]
        return pd.DataFrame(rows, columns=[*LOSSES])


def load(*directories: str | Path) -> Results:
    """Read every run below some folders.

    Args:
        directories: folders to search, such as a run's `runs_dir`; by default "runs".

    Returns:
        The runs as frames. A run that is found twice counts once. Unusable runs are listed in `problems`.

    Raises:
        FileNotFoundError: a folder does not exist.
    """
    roots = [Path(directory) for directory in directories or ("runs",)]
    for root in roots:
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: no such folder; give the runs_dir of a command")
    problems: list[str] = []
    runs = read_runs(roots, problems.append)
    finished = [run for run in runs if run.result is not None]
    return Results(
        runs=run_frame(finished),
        curve=_frame((row for run in finished for row in _curve_rows(run)), CURVE),
        unfinished=_frame((_unfinished_row(run) for run in runs if run.result is None), UNFINISHED),
        problems=problems,
        _stored=finished,
    )


def _frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame with the documented columns first, in their order, and NaN as the only missing value."""
    frame = pd.DataFrame(list(rows))
    further = [column for column in frame.columns if column not in columns]
    return frame.reindex(columns=[*columns, *further]).infer_objects()


def run_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return a row per finished run and seed."""
    finished = [run for run in runs if run.result is not None]
    rows = (_run_rows(run, digest) for run, digest in zip(finished, data_digests(finished), strict=True))
    return _frame(chain.from_iterable(rows), RUNS)


def data_digests(runs: Sequence[StoredRun]) -> list[str | None]:
    """Return the digest of each run's dataset; one without it gets that of runs with its options, if they agree."""
    names = [fingerprint(without_paths(run.config["dataset"])) for run in runs]
    known: dict[str, set[str]] = {name: set() for name in names}
    for run, name in zip(runs, names, strict=True):
        known[name] |= {run.data_digest} if run.data_digest else set()
    return [
        run.data_digest or (min(known[name]) if len(known[name]) == 1 else None)
        for run, name in zip(runs, names, strict=True)
    ]


def _run_rows(run: StoredRun, data_digest: str | None) -> Iterator[dict[str, Any]]:
    """Yield one row per seed."""
    result, config = run.result, run.config
    assert result is not None
    counted = identifying(config, run.command)
    options = {key: _hashable(value) for key, value in flatten(counted).items() if not key.startswith("seeds")}
    shared = {
        "run_id": run.id,
        "command": run.command,
        "directory": str(run.directory),
        **{part: result.named(part) for part in ("dataset", "eraser", "model")},
        "setting": as_text(setting(config, run.command)),
        "pair_id": pair_id(result, data_digest),
        "model_pair_id": pair_id(result, data_digest, differs="model"),
        "eraser_id": fingerprint(counted["eraser"]),
        "data": data_digest,
        "code": json.dumps(run.code, sort_keys=True),  # text, which files of frames hold
        "started": result.timing.started,
        "seconds": result.timing.seconds,
        **{name: getattr(result, name) for name in ("parameters", "num_classes", "train_size")},
    }
    constant = {
        **{key: value for key, value in options.items() if not key.endswith("._target_")},
        **{
            f"certificate.{split}.{name}": value
            for split, certificate in result.certificate.items()
            for name, value in certificate.numbers().items()
        },
    }
    by_seed = result.by_seed()
    for s, seed in enumerate(result.seeds):
        yield {**shared, "seed": seed, **{name: values[s] for name, values in by_seed.items()}, **constant}


def pair_id(result: Result, data_digest: str | None = None, differs: str = "eraser") -> str:
    """Return a hash of the configuration without eraser (or model) and seeds, by which runs are paired.

    Args:
        result: the run's result.
        data_digest: digest of its dataset, which replaces the dataset's name and options in the hash.
        differs: "eraser" or "model".
    """
    # the setting replaces its sections, because a preset may have other rates for other erasers and models
    described = (differs, "seeds", *config_of(result.command).table_sections())
    counted = identifying(result.config, result.command)
    shared = {key: value for key, value in counted.items() if key not in described}
    shared["dataset"] = data_digest or without_paths(counted["dataset"])
    return fingerprint([result.command, shared, setting(result.config, result.command), result.train_size])


def _curve_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    """Yield one row per seed and training size, or none if the run has no learning curve."""
    for point in getattr(run.result, "curve", ()):
        by_seed = {column: values for column, name in _POINT.items() if (values := getattr(point, name)) is not None}
        for s, seed in enumerate(run.seeds):
            columns = {column: values[s] for column, values in by_seed.items()}
            yield {"run_id": run.id, "seed": seed, "n": point.n, **columns}


def _unfinished_row(run: StoredRun) -> dict[str, Any]:
    parts = {part: run.config[part]["name"] for part in ("dataset", "eraser", "model")}
    about = {"run_id": run.id, "command": run.command, "directory": str(run.directory)}
    return {**about, **parts, "seeds": len(run.seeds), "state": run.state}


def _hashable(value: Any) -> Any:
    """Convert lists to tuples, by which pandas can group."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
