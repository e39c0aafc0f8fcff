"""The kill test in miniature: every task of a small sweep killed once, at a random moment."""

import re
import subprocess
import sys

from tests.conftest import REPOSITORY


def test_killed_tasks_end_with_the_numbers_of_undisturbed_ones_computed_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.kill_sweep", "--runs", "6", "--seed", "3"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.findall(r"kill +\d+: (SIG\w+) .* exit code +(-?\d+)", done.stdout)
    assert len(kills) == 6
    assert all(int(code) != 0 for _, code in kills)
    assert "6 of 6 tasks killed once" in done.stdout
    assert "6 of 6 results equal to the undisturbed sweep's to the bit" in done.stdout
    noted = re.search(r"(\d+) parts computed, 0 of them twice", done.stdout)
    assert noted, done.stdout
    assert 24 <= int(noted[1]) <= 30  # a kill between a part and its note loses the note
    assert "0 files left over" in done.stdout
