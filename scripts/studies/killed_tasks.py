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

from erasure.store.checked_files import read_json

_VARYING = ("timing", "versions", "config", "digest")  # of result.json: when and where a run was computed
LEFT = {  # files of a finished run of `python -m mdl`
    "config.yaml", "result.json", "curves.csv", "log.txt", "state.json", "test_bits.safetensors", "bits.safetensors",
    "weights.safetensors",
}  # fmt: skip
_SCORES = {"scores.csv", "scores.safetensors", "scores.png", "scores.pdf"}  # files of a finished run of sample_info
_TRAINED = ("train.stack=all", "train.checkpoint_every_s=0.05")
_VOID = "begun anew"


class KilledTasks:
    """A folder of a sweep's runs and cache, with a diary of what its tasks computed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.runs, self.cache, self.diary = folder / "runs", folder / "cache", folder / "diary"
        self.diary.touch()

    def finish(self, task: Sequence[str]) -> float:
        """Run a task to its end; return seconds."""
        started = time.monotonic()
        process = self._start(task)
        process.join()
        if code := process.exitcode:
            raise RuntimeError(f"{' '.join(task)} ended with {code}: {(self.diary.parent / 'tasks.log').read_text()}")
        return time.monotonic() - started

    def kill(self, task: Sequence[str], deaths: Sequence[tuple[signal.Signals, float]]) -> list[str]:
        """Start a task and send it each signal after its seconds; restart a task that finished before."""
        kills: list[str] = []
        for number, moment in deaths:
            code, entries = self._kill_once(task, number, moment)
            while code == 0 and not kills:
                shutil.rmtree(self.runs / entries[-1].run)
                self.note(entries[-1].run, _VOID)
                moment /= 2
                code, entries = self._kill_once(task, number, moment)
            if code == 0:  # it finished after the previous kill
                break
            done = entries[-1].what if entries else "nothing"
            kills.append(f"{number.name:7} after {moment:5.2f} s, code {code:4}, last done {done}: {' '.join(task)}")
        return kills

    def _kill_once(self, task: Sequence[str], number: signal.Signals, moment: float) -> tuple[int, list["Entry"]]:
        """Return the exit code, negative for a signal, and the process's entries."""
        process = self._start(task)
        process.join(moment)
        if process.is_alive():
            os.kill(process.pid, number)
            process.join()
        return process.exitcode, [entry for entry in self.entries() if entry.pid == process.pid]

    def note(self, run: str, what: str) -> None:
        with self.diary.open("a") as file:
            file.write(f"{os.getpid()} {run} {what}\n")

    def entries(self) -> list["Entry"]:
        """Return the entries of all tasks in order, without those before a restart."""
        entries: list[Entry] = []
        for line in self.diary.read_text().splitlines():
            pid, run, what = line.split(" ", 2)
            if what == _VOID:
                entries = [entry for entry in entries if entry.run != run]
            else:
                entries.append(Entry(int(pid), run, what))
        return entries

    def compared(self, undisturbed: "KilledTasks", steps: int, twice: Sequence[str]) -> bool:
        """Print a comparison with the undisturbed sweep; return whether results agree and no file is left over."""
        expected, results = numbers(undisturbed.runs), numbers(self.runs)
        equal = sum(results.get(run) == expected[run] for run in expected)
        orphans = [
            path for path in self.runs.glob("*/*") if path.name not in LEFT | _SCORES and path.parent.name != "sweeps"
        ]
        orphans += [path for path in self.cache.iterdir() if path.suffix != ".safetensors" or path.name[0] == "."]
        print(f"{equal} of {len(expected)} results equal to the undisturbed sweep's to the bit")
        print(f"{steps} steps computed, {len(twice)} of them twice", *twice, sep="\n  ")
        print(f"{len(orphans)} files left over", *orphans, sep="\n  ")
        return equal == len(expected) == len(results) and not twice and not orphans

    def _start(self, task: Sequence[str]) -> Any:
        """Fork a process that runs the task."""
        process = multiprocessing.get_context("fork").Process(target=self._run, args=(task,))
        process.start()
        return process

    def _run(self, task: Sequence[str]) -> None:
        """Run `python -m TASK`, and write its finished steps into the diary."""
        from conf.commands import command_named
        from harness.command import main
        from harness.run_directory import Run

        step, finish = Run.step, Run.finish

        def step_and_note(run: Run, name: str, compute: Callable[[], Any], *, worth_s: float = 0.0) -> Any:
            new = run.read_step(name) is None
            value = step(run, name, compute, worth_s=worth_s)
            if new and run.read_step(name) is not None:  # a step of no time is not stored
                self.note(run.id, f"step {name}")
            return value

        def finish_and_note(run: Run, result: Any) -> None:
            finish(run, result)
            self.note(run.id, "result")

        Run.step, Run.finish = step_and_note, finish_and_note  # type: ignore[method-assign]
        log = os.open(self.diary.parent / "tasks.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
        for stream in (1, 2):
            os.dup2(log, stream)
        often = () if task[0] == "sample_info" else _TRAINED
        sys.argv = [*task, *often, "logger.mode=disabled", f"runs_dir={self.runs}", f"cache_dir={self.cache}"]
        main(replace(command_named(task[0]), summarise=lambda *_: None))  # no tables and figures


class Entry(NamedTuple):
    """A line of the diary: a step or the result of a run that a process has computed."""

    pid: int
    run: str
    what: str


def numbers(runs: Path) -> dict[str, dict[str, Any]]:
    """Return what must be bitwise equal of each finished run below `runs`: its result's numbers and its tables."""
    found = {}
    for path in runs.glob("*/result.json"):
        result = {name: value for name, value in read_json(path).items() if name not in _VARYING}
        found[path.parent.name] = result | {file.name: file.read_text() for file in path.parent.glob("*.csv")}
    return found
