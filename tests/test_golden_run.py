"""A tiny run whose numbers a refactoring must reproduce.

Where a change moves them on purpose, raise `harness.run_directory.RESULTS_VERSION` (so that no result of the old code
is taken for one of the new) and put the new numbers here.
"""

from pathlib import Path

import pytest

from erasure.store.checked_files import read_json
from harness.run_directory import RESULTS_VERSION
from mdl.__main__ import COMMAND as MDL

GOLDEN_VERSION = 2
BITS_PER_SAMPLE = {"control": [0.7607, 0.6862], "leace": [3.2219, 3.1802]}


def test_golden_codelengths(command) -> None:
    tiny = ["train.max_epochs=10", "mdl.num_chunks=4", "seeds=[0,1]", "logger.mode=disabled"]
    tiny += ["model.width=32", "model.parametrization=standard"]
    tiny += ["train.lr=5e-3", "train.min_epoch_steps=20", "train.warmup_steps=50"]
    tiny += ["train.patience_steps=100", "train.plateau_steps=0"]
    outcome = command(MDL, "-m", "eraser=control,leace", *tiny)
    assert outcome.code == 0, outcome.err
    results = [read_json(path) for path in Path("runs").glob("*/result.json")]
    measured = {r["config"]["eraser"]["name"]: r["mdl"]["bits_per_sample"] for r in results}
    assert RESULTS_VERSION == GOLDEN_VERSION
    for eraser, bits in BITS_PER_SAMPLE.items():
        assert measured[eraser] == pytest.approx(bits, abs=2e-3), measured
