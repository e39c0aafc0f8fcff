"""Finished runs as tidy pandas frames: a row per run and seed, per training size, per epoch.

    from harness.results import load
    results = load("runs/")
    results.runs.groupby(["model", "eraser"])["bits_per_label"].agg(["mean", "std"])

Foreign, damaged and unfinished runs never raise: they stand in `problems` and `unfinished`, with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from conf.identity import identifying
from erasure.store.storage import fingerprint
from harness.result import InformationResult, MdlResult, Result, TrainedResult, TrainResult
from harness.results.excess_description_length import excess_bits
from harness.results.read import StoredRun, read_runs
from harness.results.run_labels import comparable, flatten, setting_text

RUNS: Mapping[str, str] = {
    "run_id": "name of the run's directory",
    "command": "mdl, train or sample_info",
    "directory": "where the run is",
    "dataset": "name, as on the command line",
    "eraser": "name, as on the command line",
    "model": "name, as on the command line",
    "seed": "of initial weights, order of the examples and augmentation",
    "setting": "how the run was trained and coded: presets, and the options that differ from them",
    "pair_id": "equal for runs that differ by eraser and seed alone",
    "eraser_id": "equal for runs whose eraser has the same options",
    "started": "seconds since 1970, of the last process that computed the run",
    "seconds": "time of a device, over all processes and all seeds of the run",
    "parameters": "of the network",
    "num_classes": "classes of the labels",
    "train_size": "training examples, N",
    "bits_per_label": "codelength per label (mdl)",
    "total_bits": "codelength of all labels (mdl)",
    "calibrated_bits_per_label": "codelength per label with one temperature per training size (mdl)",
    "excess_bits": "codelength of all labels less N times the test loss (mdl)",
    "published_units": "Σ n_{i+1} · CE_i / N, the unit of Table 16, not a codelength (mdl)",
    "test_loss_bits": "per label, of the network trained on everything (mdl, train)",
    "accuracy": "share of test examples that are right (mdl, train); of the linearised network (sample_info)",
    "train_loss_bits": "on training images without augmentation, at the lowest validation loss (mdl, train)",
    "validation_loss_bits": "lowest (mdl, train)",
    "end_train_loss_bits": "training loss when training ended (mdl, train)",
    "sharp_drop_bits": "largest fall of the validation loss within a few epochs (mdl, train)",
    "sharp_drop_epoch": "when it began; missing where the loss never falls (mdl, train)",
    "label_entropy_bits": "least loss of a constant predictor (train)",
    "epochs": "of the training on everything (mdl, train)",
    "best_epoch": "of the lowest validation loss (mdl, train)",
    "ended": "patience or max_epochs (mdl, train)",
    "coding_on_plateau": "how many trainings that the codelength rests on never left the plateau (mdl)",
    "final_on_plateau": "whether the training on everything never left the plateau (mdl, train)",
    "untrained": "how many trainings kept their initial weights (mdl, train)",
    "f_si_nats": "functional sample information per example, mean over examples (sample_info)",
    "si_nats": "sample information in the weights, mean over examples (sample_info)",
    "si_sgd_nats": "the same with the noise of SGD (sample_info)",
}
"""Columns of `Results.runs`, with units. Further columns are options ("model.width") and the certificate
("certificate.train.mean_gap": see `erasure.certificate.Certificate`)."""

CURVE: Mapping[str, str] = {
    "run_id": "name of the run's directory",
    "seed": "the training's seed",
    "n": "training examples",
    "next_loss_bits": "per label, on the examples up to the next size; missing for the last size",
    "calibrated_next_loss_bits": "the same with logits divided by a temperature",
    "test_loss_bits": "per label, on the test split",
    "train_loss_bits": "on training images without augmentation",
    "validation_loss_bits": "lowest",
    "accuracy": "share of test examples that are right",
    "epochs": "trained",
    "best_epoch": "of the lowest validation loss",
    "ended": "patience or max_epochs",
    "untrained": "whether the initial weights have the lowest validation loss",
    "left_plateau": "whether the training loss fell below the label entropy",
}
"""Columns of `Results.curve`: a row per run of `python -m mdl`, seed and training size."""

LOSSES: Mapping[str, str] = {
    "run_id": "name of the run's directory",
    "seed": "the training's seed",
    "epoch": "of the training on everything; 0 is before it",
    "train_loss_bits": "per label, with augmentation; missing at epoch 0",
    "validation_loss_bits": "per label",
}
"""Columns of `Results.losses`: a row per run of `train` or `mdl`, seed and evaluation."""

COUNTERPARTS: Mapping[str, str] = {
    "run_id": "name of the run's directory",
    "seed": "the training's seed",
    "sample": "data, the test images, or the counterpart of them that shares some statistics: order1, swap, ...",
    "step": "optimiser steps taken",
    "loss_bits": "per label of the sample",
    "accuracy": "share of the sample's labels that are right",
    "agreement": "how alike the mean predictions for a class are on the sample and on the images, 0 to 1",
}
"""Columns of `Results.counterparts`: a row per run of `train counterparts=[...]`, seed, sample and evaluation."""

UNFINISHED: Mapping[str, str] = {
    "run_id": "name of the run's directory",
    "command": "mdl, train or sample_info",
    "directory": "where the run is",
    "dataset": "name, as on the command line",
    "eraser": "name, as on the command line",
    "model": "name, as on the command line",
    "seeds": "how many",
    "state": "running, failed, interrupted or unfinished",
}
"""Columns of `Results.unfinished`."""


@dataclass
class Results:
    """Finished runs as frames.

    Attributes:
        runs: a row per run and seed (columns: `RUNS`, options, certificate).
        curve: learning curves (columns: `CURVE`).
        unfinished: runs without a result (columns: `UNFINISHED`).
        problems: a line on each file or run that could not be read, and on what is odd about those that could.
    """

    runs: pd.DataFrame
    curve: pd.DataFrame
    unfinished: pd.DataFrame
    problems: list[str]
    _stored: list[StoredRun] = field(default_factory=list, repr=False)

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Loss over epochs of the trainings on everything (columns: `LOSSES`), read from disk at the first use.

        Files that are missing or damaged are left out, with a line in `problems`.
        """
        frames = []
        for run in self._stored:
            for seed, curve in run.loss_curves(self.problems.append).items():
                columns = (run.id, seed, curve.epochs.astype(int), curve.train_bits, curve.validation_bits)
                frames.append(pd.DataFrame(dict(zip(LOSSES, columns, strict=True))))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(LOSSES))

    @property
    def counterparts(self) -> pd.DataFrame:
        """Losses on counterparts of the test images along trainings (columns: `COUNTERPARTS`)."""
        frames = [
            pd.DataFrame(dict(zip(COUNTERPARTS, (run.id, seed, name, *columns), strict=True)))
            for run in self._stored
            if isinstance(run.result, TrainResult)
            for name, sample in (run.result.counterparts or {}).items()
            for seed, *columns in zip(
                run.result.seeds, sample.step, sample.loss_bits, sample.accuracy, sample.agreement, strict=True
            )
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COUNTERPARTS))


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
    reading = read_runs(roots)
    finished = [run for run in reading.finished if run.result is not None]
    return Results(
        runs=run_frame(finished),
        curve=_frame((row for run in finished for row in _curve_rows(run)), CURVE),
        unfinished=_frame((_unfinished_row(run) for run in reading.runs if run.result is None), UNFINISHED),
        problems=reading.problems,
        _stored=finished,
    )


def _frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame with the documented columns first, in their order, and no other type of missing value than NaN."""
    frame = pd.DataFrame(list(rows))
    further = [column for column in frame.columns if column not in columns]
    return frame.reindex(columns=[*columns, *sorted(further)]).infer_objects()


def run_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return a row per finished run and seed (columns: `RUNS`, options, certificate)."""
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


def pair_id(result: Result) -> str:
    """Return what is equal for runs that differ by eraser and seed alone."""
    shared = {key: value for key, value in comparable(result.config).items() if key not in ("eraser", "seeds")}
    return fingerprint([result.command, shared, result.train_size])


_VALUES = {  # column of `RUNS` -> where a result has its values, one per seed
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
        columns["excess_bits"] = [excess_bits(result, s) for s in range(len(result.seeds))]
        if left := [training.left_plateau for training in result.coding if training.left_plateau is not None]:
            columns["coding_on_plateau"] = [len(left) - sum(of_seed) for of_seed in zip(*left, strict=True)]
    if isinstance(result, TrainResult):
        columns["label_entropy_bits"] = [result.label_entropy_bits] * len(result.seeds)
    return columns


def _information(result: Result) -> dict[str, list[Any]]:
    assert isinstance(result, InformationResult)
    scores = {name: result.information[name] for name in RUNS if name in result.information}
    means = {name: [summary.mean_nats for summary in of_seeds] for name, of_seeds in scores.items()}
    return means | {"accuracy": result.network.test_accuracy}


_POINT = {  # column of `CURVE` -> its name in result.json
    "next_loss_bits": "ce_next_bits",
    "calibrated_next_loss_bits": "ce_next_calibrated_bits",
    "test_loss_bits": "ce_test_bits",
    "train_loss_bits": "ce_train_bits",
    "validation_loss_bits": "ce_validation_bits",
    "accuracy": "test_accuracy",
    **{name: name for name in ("epochs", "best_epoch", "ended", "untrained", "left_plateau")},
}


def _curve_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    """Yield a row per seed and training size; none of a run without a learning curve."""
    for point in run.result.curve if isinstance(run.result, MdlResult) else ():
        lists = {column: values for column, name in _POINT.items() if (values := getattr(point, name)) is not None}
        for s, seed in enumerate(run.seeds):
            yield {"run_id": run.id, "seed": seed, "n": point.n, **{name: of[s] for name, of in lists.items()}}


def _unfinished_row(run: StoredRun) -> dict[str, Any]:
    parts = {part: run.config[part]["name"] for part in ("dataset", "eraser", "model")}
    about = {"run_id": run.id, "command": run.command, "directory": str(run.directory)}
    return {**about, **parts, "seeds": len(run.seeds), "state": run.state}


def _hashable(value: Any) -> Any:
    """Return lists as tuples, which can be grouped by."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
