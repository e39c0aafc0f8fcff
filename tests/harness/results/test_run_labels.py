"""Labels of runs: enough to tell them apart, and no more."""

import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from conf.groups import keys
from harness.results.run_labels import Label, display_name, eraser_colours, labels

MODELS = st.fixed_dictionaries(
    {"width": st.integers(1, 2), "depth": st.integers(1, 3), "activation": st.sampled_from(["relu", "gelu"])}
)


def texts(descriptions: list[dict], named: tuple[str, ...]) -> list[str]:
    return [str(label) for label in labels(descriptions, named)]


def test_labels_leave_out_what_most_runs_share_of_a_row_s_options() -> None:
    settings = [(300, 0.0), (300, 0.1), (300, 0.0), (1000, 0.0)]
    runs = [{"model": {"name": "mlp"}, "row": {"examples": n, "noise": noise}} for n, noise in settings]
    assert texts(runs, ("model",)) == ["mlp", "mlp (noise=0.1)", "mlp", "mlp (examples=1000)"]
    assert texts(runs[1:3], ("model",)) == ["mlp (noise=0.1)", "mlp (noise=0)"]
    runs = [
        {"model": {"name": name}, "row": {"sigma": sigma}} for name, sigma in (("cnn", 1), ("mlp", 0.1), ("vit", 1))
    ]
    written = [*map(str, labels(runs, ("model",), of_rows=True))]
    assert written == ["cnn", "mlp (sigma=0.1)", "vit"]  # scores depend on it, whatever the model is called


def test_labels_are_spelled_as_people_write_names() -> None:
    assert Label(("mnist", "mlp"), (("width", 64),)).display == "MNIST · MLP (width=64)"
    assert Label(("my_eraser", "leaceful")).display == "my_eraser · leaceful"


@given(st.lists(MODELS, min_size=1, max_size=8))
def test_labels_tell_apart_whatever_differs(models: list[dict]) -> None:
    written = labels([{"model": {"name": "mlp"} | model} for model in models], ("model",))
    for one, label in zip(models, written, strict=True):
        for other, another in zip(models, written, strict=True):
            assert (one == other) == (label == another)


def test_labels_are_the_shortest_that_distinguish() -> None:
    """Presets differ in a dozen options, all of which a label used to list."""
    both = [{"model": {"name": "mlp", **keys("train", preset)}} for preset in ("default", "quick")]
    assert texts(both, ("model",)) == ["mlp (lr=0.003)", "mlp (lr=0.005)"]
    sizes = [{"model": {"name": "mlp", "width": w, "depth": d, "both": [w, d]}} for w, d in ((8, 1), (8, 2), (16, 2))]
    assert texts(sizes, ("model",)) == [
        "mlp (width=8, depth=1)", "mlp (width=8, depth=2)", "mlp (width=16, depth=2)",
    ]  # fmt: skip


def test_values_that_two_options_exchange_are_distinguished() -> None:
    """Python's hashes of such pairs often have the same sum: one in three of these had two labels for three models."""
    for i in range(100):
        a, b = f"a{i}", f"b{i}"
        models = [{"name": "mlp", a: x, b: y} for x, y in ((1, 1), (1, 2), (2, 1))]
        assert len({*labels([{"model": model} for model in models], ("model",))}) == 3


def test_a_folder_of_the_users_names_and_colours_its_parts(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "display_names.yaml").write_text("names: {shrink: Shrinkage}\neraser_colours: {shrink: '#123456'}\n")
    assert display_name("shrink") == "shrink"
    monkeypatch.setattr(sys, "argv", ["mdl", "--config-dir", str(tmp_path)])
    assert (display_name("shrink"), display_name("leace")) == ("Shrinkage", "LEACE")
    assert eraser_colours(["leace", "shrink"])["shrink"] == "#123456"
