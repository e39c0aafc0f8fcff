"""Seconds and memory of reading finished runs by `harness.results.load`, compared with reading the JSON only.

python -m scripts.benchmarks.reading_runs --runs 1000
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from erasure.store.checked_files import sealed
from harness.results import load
from scripts.benchmarks.benchmark_helpers import Row, argument_parser, finish, machine, measured

STUDY = Path(__file__).parents[2] / "docs/study"


def copies(count: int, folder: Path) -> None:
    """Write `count` runs: copies of those of the stored study, under new names."""
    stored = sorted(path.parent for path in STUDY.glob("*/result.json"))
    for i in range(count):
        run = stored[i % len(stored)]
        values = json.loads((run / "result.json").read_text(encoding="utf-8"))
        del values["digest"]
        name, _, _ = run.name.rpartition("-")
        values["run_id"] = f"{name}-{i:08x}"
        shutil.copytree(run, folder / values["run_id"])
        (folder / values["run_id"] / "result.json").write_text(sealed(values), encoding="utf-8")


def main() -> int:
    parser = argument_parser("reading_runs", __doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many (default: %(default)s)")
    chosen = parser.parse_args()
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copies(chosen.runs, folder)
        load(*[STUDY])  # imports
        work = f"{chosen.runs:,} runs"
        with measured(device) as floor:
            read = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/result.json")]
        del read
        with measured(device) as cost:
            results = load(folder)
        rows = [Row(work, "load: runs and curve", cost, floor.seconds, f"{len(results.runs):,} rows")]
        with measured(device) as cost:
            losses = results.losses
        rows.append(Row(f"{work}, losses", "Results.losses", cost, None, f"{len(losses):,} rows"))
        rows.append(Row(work, "json.loads alone", floor, None, "nothing is checked"))
    return finish(chosen, f"Reading results, {machine(device)}", rows)


if __name__ == "__main__":
    sys.exit(main())
