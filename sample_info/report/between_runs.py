"""Comparison of scores between runs: movement between erasers, and agreement between networks and seeds.

For agreement between networks see Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from erasure.store.checked_files import digest
from harness.example_bits import ExampleTensors, read_example_tensors
from harness.results.arrange import finished_runs, panels_of
from harness.results.columns import Row, first, runs_of
from harness.results.read import Note
from harness.results.run_labels import Label
from sample_info.agreement import median, pearson, spearman

MAX_RUNS = 30  # largest group of runs whose agreement is shown

ScoresByRun = Mapping[str, ExampleTensors | None]  # by run id; None for a run that cannot be compared


def compare_scores(frames: Sequence[pd.DataFrame], note: Note) -> tuple[list[dict[str, Any]], list[Row]]:
    """Compare stored scores between erasers and between networks; note files that are left out."""
    scores = {run.id: read_scores(run.directory, note, run.seeds) for _, run in finished_runs(frames)}
    return between_erasers(frames, scores), between_networks(frames, scores, note)


def read_scores(directory: Path, note: Note, seeds: Sequence[int]) -> ExampleTensors | None:
    """Read a run's positions in the training split, given labels [n] and F-SI [S, n]; note a damaged file."""
    path = directory / "scores.safetensors"
    left_out = "left out of how scores move and agree"
    stored = read_example_tensors(
        path, ("index", "given_label"), ("f_si_nats",), lambda line: note(f"{line}: {left_out}")
    )
    if stored is not None and list(stored.seeds) != list(seeds):
        note(f"{path} is of the seeds {stored.seeds}, not the run's: {left_out}")
        return None
    return stored


def between_erasers(frames: Sequence[pd.DataFrame], scores: ScoresByRun) -> list[dict[str, Any]]:
    """Compare F-SI under every pair of erasers of a model, the control first; leave out runs without scores.

    Returns:
        One row per pair, with labels, measures of agreement, and the scores `first` and `second`, [n] nats, averaged
        over the seeds that both have.
    """
    moved = []
    for entries in (entries for frame in frames for _, entries in panels_of(frame)):
        scored = [(entry, _f_si_by_seed(entry, scores)) for entry in entries]
        for (before, a), (after, b) in combinations(scored, 2):
            if seeds := [seed for seed in a if seed in b and torch.equal(a[seed][0], b[seed][0])]:
                about = {"dataset": first(before, "dataset"), "model": first(before, "model")}
                about |= {"from": first(before, "eraser"), "to": first(after, "eraser")}
                means = (torch.stack([one[seed][1] for seed in seeds]).mean(0) for one in (a, b))
                moved.append({**about, **movement(*means)})
    return moved


def _f_si_by_seed(row: Row, scores: ScoresByRun) -> dict[int, tuple[Tensor, Tensor]]:
    """Return, for each seed of a row, the positions of the examples and their F-SI, both [n]."""
    by_seed: dict[int, tuple[Tensor, Tensor]] = {}
    for run in runs_of(row):
        if (stored := scores.get(run.id)) is not None:
            for seed, f_si in zip(run.seeds, stored.tensors["f_si_nats"], strict=True):
                by_seed.setdefault(seed, (stored.tensors["index"], f_si))
    return by_seed


def movement(before: Tensor, after: Tensor) -> dict[str, Any]:
    """Compare two scores [n] of the same examples."""
    positive = before > 0
    tenth = max(1, len(before) // 10)
    tops = [{*scores.argsort(descending=True)[:tenth].tolist()} for scores in (before, after)]
    return {
        "first": before,
        "second": after,
        "spearman": spearman(before, after),
        "median_ratio": median(after[positive] / before[positive]) if bool(positive.any()) else math.nan,
        "top_tenth_overlap": len(tops[0] & tops[1]) / tenth,
    }


def between_networks(
    frames: Sequence[pd.DataFrame], scores: ScoresByRun, note: Note, *, max_runs: int = MAX_RUNS
) -> list[Row]:
    """Correlate F-SI between runs that scored the same examples under the same eraser.

    Args:
        frames: the runs.
        scores: scores by run id.
        note: called with one line on each group that is left out.
        max_runs: size of the largest group to compare, as there may be thousands of runs.

    Returns:
        One row per pair of runs, and one per run for pairs of its seeds. A row has the `group` of runs with the same
        eraser and examples, labels, and Pearson's correlation, averaged over seeds.
    """
    groups: dict[tuple[Any, ...], dict[tuple[int, Label], dict[int, Tensor]]] = {}
    found = [(table, *one) for table, frame in enumerate(frames) for one in finished_runs([frame])]
    for table, row, run in found:
        if (stored := scores[run.id]) is not None:
            examples = (digest(stored.tensors[name]) for name in ("index", "given_label"))
            group = first(row, "dataset"), first(row, "eraser"), *examples
            model = table, first(row, "model")  # labels tell apart the models of one table; runs of other seeds are one
            f_si = groups.setdefault(group, {}).setdefault(model, {})
            f_si |= dict(zip(run.seeds, stored.tensors["f_si_nats"].double(), strict=True))
    rows = []
    for group, ((dataset, eraser, *_), members) in enumerate(groups.items()):
        runs = [(label, f_si) for (_, label), f_si in members.items()]
        if len(runs) > max_runs:
            about = f"{dataset}, {eraser}, {runs[0][0]}, …"
            note(f"agreement of {len(runs):,} runs ({about}): left out, being more than {max_runs}")
        for (run, a), (other, b) in combinations_with_replacement(runs, 2) if 1 < len(runs) <= max_runs else ():
            pairs = combinations(a.values(), 2) if a is b else ((a[seed], b[seed]) for seed in a if seed in b)
            if known := [value for pair in pairs if (value := pearson(*pair)) is not None]:
                about = {"group": group, "dataset": dataset, "eraser": eraser, "run": run, "another_run": other}
                rows.append({**about, "pearson": mean(known)})
    return rows
