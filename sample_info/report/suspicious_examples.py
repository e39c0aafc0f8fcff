"""Examples whose labels are most likely to be wrong, with their names and small images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from erasure.store.regular_files import regular
from harness.results.arrange import finished_runs
from harness.results.columns import Column, first
from harness.results.read import Note, StoredRun
from harness.results.table import Table
from harness.untrusted_runs import one_line
from sample_info.report.thumbnails import read_thumbnails

_PRINTED = 10
_MAX_RUNS = 30  # largest number of runs with a table of examples
_LARGEST_BYTES = 2**28
_COLUMNS_READ = {
    **dict.fromkeys(("index", "label", "given_label", "left_out_correct", "left_out_label"), "int64"),
    **dict.fromkeys(("name", "class"), "str"),
    "si_nats": "float64",
}
_NOTE = (
    "Order: first the examples whose label the network contradicts when trained without them, with several seeds those "
    "that the most networks contradict; then by SI, what the example tells the weights that the others do not, mean "
    "over seeds. Label: as the network was given it. Predicted: by most of the networks that were trained without the "
    "example. scores.csv has all examples, in the order of the dataset."
)
_REMARK = "Wrong labels come first, and so do rare examples."


_COLUMNS = (
    Column("rank", "rank"),
    Column("name", "name"),
    Column("label", "label"),
    Column("predicted", "predicted"),
    Column("contradicted by", "contradicted_by"),  # empty for one seed, as `predicted` shows it
    Column("SI (nats)", "si_nats", ".2e"),
)


def suspicious_examples(frames: Sequence[pd.DataFrame], note: Note, most: int = _PRINTED) -> dict[str, Table]:
    """Tabulate the examples whose labels are most likely to be wrong, ordered by `by_suspicion`.

    Args:
        frames: finished runs, whose directories contain scores.csv.
        note: called with one line on each run with a missing or damaged file, and on runs beyond the first 30.
        most: number of examples of each run.

    Returns:
        Tables by run id. A row may have a `thumbnail`, a `data:` address with a small PNG.
    """
    placed = finished_runs(frames)
    if len(placed) > _MAX_RUNS:
        note(f"suspicious examples of {len(placed) - _MAX_RUNS:,} of {len(placed):,} runs left out: show fewer runs")
    tables = {}
    for row, run in placed[:_MAX_RUNS]:
        try:
            rows = most_suspicious(_read_scores(run), most)
        except (OSError, ValueError, OverflowError) as error:
            reason = " ".join(str(error).split())
            path = run.directory / "scores.csv"
            note(
                f"{path}: no table of suspicious examples ({reason}): delete result.json beside it to score them again"
            )
            continue
        thumbnails = read_thumbnails(run.directory, note)
        rows = [one | {"thumbnail": thumbnails.get(one["index"])} for one in rows]
        who = ", ".join(first(row, part).display for part in ("dataset", "model", "eraser"))
        title = f"sample_info: The {len(rows)} most suspicious examples: {who}"
        tables[run.id] = Table.of(f"suspicious-{run.id}", _COLUMNS, rows, [_NOTE], title=title, remarks=[_REMARK])
    return tables


def _read_scores(run: StoredRun) -> pd.DataFrame:
    """Read a run's scores.csv, which may be untrusted.

    Raises:
        OSError, ValueError, OverflowError: the file is missing, irregular or damaged.
    """
    path = regular(run.directory / "scores.csv", _LARGEST_BYTES)
    scores = pd.read_csv(path, dtype=_COLUMNS_READ, usecols=lambda name: name in _COLUMNS_READ, keep_default_na=False)
    if missing := [name for name in _COLUMNS_READ if name not in scores]:
        raise ValueError(f"it lacks the column {missing[0]}")
    if scores.empty:
        raise ValueError("it has no examples")
    if not np.isfinite(scores["si_nats"]).all():
        raise ValueError("si_nats has values that are not finite")
    return scores


def by_suspicion(contradictions: ArrayLike, si_nats: ArrayLike) -> np.ndarray:
    """Return the positions of examples, starting with labels that are most likely to be wrong.

    Args:
        contradictions: number of networks, trained without the example, that predict another label for it, [n].
        si_nats: mean SI over seeds, [n], which orders examples with equally many contradictions. Wrong labels have
            high SI (Harutyunyan et al. 2021, figure 2b).
    """
    return np.lexsort((-np.asarray(si_nats), -np.asarray(contradictions)))


def most_suspicious(scores: pd.DataFrame, most: int) -> list[dict[str, Any]]:
    """Return one row for each of the `most` first examples in the order of `by_suspicion`."""
    class_names = dict(zip(scores["label"], scores["class"], strict=True))
    examples = scores.assign(contradicted=scores["left_out_correct"] == 0).groupby("index")
    contradictions, si_nats = examples["contradicted"].sum(), examples["si_nats"].mean()
    rows = []
    for rank, index in enumerate(si_nats.index[by_suspicion(contradictions, si_nats)[:most]].tolist(), 1):
        example = scores[scores["index"] == index]
        given, predicted = example["given_label"].iloc[0], example["left_out_label"].mode()[0]
        rows.append(
            {
                "rank": rank,
                "index": index,
                "name": one_line(example["name"].iloc[0]),
                "label": one_line(class_names.get(given, str(given))),
                "predicted": one_line(class_names.get(predicted, str(predicted))),
                "contradicted_by": f"{contradictions[index]} of {len(example)}" if len(example) > 1 else "",
                "si_nats": float(si_nats[index]),
            }
        )
    return rows
