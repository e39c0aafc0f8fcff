"""The report: what is read, what is refused by name, what is compared with what."""

import csv
import re
from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import read_json, write_json
from harness.example_bits import save_test_bits
from harness.results.arrange import arrange, rows_of
from harness.results.columns import Column, first, runs_of
from harness.results.read import StoredRun, read_runs
from harness.results.table import Table, file_name
from mdl.codelength_report import is_sound
from scripts.report import folder_in, main, write_page
from tests.made_up_runs import edit_result, result_json, write_run, write_small_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def table(root: Path, ending: str) -> list[dict[str, str]]:
    (path,) = (root / "tables").glob(f"*{ending}.csv")
    return list(csv.DictReader(path.open()))


def test_a_report_of_both_commands(runs, tmp_path, capsys, real_figures) -> None:
    for command in ("mdl", "train"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                write_small_run(runs, eraser, command=command, options={"width": width}, seeds=range(5))
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    assert re.search(r"8 finished runs.*, \d+:\d\d of computing", capsys.readouterr().out)
    rows = table(out, "mdl-digits")
    assert len(rows) == 4
    leace = next(row for row in rows if row["eraser"] == "leace")
    assert float(leace["bits_per_label_difference"]) > 0.1
    assert leace["bits_per_label_significant"] == "True"
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
    write_small_run(runs, "control")
    write_small_run(runs, "leace")
    half = write_small_run(runs, "qleace")
    (half.directory / "result.json").unlink()
    torn = write_small_run(runs, "random")
    (torn.directory / "result.json").write_text('{"run_id": ')
    empty = write_small_run(runs, "gradient")
    (empty.directory / "result.json").unlink()
    (empty.directory / "config.yaml").unlink()
    (empty.directory / "state.json").write_text("{}")
    lacking = write_small_run(runs, "oracle_leace")
    result = read_json(lacking.directory / "result.json")
    del result["certificate"]
    write_json(lacking.directory / "result.json", result)
    write_small_run(runs, "invented")
    nats = write_small_run(runs, "alf_qleace")
    edit_result(nats, mdl={key: [0.693 * bits for bits in values] for key, values in result_json(nats)["mdl"].items()})
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().err.splitlines()
    for run, expected in (
        (half, "no result.json: unfinished, shown as incomplete"),
        (torn, "; launch the run again, which keeps this file aside"),
        (empty, "no result.json, and no configuration"),
        (lacking, "result.json is no result of this version: lacks certificate; launch the run again"),
        (nats, "mixed units?"),
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
    write_small_run(runs, "control")
    failed = [write_small_run(runs, "leace", preset="quick", command=command) for command in ("mdl", "train")]
    for run in failed:
        (run.directory / "result.json").unlink()
        write_json(run.directory / "state.json", {"run": run.id, "state": "failed", "error": "no such dataset"})
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    for run in failed:
        assert f"{run.id}: no result.json: failed, shown as incomplete" in shown.err
    assert (out / "tables.md").read_text().count("Not finished: LEACE (failed).") == 2  # below each table
    assert "cannot be drawn" not in shown.err
    assert not [*(out / "figures").glob("*quick*")]
    assert [*(out / "figures").glob("mdl-digits-train-paper-learning-curves.svg")]


def test_files_stay_in_the_reports_folder(tmp_path: Path) -> None:
    for text in ("../../x", "/etc/passwd", "..", "", "a b/c", "数字", "x" * 5000, ".hidden"):
        name = file_name(text)
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,170}", name)
        assert (tmp_path / name).resolve().parent == tmp_path
        assert name not in (".", "..")
    assert file_name("mdl · digits (train=quick, x=1)") == "mdl-digits-train-quick-x-1"
    assert len({file_name("数字"), file_name("数"), file_name("x" * 200), file_name("x" * 201)}) == 4
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path)
    with pytest.raises(OSError, match="which is not written through"):
        folder_in(tmp_path / "out", "tables")


def test_nothing_to_report(tmp_path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 1
    assert "no finished run in" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_of_different_settings_share_no_column(runs, tmp_path, no_figures) -> None:
    """Runs of 3 and of 10 chunks, say; labels once listed every option, 180 characters of them."""
    for preset in ("paper", "quick"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                write_small_run(runs, eraser, preset=preset, options={"width": width})
    write_small_run(runs, preset="quick", lr=0.1)
    out = tmp_path / "out"
    assert main([str(runs), "--out", str(out)]) == 0
    blocks = arrange(read_runs([runs]))
    settings = {first(block, "table"): first(block, "setting") for block in blocks}
    assert settings == {
        "mdl-digits-train-paper": "train=paper, mdl=paper",
        "mdl-digits-train-quick": "train=quick, mdl=quick",
        "mdl-digits-train-quick-train.lr-0.1": "train=quick, train.lr=0.1, mdl=quick",
    }
    for block in blocks:
        assert len({run.config["mdl"]["num_chunks"] for run in runs_of(block)}) == 1
        assert {*map(str, block["model"])} <= {"mlp (width=64)", "mlp (width=128)", "mlp"}
        tex = (out / "tables" / f"{first(block, 'table')}.tex").read_text()
        assert first(block, "setting").replace("_", r"\_") in tex


def test_no_label_is_too_long_for_its_figure(runs, tmp_path, recwarn, real_figures) -> None:
    """Axes sizes collapsed to zero."""
    name = "a_network_of_mine_whose_name_says_all_that_there_is_to_say_about_it_and_then_some" * 2
    for command in ("mdl", "train"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                options = {"width": width, "depth": width // 64}
                write_small_run(runs, eraser, model=name, command=command, options=options)
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    assert [str(warning.message) for warning in recwarn if "constrained_layout" in str(warning.message)] == []


def test_no_figure_is_left_out_in_silence(runs, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("scripts.report.MAX_FIGURES", 2)
    for width in (16, 32, 64, 128, 256, 512):
        write_small_run(runs, "control", options={"width": width})
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert names == {f"mdl-digits-{name}" for name in ("learning-curves", "learning-curves-2", "over-width")}
    assert "1 of 3 figures left out; report on fewer runs for these" in capsys.readouterr().err


def test_what_rests_on_plateaus_is_said_below_the_table(runs, tmp_path, no_figures) -> None:
    write_small_run(runs, "control")
    run = write_small_run(runs, "qleace")
    result = result_json(run)
    for point, left in zip(result["curve"], ([True, False], [True, True], [False, False], [True, False]), strict=True):
        point["left_plateau"] = left
    edit_result(run, curve=result["curve"])
    trained = write_small_run(runs, "qleace", command="train")
    edit_result(trained, left_plateau=[True, False])
    chosen = ("published_units", "test_loss_bits")
    assert main([str(runs), "--out", str(tmp_path / "out"), "--columns", *chosen]) == 0
    bits = {row["eraser"]: row for row in table(tmp_path / "out", "mdl-digits")}
    assert bits["qleace"]["coding_on_plateau"] == "3 of 6"  # the last size codes nothing
    assert bits["qleace"]["final_on_plateau"] == "1 of 2"
    assert bits["control"]["coding_on_plateau"] == ""  # an earlier version, which does not say
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "QLEACE: in 3 of 6 trainings the training loss stayed" in text
    assert text.count("QLEACE: in 1 of 2 trainings on the whole split") == 2  # final losses of both commands
    block, _ = arrange(read_runs([runs]))
    assert [is_sound(entry) for entry in rows_of(block)] == [True, False]


def test_losses_of_test_examples_give_a_second_error(runs, tmp_path, capsys, no_figures) -> None:
    draw = torch.Generator().manual_seed(0)
    for eraser, loss in (("control", 1.0), ("leace", 1.5), ("qleace", 2.0)):
        run = write_small_run(runs, eraser)
        save_test_bits(run, [0, 1], loss + torch.rand((2, 300), generator=draw))
    (run.directory / "test_bits.safetensors").write_bytes(b"damaged")
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    rows = {row["eraser"]: row for row in table(tmp_path / "out", "mdl-digits")}
    expected = (2 / 12 / 2 / 300) ** 0.5  # of the difference of two means of uniform losses, two seeds each
    assert float(rows["leace"]["test_loss_bits_error_over_examples"]) == pytest.approx(expected, rel=0.15)
    assert rows["qleace"]["test_loss_bits_error_over_examples"] == ""
    assert capsys.readouterr().err.count("no error over test examples") == 1


def test_the_page_shows_hostile_text_as_it_is(runs, tmp_path) -> None:
    hostile = """</script><script>alert(1)</script><img src=x onerror='alert(2)'> " {{ 7 * 191 }} &amp;"""
    folder = runs / hostile.replace("/", "|")  # no folder's name has a slash
    run = StoredRun(folder, {"model": {"name": hostile}}, None, state=hostile)
    column = Column(hostile, hostile)
    table = Table.of("t", [column], [{hostile: hostile, "runs": [run]}], [hostile], title=hostile)
    figures = {"t": [(hostile, "a b.svg")]}
    text = write_page([table, table], figures, tmp_path, [Path(hostile)], [hostile]).read_text()
    assert text.count("&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;") >= 2 * 9
    assert text.count("&amp;amp;") == text.count("{{ 7 * 191 }}") == text.count("&lt;script&gt;alert(1)")
    assert "1337" not in text
    assert text.count("<script") == text.count("</script") == 1
    assert "<img src=x" not in text
    assert "onerror='" not in text


def test_columns_can_be_chosen(tmp_path: Path, capsys, no_figures) -> None:
    runs = tmp_path / "runs"
    for eraser in ("control", "leace"):
        write_run(runs, dataset="digits", eraser=eraser, seeds=range(3))
    out = tmp_path / "out"

    def shown() -> tuple[str, list[str]]:
        assert main([str(runs), "--out", str(out), *asked]) == 0
        headings = re.findall(r"<th [^>]*><button[^>]*>(.*?)</button>", (out / "index.html").read_text())
        return (out / "tables.md").read_text(), headings

    asked = ["--columns", "excess_bits", "calibrated_bits_per_label", "bits_per_label"]
    markdown, page = shown()
    assert "| model | eraser | excess (bits) | bits per label | seeds |" in markdown
    assert page == ["model", "eraser", "excess (bits)", "bits per label", "seeds"]  # and no column that is empty
    full = next(csv.DictReader((out / "tables" / "mdl-digits.csv").open()))
    assert float(full["bits_per_label_std"]) > 0
    asked = ["--columns", "all"]
    markdown, page = shown()
    assert {"excess (bits)", "Table 16&#39;s unit", "parameters"} <= set(page)
    with pytest.raises(SystemExit) as stopped:
        main([str(runs), "--columns", "bits_per_label", "exces_bits"])
    assert stopped.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "invalid choice: 'exces_bits' (choose from 'all', 'bits_per_label', " in line
