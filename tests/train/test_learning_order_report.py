"""Steps at which an order is learnt, by hand; names in the figure."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness.results.arrange import arrange, colours_of, panels_of
from harness.results.read import read_runs
from train.learning_order_report import NAMES, draw, learnt_step, past_means_step

KEPT = Path(__file__).parents[2] / "docs" / "study_learning_order"


def test_each_sample_is_named_once_beside_the_last_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    (table,) = arrange(read_runs([*KEPT.glob("train-digits-*leace-*")]))
    draw(panels_of(table), colours_of([table]), tmp_path / "figure.png")
    assert [len(ax.texts) for ax in drawn[0].axes] == [0, 5, 0, 0, 0, 0]  # two models side by side, three erasers
    names = {" ".join(text.get_text().split()) for text in drawn[0].axes[1].texts}
    assert names == {NAMES[name] for name in ("data", "order1", "order2", "independent", "swap")}


def test_steps_of_a_curve_by_hand() -> None:
    steps, losses = [0, 1, 3, 7, 15], [3.0, 3.0, 2.0, 1.0, 1.5]
    assert learnt_step(steps, losses) == pytest.approx(3.0)  # half of the fall of 2
    assert learnt_step(steps, [3.0, 3.0, 3.0, 1.0, 1.0]) == pytest.approx(
        2**2.5 - 1
    )  # between 3 and 7, in log(step + 1)
    assert learnt_step(steps, [3.0, 3.0, 2.99, 2.98, 3.2]) is None


def test_what_covariances_add_is_timed_from_the_best_that_means_reach() -> None:
    """Planted: means explain a loss from 3 to 1 within 3 steps, covariances a further 0.8 bits within 15."""
    steps, of_means, losses = [0, 1, 3, 7, 15, 31], [3.0, 3.0, 1.0, 1.2, 2.0, 2.5], [3.0, 3.0, 1.0, 0.8, 0.2, 0.4]
    assert past_means_step(steps, losses, of_means) == pytest.approx(2 ** (3 + 1 / 3) - 1)  # at 0.6 bits
    assert learnt_step(steps, losses) == pytest.approx(2**1.7 - 1)  # most of the whole fall is that of means
    chance = [3.0] * 6  # nothing is learnt of means: the whole fall counts
    assert past_means_step(steps, losses, chance) == pytest.approx(learnt_step(steps, losses))


def test_a_network_that_uses_means_alone_is_never_past_them() -> None:
    steps, of_means = [0, 1, 3, 7], [3.0, 2.0, 1.0, 1.5]
    for losses in (of_means, [loss - 0.09 for loss in of_means], [3.0, 2.0, 1.2, 1.1]):
        assert past_means_step(steps, losses, of_means) is None
    assert past_means_step(steps, [3.0, 2.0, 1.0, 0.9], of_means) == pytest.approx(2**2.5 - 1)
