"""`scripts.manage_sweep` shows directories that anybody may have written, and runs nothing of theirs."""

import copy
import functools
import os
import random
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType

from conf.commands import config_of
from conf.compose import composed
from erasure.store.checked_files import write_json
from mdl.settings import MdlConfig
from scripts.manage_sweep import relaunch
from scripts.manage_sweep.__main__ import main as sweep

CASES = range(40)
AT_ONCE = 10
UNTOUCHED = ("this", "antigravity", "idlelib", "turtledemo", "lib2to3")  # installed, and imported by nobody else
COMMANDS = [
    *UNTOUCHED,
    "os",
    "scripts.studies.kill_sweep",
    "..",
    "-c",
    "--help",
    "mdl;touch canary",
    "hydra",
    "[/red]",
    "\x1b[2J",
]
TARGETS = [
    "subprocess.Popen", "os.system", "builtins.exec", "this.s", "antigravity.webbrowser", "idlelib.pyshell.main",
    "scripts.manage_sweep.relaunch.launch_command", "erasure.store.atomic_files.remove", "__main__.main", ".Popen", "",
    "timm.create_model",
    "torch.hub.load", "harness.command.main", "models.mlp.MLP.__init__", "hydra.utils.instantiate",
]  # fmt: skip
KEYS = [
    "+hydra.callbacks.x._target_", "++hydra.callbacks.x._target_", "hydra.callbacks.x._target_", "~train", "+model.x",
    "hydra/launcher", "hydra.launcher._target_", "hydra.run.dir", "hydra.searchpath", "+experiment", "experiment",
    "-m", "--multirun", "--config-dir", "--config-path", "model@hydra", "/hydra", "runs_dir=x\nhydra", "defaults",
    "train.lr=1,hydra.run.dir", "_target_", "mdl._target_", "callbacks", "", "x y", "$(touch canary)",
]  # fmt: skip
WORDS = [
    "canary", "$(touch canary)", "`touch canary`", "'; touch canary #", "${oc.env:HOME}", "${hydra:run.dir}", "a,b",
    "../../../../tmp/evil", "digits,cifar10", "glob(*)", "range(0,9)", "x' hydra.run.dir='y", "\\", "\n+hydra.x=1",
    "\x00", "${oc.create:{_target_:os.system}}", "choice(1,2)", "???", None, float("nan"), 10**400, [[]], {"a": "b"},
]  # fmt: skip
TEXTS = [
    "!!python/object/apply:os.system ['touch canary']", "!!python/object/new:subprocess.Popen [[touch, canary]]",
    "!!python/module:this", "&a [*a]", "&a {model: *a}", "[" * 5000, "[]", "{}", "null", "\x00", "{{{", "- model",
    "model: {name: mlp}\ndataset: 3\neraser: []", "? {a: b}\n: c", "2020-01-01: 1",
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]",
]  # fmt: skip


@functools.cache
def good() -> dict[str, Any]:
    return composed("mdl", ["model=linear", "eraser=control", "train=quick", "logger.mode=disabled"], MdlConfig).plain


Hostile = Callable[[random.Random, dict[str, Any]], Any]


def another_target(draw: random.Random, config: dict[str, Any]) -> None:
    section = draw.choice(["dataset", "eraser", "model", "train", "logger"])
    config[section] |= {"_target_": draw.choice(TARGETS), "args": ["touch canary"], "command": "touch canary"}
    if draw.random() < 0.5:  # only the class
        del config[section]["args"], config[section]["command"]


def another_key(draw: random.Random, config: dict[str, Any]) -> None:
    where = draw.choice([config, config["model"], config["train"], config["dataset"], config["logger"]])
    where[draw.choice(KEYS)] = draw.choice([draw.choice(TARGETS), draw.choice(WORDS), {"x": {"_target_": "os.system"}}])


def another_value(draw: random.Random, config: dict[str, Any]) -> None:
    section = config[draw.choice([key for key, value in config.items() if isinstance(value, dict)])]
    section[draw.choice(list(section))] = draw.choice(WORDS)


def another_choice(draw: random.Random, config: dict[str, Any]) -> None:
    config[draw.choice(["dataset", "eraser", "model"])]["name"] = draw.choice(WORDS)


def another_place(draw: random.Random, config: dict[str, Any]) -> None:
    config[draw.choice(["seeds", "device", "dtype", "cache_dir", "runs_dir"])] = draw.choice(WORDS)


MUTATIONS: list[Hostile] = [another_target, another_key, another_value, another_choice, another_place]


def write_hostile(root: Path, draw: random.Random, case: int) -> Path:
    """One unfinished run: of a strange name or text, or of a configuration changed in one to three places."""
    kind = draw.choice(["name", "text", "config", "config", "config"])
    command = draw.choice(COMMANDS) if kind == "name" else draw.choice(["mdl", "train", "sample_info"])
    directory = root / f"{command}-digits-control-linear-{case:010}".replace("/", "_")
    directory.mkdir(parents=True)
    config = copy.deepcopy(good())
    for _ in range(draw.randint(1, 3)):
        draw.choice(MUTATIONS)(draw, config)
    text = draw.choice(TEXTS) if kind == "text" else yaml.safe_dump(_plain(config), allow_unicode=True)
    (directory / "config.yaml").write_text(text)
    error = draw.choice([*WORDS[:6], "[/red]", "[link=x]", {"a": 1}, ["x"]])
    write_json(directory / "state.json", {"state": draw.choice(["failed", "running", "x"]), "error": error})
    if draw.random() < 0.3:
        pid = draw.choice([-1, 0, 10**30, True])
        write_json(directory / "run.lock", {"token": "x", "host": socket.gethostname(), "pid": pid})
        os.utime(directory / "run.lock", (1, 1))
    return directory


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def require_harmless(words: list[str]) -> None:
    """A command that names a command and sets keys that its schema has, to values that its schema allows."""
    assert words[1] == "-m"
    command, overrides = words[2], words[3:]
    assert command in ("mdl", "train", "sample_info")
    for override in OverridesParser.create().parse_overrides(overrides):
        assert override.type is OverrideType.CHANGE
        assert not override.key_or_group.startswith("hydra")
    relaunch.composed(command, overrides, config_of(relaunch.command_named(command).name))


@pytest.mark.parametrize("cases", [CASES[i : i + AT_ONCE] for i in CASES[::AT_ONCE]])
def test_nothing_of_hostile_directories_is_run(cases: Sequence[int], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    directories = [write_hostile(tmp_path / "runs", random.Random(case), case) for case in cases]
    before = sorted(tmp_path.rglob("*"))
    assert sweep(["status", "runs", "--retry-failed"]) in (0, 1)
    assert sorted(tmp_path.rglob("*")) == before
    shown = capsys.readouterr()
    commands = [shlex.split(line) for line in shown.out.splitlines() if line.startswith("python ")]
    for words in commands:
        require_harmless(words)
    assert "\x1b[2J" not in shown.out + shown.err
    assert not set(UNTOUCHED) & set(sys.modules)
    listed = [path for path in directories if not path.name.startswith(".")]
    assert len(commands) + shown.err.count("not launched: ") == len(listed)


@pytest.mark.parametrize("section", ["dataset", "eraser"])
def test_no_module_that_a_run_directory_names_is_imported(section: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("from pathlib import Path\nPath('canary').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    directory = tmp_path / "mdl-digits-control-linear-0123456789"
    directory.mkdir()
    changed = good() | {section: {"name": "x", "_target_": "planted.Planted"}}
    (directory / "config.yaml").write_text(yaml.safe_dump(_plain(changed)))
    assert sweep(["status", ".", "--retry-failed"]) == 1
    assert not (tmp_path / "canary").exists()
    assert "planted" not in sys.modules
    shown = capsys.readouterr()
    assert "python -m" not in shown.out
    assert "_target_=planted.Planted: no YAML file names this class" in shown.err


def test_the_negative_control_an_honest_failed_run_has_its_command(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "runs" / "mdl-digits-control-linear-0123456789"
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text(yaml.safe_dump(_plain(good())))
    assert sweep(["status", "runs", "--retry-failed"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("python ")]
    words = shlex.split(line)
    require_harmless(words)
    made = composed("mdl", words[3:], MdlConfig).plain
    assert made | {"logger": good()["logger"]} == good()
