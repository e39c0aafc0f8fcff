"""Kill runs of a sweep over this machine's processes, launch it again from two shells, and compare with one process.

    python -m scripts.studies.kill_local_sweep      # 32 runs, hydra/launcher=local with 4 processes, a third killed

The sweep is launched with `hydra/launcher=local` while a random third of its runs are killed (SIGKILL) at random
moments, and launched again until all of these have been killed. Then two shells launch it at the same time. Prints
whether results are bitwise equal to those of one process, which steps were computed twice, and files left over.
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

from scripts.command_line import argument_parser
from scripts.studies.killed_tasks import KilledTasks, numbers

_SWEEP = ("eraser=control,leace", "model=linear,mlp", "train=quick", "train.max_epochs=60", "mdl=quick")
_ALL = (
    "train.patience_steps=1000000", "train.stack=all", "train.checkpoint_every_s=0.1", "logger.mode=disabled",
    "device=cpu",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.kill_local_sweep", __doc__)
    parser.add_argument("--seeds", type=int, default=8, help="four runs of each")
    parser.add_argument("--workers", type=int, default=4, help="processes")
    options = parser.parse_args(arguments)
    sweep = [*_SWEEP, f"seeds={','.join(f'[{seed}]' for seed in range(options.seeds))}", *_ALL]
    local = ["hydra/launcher=local", f"hydra.launcher.workers={options.workers}"]
    with tempfile.TemporaryDirectory() as scratch:
        alone, shared = KilledTasks(Path(scratch, "alone")), KilledTasks(Path(scratch, "shared"))
        _finish(_launch(sweep, alone))
        watch = Watch(shared.runs, sorted(numbers(alone.runs)), random.Random(0))
        launches = 0
        while watch.left and launches <= options.seeds * 4:
            _launch([*local, *sweep], shared).wait()
            launches += 1
        print(f"{watch.killed} of {options.seeds * 4} runs killed, in {launches} launches", flush=True)
        _finish(_launch(sweep, shared), _launch(sweep, shared))
        watch.stop.set()
        twice = sorted(name for name, files in watch.seen.items() if len(files) > 1)
        good = shared.compared(alone, len(watch.seen), twice)
        return 0 if good and not watch.left else 1


def _launch(sweep: Sequence[str], tasks: KilledTasks) -> subprocess.Popen:
    where = [f"runs_dir={tasks.runs}", f"cache_dir={tasks.cache}"]
    with (tasks.diary.parent / "shells.log").open("a") as log:
        return subprocess.Popen([sys.executable, "-m", "mdl", "-m", *sweep, *where], stdout=log, stderr=log)


def _finish(*shells: subprocess.Popen) -> None:
    for shell in shells:
        if code := shell.wait():
            raise RuntimeError(f"{' '.join(map(str, shell.args))} ended with {code}")  # type: ignore[arg-type]


class Watch(threading.Thread):
    """Record every step and result that is written, and kill a third of all runs, each once."""

    def __init__(self, runs: Path, names: Sequence[str], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, set[int]] = {}
        self.left = dict.fromkeys(chance.sample(names, len(names) // 3), float("inf"))  # time of death
        self.killed = 0
        self.stop = threading.Event()
        self._runs, self._chance = runs, chance
        self.start()

    def run(self) -> None:
        while not self.stop.wait(0.005):
            for path in [*self._runs.glob("*/step-[0-9]*.json"), *self._runs.glob("*/result.json")]:
                with contextlib.suppress(FileNotFoundError):
                    self.seen.setdefault(str(path.relative_to(self._runs)), set()).add(path.stat().st_ino)
            for name, moment in sorted(self.left.items()):
                if time.monotonic() >= moment:
                    self._kill(name)
                elif moment == float("inf") and (self._runs / name / "config.yaml").exists():
                    self.left[name] = time.monotonic() + self._chance.uniform(0, 0.5)

    def _kill(self, name: str) -> None:
        del self.left[name]
        with contextlib.suppress(OSError, ValueError):  # it has finished
            os.kill(json.loads((self._runs / name / "run.lock").read_text())["pid"], signal.SIGKILL)
            self.killed += 1


if __name__ == "__main__":
    raise SystemExit(main())
