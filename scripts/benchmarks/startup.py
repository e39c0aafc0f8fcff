"""Start-up of the commands, in multiples of `import torch`: processor time of fresh processes, medians of three.

python -m scripts.benchmarks.startup
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from statistics import median

QUICK = ["model.depth=1", "model.width=8", "train.max_epochs=2", "mdl.num_chunks=2", "logger.mode=disabled"]


def processor_seconds(*arguments: str) -> float:
    """Return user and system time of `python ARGUMENTS`, with any exit code."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def multiples(rounds: int = 3) -> Mapping[str, tuple[float, float]]:
    """Measure every command: seconds, and the ratio to `import torch`, medians."""
    with tempfile.TemporaryDirectory() as folder:
        where = [f"runs_dir={folder}/runs", f"cache_dir={folder}/cache"]
        sweep = ["-m", "mdl", "-m", "eraser=control,leace", *QUICK, *where]
        scores = ["-m", "sample_info", "logger.mode=disabled", *where]
        for finished in (sweep, scores):
            subprocess.run([sys.executable, *finished], capture_output=True, check=True)
        commands = {
            "import torch": ["-c", "import torch"],
            "python -m mdl --help": ["-m", "mdl", "--help"],
            "python -m mdl model.widht=64": ["-m", "mdl", "model.widht=64"],
            "a finished sweep of two": sweep,
            "a finished python -m sample_info": scores,
        }
        times = [{name: processor_seconds(*command) for name, command in commands.items()} for _ in range(rounds)]
    return {
        name: (median(each[name] for each in times), median(each[name] / each["import torch"] for each in times))
        for name in commands
    }


if __name__ == "__main__":
    for name, (seconds, ratio) in multiples().items():
        print(f"{name:<33} {seconds:5.2f} s  {ratio:4.2f}")
