"""Kill a run at random times, again and again, and compare its result with an undisturbed run's.

    uv run python -m scripts.studies.kill_run --kills 10 eraser=leace

Overrides are those of `python -m mdl`. Each kill is a SIGKILL or a SIGTERM, some time after training has begun.
The stacking that the undisturbed run chose is imposed on the other: two choices are equal to rounding only.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train.stacking import Stacking

NUMBERS = ("mdl", "curve", "power_law", "final")
_POLL_S = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.studies.kill_run", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--kills", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the times of death (default: %(default)s)")
    parser.add_argument("--within-s", type=float, help="latest death; default: a tenth of the undisturbed run's time")
    parser.add_argument("overrides", nargs="*", help="of python -m mdl")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "mdl",
            "logger.mode=disabled",
            *options.overrides,
            f"cache_dir={scratch}/cache",
        ]
        undisturbed = _finish([*command, f"runs_dir={scratch}/undisturbed"], Path(scratch, "undisturbed"))
        timing = undisturbed["timing"]
        stack = Stacking.read(timing["stacking"]).setting
        within = options.within_s or timing["seconds"] / 10
        print(f"undisturbed: {timing['seconds']:.1f} s, train.stack={stack}", flush=True)
        disturbed = [*command, f"runs_dir={scratch}/killed", f"train.stack={stack}", "train.checkpoint_every_s=0.2"]
        for kill in range(options.kills):
            number = chance.choice((signal.SIGKILL, signal.SIGTERM))
            seconds = chance.uniform(0, within)
            code = _kill(disturbed, Path(scratch, "killed"), seconds, number)
            print(f"kill {kill + 1}: {number.name} after {seconds:.2f} s of training, exit code {code}", flush=True)
            if code == 0:
                break
        result = _finish(disturbed, Path(scratch, "killed"))
    different = [name for name in NUMBERS if result[name] != undisturbed[name]]
    print(f"different: {', '.join(different)}" if different else f"equal to the bit: {', '.join(NUMBERS)}")
    return 1 if different else 0


def _finish(command: Sequence[str], runs: Path) -> dict[str, Any]:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (path,) = runs.glob("*/result.json")
    return json.loads(path.read_text())


def _kill(command: Sequence[str], runs: Path, seconds: float, number: signal.Signals) -> int:
    """Start the command, wait until it trains, and so many seconds more, and send the signal; its exit code."""
    started = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not _trains(runs, started):
        time.sleep(_POLL_S)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        return process.wait()


def _trains(runs: Path, since: float) -> bool:
    """Whether a checkpoint, a finished size or the choice of stacking was written after `since`."""
    written = [*runs.glob("*/checkpoint-*"), *runs.glob("*/part-*.json"), *runs.glob("*/result.json")]
    for path in written:
        try:
            if path.stat().st_mtime > since:
                return True
        except FileNotFoundError:
            continue
    return False


if __name__ == "__main__":
    raise SystemExit(main())
