"""Kill runs of a sweep over this machine's processes, launch it again from two shells, and compare with one process.

    python -m scripts.studies.kill_local            # 32 runs, hydra/launcher=local with 4 processes, a third killed

The sweep is launched with `hydra/launcher=local` while a third of its runs, chosen at random, are killed (SIGKILL) at a
random moment; what is killed ends, so it is launched again until all of them have died. Then two shells launch
it at the same time. Prints whether results equal those of one process to the bit, what was done twice, and files left.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.options import parser
from scripts.studies.place import Place

_SWEEP = ("eraser=control,leace", "model=linear,mlp", "train=quick", "train.max_epochs=60", "mdl=quick")
_ALL = (
    "train.patience_steps=1000000", "train.stack=all", "train.checkpoint_every_s=0.1", "logger.mode=disabled",
    "device=cpu",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.kill_local", __doc__)
    own.add_argument("--seeds", type=int, default=8, help="four runs of each")
    own.add_argument("--workers", type=int, default=4, help="processes")
    own.add_argument("--seed", type=int, default=0, help="of what is killed, and when")
    options = own.parse_args(arguments)
    sweep = [*_SWEEP, f"seeds={','.join(f'[{seed}]' for seed in range(options.seeds))}", *_ALL]
    local = ["hydra/launcher=local", f"hydra.launcher.workers={options.workers}"]
    with tempfile.TemporaryDirectory() as scratch:
        alone, shared = Place(Path(scratch, "alone")), Place(Path(scratch, "shared"))
        _finished(_launch(sweep, alone))
        watch, killer = Watch(shared.runs), Killer(shared.runs, sorted(alone.results()), random.Random(options.seed))
        launches = 0
        while killer.left and launches <= options.seeds * 4:
            _launch([*local, *sweep], shared).wait()
            launches += 1
        print(f"{killer.killed} of {options.seeds * 4} runs killed, in {launches} launches", flush=True)
        shells = [_launch(sweep, shared), _launch(sweep, shared)]
        for shell in shells:
            _finished(shell)
        watch.stop.set()
        killer.stop.set()
        expected, found = alone.results(), shared.results()
        equal = sum(found.get(run) == expected[run] for run in expected)
        twice = watch.twice()
        orphans = [path for path in shared.orphans() if path.parent.name != "sweeps"]
        print(f"{equal} of {len(expected)} results equal to those of one process to the bit")
        print(f"{len(watch.seen)} parts seen, {len(twice)} of them computed twice", *twice, sep="\n  ")
        print(f"{len(orphans)} files left over", *orphans, sep="\n  ")
        return 0 if equal == len(expected) == len(found) and not twice and not orphans and not killer.left else 1


def _launch(sweep: Sequence[str], place: Place) -> subprocess.Popen:
    where = [f"runs_dir={place.runs}", f"cache_dir={place.cache}"]
    with (place.diary.parent / "shells.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "mdl", "-m", *sweep, *where], stdout=log, stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # sums of several threads are in no fixed order
        )  # fmt: skip


def _finished(shell: subprocess.Popen) -> None:
    if code := shell.wait():
        raise RuntimeError(f"{' '.join(map(str, shell.args))} ended with {code}")  # type: ignore[arg-type]


class Watch(threading.Thread):
    """Notes every part of a run that is written, and results: each a file that is renamed into place."""

    def __init__(self, runs: Path) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, set[int]] = {}
        self.stop = threading.Event()
        self._runs = runs
        self.start()

    def run(self) -> None:
        while not self.stop.wait(0.005):
            for path in [*self._runs.glob("*/part-[0-9]*.json"), *self._runs.glob("*/result.json")]:
                with contextlib.suppress(FileNotFoundError):
                    self.seen.setdefault(str(path.relative_to(self._runs)), set()).add(path.stat().st_ino)

    def twice(self) -> list[str]:
        return sorted(name for name, files in self.seen.items() if len(files) > 1)


class Killer(threading.Thread):
    """Kills the process that computes a run, a moment after it has begun: a third of all runs, each once."""

    def __init__(self, runs: Path, names: Sequence[str], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.left = set(chance.sample(list(names), len(names) // 3))
        self.killed = 0
        self.stop = threading.Event()
        self._runs, self._chance = runs, chance
        self.start()

    def run(self) -> None:
        while self.left and not self.stop.wait(0.01):
            for name in sorted(self.left):
                if (self._runs / name / "config.yaml").exists():
                    time.sleep(self._chance.uniform(0, 0.5))
                    self._kill(name)

    def _kill(self, name: str) -> None:
        self.left.discard(name)
        with contextlib.suppress(OSError, ValueError):  # it was faster
            os.kill(json.loads((self._runs / name / "run.lock").read_text())["pid"], signal.SIGKILL)
            self.killed += 1


if __name__ == "__main__":
    raise SystemExit(main())
