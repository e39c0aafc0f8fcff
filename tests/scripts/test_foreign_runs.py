"""Every file of a run directory in every odd form, through report, `load` and status, and when the run is continued.

Nothing outside the report's folder may change or be shown, nothing may hang, and the good run beside is shown.
"""

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from erasure.store.checked_files import save_tensors, sealed
from harness.results import load
from harness.run_directory import Run
from mdl.__main__ import COMMAND as MDL
from scripts.manage_sweep.__main__ import main as sweep
from scripts.manage_sweep.status import jobs_by_id
from scripts.report import main as report
from tests.made_up_runs import result_json, write_run
from tests.time_limit import limited

LIMIT_S = 120  # all of it takes some ten on an idle machine
SECRET = "the user's own words"
ESCAPE = "\x1b]0;title\x07\x1b[2J"


def to_socket(path: Path, _: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(before)


# what stands in a file's place: path and a folder of the user's -> it
SHAPES: dict[str, Callable[[Path, Path], object]] = {
    "a link to a file": lambda path, user: path.symlink_to(user / "file"),
    "a link to a result": lambda path, user: path.symlink_to(user / "result.json"),
    "a link to a folder": lambda path, user: path.symlink_to(user),
    "a link to nothing": lambda path, user: path.symlink_to(user / "none"),
    "a link to itself": lambda path, _: path.symlink_to(path),
    "/dev/zero": lambda path, _: path.symlink_to("/dev/zero"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a socket": to_socket,
    "a folder": lambda path, _: path.mkdir(),
    "empty": lambda path, _: path.touch(),
    "bytes": lambda path, _: path.write_bytes(b"\xff\xfe\x00\x80"),
    "brackets": lambda path, _: path.write_text("[" * 100_000),
    "endless": lambda path, _: (path.touch(), os.truncate(path, 10**12)),
}
FINISHED = ("result.json", "curves.csv", "test_bits.safetensors", "bits.safetensors", "log.txt", "wandb")
UNFINISHED = (
    "config.yaml", "state.json", "run.lock", "log.txt", "wandb", "step-100.json",
    "step-100.safetensors", "checkpoint-100-0.1.safetensors",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    True, "x", None, [], {}, -1, 7.5, 2**53 + 1, 10**400, 1e300, [[0]], {"a": {"b": 1}}, ESCAPE, "\ud800", "[/red]",
)  # fmt: skip
STATES: tuple[Any, ...] = (  # of state.json and of a part
    {"seconds": "3"}, {"seconds": True}, {"seconds": -1e300}, {"seconds": 10**400}, {"seconds": [1]}, {"state": 3},
    {"error": ESCAPE}, {"error": ["[/red]"]}, {"run": None}, {"state": ESCAPE},
)  # fmt: skip
IMPOSSIBLE: dict[str, Any] = {  # changes of result.json that are refused, by where
    "final.accuracy": 7.5, "final.loss_bits": -0.5, "curve.0.ce_test_bits": -0.5, "curve.0.test_accuracy": 1.01,
    "mdl.total_bits": -1.0, "seeds": 2**53 + 1, "curve.3.ce_test_bits": 0.25, "curve.3.epochs": 2.5,
    "certificate.train.mean_gap": -1.0, "certificate.test.out_of_range": 3.0, "timing.seconds": -5.0,
    "curve.1.ce_next_bits": True, "final.train_loss_bits": "1.5", "train_size": 48976.0, "parameters": "1000",
}  # fmt: skip


class Foreign:
    """A folder of runs, most of them odd, beside a folder of the user's own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.user, self.count = folder / "runs", folder / "user", 0
        self.user.mkdir()
        (self.user / "file").write_text(SECRET)
        (self.user / "result.json").write_text(sealed({"secret": SECRET}))
        self.good = [write_run(self.root, dataset="digits", eraser=name, seeds=(0, 1)) for name in ("control", "leace")]

    def run(self, *, finished: bool = True, eraser: str = "qleace") -> Run:
        """A whole run with seeds that are no other's."""
        self.count += 1
        seeds = (2 * self.count, 2 * self.count + 1)
        run = write_run(self.root, dataset="digits", eraser=eraser, seeds=seeds)
        about = {"run": run.id, "seconds": 1.5}
        (run.directory / "state.json").write_text(sealed({**about, "state": "running"}))
        if not finished:
            (run.directory / "result.json").unlink()
            (run.directory / "step-100.json").write_text(sealed({**about, "step": "100", "value": {}}))
        return run

    def shaped(self) -> Iterator[Run]:
        for finished, names in ((True, FINISHED), (False, UNFINISHED)):
            for name in names:
                for shape in SHAPES.values():
                    run = self.run(finished=finished)
                    (run.directory / name).unlink(missing_ok=True)
                    shape(run.directory / name, self.user)
                    yield run
        run = self.run()  # the directory itself is a link
        run.directory.rename(self.user / run.id)
        run.directory.symlink_to(self.user / run.id)
        yield run

    def changed(self) -> Iterator[Run]:
        for value in VALUES:
            yield self.with_result(seeds=value)
            yield self.with_result(final=value)
            yield self.with_result(timing={"seconds": value, "started": value})
            yield self.with_result(versions={"erasure-mdl": value})
            yield self.with_result(config=value)
        for section in ("dataset", "eraser", "model", "train", "logger", "seeds", "runs_dir", "cache_dir"):
            for value in (True, [], {"name": ESCAPE}, {"name": "[/red]"}, "=HYPERLINK('http://x.org')"):
                run = self.run(finished=False)
                config = json.loads((run.directory / "config.yaml").read_text())
                (run.directory / "config.yaml").write_text(json.dumps(config | {section: value}))
                yield run
        for name in ("state.json", "step-100.json"):
            for values in STATES:
                run = self.run(finished=False)
                whole = {"run": run.id, "state": "failed", "step": "100", "value": {}, "seconds": 1.5}
                (run.directory / name).write_text(sealed(whole | values))
                yield run
        for seconds in ("x", True, -1e300):
            run = self.run(finished=False)
            about = {"run": run.id, "step": "1", "value": {}, "seconds": seconds}
            save_tensors(run.directory / "step-1.safetensors", {"a": torch.ones(1)}, about)
            yield run
        for _ in range(2):
            run = self.run()
            config = result_json(run)["config"]
            text = '=HYPERLINK("http://x.org","[a](http://x.org) www.x.org")'
            changed = config | {"model": config["model"] | {"name": text, "activation": ESCAPE}}
            yield self.with_result(run, config=changed)

    def with_result(self, run: Run | None = None, **changes: Any) -> Run:
        """A run whose result.json has other values, with a checksum that fits."""
        run = run or self.run()
        (run.directory / "result.json").write_text(sealed(result_json(run) | changes))
        return run

    def seen(self) -> dict[str, tuple[int, bytes]]:
        """Return the user's files, and when each was changed."""
        return {
            str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in [self.user, *self.user.rglob("*")]
        }


@pytest.mark.parametrize("kind", ["shaped", "changed"])
def test_reading_foreign_runs_writes_nothing_hangs_nowhere_and_leaves_none_out_in_silence(
    kind: str, tmp_path: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = Foreign(tmp_path)
    planted = [*getattr(foreign, kind)()]
    assert len(planted) > 123
    before, everything = foreign.seen(), sorted(tmp_path.rglob("*"))
    with limited(LIMIT_S):
        found = load(foreign.root)
    known = {*found.runs["run_id"], *found.unfinished["run_id"]}
    assert {run.id for run in foreign.good} <= known
    said = " ".join(found.problems)
    silent = [run.id for run in planted if run.id not in known and run.id not in said]
    assert silent == []
    _ = found.losses
    with limited(LIMIT_S):
        assert report([str(foreign.root), "--out", str(tmp_path / "report"), "--columns", "all"]) == 0
        assert sweep(["status", str(foreign.root)]) == 1
        assert sweep(["discard", str(foreign.root)]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    (finished,) = re.findall(r"^(\d+) finished runs", shown.out, re.MULTILINE)  # of the report
    assert f": {finished} finished, " in shown.out  # of the status
    assert foreign.seen() == before
    made = [path for path in sorted(tmp_path.rglob("*")) if path not in everything]
    assert {path.relative_to(tmp_path).parts[0] for path in made} == {"report"}
    page = (tmp_path / "report" / "index.html").read_text()
    assert {"control", "LEACE"} <= {*re.findall(r'<td data-heading="eraser">(.*?)</td>', page)}
    for path in made:
        if path.is_file():
            content = path.read_text()
            assert SECRET not in content
            assert "\x1b" not in content
            if path.suffix == ".csv":
                assert not re.search(r'(^|,)"?[=@]', content, re.MULTILINE)
            if path.suffix == ".md":
                assert not re.search(r"https?://|www\.", content)
    assert sweep(["discard", str(foreign.root), "--yes"]) == 0  # what the user asks for deletes failed runs alone
    assert foreign.seen() == before


@pytest.mark.parametrize("where", IMPOSSIBLE)
def test_an_impossible_result_is_refused_by_all(where: str, tmp_path: Path, capsys) -> None:
    run = write_run(tmp_path, dataset="digits", eraser="leace", seeds=(0, 1))
    values = result_json(run)
    part: Any = values
    *outer, last = where.split(".")
    for key in outer:
        part = part[int(key)] if isinstance(part, list) else part[key]
    part[last] = [IMPOSSIBLE[where], *part[last][1:]] if isinstance(part[last], list) else IMPOSSIBLE[where]
    assert load(tmp_path).runs["run_id"].nunique() == 1  # the negative control
    (run.directory / "result.json").write_text(sealed(values))
    found = load(tmp_path)
    assert found.runs.empty
    assert len(found.problems) == 1
    assert "\n" not in found.problems[0]
    assert sweep(["status", str(tmp_path)]) == 1
    assert "1 run: 1 failed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["log.txt", "wandb", "step-100.json", "checkpoint-100-0.1.safetensors", "table.md"])
@pytest.mark.parametrize("shape", ["a link to a file", "a link to a folder", "a link to nothing", "a pipe", "a socket"])
def test_a_run_is_not_continued_where_it_would_write_through_a_link_or_wait(
    name: str, shape: str, command, tmp_path: Path
) -> None:
    foreign = Foreign(tmp_path)
    words = ["model=linear", "train=quick", "mdl=quick", "seeds=[0]", "logger.mode=offline"]
    (identity,) = jobs_by_id(MDL, words)
    (tmp_path / "runs" / identity).mkdir()
    SHAPES[shape](tmp_path / "runs" / identity / name, foreign.user)
    before = foreign.seen()
    with limited(LIMIT_S):
        outcome = command(MDL, *words)
    assert outcome.code == 2
    assert f"{name} is " in outcome.err.splitlines()[-1]
    assert foreign.seen() == before
    assert [path.name for path in (tmp_path / "runs" / identity).iterdir()] == [name]


def test_a_run_is_not_continued_in_a_linked_directory(command, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path)
    words = ["model=linear", "train=quick", "mdl=quick", "seeds=[0]"]
    (identity,) = jobs_by_id(MDL, words)
    (tmp_path / "runs" / identity).symlink_to(foreign.user)
    before = foreign.seen()
    for sweeps in ([], ["-m"]):
        outcome = command(MDL, *sweeps, *words)
        assert outcome.code == 2
        assert f"{identity} is a link" in outcome.err.splitlines()[-1]
    assert foreign.seen() == before


@pytest.mark.parametrize("word", ["seeds=[9007199254740993]", "train.max_epochs=9007199254740993", "train.lr=inf"])
def test_numbers_that_no_reader_believes_are_refused_before_anything_is_computed(word: str, command) -> None:
    outcome = command(MDL, "model=linear", "train=quick", word)
    assert outcome.code == 2
    assert word.partition("=")[0].rpartition(".")[2] in outcome.err.splitlines()[-1]
    assert not Path("runs").exists()
