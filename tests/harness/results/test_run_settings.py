"""Settings of runs: the nearest preset, and the options that differ from it."""

from pathlib import Path

from conf import Options
from conf.groups import keys
from harness.results.run_settings import as_text, setting

PARTS: Options = {"model": {"name": "mlp"}, "eraser": {"name": "gradient"}}


def test_a_setting_is_the_nearest_preset_and_what_differs() -> None:
    config = PARTS | {"train": keys("train", "quick"), "mdl": keys("mdl", "paper"), "dtype": "float32"}
    assert setting(config, "mdl") == {"train": "quick", "mdl": "paper"}
    config["train"] |= {"max_epochs": 5, "stack": "one"}  # how it was computed is no part of it
    assert as_text(setting(config, "mdl")) == "train=quick, train.max_epochs=5, mdl=paper"
    assert as_text(setting(PARTS | {"train": config["train"], "dtype": "float64"}, "train")).endswith("dtype=float64")
    assert setting(PARTS | {"train": keys("train", "quick") | {"betas": (0.9, 0.999)}}, "train") == {"train": "quick"}


def test_a_setting_names_no_preset_where_several_are_equally_near() -> None:
    """Options that distinguish rows do not count: blocks and replay with `mdl.num_chunks=4` stand in one table."""
    assert as_text(setting(PARTS | {"mdl": keys("mdl", "default") | {"num_chunks": 4}}, "mdl")) == "mdl.num_chunks=4"
    quick = PARTS | {"mdl": keys("mdl", "quick") | {"num_chunks": 4, "code": "replay"}}
    replay = {"mdl.code": "replay", "mdl.replay.batch": 16, "mdl.replay.streams": 127}
    assert setting(quick, "mdl") == {"mdl.num_chunks": 4} | replay
    assert setting(PARTS | {"mdl": keys("mdl", "quick")}, "mdl") == {"mdl": "quick"}


def test_a_preset_of_the_user_may_leave_out_options_with_defaults(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mdl").mkdir()
    (tmp_path / "mdl/mine.yaml").write_text("num_chunks: 7\nmin_chunk: 3\n")
    mine = keys("mdl", "default") | {"num_chunks": 7, "min_chunk": 3}
    monkeypatch.setattr("sys.argv", ["mdl", "--config-dir", str(tmp_path)])
    assert setting(PARTS | {"mdl": mine}, "mdl") == {"mdl": "mine"}


def test_a_rate_that_a_preset_has_for_the_eraser_is_no_other_setting() -> None:
    rates = {"lr": 1e-4, "betas": [0.95, 0.999], "warmup_steps": 1000}
    published = PARTS | {"train": keys("train", "published") | rates}
    assert setting(published, "train") == {"train": "published"}
    assert setting(published | {"eraser": {"name": "control"}}, "train") == {"train": "published", "train.lr": 1e-4}
    published["train"]["published"] = {"patience_epochs": 100, "backtrack": False, "share_saved_state": False}
    assert as_text(setting(published, "train")) == (
        "train=published, train.published.backtrack=false, train.published.share_saved_state=false"
    )
