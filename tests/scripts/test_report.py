"""The report: what is read, what is refused by name, what is compared with what."""

import csv
import math
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from erasure.store.checked_files import read_json, write_json
from harness.example_bits import save_test_bits
from harness.result import MdlResult
from harness.result_fields import published_units
from harness.results.arrange import by_dataset
from harness.results.columns import table_of
from harness.results.figures import draw_scaling, is_sound, scaling_panels
from harness.results.read import StoredRun, read_runs
from harness.results.run_labels import Label
from harness.results.table import Column, Table, file_name, tex
from harness.run_directory import Run
from scripts.report.__main__ import main
from scripts.report.write import Section, file_in, write_page
from tests.made_up_runs import write_run

CONTROL, LEACE, QLEACE = (Label((name,)) for name in ("control", "leace", "qleace"))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def small(root: Path, eraser: str = "leace", **options) -> Run:
    return write_run(root, dataset="digits", eraser=eraser, seeds=options.pop("seeds", (0, 1)), **options)


def edit(run: Run, **changes) -> None:
    path = run.directory / "result.json"
    write_json(path, read_json(path) | changes)


def table(root: Path, ending: str) -> list[dict[str, str]]:
    (path,) = (root / "tables").glob(f"*{ending}.csv")
    return list(csv.DictReader(path.open()))


def test_a_report_of_both_commands(runs, tmp_path, capsys, real_figures) -> None:
    for command in ("mdl", "train"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                small(runs, eraser, command=command, options={"width": width}, seeds=range(5))
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    assert re.search(r"8 finished runs.*, \d+:\d\d of computing", capsys.readouterr().out)
    rows = table(out, "mdl-digits")
    assert len(rows) == 4
    leace = next(row for row in rows if row["eraser"] == "leace")
    assert float(leace["difference_bits_per_label"]) > 0.1
    assert leace["significant"] == "True"
    assert leace["incomplete"] == ""
    assert {row["model"] for row in table(out, "train-digits")} == {"mlp (width=64)", "mlp (width=128)"}
    names = {path.name for path in (out / "figures").iterdir()}
    assert {f"mdl-digits-over-width.{kind}" for kind in ("svg", "pdf")} <= names
    assert {f"train-digits-loss-curves.{kind}" for kind in ("svg", "pdf")} <= names
    assert "increase over control" in (out / "figures" / "mdl-digits-over-width.svg").read_text()
    page = (out / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    latex = (out / "tables" / "mdl-digits.tex").read_text()
    assert r"\toprule" in latex
    assert r"$\pm$" in latex
    assert "Holm" in latex
    assert not list(out.rglob("*.tmp"))


def test_bad_runs_are_named_and_the_rest_is_built(runs, tmp_path, capsys, no_figures) -> None:
    small(runs, "control")
    small(runs, "leace")
    half = small(runs, "qleace")
    (half.directory / "result.json").unlink()
    torn = small(runs, "random")
    (torn.directory / "result.json").write_text('{"run_id": ')
    empty = small(runs, "gradient")
    (empty.directory / "result.json").unlink()
    (empty.directory / "config.yaml").unlink()
    (empty.directory / "state.json").write_text("{}")
    lacking = small(runs, "oracle_leace")
    result = read_json(lacking.directory / "result.json")
    del result["certificate"]
    write_json(lacking.directory / "result.json", result)
    small(runs, "invented")
    nats = small(runs, "alf_qleace")
    edit(nats, mdl={key: [0.693 * bits for bits in values] for key, values in _result(nats)["mdl"].items()})
    odd = small(runs, "control", lr=2e-3, flavour="vanilla")
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().err.splitlines()
    for run, expected in (
        (half, "no result.json: unfinished, shown as incomplete"),
        (torn, "result.json cannot be used (edited or damaged): delete it, and run it again"),
        (empty, "no result.json, and no configuration"),
        (lacking, "result.json lacks certificate"),
        (nats, "mixed units?"),
        (odd, "unknown keys in result.json, not shown: flavour"),
    ):
        assert [line for line in lines if run.id in line and expected in line], (expected, lines)
    rows = {row["eraser"]: row for row in table(tmp_path / "out", "mdl-digits")}
    assert rows["leace"]["incomplete"] == ""
    assert rows["qleace"]["incomplete"] == "unfinished"
    assert rows["qleace"]["bits_per_label_mean"] == ""
    assert float(rows["invented"]["bits_per_label_mean"]) > 0
    assert "alf_qleace" not in rows
    page = (tmp_path / "out" / "index.html").read_text()
    assert "mixed units?" in page


def test_a_setting_of_which_every_run_failed_has_tables_and_no_figure(runs, tmp_path, capsys) -> None:
    """It was a division by zero, and no page at all."""
    small(runs, "control")
    failed = [small(runs, "leace", preset="quick", command=command) for command in ("mdl", "train")]
    for run in failed:
        (run.directory / "result.json").unlink()
        write_json(run.directory / "state.json", {"run": run.id, "state": "failed", "error": "no such dataset"})
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    for run in failed:
        assert f"{run.id}: no result.json: failed, shown as incomplete" in shown.err
    assert "†failed" in (out / "tables.md").read_text()
    assert "cannot be drawn" not in shown.err
    assert not [*(out / "figures").glob("*quick*")]
    assert [*(out / "figures").glob("mdl-digits-train-paper-learning-curves.svg")]


def test_runs_of_one_row_that_were_trained_on_other_sizes_are_left_out(runs) -> None:
    for eraser in ("control", "leace", "qleace"):
        small(runs, eraser)
    odd = small(runs, "alf_qleace")
    result = _result(odd)
    edit(odd, curve=[point | {"n": 1000} if i == 0 else point for i, point in enumerate(result["curve"])])
    reading = read_runs([runs])
    assert odd.id not in {run.id for run in reading.finished}  # its codelength is another
    bits = [1000 * math.log2(10) + sum(later) for later in zip(*_blocks(_result(odd)), strict=True)]
    sizes = [point["n"] for point in _result(odd)["curve"]]
    unit = [published_units(sizes, [p["ce_test_bits"][s] for p in result["curve"][:-1]]) for s in (0, 1)]
    edit(odd, mdl={"total_bits": bits, "bits_per_sample": [one / sizes[-1] for one in bits], "published": unit})
    reading = read_runs([runs])
    assert odd.id in {run.id for run in reading.finished}
    (block,) = by_dataset(reading)
    assert "alf_qleace" not in block.erasers
    (problem,) = reading.problems
    assert f"{odd.id}: left out: trained on 1000, 4096, 15000, 48976 examples, others of mlp on 1024, 4096" in problem


def _blocks(result: dict) -> list[list[float]]:
    """Return what every block after the first costs each seed."""
    points = result["curve"]
    return [
        [(after["n"] - before["n"]) * bits for bits in before["ce_next_bits"]] for before, after in pairwise(points)
    ]


def test_files_stay_in_the_reports_folder(tmp_path: Path) -> None:
    for text in ("../../x", "/etc/passwd", "..", "", "a b/c", "数字", "x" * 5000, ".hidden"):
        name = file_name(text)
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,170}", name)
        assert (tmp_path / name).resolve().parent == tmp_path
        assert name not in (".", "..")
    assert file_name("mdl · digits (train=quick, x=1)") == "mdl-digits-train-quick-x-1"
    assert len({file_name("数字"), file_name("数"), file_name("x" * 200), file_name("x" * 201)}) == 4
    assert file_in(tmp_path / "out", "figures/scores", "a.png").parent.is_dir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path)
    with pytest.raises(OSError, match="which is not written through"):
        file_in(tmp_path / "out", "tables", "a.csv")


def test_what_labels_up_to_the_first_size_cost_is_a_codes_own_affair(runs) -> None:
    """Anything from nothing to the uniform code's price and the few bits that learning costs; no more, no less."""
    cheap, dear, free = (small(runs, eraser) for eraser in ("control", "leace", "qleace"))
    for run, change in ((cheap, -0.5), (dear, 1.2), (free, -1.2)):
        result = _result(run)
        bits = change * result["curve"][0]["n"] * math.log2(result["num_classes"])
        more = {"total_bits": bits, "bits_per_sample": bits / result["train_size"]}
        edit(run, mdl=result["mdl"] | {key: [one + by for one in result["mdl"][key]] for key, by in more.items()})
    reading = read_runs([runs])
    assert [run.id for run in reading.finished] == [cheap.id]
    assert sum("mixed units?" in problem for problem in reading.problems) == 2


def _result(run: Run) -> dict:
    return read_json(run.directory / "result.json")


def _coded(run: Run) -> MdlResult:
    result = run.result
    assert isinstance(result, MdlResult)
    return result


def test_folders_of_one_name_but_of_other_sizes_stand_in_tables_of_their_own(runs) -> None:
    """A control of 2,880 images once was the baseline of one of 9,976, which was said to backfire."""
    small(runs, "control", command="train")
    small(runs, "leace", command="train")
    more = small(runs, "control", command="train", seeds=(2, 3))
    config = read_json(more.directory / "result.json")["config"]
    config["dataset"]["root"] = "elsewhere"
    edit(more, train_size=9976, config=config)
    blocks = by_dataset(read_runs([runs]))
    assert sorted((block.name, len(block.entries)) for block in blocks) == [
        ("train-digits-train_size-48976", 2), ("train-digits-train_size-9976", 1),
    ]  # fmt: skip
    smaller = small(runs, "control", command="train", seeds=(4, 5))
    edit(smaller, train_size=9976, config=config | {"dataset": config["dataset"] | {"size": 16}})
    edit(more, config=config | {"dataset": config["dataset"] | {"size": None}})
    assert sorted(block.dataset for block in by_dataset(read_runs([runs]))) == [
        "digits (size=16, train_size=9976)", "digits (train_size=48976)", "digits (train_size=9976)",
    ]  # fmt: skip
    shutil.rmtree(smaller.directory)
    edit(more, train_size=48976, config=config)
    (block,) = by_dataset(read_runs([runs]))
    assert [sorted(entry["members"]) for entry in block.run] == [[0, 1, 2, 3], [0, 1]]


def test_nothing_to_report(tmp_path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 1
    assert "no finished run in" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit) as refused:
        main([str(tmp_path / "absent")])
    assert refused.value.code == 2
    assert "no such folder" in capsys.readouterr().err


def test_one_run_in_two_folders(runs, tmp_path) -> None:
    run = small(runs / "a")
    shutil.copytree(run.directory, runs / "b" / run.id)
    reading = read_runs([runs / "a", runs / "b", runs / "a"])
    assert (len(reading.runs), reading.problems) == (1, [])
    edit(Run(runs / "b", run.id), timing={"seconds": 1, "started": 1.9e9})
    reading = read_runs([runs])
    assert reading.finished[0].directory == runs / "b" / run.id
    assert reading.problems == [
        f"{run.directory}: differs from {runs / 'b' / run.id}, which has the same run id and is newer: left out"
    ]


def test_results_of_different_versions_are_named(runs) -> None:
    small(runs, "control")
    other = small(runs, "leace", versions={"erasure-mdl": "0.2.0"})
    (problem,) = read_runs([runs]).problems
    assert "different versions" in problem
    assert problem.endswith(": 1 by 0.1.0 and 1 by 0.2.0")
    # the same configuration under another id: RESULTS_VERSION moved in between
    twin = runs / "mdl-digits-leace-mlp-0000000000"
    shutil.copytree(other.directory, twin)
    edit(Run(runs, twin.name), run_id=twin.name, timing={"seconds": 1, "started": 1.9e9})
    reading = read_runs([runs])
    (block,) = by_dataset(reading)
    assert {*block.entries[1]["run_id"]} == {twin.name}
    assert f"{other.directory}: left out: {twin.name} has the same configuration and seeds" in reading.problems[-1]


def test_what_is_missing_is_shown_and_not_averaged_away(runs) -> None:
    small(runs, "control", seeds=(0, 1, 2))
    small(runs, "leace", seeds=(0, 2))
    small(runs, "control", options={"width": 64}, seeds=(0, 1, 2))
    (block,) = by_dataset(read_runs([runs]))
    narrow, base = (dict(zip((CONTROL, LEACE), entries, strict=True)) for entries in block.rows.values())
    assert narrow[LEACE]["incomplete"] == "not run"
    assert base[LEACE]["incomplete"] == "2 of 3 seeds"
    assert base[CONTROL]["incomplete"] == ""
    assert "†not run" in table_of(block).markdown()
    assert "†2 of 3 seeds" in table_of(block).markdown()
    assert "†: not run, not finished, or fewer seeds" in table_of(block).caption
    # paired with the same seeds of the control, whatever else that has
    control, leace = (base[eraser]["runs"][0].result for eraser in (CONTROL, LEACE))
    expected = [leace.mdl.bits_per_sample[i] - control.mdl.bits_per_sample[j] for i, j in ((0, 0), (1, 2))]
    assert base[LEACE]["code_difference"].mean == pytest.approx(sum(expected) / 2)


def test_numbers_of_different_settings_share_no_column(runs, tmp_path, no_figures) -> None:
    """Runs of 3 and of 10 chunks, say; labels once listed every option, 180 characters of them."""
    for preset in ("paper", "quick"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                small(runs, eraser, preset=preset, options={"width": width})
    small(runs, preset="quick", lr=0.1)
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    blocks = by_dataset(read_runs([runs]))
    settings = {block.name: block.setting for block in blocks}
    assert settings == {
        "mdl-digits-train-paper": "train=paper, mdl=paper",
        "mdl-digits-train-quick": "train=quick, mdl=quick",
        "mdl-digits-train-quick-train.lr-0.1": "train=quick, train.lr=0.1, mdl=quick",
    }
    for block in blocks:
        runs_of = [run for entry in block.entries for run in entry["runs"]]
        assert len({run.config["mdl"]["num_chunks"] for run in runs_of}) == 1
        assert {*map(str, block.rows)} <= {"mlp (width=64)", "mlp (width=128)", "mlp"}
        assert block.setting.replace("_", r"\_") in (out / "tables" / f"{block.name}.tex").read_text()


def test_no_label_is_too_long_for_its_figure(runs, tmp_path, recwarn, real_figures) -> None:
    """Axes sizes collapsed to zero."""
    name = "a_network_of_mine_whose_name_says_all_that_there_is_to_say_about_it_and_then_some" * 2
    for command in ("mdl", "train"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                small(runs, eraser, model=name, command=command, options={"width": width, "depth": width // 64})
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    assert [str(warning.message) for warning in recwarn if "constrained_layout" in str(warning.message)] == []


def test_no_figure_is_left_out_in_silence(runs, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("scripts.report.write.MAX_FIGURES", 3)
    for width in (16, 32, 64, 128, 256, 512):
        small(runs, "control", options={"width": width})
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert names == {f"mdl-digits-{name}" for name in ("learning-curves", "learning-curves-2", "over-width")}
    assert "2 of 5 figures left out; report on fewer runs for these" in capsys.readouterr().err


def test_runs_of_different_seeds_belong_together(runs) -> None:
    small(runs, "leace", seeds=(0, 1))
    small(runs, "leace", seeds=(3,))
    small(runs, "control", seeds=(0, 1, 3))
    (block,) = by_dataset(read_runs([runs]))
    _, leace = block.entries
    assert sorted(leace["members"]) == [0, 1, 3]
    assert leace["incomplete"] == ""
    assert leace["loss_difference"] is not None


def test_the_papers_unit_is_shown_where_it_is_asked_for(runs) -> None:
    write_run(runs)
    (block,) = by_dataset(read_runs([runs]))
    assert block.dataset == "CIFAR-10 (normalize=zscore)"
    assert "Table 16" not in table_of(block).markdown() + table_of(block).caption
    paper = table_of(block, ["published"])
    assert "Table 16's unit" in paper.markdown()
    assert "(not a codelength)" in paper.caption


def test_what_rests_on_plateaus_is_marked(runs, tmp_path, no_figures) -> None:
    small(runs, "control")
    run = small(runs, "qleace")
    result = _result(run)
    for point, left in zip(result["curve"], ([True, False], [True, True], [False, False], [True, False]), strict=True):
        point["left_plateau"] = left
    edit(run, curve=result["curve"])
    trained = small(runs, "qleace", command="train")
    edit(trained, left_plateau=[True, False])
    assert main([str(runs), "--out", str(tmp_path / "out"), "--columns", "bits,published,loss"]) == 0
    bits = {row["eraser"]: row for row in table(tmp_path / "out", "mdl-digits")}
    assert bits["qleace"]["bits_per_sample_on_plateau"] == "3 of 6"  # the last size codes nothing
    assert bits["qleace"]["loss_bits_on_plateau"] == "1 of 2"
    assert bits["control"]["bits_per_sample_on_plateau"] == ""  # an earlier version, which does not say
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "‡3 of 6" in text
    assert "‡4 of 8" in text  # in the paper's unit
    assert text.count("‡1 of 2") == 2  # final losses of both commands
    assert r"$^\ddagger$" in (tmp_path / "out" / "tables" / "mdl-digits.tex").read_text()
    block = next(block for block in by_dataset(read_runs([runs])) if block.command == "mdl")
    assert [is_sound(entry) for entry in block.entries] == [True, False]


def test_points_that_rest_on_plateaus_are_hollow(runs, tmp_path, monkeypatch) -> None:
    for eraser in ("control", "qleace"):
        for width in (64, 128):
            run = small(runs, eraser, options={"width": width})
    stuck = _result(run)["curve"]
    stuck[0]["left_plateau"] = [True, False]
    edit(run, curve=stuck)
    (block,) = by_dataset(read_runs([runs]))
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    colours = {CONTROL: "#000000", QLEACE: "#ff0000"}
    draw_scaling("width", scaling_panels(block.run, "width"), colours, tmp_path / "scaling.svg")
    for ax in drawn[0].axes:
        hollow = [line.get_xdata() for line in ax.get_lines() if line.get_markerfacecolor() == "white"]
        assert np.concatenate(hollow).tolist() == [128]


def test_losses_of_test_examples_give_a_second_error(runs, tmp_path, capsys, no_figures) -> None:
    draw = torch.Generator().manual_seed(0)
    for eraser, loss in (("control", 1.0), ("leace", 1.5), ("qleace", 2.0)):
        run = small(runs, eraser)
        save_test_bits(run, [0, 1], loss + torch.rand((2, 300), generator=draw))
    (run.directory / "test_bits.safetensors").write_bytes(b"damaged")
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    rows = {row["eraser"]: row for row in table(tmp_path / "out", "mdl-digits")}
    expected = (2 / 12 / 2 / 300) ** 0.5  # of the difference of two means of uniform losses, two seeds each
    assert float(rows["leace"]["final_gap_test_error"]) == pytest.approx(expected, rel=0.15)
    assert float(rows["leace"]["final_loss_test_error"]) == pytest.approx(expected / 2**0.5, rel=0.15)
    assert rows["qleace"]["final_gap_test_error"] == rows["qleace"]["final_loss_test_error"] == ""
    assert capsys.readouterr().err.count("no error over test examples") == 1


def test_the_page_shows_hostile_text_as_it_is(runs, tmp_path) -> None:
    hostile = """</script><script>alert(1)</script><img src=x onerror='alert(2)'> " {{ 7 * 191 }} &amp;"""
    run = StoredRun(hostile, runs, {"model": {"name": hostile}}, "mdl", [0], None, state=hostile)
    column = Column(hostile, lambda row: row[hostile], dict)
    table = Table.of("t", [column], [{hostile: hostile}], hostile)
    section = Section(hostile, table, hostile, [[run]], figures={hostile: tmp_path / "a b.svg"})
    text = write_page([section, section], tmp_path, [Path(hostile)], [hostile], {}).read_text()
    assert text.count("&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;") >= 2 * 9
    assert text.count("&amp;amp;") == text.count("{{ 7 * 191 }}") == text.count("&lt;script&gt;alert(1)")
    assert "1337" not in text
    assert text.count("<script") == text.count("</script") == 1
    assert "<img src=x" not in text
    assert "onerror='" not in text


def test_latex_is_escaped() -> None:
    assert tex("alf_qleace 5 % & Δ ± {x}") == r"alf\_qleace 5 \% \& $\Delta$ $\pm$ \{x\}"
