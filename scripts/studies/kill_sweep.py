"""Kill every task of a sweep at random moments, and compare what comes out with an undisturbed sweep.

    python -m scripts.studies.kill_sweep                            # 64 tiny runs, each killed once
    python -m scripts.studies.kill_sweep --kills 10 eraser=leace    # one run with these overrides, killed ten times

Each task is what an array task of a cluster runs: one run in a process of its own. The sweep is launched three times on
the same directory: undisturbed elsewhere; with every task killed (SIGKILL mostly, SIGTERM, SIGUSR1 and SIGUSR2), a
moment uniform over its undisturbed time; and then by two tasks per run at the same time, as an impatient user does.
Prints the kills, and whether results are equal to the bit, whether any part was computed twice, and files left over.
"""

import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from erasure.store.storage import read_json
from scripts.options import parser

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["mdl.prequential", "erasure.datasets.digits", "sklearn.datasets", "models.mlp"])

NUMBERS = ("mdl", "curve", "power_law", "final", "seeds", "run_id")
SIGNALS = (signal.SIGKILL,) * 5 + (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# what a finished run consists of
LEFT = {"config.yaml", "result.json", "curves.csv", "log.txt", "state.json", "test_bits.safetensors"}
_TINY = ("train=quick", "train.max_epochs=15", "train.patience_steps=1000000", "mdl=quick")
_ALL = ("train.stack=all", "train.checkpoint_every_s=0.05", "logger.mode=disabled")
_VOID = "begun anew"
_LATEST = 0.9  # moment of death, in undisturbed times


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.kill_sweep", __doc__)
    own.add_argument("--runs", type=int, default=64, help="of the sweep")
    own.add_argument("--kills", type=int, default=1, help="of each run")
    own.add_argument("--seed", type=int, default=0, help="of signals and moments")
    own.add_argument("--at-once", type=int, default=2, help="tasks at the same time")
    own.add_argument("overrides", nargs="*", help="of python -m mdl, for one run in place of the sweep")
    options = own.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # sums of several threads are in no fixed order
    tasks = [options.overrides] if options.overrides else list(itertools.islice(sweep(), options.runs))
    chance = random.Random(options.seed)
    with (
        tempfile.TemporaryDirectory() as scratch,
        _workers(options.at_once) as pool,
        _workers(2 * options.at_once) as twice,
    ):
        undisturbed, killed = Place(Path(scratch, "undisturbed")), Place(Path(scratch, "killed"))
        times = list(pool.map(undisturbed.finish, tasks))
        print(f"undisturbed: {len(tasks)} runs, {min(times):.1f} to {max(times):.1f} s each", flush=True)
        latest = _LATEST * min(1, 2 / options.kills)
        deaths = [
            [(chance.choice(SIGNALS), chance.uniform(0, latest * seconds)) for _ in range(options.kills)]
            for seconds in times
        ]
        kills = 0
        for kills, lines in enumerate(pool.map(killed.kill, tasks, deaths), 1):
            print(*(f"kill {kills:3}: {line}" for line in lines), sep="\n", flush=True)
        list(twice.map(killed.finish, [task for task in tasks for _ in range(2)]))
        return verdict(kills, undisturbed, killed)


def _workers(count: int) -> ProcessPoolExecutor:
    """Processes that have imported everything, and fork a task in no time."""
    return ProcessPoolExecutor(count, mp_context=PROCESSES)


def sweep() -> Iterator[list[str]]:
    """Overrides of one run after the other."""
    for seed in itertools.count():
        for eraser, model in itertools.product(("control", "leace"), ("linear", "mlp")):
            yield [f"eraser={eraser}", f"model={model}", f"seeds=[{seed}]", *_TINY]


class Place:
    """Where a sweep's runs and cache lie, with a diary of what its tasks computed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.runs, self.cache, self.diary = folder / "runs", folder / "cache", folder / "diary"
        self.diary.touch()

    def finish(self, task: Sequence[str]) -> float:
        """Run a task to its end; seconds."""
        started = time.monotonic()
        process = self._start(task)
        process.join()
        if code := process.exitcode:
            raise RuntimeError(f"{' '.join(task)} ended with {code}: {(self.diary.parent / 'tasks.log').read_text()}")
        return time.monotonic() - started

    def kill(self, task: Sequence[str], deaths: Sequence[tuple[signal.Signals, float]]) -> list[str]:
        """Start a task and send it a signal after so many seconds, again and again; what was faster is begun anew."""
        told: list[str] = []
        for number, moment in deaths:
            code, own = self._kill_once(task, number, moment)
            while code == 0 and not told:
                shutil.rmtree(self.runs / own[-1].run)
                self.note(own[-1].run, _VOID)
                moment /= 2
                code, own = self._kill_once(task, number, moment)
            if code == 0:  # the kill before has left it too little to do
                break
            done = own[-1].what if own else "nothing"
            told.append(f"{number.name:7} after {moment:5.2f} s, code {code:4}, last done {done}: {' '.join(task)}")
        return told

    def _kill_once(self, task: Sequence[str], number: signal.Signals, moment: float) -> tuple[int, list["Entry"]]:
        """Its exit code, negative for a signal's number, and what it has done."""
        process = self._start(task)
        process.join(moment)
        if process.is_alive():
            os.kill(process.pid, number)
            process.join()
        return process.exitcode, [entry for entry in self.entries() if entry.pid == process.pid]

    def note(self, run: str, what: str) -> None:
        """Write into the diary that this process did something."""
        with self.diary.open("a") as file:
            file.write(f"{os.getpid()} {run} {what}\n")

    def entries(self) -> list["Entry"]:
        """What tasks have written down, in order; without what was begun anew."""
        kept: list[Entry] = []
        for line in self.diary.read_text().splitlines():
            pid, run, what = line.split(" ", 2)
            if what == _VOID:
                kept = [entry for entry in kept if entry.run != run]
            else:
                kept.append(Entry(int(pid), run, what))
        return kept

    def results(self) -> dict[str, Any]:
        """What must be equal to the bit, by run."""
        found = {}
        for path in self.runs.glob("*/result.json"):
            result = read_json(path)
            curves = (path.parent / "curves.csv").read_text()
            found[path.parent.name] = {name: result[name] for name in NUMBERS} | {"curves": curves}
        return found

    def orphans(self) -> list[Path]:
        """Files and folders that a sweep of finished runs does not consist of."""
        runs = [path for path in self.runs.glob("*/*") if path.name not in LEFT]
        return runs + [path for path in self.cache.iterdir() if path.suffix != ".safetensors" or path.name[0] == "."]

    def _start(self, task: Sequence[str]) -> Any:
        """Fork a process that runs the task."""
        process = multiprocessing.get_context("fork").Process(target=self._run, args=(task,))
        process.start()
        return process

    def _run(self, task: Sequence[str]) -> None:
        """`python -m mdl TASK`, its finished parts written into the diary."""
        from conf import cli
        from harness.run import Run
        from mdl.__main__ import VERB

        save_part, finish = Run.save_part, Run.finish

        def save_and_note(run: Run, name: str, value: Any) -> None:
            save_part(run, name, value)
            self.note(run.id, f"part {name}")

        def finish_and_note(run: Run, result: Any) -> None:
            finish(run, result)
            self.note(run.id, "result")

        Run.save_part, Run.finish = save_and_note, finish_and_note  # type: ignore[method-assign]
        log = os.open(self.diary.parent / "tasks.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.argv = ["mdl", *task, *_ALL, f"runs_dir={self.runs}", f"cache_dir={self.cache}"]
        cli.main(replace(VERB, summarise=lambda *_: None))  # tables and figures are the driver's


class Entry(NamedTuple):
    """A line of the diary: which process has computed what of which run."""

    pid: int
    run: str
    what: str


def verdict(kills: int, undisturbed: Place, killed: Place) -> int:
    """Print what came out; 0 if all is as it should be."""
    expected, results = undisturbed.results(), killed.results()
    equal = [run for run in expected if results.get(run) == expected[run]]
    times = Counter((entry.run, entry.what) for entry in killed.entries())
    twice = [f"{run} {what}" for (run, what), number in times.items() if number > 1]
    orphans = killed.orphans()
    print(f"{kills} of {len(expected)} tasks killed")
    print(f"{len(equal)} of {len(expected)} results equal to the undisturbed sweep's to the bit")
    print(f"{len(times)} parts computed, {len(twice)} of them twice", *twice, sep="\n  ")
    print(f"{len(orphans)} files left over", *orphans, sep="\n  ")
    good = kills == len(equal) == len(expected) == len(results)
    return 0 if good and not twice and not orphans else 1


if __name__ == "__main__":
    raise SystemExit(main())
