"""Do the tests notice? Mutate modules one small change at a time, and run the tests that are nearest to each.

    nice uv run python -m scripts.studies.mutate /tmp/mutants                      # a sample of all modules
    nice uv run python -m scripts.studies.mutate /tmp/mutants --share 1 erasure/moments.py

The modules' changes are drawn by a seed (`mutations.py`). Each is made in a copy of the tree, by a process that is
forked from one that has imported torch and pytest; the tests of the module's own name and those that import it run,
cheap ones first, until one fails. What survives is a hole in the tests, or changes no behaviour: then
`equivalent_mutants.toml` beside this file says why. A change that runs for ever counts as killed. Called again with the
same directory, the command tries only what is new and what survived tests that have changed since. It ends with 1 where
less than --goal of what is not equivalent was killed.
"""

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from scripts.studies.forked_tests import ENDLESS, KILLED, SURVIVED, Trial, begin, try_tests
from scripts.studies.mutations import Mutation, mutations
from scripts.studies.nearest_tests import nearest_tests

JUDGED = Path(__file__).with_name("equivalent_mutants.toml")
EQUIVALENT = "equivalent"
MODULES = ("erasure/**/*.py", "models/mup.py", "harness/**/*.py", "train/**/*.py", "mdl/**/*.py", "sample_info/**/*.py")
LEFT_OUT = (  # what is looked at, downloads or wires up
    "*/__*__.py", "*/figure.py", "*_figure.py", "*/table.py", "*_table.py", "*/result_tables.py", "*/style.py",
    "*/progress.py", "*/logger.py", "*/fetch.py", "*/hub.py", "*/published.py", "*/summary.py",
    "*/hf.py", "*/cifar10.py", "*/svhn.py", "*/mnist.py",
)  # fmt: skip
IMPORTED = (
    "torch", "numpy", "scipy.optimize", "scipy.stats", "sklearn.datasets", "pytest", "hypothesis", "hydra", "pydantic",
    "omegaconf", "safetensors.torch", "schedulefree", "timm", "torchvision", "PIL.Image", "datasets", "rich.table",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What came of one change; `tests` are those of the module, as a checksum."""

    module: str
    key: str
    outcome: str
    by: str
    seconds: float
    tests: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.imported:
        importlib.import_module(name)
    forked = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory(prefix="mutate-") as scratch,
        ProcessPoolExecutor(options.at_once, forked, begin, (options.root, scratch)) as pool,
    ):
        outcomes = Study(options, pool).outcomes()
    share = _report(outcomes, tomllib.loads(options.equivalent.read_text()))
    return 0 if share >= options.goal else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m scripts.studies.mutate", description=__doc__, formatter_class=formatter)
    parser.add_argument("results", type=Path, help="directory of the outcomes, JSON lines")
    parser.add_argument("modules", nargs="*", help="paths or patterns; default: the numeric and file-handling modules")
    parser.add_argument("--share", type=float, default=0.05, help="of all changes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--only", default="", help="changes that contain this text")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="default: %(default)s")
    parser.add_argument("--files", type=int, default=5, help="of tests per module, the nearest (default: %(default)s)")
    parser.add_argument("--budget-s", type=float, default=10.0, help="CPU time of tests (default: %(default)s)")
    parser.add_argument("--goal", type=float, default=0.95, help="share killed (default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="a git working tree (default: this one)")
    parser.add_argument("--equivalent", type=Path, default=JUDGED, help="judged so (default: the committed file)")
    parser.add_argument("--imported", nargs="*", default=IMPORTED, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


class Study:
    """A sample of changes, with the tests of each."""

    def __init__(self, options: argparse.Namespace, pool: ProcessPoolExecutor) -> None:
        self.options, self.pool, self.log = options, pool, options.results / "outcomes.jsonl"
        self.nearest = {module: nearest_tests(options.root, module)[: options.files] for module in _modules(options)}

    def outcomes(self) -> list[Outcome]:
        """Of every change; what was killed before stays so, what survived is tried again where its tests changed."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        earlier = {(each.module, each.key): each for each in (Outcome(**json.loads(line)) for line in lines)}
        found, wanted = [], []
        for module, change in self._drawn():
            outcome = earlier.get((module, change.key))
            if outcome and (outcome.outcome != SURVIVED or outcome.tests == self._tests_of(module)):
                found.append(outcome)
            else:
                wanted.append((module, change))
        return found + list(self._try(wanted))

    def _drawn(self) -> Iterator[tuple[str, Mutation]]:
        options = self.options
        for module in self.nearest:
            for change in mutations((options.root / module).read_text()):
                if change.chance(options.seed) < options.share and options.only in change.key:
                    yield module, change

    def _tests_of(self, module: str) -> str:
        return _digest(*((self.options.root / name).read_text() for name in self.nearest[module]))

    def _try(self, wanted: Sequence[tuple[str, Mutation]]) -> Iterator[Outcome]:
        costs = self._undisturbed({name for module, _ in wanted for name in self.nearest[module]})
        trials = {}
        for module, change in wanted:
            tests = self._affordable(module, costs)
            files = tuple(dict.fromkeys(name.split("::")[0] for name in tests))
            trial = Trial(files, 20 + 5 * sum(tests.values()), tests, module, change.source)
            trials[self.pool.submit(try_tests, trial)] = (module, change)
        started = time.monotonic()
        for done, future in enumerate(as_completed(trials), 1):
            (module, change), tried = trials[future], future.result()
            seconds, tests = round(tried.seconds, 1), self._tests_of(module)
            result = Outcome(module, change.key, tried.outcome, tried.by, seconds, tests)
            with self.log.open("a") as log:
                log.write(json.dumps(asdict(result)) + "\n")
            left = (time.monotonic() - started) / done * (len(trials) - done) / 60
            print(f"{done}/{len(trials)}, {left:.0f} min left: {tried.outcome:9} {module} {change.key}", flush=True)
            yield result

    def _undisturbed(self, files: Iterable[str]) -> dict[str, dict[str, float]]:
        """CPU seconds of every test that passes without any change within the budget of its file."""
        kept = self.options.results / "tests.json"
        costs: dict[str, dict[str, float]] = json.loads(kept.read_text()) if kept.exists() else {}
        keys = {name: f"{name} {_digest((self.options.root / name).read_text())}" for name in files}
        limit, wanted = 2 * self.options.budget_s, [name for name, key in sorted(keys.items()) if key not in costs]
        trials = {self.pool.submit(try_tests, Trial((name,), limit)): name for name in wanted}
        for done, future in enumerate(as_completed(trials), 1):
            name, tried = trials[future], future.result()
            costs[keys[name]] = dict(tried.passed)
            kept.write_text(json.dumps(costs))
            note = f", fails without a change: {tried.by}" if tried.by else ""
            print(f"tests {done}/{len(trials)}: {len(tried.passed)} in {name}{note}", flush=True)
        return {name: costs[key] for name, key in keys.items()}

    def _affordable(self, module: str, costs: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The nearest tests whose CPU times fit the budget, of each file the cheap ones first."""
        chosen: dict[str, float] = {}
        for file in self.nearest[module]:
            for name, seconds in sorted(costs.get(file, {}).items(), key=lambda item: item[1]):
                if sum(chosen.values()) + seconds <= self.options.budget_s:
                    chosen[name] = seconds
        return chosen


def _modules(options: argparse.Namespace) -> list[str]:
    root: Path = options.root
    patterns = options.modules or MODULES
    names = [str(path.relative_to(root)) for each in patterns for path in sorted(root.glob(each)) if path.is_file()]
    if not names:
        raise SystemExit(f"no file matches {', '.join(patterns)} below {root}: give paths or patterns")
    return [name for name in names if options.modules or not any(fnmatch(name, each) for each in LEFT_OUT)]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _report(outcomes: Sequence[Outcome], equivalent: dict[str, dict[str, str]]) -> float:
    """Print the table and what survived; the share killed of what is not equivalent."""
    counts: dict[str, Counter[str]] = {}
    holes = []
    for each in sorted(outcomes, key=lambda each: each.module):
        outcome = each.outcome
        if outcome == SURVIVED and each.key in equivalent.get(each.module, {}):
            outcome = EQUIVALENT
        elif outcome == SURVIVED:
            holes.append(f"{each.module} {each.key}")
        counts.setdefault(each.module, Counter())[outcome] += 1
    total = sum(counts.values(), Counter())
    print("\n| module | changes | killed | timed out | equivalent | survived |\n| --- | --- | --- | --- | --- | --- |")
    for module, count in [*counts.items(), ("all", total)]:
        cells = [count.total(), *(count[name] for name in (KILLED, ENDLESS, EQUIVALENT, SURVIVED))]
        print(f"| {module} | {' | '.join(map(str, cells))} |")
    print(*(["\nsurvived:", *holes] if holes else []), sep="\n")
    share = 1 - total[SURVIVED] / max(1, total.total() - total[EQUIVALENT])
    print(f"\nkilled, of what is not equivalent: {share:.1%}")
    return share


if __name__ == "__main__":
    raise SystemExit(main())
