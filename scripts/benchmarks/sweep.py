"""What the bookkeeping of a large sweep costs, without training.

    python -m scripts.benchmarks.sweep                 # 10,000 runs
    python -m scripts.benchmarks.sweep --runs 500 --no-report

Launches a real sweep of tiny runs twice: the second time all have finished, and what is ours per run stands beside
what Hydra takes to compose it. Then makes up the runs that a sweep's overrides ask for (of 1,000: 970 finished, 10
failed, 10 killed, 5 running, 5 missing) and times which runs the overrides mean, `scripts.sweep status`, and a report.
"""

import argparse
import contextlib
import io
import json
import logging
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from conf import cli
from conf.groups import CONF
from erasure.store.storage import sealed
from harness.run import LOCK
from mdl.__main__ import VERB
from scripts.benchmarks.report import write_run, write_runs
from scripts.sweep.__main__ import main as sweep_command
from scripts.sweep.wanted import Wanted, wanted

T = TypeVar("T")

ERASERS = ("control", "leace", "qleace", "alf_qleace")
STATES = {"finished": 970, "failed": 10, "killed": 10, "running": 5, "missing": 5}
_HYDRA_COMPOSES = 20
_RELAUNCHED = 64
_TINY = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "logger.mode=disabled"]


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.sweep", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--runs", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--no-report", action="store_true", help="leave out the report, the slowest part")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        relaunch(Path(scratch, "relaunched"))
        simulate(Path(scratch, "simulated"), options.runs)
        if not options.no_report:
            report(Path(scratch, "reported"), options.runs)
    return 0


def simulate(folder: Path, count: int) -> None:
    """Time what is asked about `count` runs."""
    runs = folder / "runs"
    seeds = ",".join(f"[{seed}]" for seed in range(count // (2 * len(ERASERS))))
    overrides = [f"eraser={','.join(ERASERS)}", "model=linear,mlp", f"seeds={seeds}", f"runs_dir={runs}"]
    hydra_s = statistics.median(timed(lambda i=i: _composed_by_hydra(i))[1] for i in range(_HYDRA_COMPOSES))
    jobs, seconds = timed(lambda: wanted(VERB, overrides))
    count = len(jobs)
    print(f"{count:,} run ids from a sweep's overrides: {seconds:.1f} s, {1e3 * seconds / count:.1f} ms per run "
          f"(Hydra alone, {1e3 * hydra_s:.0f} ms per run: {hydra_s * count:.0f} s)", flush=True)  # fmt: skip
    make_up(jobs, folder)
    command = ["status", str(runs)]
    for what, words in (
        ("status", command),
        ("status -- overrides", [*command, "--", *overrides]),
        ("status --retry-failed -- overrides", [*command, "--retry-failed", "--", *overrides]),
    ):
        said, seconds = timed(lambda words=words: silently(lambda: sweep_command(words)))
        (summary,) = [line for line in said.splitlines() if " runs: " in line]
        print(f"{what}: {seconds:.2f} s ({summary})", flush=True)


def make_up(jobs: Sequence[Wanted], scratch: Path) -> None:
    """Run directories as a night leaves them; no result in them is a run's own, only of its size."""
    chance = random.Random(0)
    template = write_run(scratch / "template").directory
    for job in jobs:
        state = chance.choices(list(STATES), list(STATES.values()))[0]
        if state == "missing":
            continue
        job.directory.mkdir(parents=True)
        kept = ("config.yaml", *(("curves.csv", "result.json") if state == "finished" else ()))
        for name in kept:
            shutil.copyfile(template / name, job.directory / name)
        error = {"error": "NonFiniteLossError: the loss is not finite at training size 1,024, seed 0, epoch 3"}
        told = {"finished": {"state": "finished"}, "failed": {"state": "failed"} | error}
        (job.directory / "state.json").write_text(
            sealed({"run": job.directory.name, **told.get(state, {"state": "running"})})
        )
        if state == "running":
            (job.directory / LOCK).write_text(json.dumps({"token": "x", "host": "node7", "pid": 4711}))


def relaunch(folder: Path) -> None:
    """Launch a sweep twice, and take the second time apart."""
    seeds = ",".join(f"[{seed}]" for seed in range(_RELAUNCHED // 2))
    where = [f"runs_dir={folder / 'runs'}", f"cache_dir={folder / 'cache'}"]
    command = ["mdl", "-m", "eraser=control,leace", f"seeds={seeds}", *_TINY, *where]
    _, first_s = timed(lambda: silently(lambda: _launch(command)))
    ours, hydras = Stopwatch(cli._job), Stopwatch(ConfigLoaderImpl.load_sweep_config)
    with (
        mock.patch.object(cli, "_job", lambda *a: ours(*a)),
        mock.patch.object(ConfigLoaderImpl, "load_sweep_config", lambda *a, **k: hydras(*a, **k)),
        mock.patch.object(cli, "_end_sweep", Stopwatch(cli._end_sweep)) as end,
    ):
        _, again_s = timed(lambda: silently(lambda: _launch(command)))
    runs = ours.calls
    print(f"a sweep of {runs} tiny runs: {first_s:.1f} s; launched again: {again_s:.1f} s, of which per run")
    print(f"  Hydra composes it {hydras.calls / runs:.0f} times: {1e3 * hydras.seconds / runs:.1f} ms")
    print(f"  ours, to find the result: {1e3 * ours.seconds / runs:.1f} ms (slowest {1e3 * max(ours.each):.1f} ms)")
    print(f"  ours, for the table and the figure at the end: {1e3 * end.seconds / runs:.1f} ms ({end.seconds:.1f} s)")
    rest_s = again_s - hydras.seconds - ours.seconds - end.seconds
    print(f"  the rest of Hydra: {1e3 * rest_s / runs:.1f} ms", flush=True)


class Stopwatch:
    """A function that knows how often and how long it ran."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.each = function, list[float]()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        returned, seconds = timed(lambda: self._function(*arguments, **keywords))
        self.each.append(seconds)
        return returned

    @property
    def calls(self) -> int:
        return len(self.each)

    @property
    def seconds(self) -> float:
        return sum(self.each)


def report(folder: Path, count: int) -> None:
    """Time a report over `count` made-up results."""
    from scripts.report.__main__ import main as report_command

    silently(lambda: write_runs(folder / "runs", count))
    _, seconds = timed(lambda: silently(lambda: report_command([str(folder / "runs"), "--out", str(folder / "out")])))
    print(f"report over {count:,} results: {seconds:.1f} s")


def _composed_by_hydra(seed: int) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose("mdl", ["eraser=leace", "model=mlp", f"seeds=[{seed}]"])


def _launch(command: Sequence[str]) -> None:
    with mock.patch.object(sys, "argv", list(command)), contextlib.suppress(SystemExit):
        cli.main(VERB)


def silently(work: Callable[[], Any]) -> str:
    """What it printed."""
    logging.disable(logging.INFO)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        work()
    return out.getvalue()


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result and the seconds it took."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


if __name__ == "__main__":
    raise SystemExit(main())
