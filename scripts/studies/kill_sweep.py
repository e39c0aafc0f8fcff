"""Kill every task of a sweep at random moments, and compare its results with an undisturbed sweep.

    python -m scripts.studies.kill_sweep                            # 60 tiny runs of three commands, each killed once
    python -m scripts.studies.kill_sweep --kills 10 eraser=leace    # one run with these overrides, killed ten times

Each task is one run in one process, as in a job array of a cluster. The sweep runs undisturbed in another directory;
then with every task killed (mostly SIGKILL; SIGTERM, SIGUSR1 and SIGUSR2), at a moment uniform over its undisturbed
time; and then with two tasks per run at the same time. Prints the kills, whether results are bitwise equal, which steps
were computed twice, and files left over.
"""

import itertools
import multiprocessing
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from scripts.command_line import argument_parser
from scripts.studies.killed_tasks import KilledTasks

# with everything imported, they fork a task fast
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["mdl.block_code", "sample_info.scores_run", "erasure.datasets.digits", "sklearn.datasets", "models.mlp"]
)

SIGNALS = (signal.SIGKILL,) * 5 + (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_TRAINED = ("train=quick", "train.patience_steps=1000000")
_TINY = {
    "mdl": (*_TRAINED, "train.max_epochs=15", "mdl=quick"),
    "train": (*_TRAINED, "train.max_epochs=40"),
    "sample_info": ("sample_info.examples=60", "sample_info.training.steps=200"),
}
_RUNS, _AT_ONCE = 60, 2
_LATEST = 0.9  # moment of death, in undisturbed times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.kill_sweep", __doc__)
    parser.add_argument("--kills", type=int, default=1, help="of each run")
    parser.add_argument("overrides", nargs="*", help="of python -m mdl, for one run in place of the sweep")
    options = parser.parse_args(arguments)
    tasks = [["mdl", *options.overrides]] if options.overrides else list(itertools.islice(sweep(), _RUNS))
    chance = random.Random(0)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(_AT_ONCE, mp_context=PROCESSES) as pool,
        ProcessPoolExecutor(2 * _AT_ONCE, mp_context=PROCESSES) as two_each,
    ):
        undisturbed, killed = KilledTasks(Path(scratch, "undisturbed")), KilledTasks(Path(scratch, "killed"))
        took = list(pool.map(undisturbed.finish, tasks))
        print(f"undisturbed: {len(tasks)} runs, {min(took):.1f} to {max(took):.1f} s each", flush=True)
        latest = _LATEST * min(1, 2 / options.kills)
        deaths = [
            [(chance.choice(SIGNALS), chance.uniform(0, latest * seconds)) for _ in range(options.kills)]
            for seconds in took
        ]
        kills = 0
        for kills, lines in enumerate(pool.map(killed.kill, tasks, deaths), 1):
            print(*(f"kill {kills:3}: {line}" for line in lines), sep="\n", flush=True)
        list(two_each.map(killed.finish, [task for task in tasks for _ in range(2)]))
        print(f"{kills} of {len(tasks)} tasks killed")
        times = Counter((entry.run, entry.what) for entry in killed.entries())
        twice = [f"{run} {what}" for (run, what), number in times.items() if number > 1]
        return 0 if killed.compared(undisturbed, len(times), twice) and kills == len(tasks) else 1


def sweep() -> Iterator[list[str]]:
    for seed in itertools.count():
        for command, eraser, model in itertools.product(_TINY, ("control", "leace"), ("linear", "mlp")):
            yield [command, f"eraser={eraser}", f"model={model}", f"seeds=[{seed}]", *_TINY[command]]


if __name__ == "__main__":
    raise SystemExit(main())
