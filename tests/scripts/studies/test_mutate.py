import subprocess
import sys
from pathlib import Path

import pytest

from scripts.studies.mutations import mutations
from scripts.studies.nearest_tests import nearest_tests

REPOSITORY = Path(__file__).parent.parent.parent
MODULE = """\
def clip(x, low, high):
    if low > high:
        raise ValueError(f"{low + 1} is too high")
    return min(max(x, low), high)
"""
WEAK = """\
from package.clip import clip

def test_clip():
    assert clip(5, 0, 3) == 3
"""
STRONG = (
    WEAK
    + """\
    assert clip(-1, 0, 3) == 0
    assert clip(2, 2, 2) == 2
    with pytest.raises(ValueError):
        clip(1, 3, 2)
"""
)


def test_comparisons_checks_terms_and_calls_are_changed_and_messages_are_not() -> None:
    changes = {f"{each.before} => {each.after}" for each in mutations(MODULE)}
    assert "if low > high: => if low >= high:" in changes
    assert "if low > high: => if False:" in changes
    assert "return min(max(x, low), high) => return min(min(x, low), high)" in changes
    assert not any("too high" in each for each in changes)


@pytest.mark.parametrize("line", ["a = b - c", "del b[c]", "a.b = c", "a = -b", "a = b[:c]", "a = b.T @ c", "a(b)"])
def test_every_change_is_another_program(line: str) -> None:
    for change in mutations(line):
        assert change.source != line
        compile(change.source, "changed", "exec")


def test_the_draw_does_not_depend_on_the_rest_of_the_module() -> None:
    chances = {each.key: each.chance(3) for each in mutations(MODULE)}
    moved = {each.key: each.chance(3) for each in mutations(f"first = 1 + 1\n\n\n{MODULE}")}
    assert chances.items() <= moved.items()
    assert chances != {each.key: each.chance(4) for each in mutations(MODULE)}


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    files = {
        "package/__init__.py": "from package.clip import clip",
        "package/clip.py": MODULE,
        "package/user.py": "import package.clip",
        "tests/package/test_user.py": "from package import user",
        "tests/package/test_through_package.py": "from package import clip",
        "tests/package/test_clip.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names = [Path(name).stem for name in nearest_tests(tmp_path, "package/clip.py")]
    assert names == ["test_clip", "test_through_package", "test_user"]


def test_weak_tests_leave_survivors_and_better_ones_none(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, text in {"package/clip.py": MODULE, "tests/package/test_clip.py": WEAK, ".gitignore": "*.pyc"}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    weak = _mutate(tree, tmp_path / "results")
    assert weak.returncode == 1
    assert "\npackage/clip.py clip: if low > high: => if False:\n" in weak.stdout
    (tree / "tests/package/test_clip.py").write_text(f"import pytest\n{STRONG}")
    better = _mutate(tree, tmp_path / "results")
    assert better.returncode == 0, better.stdout
    assert better.stdout.count(" min left: ") < weak.stdout.count(" min left: ")  # what was killed is not tried again
    assert (tree / "package/clip.py").read_text() == MODULE


def _mutate(tree: Path, results: Path) -> subprocess.CompletedProcess[str]:
    options = ["--root", str(tree), "--share", "1", "--imported", "pytest", "hypothesis"]
    command = [sys.executable, "-m", "scripts.studies.mutate", *options, "--", str(results), "package/*"]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
