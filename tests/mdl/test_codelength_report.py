"""Tables and figures of codelengths: short, with remarks where numbers need them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from harness.result import Result
from harness.result_fields import SharpDrops
from harness.results import load
from harness.results.arrange import arrange, colours_of, finished_rows, panels_of, rows_of
from harness.results.read import read_runs
from mdl.codelength_report import COLUMNS, draw_learning_curves, draw_scaling, scaling_panels, table_of
from mdl.result import MdlResult
from tests.made_up_runs import edit_result, result_json, stored, write_run, write_small_run
from train.final_losses_report import measured


def results(root: Path, seeds: tuple[int, ...] = (0, 1), preset: str = "paper") -> list[MdlResult]:
    """Control and QLEACE, whose second seed never left the plateau of the first training size, nor of the last."""
    marked_results = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        result = write_run(root, dataset="digits", eraser=eraser, seeds=seeds, preset=preset).result
        assert isinstance(result, MdlResult)
        first, *others, last = result.curve
        marked = [replace(point, left_plateau=[*left, *[True] * len(seeds)][: len(seeds)]) for point in (first, last)]
        marked_results.append(replace(result, curve=[marked[0], *others, marked[1]]))
    return marked_results


def compared(results: Sequence[Result]) -> pd.DataFrame:
    (only,) = arrange(stored(results))
    return only


def comparison(*arguments: Any, **options: Any) -> pd.DataFrame:
    return compared(results(*arguments, **options))


@pytest.mark.parametrize("seeds", [(0, 1), (0, 1, 2, 3, 4)])
def test_the_default_table_is_short_and_explains_only_what_it_shows(seeds, tmp_path: Path, capsys) -> None:
    table = table_of(comparison(tmp_path, seeds))
    assert list(table.headings) == [
        "model", "eraser", "bits per label", "Δ to control", "test loss (bits)", "accuracy (%)", "seeds",
    ]  # fmt: skip
    assert [row[-1] for row in table.rows] == [f"{len(seeds)}"] * 2
    assert [row[5] for row in table.rows] == ["50.0 ± 0.0"] * 2
    table.show("train=default, mdl=default")
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 16
    explained = lines[next(i for i, line in enumerate(lines) if line.startswith("bits per label: ")) :]
    assert len(explained) <= 6
    assert f"±: standard deviation over {len(seeds)} seeds. ± of Δ: standard error, paired by seed." in table.caption()
    for elsewhere in ("calibrated", "gap of", "order 1", "below control", "on the plateau"):
        assert elsewhere not in table.caption()
    missing = {
        "calibrated_bits_per_label_mean",
        "certificate.train.mean_gap",
        "test_loss_bits_backfires",
        "certificate.train.edit_size",
    } - {*table.records[0]}
    assert not missing, "table.csv has every number"


def test_with_one_seed_there_is_no_star_no_crossing_and_no_negative_zero(tmp_path: Path) -> None:
    control, erased = results(tmp_path, (0,))
    less = [bits - 1e-4 for bits in control.mdl.bits_per_sample]
    erased = replace(erased, mdl=replace(erased.mdl, bits_per_sample=less), curve=control.curve, final=control.final)
    alike = compared([control, erased])
    table = table_of(alike)
    assert table.rows[1][3] == "0.000 (one seed)"
    assert not {"*", "±"} & set(table.caption() + "".join(map("".join, table.rows)))
    below = COLUMNS["crossing"]
    assert [below.text(entry) for entry in rows_of(measured(alike))] == ["", ""]


def test_a_crossing_says_from_where_on_a_run_is_below_the_control_and_where_it_ends(tmp_path: Path) -> None:
    control, erased = results(tmp_path, (0, 1, 2, 3, 4))
    crossing = COLUMNS["crossing"]
    assert [crossing.text(row) for row in rows_of(measured(compared([control, erased])))] == ["", "no"]
    swapped = [replace(a, curve=b.curve, final=b.final) for a, b in ((control, erased), (erased, control))]
    assert [crossing.text(row) for row in rows_of(measured(compared(swapped)))] == ["", "from n = 1,024, backfires"]


def test_an_unfinished_run_has_no_number_and_the_caption_says_so(tmp_path: Path) -> None:
    control, _ = (write_run(tmp_path, dataset="digits", eraser=eraser) for eraser in ("control", "qleace"))
    (control.directory / "result.json").unlink()
    (block,) = arrange(read_runs([tmp_path]))
    table = table_of(block)
    unfinished, finished = (dict(zip(table.headings, row, strict=True)) for row in table.rows)
    assert (unfinished["eraser"], unfinished["bits per label"]) == ("control", "")
    assert finished["bits per label"]
    assert table.caption().endswith("Not finished: control (unfinished).")


def test_quick_runs_say_how_they_are_off(tmp_path: Path) -> None:
    table = table_of(comparison(tmp_path, preset="quick"))
    assert "mdl=quick has three training sizes: codelengths come out too long." in table.caption()
    assert "train=quick cuts trainings short" in table.caption()
    assert "quick" not in table_of(comparison(tmp_path)).caption()
    quick = results(tmp_path, preset="quick")
    kernel = [replace(one, curve=[replace(point, epochs=[0, 0]) for point in one.curve]) for one in quick]
    assert "quick" not in table_of(compared(kernel)).caption()  # an exact code of every label from all before it


def test_every_column_says_which_of_its_trainings_stayed_on_the_plateau(tmp_path: Path) -> None:
    """A new column fails here until it says so (`Column.trainings`)."""
    coding = {"bits_per_label", "bits_per_label_difference", "compression",
              "calibrated_bits_per_label", "area_bits", "published_units"}  # fmt: skip
    both = {"excess_bits", "surplus_bits", "sample_complexity", "crossing"}
    final = {"test_loss_bits", "test_loss_bits_difference", "accuracy", "sharp_drop_bits", "sharp_drop_epoch",
             "train_loss_bits", "end_train_loss_bits"}  # fmt: skip
    untrained = {"label_entropy_bits", "parameters", "certificate.train.edit_size"}
    untrained |= {f"certificate.{of}.{kind}_gap" for of in ("train", "test") for kind in ("mean", "covariance")}
    assert coding | both | final | untrained == {*COLUMNS}
    runs = comparison(tmp_path)
    for name in COLUMNS:
        caption = table_of(runs, [name]).caption()
        assert ("in 1 of 2 trainings the training loss stayed" in caption) == (name in coding | both), name
        assert ("in 1 of 2 trainings on the whole split the training" in caption) == (name in final | both), name


def test_the_sharpest_fall_is_a_mean_over_seeds_with_the_epoch_where_it_is_known(tmp_path: Path) -> None:
    control = results(tmp_path)[0]
    for bits, epoch, texts in (
        ([1.0, 1.5], [3, 6], ["1.25", "4"]),
        ([0.0, 1.5], [None, 6], ["0.75", "6"]),
        ([0.0, 0.0], [None, None], ["0.00", ""]),
    ):
        drops = SharpDrops(window_epochs=5, bits=bits, epoch=[*epoch])
        (entry,) = rows_of(compared([replace(control, sharp_drop=drops)]))
        assert [COLUMNS[name].text(entry) for name in ("sharp_drop_bits", "sharp_drop_epoch")] == texts


def test_a_star_is_explained_where_there_is_one(tmp_path: Path) -> None:
    both = results(tmp_path, (0, 1, 2, 3, 4))
    table = table_of(compared(both))
    assert "*" in table.rows[1][3]
    assert "*: p ≤ 0.05 over seeds, not over test examples" in table.caption()
    assert "*" not in table_of(compared(both[:1])).caption()


def test_a_sentence_says_how_often_the_untrained_network_was_scored(tmp_path: Path) -> None:
    control, erased = results(tmp_path)
    points = [replace(point, untrained=[True] * len(point.ce_test_bits)) for point in erased.curve]
    table = table_of(compared([control, replace(erased, curve=points)]))
    on_plateau = sum(left.count(False) for left in (point.left_plateau for point in points[:-1]) if left)
    trainings = sum(len(point.ce_test_bits) for point in points[:-1])
    said = f"QLEACE: in {trainings - on_plateau} of {trainings} trainings the untrained network was scored"
    assert said in table.caption()
    assert "untrained" not in table_of(compared([control])).caption()


def test_compression_is_there_on_request(tmp_path: Path) -> None:
    runs = comparison(tmp_path)
    table = table_of(runs, ("bits_per_label", "compression"))
    assert list(table.headings)[2:] == ["bits per label", "compression", "seeds"]
    for record in table.records:
        assert record["compression"] == pytest.approx(math.log2(10) / record["bits_per_label_mean"])
    assert "compression" not in table_of(runs).records[0]
    assert "compression" not in table_of(runs).headings


@pytest.mark.parametrize(("entropy", "said"), [(2.5, True), (3.32, False), (None, False)])
def test_the_label_entropy_stands_beside_log2_k_where_they_differ(entropy, said: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path, dataset="digits", eraser="control", label_entropy_bits=entropy)
    (block,) = arrange(read_runs([tmp_path]))
    caption = table_of(block).caption()
    assert ("log2 k is 3.322 bits, the label entropy 2.500" in caption) == said
    assert ("label_entropy_bits" in load(run.directory).runs) == (entropy is not None)


def test_points_that_rest_on_plateaus_are_hollow(tmp_path, monkeypatch) -> None:
    for eraser in ("control", "qleace"):
        for width in (64, 128):
            run = write_small_run(tmp_path, eraser, options={"width": width})
    stuck = result_json(run)["curve"]
    stuck[0]["left_plateau"] = [True, False]
    edit_result(run, curve=stuck)
    (block,) = arrange(read_runs([tmp_path]))
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw_scaling(
        "width", scaling_panels(finished_rows(rows_of(block)), "width"), colours_of([block]), tmp_path / "scaling.svg"
    )
    assert [ax.get_ylabel().splitlines()[0] for ax in drawn[0].axes] == [
        "codelength ± std", "increase over control ± s.e.",
    ]  # fmt: skip
    for ax in drawn[0].axes:
        hollow = [line.get_xdata() for line in ax.get_lines() if line.get_markerfacecolor() == "white"]
        assert np.concatenate(hollow).tolist() == [128]
        points = [line for line in ax.get_lines() if np.asarray(line.get_xdata()).tolist() == [64, 128]]
        assert {line.get_linestyle() for line in points} == {"None"}  # two widths are no curve


def test_panels_over_a_size_are_of_models_that_have_it(tmp_path: Path) -> None:
    for width in (64, 128):
        write_small_run(tmp_path, "control", options={"width": width, "depth": 0})
    (block,) = arrange(read_runs([tmp_path]))
    for option in ("activation", "depth", "channels"):  # no number, not positive, none
        assert scaling_panels(finished_rows(rows_of(block)), option) == []


def draw(shown: pd.DataFrame, path: Path) -> None:
    draw_learning_curves(panels_of(shown), colours_of([shown]), path)


def test_learning_curves_have_a_panel_per_model_and_one_of_costs(tmp_path: Path, monkeypatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(compared(results(tmp_path)), tmp_path / "comparison.png")
    assert drawn[0].axes[0].get_title() == "MLP"
    costs = drawn[0].axes[1]
    assert costs.get_title() == "cost of erasure"
    assert [label.get_text() for label in costs.get_yticklabels()] == ["QLEACE"]
    assert "Cost of erasure: ± standard error, 2 seeds." in [text.get_text() for text in drawn[0].findobj(Text)]
    assert {text.get_text() for text in drawn[0].axes[0].texts} >= {"control", "QLEACE"}


@pytest.mark.usefixtures("real_figures")
def test_bars_have_their_names_and_values_beside_them(tmp_path: Path, monkeypatch) -> None:
    for width in (64, 128):
        for eraser in ("control", "leace", "qleace", "gradient"):
            write_small_run(tmp_path / "runs", eraser, options={"width": width})
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    (table,) = arrange(read_runs([tmp_path / "runs"]))
    draw(table, tmp_path / "comparison.png")
    drawn[0].draw_without_rendering()
    costs = drawn[0].axes[-1]
    names, boxes = costs.get_yticklabels(), [text.get_window_extent() for text in costs.get_yticklabels()]
    erasers = ["LEACE", "QLEACE", "gradient"]
    assert [text.get_text() for text in names] == ["MLP (width=64)", *erasers, "MLP (width=128)", *erasers]
    bars = [bar.get_window_extent() for bar in costs.patches]
    values = [text.get_window_extent() for text in costs.texts]
    assert len(bars) == len(values) == 6
    for bar, name, value in zip(bars, boxes[1:4] + boxes[5:], values, strict=True):
        middle = (bar.y0 + bar.y1) / 2
        assert name.y0 < middle < name.y1
        assert value.y0 < middle < value.y1
        assert name.x1 < costs.bbox.x0 < costs.bbox.x1 < value.x0  # over no axis
    for column in (boxes, values):
        assert not any(a.overlaps(b) for a, b in combinations(column, 2))


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (2, 1, 0)])
def test_differences_are_of_the_seeds_that_both_have(seeds: tuple[int, ...], tmp_path: Path, monkeypatch) -> None:
    both: list[MdlResult] = []
    for eraser, of in (("control", (0, 1)), ("qleace", seeds)):
        run = write_run(tmp_path, dataset="digits", eraser=eraser, seeds=of).result
        assert isinstance(run, MdlResult)
        both.append(run)
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(arrange(read_runs([tmp_path]))[0], tmp_path / "comparison.png")
    (bar,) = drawn[0].axes[1].texts
    control, erased = (dict(zip(one.seeds, one.mdl.bits_per_sample, strict=True)) for one in both)
    common = [seed for seed in seeds if seed in control]
    expected = mean(erased[seed] - control[seed] for seed in common)
    assert bar.get_text().startswith(f"{expected:+.3f}")
    assert ("one seed" in bar.get_text()) == (len(common) == 1)
