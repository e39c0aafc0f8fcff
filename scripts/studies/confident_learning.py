"""How well information finds wrong labels, beside confident learning (Northcutt et al. 2021, by cleanlab).

    python -m sample_info sample_info.data.label_noise=0.1
    uv run --group bench python -m scripts.studies.confident_learning runs/sample_info-*

For every finished run with label noise: the probability (AUROC) that a wrong label looks more suspicious than a right
one, by F-SI, by SI, and by cleanlab on the same examples and labels.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from harness.result import InformationResult, read_result
from harness.table import Table
from sample_info.__main__ import VERB, job_of
from sample_info.changes import auroc
from sample_info.examples import load
from scripts.options import parser


def label_suspicion(x: Tensor, z: Tensor) -> Tensor:
    """How unlikely each given label [n] is to be right, [n] float64 in 0..1: 1 less cleanlab's label quality.

    Probabilities are those of logistic regressions on standardised inputs [n, ...] that have not seen the example.
    """
    from cleanlab.rank import get_label_quality_scores  # pyright: ignore[reportMissingImports]

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    splits = StratifiedKFold(5, shuffle=True, random_state=0)
    inputs, labels = x.flatten(1).double().cpu().numpy(), z.cpu().numpy()
    probabilities = np.asarray(cross_val_predict(model, inputs, labels, cv=splits, method="predict_proba"))
    return 1 - torch.from_numpy(get_label_quality_scores(labels, probabilities)).double()


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.confident_learning", __doc__)
    own.add_argument("runs", type=Path, nargs="+", help="directories of finished runs of python -m sample_info")
    rows = []
    for directory in own.parse_args(arguments).runs:
        try:
            rows.append(compare(directory))
        except ValueError as error:
            print(error, file=sys.stderr)
    headings = ("dataset", "eraser", "model", "examples", "wrong", "F-SI", "SI", "cleanlab")
    Table("confident_learning", "", headings, rows).show()
    return 0 if rows else 2


def compare(directory: Path) -> list[str]:
    """A line of the table.

    Raises:
        ValueError: nothing to compare, or a damaged result.
    """
    path = directory / "result.json"
    result = read_result(path) if path.exists() else None
    wrong = result.groups.get("wrong label") if isinstance(result, InformationResult) else None
    if result is None or wrong is None:
        raise ValueError(f"{directory}: no finished run of python -m {VERB.name} with label noise")
    examples = load(job_of(result.config))
    suspicion = label_suspicion(examples.x, examples.given)
    found = auroc(suspicion, (examples.given != examples.labels).cpu())
    names = [result.named(part) for part in ("dataset", "eraser", "model")]
    ours = (mean(one for one in per_seed if one is not None) for per_seed in (wrong.auroc, wrong.auroc_si))
    return [*names, f"{len(examples.x):,}", f"{wrong.examples:,}", *(f"{number:.3f}" for number in (*ours, found))]


if __name__ == "__main__":
    raise SystemExit(main())
