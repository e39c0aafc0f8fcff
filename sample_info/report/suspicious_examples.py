"""The examples of a run whose labels are most likely to be wrong, by name."""

import pandas as pd

from harness.results.columns import Column, Row, number
from harness.results.read import Note
from harness.results.run_labels import display_name
from harness.results.table import Table
from sample_info.result import InformationResult

_SHOWN = 10
_READ = ("index", "label", "given_label", "class", "f_si_nats")  # columns that runs of every version have
_NOTE = (
    "F-SI: mean over seeds; wrong labels score high, and so do rare examples. Predicted: by most of the networks that "
    "were trained without the example. All examples: scores.csv."
)


def _text(heading: str, name: str) -> Column:
    return Column(heading, lambda row: row[name], lambda row: {name: row[name]})


_COLUMNS = (
    number("rank", "rank", ""),
    _text("name", "name"),
    _text("label", "label"),
    _text("predicted", "predicted"),
    number("F-SI (nats)", "f_si_nats", ".2e"),
)


def suspicious_examples(result: InformationResult, note: Note) -> Table | None:
    """Tabulate the examples with the largest F-SI, as wrong labels score high (Harutyunyan et al. 2021, figure 2b).

    Args:
        result: a run, whose directory has scores.csv.
        note: called with a line where that file is missing or damaged; there is no table then.
    """
    path = result.directory / "scores.csv"
    try:
        scores = pd.read_csv(path, dtype={"name": str, "class": str}, keep_default_na=False)
        if missing := [name for name in _READ if name not in scores]:
            raise ValueError(f"it lacks the column {missing[0]}")
        rows = most_suspicious(scores)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        note(f"{path}: no table of suspicious examples ({reason}): delete result.json beside it to score them again")
        return None
    run = ", ".join(display_name(result.named(part)) for part in ("dataset", "model", "eraser"))
    title = f"sample_info: The {len(rows)} most suspicious examples: {run}"
    return Table.of(f"suspicious-{result.run_id}", _COLUMNS, rows, [_NOTE], title=title)


def most_suspicious(scores: pd.DataFrame) -> list[Row]:
    """Return a row for each of the examples with the largest mean F-SI over seeds, the largest first."""
    class_names = dict(zip(scores["label"], scores["class"], strict=True))
    means = scores.groupby("index")["f_si_nats"].mean().nlargest(_SHOWN)
    rows: list[Row] = []
    for rank, (index, nats) in enumerate(means.items(), 1):
        example = scores[scores["index"] == index]
        row: dict[str, object] = {"rank": rank, "name": f"row {index}", "predicted": "", "f_si_nats": float(nats)}
        given = example["given_label"].iloc[0]
        row["label"] = class_names.get(given, str(given))
        if "name" in example:  # older runs of images lack it, and predictions
            row["name"] = example["name"].iloc[0]
        if "left_out_label" in example:
            predicted = example["left_out_label"].mode()[0]
            row["predicted"] = class_names.get(predicted, str(predicted))
        rows.append(row)
    return rows
