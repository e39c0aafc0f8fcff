"""References of scores: a miniature of table 1 of Harutyunyan et al. 2021."""

import re
from pathlib import Path

from erasure.store.checked_files import read_json
from sample_info.__main__ import COMMAND

SMALL = ["model.width=256", "sample_info.examples=40", "sample_info.held_out=50", "sample_info.training.steps=300"]


def test_scores_agree_with_retraining_and_better_than_influence_functions(command) -> None:
    outcome = command(COMMAND, *SMALL, "sample_info.references.methods=[retraining,influence]", "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    references = read_json(path)["references"]
    for kind in ("weight", "prediction"):
        retraining, *influence = (
            references[name][0][kind]["pearson"]
            for name in ("retraining", "influence 10 with retraining", "influence 1e-05 with retraining")
        )
        assert 0.95 < retraining <= 1
        assert max(influence) < retraining
        assert influence[0] > influence[1]  # the paper's damping, next to none
        low, high = (references["retraining"][0][kind]["ratio"][end] for end in ("least", "largest"))
        assert 0.5 < low < 1 < high < 2
    assert references["retraining"][0]["examples"] == 40
    assert references["influence 10"][0]["examples"] == 40
    (table,) = Path("runs").glob("*/table.md")
    line = next(line for line in table.read_text().splitlines() if "| influence 10 with retraining | 40 |" in line)
    assert re.search(r"\| \d\S* \(\S+ to \S+\) \| \d\S* \(\S+ to \S+\) \|$", line)
