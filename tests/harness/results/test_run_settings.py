"""Settings of runs: the nearest preset, and the options that differ from it."""

from conf.groups import keys
from harness.results.run_settings import setting, setting_text


def test_a_setting_is_the_nearest_preset_and_what_differs() -> None:
    config = {"train": keys("train", "quick"), "mdl": keys("mdl", "paper"), "dtype": "float32"}
    assert setting(config) == {"train": "quick", "mdl": "paper"}
    config["train"] |= {"max_epochs": 5, "stack": "one"}  # how it was computed is no part of it
    assert setting_text(config) == "train=quick, train.max_epochs=5, mdl=paper"
    assert setting_text({"train": config["train"], "dtype": "float64"}).endswith("dtype=float64")
    assert setting({"train": keys("train", "quick") | {"betas": (0.9, 0.999)}}) == {"train": "quick"}


def test_a_setting_names_no_preset_where_several_are_equally_near() -> None:
    """`mdl=quick mdl.num_chunks=4` is the run of `mdl.num_chunks=4`: their block code differs in nothing else."""
    for choice in ("default", "quick"):
        assert setting_text({"mdl": keys("mdl", choice) | {"num_chunks": 4}}) == "mdl.num_chunks=4"
    assert setting_text({"mdl": keys("mdl", "quick")}) == "mdl=quick"
    replayed = {"mdl": keys("mdl", "quick") | {"num_chunks": 4, "code": "replay"}}  # whose streams are quick's alone
    assert setting(replayed) == {"mdl": "quick", "mdl.num_chunks": 4, "mdl.code": "replay"}
