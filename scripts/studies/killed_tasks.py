"""A folder of runs whose tasks are killed, each in its own process, with a diary of what they computed."""

import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from erasure.store.storage import read_json

NUMBERS = ("mdl", "curve", "power_law", "final", "seeds", "run_id")
LEFT = {  # what a finished run consists of
    "config.yaml", "result.json", "curves.csv", "log.txt", "state.json", "test_bits.safetensors", "bits.safetensors",
    "weights.safetensors",
}  # fmt: skip
_ALL = ("train.stack=all", "train.checkpoint_every_s=0.05", "logger.mode=disabled")
_VOID = "begun anew"


class KilledTasks:
    """A folder of a sweep's runs and cache, with a diary of what its tasks computed."""

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
        """Return what tasks have written down, in order; without what was begun anew."""
        kept: list[Entry] = []
        for line in self.diary.read_text().splitlines():
            pid, run, what = line.split(" ", 2)
            if what == _VOID:
                kept = [entry for entry in kept if entry.run != run]
            else:
                kept.append(Entry(int(pid), run, what))
        return kept

    def results(self) -> dict[str, Any]:
        """Return what must be equal to the bit, by run."""
        found = {}
        for path in self.runs.glob("*/result.json"):
            result = read_json(path)
            written = path.parent / "curves.csv"
            curves = written.read_text() if written.exists() else ""  # a replay code has none
            found[path.parent.name] = {name: result[name] for name in NUMBERS} | {"curves": curves}
        return found

    def compared(self, undisturbed: "KilledTasks", parts: int, twice: Sequence[str]) -> bool:
        """Print what came out beside an undisturbed sweep, of so many parts; whether all is as it should be.

        A folder of its driver may be left, but no other file or folder of which finished runs do not consist.
        """
        expected, found = undisturbed.results(), self.results()
        equal = sum(found.get(run) == expected[run] for run in expected)
        orphans = [path for path in self.runs.glob("*/*") if path.name not in LEFT and path.parent.name != "sweeps"]
        orphans += [path for path in self.cache.iterdir() if path.suffix != ".safetensors" or path.name[0] == "."]
        print(f"{equal} of {len(expected)} results equal to the undisturbed sweep's to the bit")
        print(f"{parts} parts computed, {len(twice)} of them twice", *twice, sep="\n  ")
        print(f"{len(orphans)} files left over", *orphans, sep="\n  ")
        return equal == len(expected) == len(found) and not twice and not orphans

    def _start(self, task: Sequence[str]) -> Any:
        """Fork a process that runs the task."""
        process = multiprocessing.get_context("fork").Process(target=self._run, args=(task,))
        process.start()
        return process

    def _run(self, task: Sequence[str]) -> None:
        """`python -m mdl TASK`, its finished parts written into the diary."""
        from conf import cli
        from harness.run import Run
        from mdl.__main__ import COMMAND

        step, finish = Run.step, Run.finish

        def step_and_note(run: Run, name: str, compute: Callable[[], Any]) -> Any:
            new = run.kept(name) is None
            found = step(run, name, compute)
            if new:
                self.note(run.id, f"part {name}")
            return found

        def finish_and_note(run: Run, result: Any) -> None:
            finish(run, result)
            self.note(run.id, "result")

        Run.step, Run.finish = step_and_note, finish_and_note  # type: ignore[method-assign]
        log = os.open(self.diary.parent / "tasks.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.argv = ["mdl", *task, *_ALL, f"runs_dir={self.runs}", f"cache_dir={self.cache}"]
        cli.main(replace(COMMAND, summarise=lambda *_: None))  # tables and figures are the driver's


class Entry(NamedTuple):
    """A line of the diary: which process has computed what of which run."""

    pid: int
    run: str
    what: str
