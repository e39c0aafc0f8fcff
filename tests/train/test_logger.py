"""What reaches W&B, read back from its offline file; and that it never stands in the way."""

import logging
from pathlib import Path
from typing import Literal

import pytest
import wandb

from tests.wandb_file import only_run
from train.logger import Logger, LoggerSettings

Mode = Literal["online", "offline", "disabled"]


def logger(directory: Path, run_id: str = "mdl-x", mode: Mode = "offline", **config) -> Logger:
    directory.mkdir(exist_ok=True)
    return Logger(
        LoggerSettings(mode=mode, project="erasure-mdl", entity=None, init_timeout_s=5.0),
        run_id=run_id,
        verb="mdl",
        group="a-sweep",
        tags=["digits", "leace", "mlp"],
        config={"model": {"width": 8}} | config,
        directory=directory,
        axes={"mdl/*": "mdl/n"},
    )


def test_two_runs_in_one_process_keep_their_own_config_points_and_state(tmp_path: Path) -> None:
    with logger(tmp_path / "a", "a", seed=1) as first:
        first.log({"mdl/n": 100, "mdl/ce_next_bits": 2.5})
        first.log({"mdl/n": 200, "mdl/ce_next_bits": 1.5})
        first.summarise({"mdl.bits_per_sample.mean": 2.0})
    with pytest.raises(RuntimeError), logger(tmp_path / "b", "b", seed=2):
        raise RuntimeError("broke")
    a, b = only_run(tmp_path / "a"), only_run(tmp_path / "b")
    assert [(point["mdl/n"], point["mdl/ce_next_bits"]) for point in a.history] == [(100, 2.5), (200, 1.5)]
    assert a.summary["mdl.bits_per_sample.mean"] == 2.0
    assert (a.config["seed"], b.config["seed"]) == (1, 2)
    assert (a.run.run_id, a.run.run_group, a.run.job_type, a.run.project) == ("a", "a-sweep", "mdl", "erasure-mdl")
    assert sorted(a.run.tags) == ["digits", "leace", "mlp"]
    assert (a.exit_code, b.exit_code) == (0, 1)


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    with logger(tmp_path, mode="disabled") as disabled:
        disabled.log({"mdl/n": 1})
        disabled.summarise({"a": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_dead_server_is_one_line_and_the_run_goes_on_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb.teardown()  # settings are read when its service starts
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with caplog.at_level(logging.WARNING), logger(tmp_path, mode="online") as fallen_back:
        fallen_back.log({"mdl/n": 1, "mdl/ce_next_bits": 3.0})
    warnings = [record.message for record in caplog.records if record.name == "train.logger"]
    assert len(warnings) == 1
    assert "is logged offline" in warnings[0]
    assert "\n" not in warnings[0]
    offline = only_run(tmp_path, "*offline*/*.wandb")
    assert [point["mdl/n"] for point in offline.history] == [1]
    wandb.teardown()
