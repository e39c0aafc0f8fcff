"""The report of run directories that anybody may have written names what it cannot use, and shows the rest.

No case may write outside the report's folder, bring a file of the reader's into it, end in a traceback, or hang.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from erasure.store.checked_files import read_json, save_tensors, write_json
from harness.run_directory import Run
from scripts.manage_sweep.__main__ import main as sweep
from scripts.report import main as report
from tests.made_up_runs import write_information_run, write_run
from tests.time_limit import limited

GROUPS = 8  # cases that are alike stand next to each other, and come into different groups
LIMIT_S = 120  # a group takes a second, all figures some five on an idle machine
SECRET = b"\x89PNG\r\n SECRET"
BOMB = "\n".join(["a0: &a0 {x: 1, y: 2}", *(f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 40))])
MERGES = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12))]
)


@dataclass
class Odd:
    """Folder where a case plants its runs, with seeds that are no other case's, and one not of the report."""

    root: Path
    outside: Path
    seeds: Sequence[int]

    def run(self, eraser: str = "leace", **options: Any) -> Run:
        """A whole run of `python -m mdl` or `train`."""
        return write_run(
            self.root, dataset=options.pop("dataset", "digits"), eraser=eraser, seeds=self.seeds, **options
        )

    def scored(self, **changes: Any) -> Run:
        """A whole run of `python -m sample_info`."""
        return write_information_run(self.root, "leace", seeds=self.seeds, **changes)

    def begun(self, config: Any = None, **sections: Any) -> Run:
        """A run without a result: its configuration as YAML, sections of it changed, or other text."""
        run = self.run()
        (run.directory / "result.json").unlink()
        whole = json.loads((run.directory / "config.yaml").read_text()) | sections
        text = config if isinstance(config, str) else yaml.safe_dump(whole)
        (run.directory / "config.yaml").write_text(text)
        return run

    def edited(self, run: Run, **changes: Any) -> Run:
        """The same run with other values in result.json, whose checksum is right."""
        path = run.directory / "result.json"
        write_json(path, read_json(path) | changes)
        return run

    def configured(self, section: str, run: Run | None = None, **options: Any) -> Run:
        """A run with other options in a section of its configuration."""
        run = run or self.run()
        config = read_json(run.directory / "result.json")["config"]
        return self.edited(run, config=config | {section: config[section] | options})

    def replaced(self, name: str, how: Callable[[Path], object], run: Run | None = None) -> None:
        """A run in which something else than the file of this name stands in its place."""
        path = (run or self.run()).directory / name
        path.unlink(missing_ok=True)
        how(path)


def bits(odd: Odd, name: str, **tensors: torch.Tensor) -> None:
    save_tensors(odd.run().directory / name, {"index": torch.arange(9), **tensors}, {"seeds": list(odd.seeds)})


def curve(odd: Odd, **changes: Any) -> list[dict[str, Any]]:
    """The points of a run's learning curve with other values in the first."""
    first, *others = read_json(odd.run().directory / "result.json")["curve"]
    return [first | changes, *others]


def linked_twice(odd: Odd) -> None:
    for a, b in (("a", "b"), ("b", "a")):
        (odd.root / a).mkdir(parents=True)
        (odd.root / a / "to").symlink_to(odd.root / b)


def elsewhere(odd: Odd) -> Path:
    """A whole run outside the folder that is searched."""
    return write_run(odd.outside, dataset="digits", eraser="leace", seeds=odd.seeds).directory


def renamed(odd: Odd, name: str | bytes, run_id: str = "") -> None:
    run = odd.run()
    if run_id:
        odd.edited(run, run_id=run_id)
    os.rename(os.fsencode(run.directory), os.path.join(os.fsencode(odd.root), os.fsencode(name)))  # noqa: PTH104, PTH118


def deep(odd: Odd) -> None:
    """Make folders within each other until their path is longer than the system allows."""
    before = Path.cwd()
    odd.root.mkdir(exist_ok=True)
    os.chdir(odd.root)
    for _ in range(450):
        Path("innermost0").mkdir()
        os.chdir("innermost0")
    os.chdir(before)


def pieces(odd: Odd, key: str, **changes: Any) -> None:
    """A run that scores examples with other values in a part of its result."""
    run = odd.scored()
    odd.edited(run, **{key: read_json(run.directory / "result.json")[key] | changes})


INFINITE = "n,seed,epoch,train_loss_bits,validation_loss_bits\n48976,{0},inf,1,1e308\n"
LINES = "n,seed,epoch,train_loss_bits,validation_loss_bits\n" + "".join(f"48976,{i},0,,1\n" for i in range(50_000))
EXAMPLE = "index,name,label,given_label,class,left_out_correct,si_nats\n0,../../outside/secret.png,0,0,<script>,1,1\n"
NOT_READ = "which is not read"

# what is planted, and a word of what is said of it; nothing is said of what can be shown
CASES: dict[str, tuple[Callable[[Odd], object], str]] = {
    "curves.csv of 50,000 seeds": (lambda o: o.replaced("curves.csv", lambda p: p.write_text(LINES)), "other seeds"),
    "curves.csv is infinite": (
        lambda o: o.replaced("curves.csv", lambda p: p.write_text(INFINITE.format(*o.seeds))),
        "a validation loss is missing"),
    "test bits of other examples": (
        lambda o: bits(o, "test_bits.safetensors", test_bits=torch.rand(2, 1 + o.seeds[0])), ""),
    "test bits are no numbers": (
        lambda o: bits(o, "test_bits.safetensors", test_bits=torch.full((2, 9), torch.nan)), "lacks test_bits"),
    "a folder linked to itself": (lambda o: (o.run().directory.parent / "again").symlink_to(o.root), ""),
    "folders linked to each other": (linked_twice, ""),
    "a link to a folder outside": (lambda o: (o.root / "more").symlink_to(elsewhere(o).parent), "not followed"),
    "a link to a name that is too long": (lambda o: (o.run().directory.parent / "to").symlink_to("x" * 300), ""),
    "a run that is a link out": (lambda o: (o.root / elsewhere(o).name).symlink_to(elsewhere(o)), "not followed"),
    "450 folders within each other": (deep, "cannot be searched (File name too long)"),
    "an absolute run id": (lambda o: o.edited(o.scored(), run_id=f"{o.outside}/planted"), "is no run's name"),
    "a run id that climbs": (lambda o: o.edited(o.scored(), run_id="../../../outside/planted"), "is no run's name"),
    "another run's id": (lambda o: o.edited(o.run(), run_id="mdl-digits-leace-mlp-0123456789"), "is of the run"),
    "a name that is no run's": (lambda o: renamed(o, "'; touch x #", "'; touch x #"), "is no run's name"),
    "a name of bytes": (lambda o: renamed(o, b"mdl-\xff\xfe\x1b[2J"), "give its directory that name"),
    "scores.png is a link out": (
        lambda o: o.replaced("scores.png", lambda p: p.symlink_to(o.outside / "secret.png"), o.scored()), ""),
    "scores.png is a pipe": (lambda o: o.replaced("scores.png", os.mkfifo, o.scored()), ""),
    "scores.png is a text": (lambda o: o.replaced("scores.png", lambda p: p.write_text("<script>"), o.scored()), ""),
    "scores.csv is a pipe": (lambda o: o.replaced("scores.csv", os.mkfifo, o.scored()), NOT_READ),
    "HTML and a path as names of examples": (
        lambda o: o.replaced("scores.csv", lambda p: p.write_text(EXAMPLE), o.scored()), ""),
    "thumbnails of another shape": (
        lambda o: save_tensors(o.scored().directory / "scores.safetensors", {
            "thumbnails": torch.zeros(1, 3, 999, 1).byte(), "thumbnail_index": torch.arange(1)}), "other shapes"),
    "scores are a pipe": (lambda o: o.replaced("scores.safetensors", os.mkfifo, o.scored()), NOT_READ),
    "scores of other seeds": (
        lambda o: save_tensors(o.scored().directory / "scores.safetensors", {
            "index": torch.arange(5), "given_label": torch.arange(5), "f_si_nats": torch.ones(1, 5)},
            {"seeds": [10**6]}), "is of the seeds"),
    "TeX in a name": (lambda o: o.configured("dataset", name=r"$\frac{$"), "config.dataset.name is"),
    "TeX in an option": (lambda o: o.configured("model", activation=r"$\frac{$"), ""),
    "a name of 5,000 characters": (lambda o: o.configured("dataset", name="d" * 5000), "which no run writes"),
    "a name of 300 characters": (lambda o: o.configured("dataset", name="d" * 300), "config.dataset.name is"),
    "an option of 4,000 characters": (lambda o: o.configured("dataset", subset="d" * 4000), ""),
    "a name that climbs": (lambda o: o.configured("model", name="../../../../outside/planted"), ""),
    "HTML in a name": (lambda o: o.configured("model", name="<script>alert(1)</script>"), ""),
    "quotes in a name": (lambda o: o.configured("model", name="it's \"mine\" | `x`"), ""),
    "a name of other letters": (lambda o: o.configured("dataset", name="数字 🐱"), ""),
    "half a character": (lambda o: o.configured("dataset", flavour="\ud800"), "which no run writes"),
    "no training": (lambda o: o.edited(o.run(), config=read_json(o.run().directory / "result.json")["config"] | {
        "train": None}), "config.train is None"),
    "YAML within itself": (lambda o: o.begun("&a {model: *a, dataset: *a}"), "within each other"),
    "YAML that doubles": (lambda o: o.begun(BOMB), "within each other"),
    "YAML that merges": (lambda o: o.begun(MERGES), "config.yaml is damaged"),
    "YAML that runs": (lambda o: o.begun("!!python/object/apply:os.system ['touch x']"), "config.yaml is damaged"),
    "no number in YAML": (lambda o: o.begun(train={"lr": float("nan")}), "which no run writes"),
    "a date in YAML": (lambda o: o.begun("dataset: 2020-01-01"), "which no run writes"),
    "keys that are no words": (lambda o: o.begun("1: 2"), "which is no text"),
    "a seed twice": (lambda o: o.edited(o.run(), seeds=[7, 7]), "all different"),
    "one class": (lambda o: o.edited(o.run(), num_classes=1), "too few"),
    "no learning curve": (lambda o: o.edited(o.run(), curve=[]), "two or more"),
    "a curve with a hole": (lambda o: o.edited(o.run(), curve=curve(o, ce_next_bits=None)), "has ce_next_bits"),
    "no test certificate": (lambda o: o.edited(o.run(), certificate={}), "lacks certificate.train"),
    "a kernel in a list": (lambda o: o.configured("model", kernel=["ntk"], depth=None), ""),
    "a width below zero": (
        lambda o: (o.configured("model", width=-1), o.configured("model", o.run("qleace"), width=0)), ""),
    "scores without F-SI": (lambda o: o.edited(o.scored(), information={}), "lacks information.f_si_nats"),
    "seeds without correlation": (lambda o: o.edited(o.scored(), between_seeds={}), ""),
    "an order that is none": (
        lambda o: pieces(o, "summaries", accuracy={"seeds": [[0.5]]}, classes_left={"seeds": [[2]]}),
        "no orders ['seeds']: one of bottom,",
    ),
    "half of the summaries": (lambda o: pieces(o, "summaries", classes_left={}), "of different orders"),
    "summaries that are too short": (lambda o: pieces(o, "summaries", removed=[0.0]), "needs 1 numbers"),
    "scores of no section": (lambda o: o.edited(o.scored(), config=read_json(o.scored().directory / "result.json")[
        "config"] | {"sample_info": None}), "config.sample_info is None"),
    "an empty group": (lambda o: o.begun(train={"lr": 7.0}), "no result.json"),
}  # fmt: skip


def planted(folder: Path, case: str) -> Odd:
    """The runs of a case below `folder`/runs."""
    number = list(CASES).index(case)
    odd = Odd(folder / "runs", folder / "outside", (2 * number + 2, 2 * number + 3))
    odd.outside.mkdir(exist_ok=True)
    (odd.outside / "secret.png").write_bytes(SECRET)
    CASES[case][0](odd)
    return odd


def files(folder: Path) -> list[str]:
    """List a folder, but for the report."""
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if "/report" not in at)  # noqa: PTH118


def require_contained(folder: Path, before: Sequence[str]) -> None:
    """Require that nothing was written outside the report, and that all in it is the runs'."""
    assert files(folder) == before
    for at, _, names in os.walk(folder / "report"):
        assert not [name for name in names if SECRET in (Path(at) / name).read_bytes()]


@pytest.mark.parametrize("first", range(GROUPS))
def test_the_rest_is_shown_and_odd_runs_are_named(first: int, tmp_path: Path, no_figures, capsys) -> None:
    cases = list(CASES)[first::GROUPS]
    for eraser in ("control", "leace"):
        write_run(tmp_path / "runs", dataset="digits", eraser=eraser, seeds=(0, 1))
    for case in cases:
        planted(tmp_path, case)
    before = files(tmp_path)
    with limited(LIMIT_S):
        assert report([str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr()
    for message, count in Counter(CASES[case][1] for case in cases).items():
        named = {line for line in (shown.out + shown.err).splitlines() if message in line}
        assert len(named) >= count, (message, cases)
    assert "\x1b" not in shown.out + shown.err
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("<script") == 1
    assert {"control", "LEACE"} <= {*re.findall(r'<td data-heading="eraser">(.*?)</td>', page)}
    assert "<script>" not in (tmp_path / "report" / "tables.md").read_text()
    require_contained(tmp_path, before)
    with limited(LIMIT_S):
        assert sweep(["status", str(tmp_path / "runs")]) in (0, 1)
    assert "\x1b" not in capsys.readouterr().out


def test_figures_are_drawn_of_all_of_them_at_once(tmp_path: Path, real_figures, monkeypatch, capsys) -> None:
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)  # laid out, not rendered
    write_run(tmp_path / "runs", dataset="digits", eraser="control", seeds=(0, 1))
    for case in CASES:
        planted(tmp_path, case)
    before = files(tmp_path)
    with limited(LIMIT_S):
        assert report([str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr()
    not_drawn = sorted(line.split("(")[1] for line in shown.err.splitlines() if "cannot be drawn" in line)
    reasons = ("is a link, which is not read", "is no regular file, which is not read", "is no PNG")
    assert len(not_drawn) == len(reasons)
    assert all(any(reason in line for line in not_drawn) for reason in reasons)  # what is planted as scores.png
    assert len(list((tmp_path / "report" / "figures").glob("*.svg"))) > 5
    require_contained(tmp_path, before)
