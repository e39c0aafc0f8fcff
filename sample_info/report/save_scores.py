"""Output of a run's scores to disk (safetensors, CSV, figures) and W&B."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from erasure.store.atomic_files import write_text
from erasure.store.checked_files import save_tensors
from harness.logger import Logger
from harness.results.table import csv_cell
from sample_info.data_summarization import Curve
from sample_info.report.suspicious_examples import by_suspicion
from sample_info.report.thumbnails import thumbnails
from sample_info.result import Attribution, InformationResult
from sample_info.scored_examples import Examples
from sample_info.scores import Scores

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The measurements of a run for one seed."""

    seed: int
    scores: Scores
    train_accuracy: float
    test_accuracy: float
    summaries: Mapping[str, list[Curve]]
    attribution: Mapping[str, Attribution]  # by method; empty if none was judged


def columns(scores: Scores) -> dict[str, Tensor]:
    """Return a seed's numbers per example for files, with 0 and 1 for false and true."""
    return {name: one.long() if one.dtype == torch.bool else one for name, one in scores.columns().items()}


def by_name(by_seed: Sequence[Mapping[str, T]]) -> dict[str, list[T]]:
    """Return lists over seeds by name."""
    return {name: [seed[name] for seed in by_seed] for name in by_seed[0]}


def save_scores(
    directory: Path, logger: Logger, examples: Examples, scored: Sequence[Scored], information: InformationResult
) -> None:
    """Write scores.safetensors (one row per seed), scores.csv (one row per seed and example) and figures.

    Scores and figures are also logged to W&B.
    """
    from sample_info.report.figures import draw_run, draw_summaries, title_of  # imports matplotlib
    from sample_info.report.tables import accuracy_of

    seeds = [one.seed for one in scored]
    tensors = {name: torch.stack(values) for name, values in by_name([columns(one.scores) for one in scored]).items()}
    about = {"index": examples.index, "label": examples.labels.cpu(), "given_label": examples.train_labels.cpu()}
    metadata = {"seeds": seeds, "class_names": list(examples.dataset.class_names)}
    if examples.groups.masks():
        about["group"] = examples.groups.of
        metadata["group_names"] = list(examples.groups.names)
    means = {name: tensors[name].mean(0) for name in scored[0].scores.nats}
    order = by_suspicion((tensors["left_out_correct"] == 0).sum(0), means["si_nats"])
    images = thumbnails(examples, torch.from_numpy(order))
    save_tensors(directory / "scores.safetensors", {**about, **tensors, **images}, metadata)
    frame = pd.concat([_frame(examples, one) for one in scored])
    write_text(directory / "scores.csv", frame.to_csv(index=False))
    logger.figure("scores/figure", draw_run(examples, means, directory / "scores.png"))
    if information.summaries is not None:
        accuracy = accuracy_of(information.summaries, examples.experiment.config.plain, examples.eraser_fit)
        panel = title_of(examples), accuracy, information.summaries
        logger.figure("summaries/figure", draw_summaries([panel], {}, directory / "summaries.png"))
    logged = {f"information.{name}.mean": float(values.mean()) for name, values in means.items()}
    logger.summarise(logged | {"network.test_accuracy": mean(one.test_accuracy for one in scored)})


def _frame(examples: Examples, one: Scored) -> pd.DataFrame:
    """Return a frame with one row per example."""
    groups = examples.groups
    about = {
        "seed": [one.seed] * len(groups.of),
        "index": examples.index.tolist(),
        "name": examples.names,
        "label": examples.labels.tolist(),
        "given_label": examples.train_labels.tolist(),
        "class": [examples.dataset.class_names[label] for label in examples.labels.tolist()],
        "group": [groups.names[j] for j in groups.of.tolist()],
    }
    about = {name: [csv_cell(value) for value in values] for name, values in about.items()}
    return pd.DataFrame(about | {name: values.tolist() for name, values in columns(one.scores).items()})
