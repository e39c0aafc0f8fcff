"""Finished runs as tidy pandas frames: a row per run and seed, per training size, per epoch.

    from harness.results import load
    results = load("runs/")
    results.runs.groupby(["model", "eraser"])["bits_per_label"].agg(["mean", "std"])

Foreign, damaged and unfinished runs never raise: they stand in `problems` and `unfinished`, with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from conf.run_identity import identifying
from erasure.store.checked_files import fingerprint
from harness.result import InformationResult, MdlResult, Result, TrainedResult, TrainResult
from harness.results.read import StoredRun, read_runs
from harness.results.run_settings import comparable, flatten, setting, setting_text

# columns that are there whatever the runs, described in docs/api/results.md
RUNS = (
    "run_id", "command", "directory", "dataset", "eraser", "model", "seed", "setting", "pair_id", "model_pair_id",
    "eraser_id", "started", "seconds", "parameters", "num_classes", "train_size", "bits_per_label", "total_bits",
    "calibrated_bits_per_label", "excess_bits", "published_units", "test_loss_bits", "accuracy", "train_loss_bits",
    "validation_loss_bits", "end_train_loss_bits", "sharp_drop_bits", "sharp_drop_epoch", "label_entropy_bits",
    "epochs", "best_epoch", "ended", "coding_on_plateau", "final_on_plateau", "untrained", "f_si_nats", "si_nats",
    "si_sgd_nats", "f_si_nats_median", "share_of_top_tenth", "largest_over_median", "left_out_accuracy",
)  # fmt: skip
LOSSES = ("run_id", "seed", "epoch", "train_loss_bits", "validation_loss_bits")
COUNTERPARTS = ("run_id", "seed", "sample", "step", "loss_bits", "accuracy", "agreement")
UNFINISHED = ("run_id", "command", "directory", "dataset", "eraser", "model", "seeds", "state")
POINT = {  # column of `Results.curve` -> its name in result.json
    "next_loss_bits": "ce_next_bits",
    "calibrated_next_loss_bits": "ce_next_calibrated_bits",
    "test_loss_bits": "ce_test_bits",
    "train_loss_bits": "ce_train_bits",
    "validation_loss_bits": "ce_validation_bits",
    "accuracy": "test_accuracy",
    **{name: name for name in ("epochs", "best_epoch", "ended", "untrained", "left_plateau")},
}
CURVE = ("run_id", "seed", "n", *POINT)


@dataclass
class Results:
    """Finished runs as frames.

    Attributes:
        runs: a row per run and seed; columns are `RUNS`, options and the certificate.
        curve: learning curves, a row per run, seed and training size.
        unfinished: runs without a result.
        problems: a line on each file or run that could not be read, and on what is odd about those that could.
    """

    runs: pd.DataFrame
    curve: pd.DataFrame
    unfinished: pd.DataFrame
    problems: list[str]
    _stored: list[StoredRun] = field(default_factory=list, repr=False)

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Loss over epochs of the trainings on everything, read from disk at the first use.

        Files that are missing or damaged are left out, with a line in `problems`.
        """
        rows = [
            (run.id, seed, *row)
            for run in self._stored
            for seed, curve in run.loss_curves(self.problems.append).items()
            for row in zip(curve.epochs.astype(int), curve.train_bits, curve.validation_bits, strict=True)
        ]
        return pd.DataFrame(rows, columns=[*LOSSES])

    @property
    def counterparts(self) -> pd.DataFrame:
        """Losses on counterparts of the test images along trainings."""
        rows = [
            (run.id, seed, name, *values)
            for run in self._stored
            if isinstance(run.result, TrainResult)
            for name, sample in (run.result.counterparts or {}).items()
            for s, seed in enumerate(run.result.seeds)
            for values in zip(sample.step[s], sample.loss_bits[s], sample.accuracy[s], sample.agreement[s], strict=True)
        ]
        return pd.DataFrame(rows, columns=[*COUNTERPARTS])


def load(*directories: str | Path) -> Results:
    """Read every run below some folders.

    Args:
        directories: folders to search, such as a run's `runs_dir`; "runs" without any.

    Returns:
        The runs as frames. A run that is found twice counts once; one that cannot be used stands in `problems`.

    Raises:
        FileNotFoundError: names a folder that is not there.
    """
    roots = [Path(directory) for directory in directories or ("runs",)]
    for root in roots:
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: no such folder; give the runs_dir of python -m mdl, train or sample_info")
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
    """Return a frame with the documented columns first, in their order, and no other type of missing value than NaN."""
    frame = pd.DataFrame(list(rows))
    further = [column for column in frame.columns if column not in columns]
    return frame.reindex(columns=[*columns, *sorted(further)]).infer_objects()


def run_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return a row per finished run and seed."""
    return _frame((row for run in runs if run.result is not None for row in _run_rows(run, run.result)), RUNS)


def _run_rows(run: StoredRun, result: Result) -> Iterator[dict[str, Any]]:
    """Yield a row per seed."""
    config = result.config
    counted = identifying(config)
    options = {key: _hashable(value) for key, value in flatten(counted).items() if not key.startswith("seeds")}
    shared = {
        "run_id": run.id,
        "command": run.command,
        "directory": str(run.directory),
        **{part: result.named(part) for part in ("dataset", "eraser", "model")},
        "setting": setting_text(config),
        "pair_id": pair_id(result),
        "model_pair_id": pair_id(result, differs="model"),
        "eraser_id": fingerprint(counted["eraser"]),
        "started": result.timing.started,
        "seconds": result.timing.seconds,
        **{name: getattr(result, name) for name in ("parameters", "num_classes", "train_size")},
        **{key: value for key, value in options.items() if not key.endswith("._target_")},
        **{
            f"certificate.{split}.{name}": value
            for split, certificate in result.certificate.items()
            for name, value in certificate.numbers().items()
        },
    }
    lists = {name: values for name, path in _VALUES.items() if (values := _at(result, path)) is not None}
    lists |= _counts(result) if isinstance(result, TrainedResult) else _information(result)
    for s, seed in enumerate(result.seeds):
        yield {**shared, "seed": seed, **{name: values[s] for name, values in lists.items()}}


def pair_id(result: Result, differs: str = "eraser") -> str:
    """Return what is equal for runs that differ by eraser, or by model, and seed alone."""
    described = (differs, "seeds", "train", "mdl")  # a preset may train other erasers and models at other rates
    shared = {key: value for key, value in comparable(result.config).items() if key not in described}
    return fingerprint([result.command, shared, setting(result.config), result.train_size])


_VALUES = {  # column of `Results.runs` -> where a result has its values, one per seed
    "bits_per_label": "mdl.bits_per_sample",
    "total_bits": "mdl.total_bits",
    "calibrated_bits_per_label": "mdl.calibrated_bits_per_sample",
    "published_units": "mdl.published",
    "test_loss_bits": "final.loss_bits",
    "accuracy": "final.accuracy",
    "train_loss_bits": "final.train_loss_bits",
    "validation_loss_bits": "final.validation_loss_bits",
    "end_train_loss_bits": "final.end_train_loss_bits",
    "sharp_drop_bits": "sharp_drop.bits",
    "sharp_drop_epoch": "sharp_drop.epoch",
}


def _at(part: Any, path: str) -> list[Any] | None:
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def _counts(result: TrainedResult) -> dict[str, list[Any]]:
    """Return the ends of the training on everything, and how many trainings were of no use, by seed."""
    last = result.trainings[-1]
    columns = {
        name: values for name in ("epochs", "best_epoch", "ended") if (values := getattr(last, name)) is not None
    }
    if last.left_plateau is not None:
        columns["final_on_plateau"] = [not left for left in last.left_plateau]
    if every := [training.untrained for training in result.trainings if training.untrained is not None]:
        columns["untrained"] = [sum(of_seed) for of_seed in zip(*every, strict=True)]
    if isinstance(result, MdlResult):
        bits = zip(result.mdl.total_bits, result.final.loss_bits, strict=True)
        columns["excess_bits"] = [total - result.train_size * loss for total, loss in bits]
        if left := [training.left_plateau for training in result.coding if training.left_plateau is not None]:
            columns["coding_on_plateau"] = [len(left) - sum(of_seed) for of_seed in zip(*left, strict=True)]
    if isinstance(result, (MdlResult, TrainResult)) and result.label_entropy_bits is not None:
        columns["label_entropy_bits"] = [result.label_entropy_bits] * len(result.seeds)
    return columns


def _information(result: Result) -> dict[str, list[Any]]:
    assert isinstance(result, InformationResult)
    scores = {name: result.information[name] for name in RUNS if name in result.information}
    f_si = scores["f_si_nats"]
    return {name: [one.mean_nats for one in of_seeds] for name, of_seeds in scores.items()} | {
        "f_si_nats_median": [one.median_nats for one in f_si],
        "share_of_top_tenth": [one.share_of_top_tenth or 0.0 for one in f_si],  # of scores that are all zero
        "largest_over_median": [one.largest_nats / one.median_nats if one.median_nats else None for one in f_si],
        "accuracy": result.network.test_accuracy,
        "left_out_accuracy": result.network.left_out_accuracy,
    }


def _curve_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    """Yield a row per seed and training size; none of a run without a learning curve."""
    for point in run.result.curve if isinstance(run.result, MdlResult) else ():
        lists = {column: values for column, name in POINT.items() if (values := getattr(point, name)) is not None}
        for s, seed in enumerate(run.seeds):
            yield {"run_id": run.id, "seed": seed, "n": point.n, **{name: of[s] for name, of in lists.items()}}


def _unfinished_row(run: StoredRun) -> dict[str, Any]:
    parts = {part: run.config[part]["name"] for part in ("dataset", "eraser", "model")}
    about = {"run_id": run.id, "command": run.command, "directory": str(run.directory)}
    return {**about, **parts, "seeds": len(run.seeds), "state": run.state}


def _hashable(value: Any) -> Any:
    """Return lists as tuples, which can be grouped by."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
