"""Records at W&B, read back from its offline file; logging never stands in the way."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
import wandb

from conf.compose import composed
from conf.schema import LoggerSettings
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow
from tests.wandb_file import WandbRun, only_run, records
from tests.wandb_server import Server, serve
from train.settings import TrainConfig

Mode = Literal["online", "offline", "disabled"]


def logger(
    directory: Path, run_id: str = "mdl-x", mode: Mode = "offline", *, finish_timeout_s: float = 5.0, **config
) -> Logger:
    directory.mkdir(exist_ok=True)
    return Logger(
        LoggerSettings(
            mode=mode, project="erasure-mdl", entity=None, init_timeout_s=5.0, finish_timeout_s=finish_timeout_s
        ),
        {
            "id": run_id,
            "group": "a-sweep",
            "job_type": "mdl",
            "tags": ["digits", "leace", "mlp"],
            "config": {"model": {"width": 8}} | config,
        },
        directory,
        {"mdl/*": "mdl/n"},
    )


def test_two_runs_in_one_process_keep_their_own_config_points_and_state(tmp_path: Path) -> None:
    with logger(tmp_path / "a", "a", seed=1) as first:
        first.log({"mdl/n": 100, "mdl/ce_next_bits": 2.5})
        first.log({"mdl/n": 200, "mdl/ce_next_bits": 1.5})
        first.summarise({"result/bits_per_sample": 2.0})
        long, short = [(None, 4.0), (3.0, 3.0), (2.0, 2.0)], [(None, 5.0), (1.0, 3.5)]
        log_loss_curves(
            first, [CurveRow(9, s, 2 * i, *bits) for s, each in enumerate((long, short)) for i, bits in enumerate(each)]
        )
    with pytest.raises(RuntimeError), logger(tmp_path / "b", "b", seed=2):
        raise RuntimeError("broke")
    a, b = only_run(tmp_path / "a"), only_run(tmp_path / "b")
    assert [(point["mdl/n"], point["mdl/ce_next_bits"]) for point in a.history[:2]] == [(100, 2.5), (200, 1.5)]
    epochs = [
        {name: point.get(f"loss/{name}") for name in ("epoch", "validation_bits", "train_bits")}
        for point in a.history[2:]
    ]
    assert [[*point.values()] for point in epochs] == [[0, 4.5, None], [2, 3.25, 2.0]]  # the second seed stops there
    assert a.summary["loss/validation_bits"] == 3.25
    assert a.summary["result/bits_per_sample"] == 2.0
    assert (a.config["seed"], b.config["seed"]) == (1, 2)
    assert (a.run.run_id, a.run.run_group, a.run.job_type, a.run.project) == ("a", "a-sweep", "mdl", "erasure-mdl")
    assert sorted(a.run.tags) == ["digits", "leace", "mlp"]
    assert (a.exit_code, b.exit_code) == (0, 1)


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    with logger(tmp_path, mode="disabled") as disabled:
        disabled.log({"mdl/n": 1})
        disabled.summarise({"a": 1.0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "words", "mode", "project"),
    [
        ({"WANDB_MODE": "online", "WANDB_PROJECT": "thesis"}, [], "online", "thesis"),
        ({"WANDB_MODE": "disabled", "WANDB_PROJECT": "thesis"}, ["logger.mode=offline"], "offline", "thesis"),
    ],
)
def test_wandbs_environment_counts_where_the_command_line_says_nothing(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: list[str], mode: str, project: str
) -> None:
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    logger = composed("train", words, TrainConfig).logger
    assert (logger.mode, logger.project) == (mode, project)


def test_a_dead_server_is_one_line_and_the_run_goes_on_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb.teardown()  # settings are read when its service starts
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with caplog.at_level(logging.WARNING), logger(tmp_path, mode="online") as fallen_back:
        fallen_back.log({"mdl/n": 1, "mdl/ce_next_bits": 3.0})
    warnings = [record.message for record in caplog.records if record.name == "harness.logger"]
    assert len(warnings) == 1
    assert "is logged offline" in warnings[0]
    assert "\n" not in warnings[0]
    offline = only_run(tmp_path, "*offline*/*.wandb")
    assert [point["mdl/n"] for point in offline.history] == [1]
    wandb.teardown()


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
def test_settings_in_the_current_folder_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """They may be a stranger's, and name a server that the user's key is sent to."""
    wandb.teardown()  # settings are read when its service starts
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "configured"))
    for place, server in ((folder, "http://127.0.0.1:9"), ("configured", "https://our.server.org")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "settings").write_text(f"[default]\nbase_url = {server}\n")
    with logger(tmp_path / "run") as logged:
        assert logged._wandb_run.settings.base_url == "https://our.server.org"
    wandb.teardown()


def service() -> int:
    """The process id of W&B's own process for this one."""
    listing = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    processes = [line.split(None, 2) for line in listing.stdout.splitlines()]
    (pid,) = [
        int(pid) for pid, parent, name in processes if int(parent) == os.getpid() and name.startswith("wandb-core")
    ]
    return pid


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A stub of W&B's server, to which W&B is pointed."""
    wandb.teardown()
    with serve() as running:
        monkeypatch.setenv("WANDB_BASE_URL", running.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        yield running
        running.dead = False
        wandb.teardown()


def test_online_a_server_is_told_where_the_run_belongs_and_asked_whether_to_continue_it(
    server: Server, tmp_path: Path
) -> None:
    with logger(tmp_path, mode="online") as online:
        online.log({"mdl/n": 100, "mdl/ce_next_bits": 2.5})
    resumed = [query for query in server.queries if "RunResumeStatus" in query["query"]]
    assert resumed[0]["variables"]["name"] == "mdl-x"
    variables = next(query["variables"] for query in server.queries if "UpsertBucket" in query["query"])
    assert (variables["name"], variables["groupName"], variables["jobType"]) == ("mdl-x", "a-sweep", "mdl")
    assert sorted(variables["tags"]) == ["digits", "leace", "mlp"]
    streamed = str(server.streamed)
    assert "ce_next_bits" in streamed
    assert '"exitcode": 0' in streamed.replace("'", '"')


def test_a_server_that_dies_on_the_way_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    started = time.monotonic()
    with logger(tmp_path, mode="online", finish_timeout_s=2.0) as online:
        server.dead = True
        online.log({"mdl/n": 100, "mdl/ce_next_bits": 2.5})
    assert time.monotonic() - started < 60
    wandb.teardown()  # the service writes its file to the end
    (path,) = tmp_path.rglob("*.wandb")
    assert [point["mdl/n"] for point in WandbRun(path).history] == [100]  # to be uploaded by wandb sync


def test_a_service_that_is_killed_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wandb.teardown()
    with caplog.at_level(logging.WARNING), logger(tmp_path) as orphaned:
        os.kill(service(), signal.SIGKILL)
        for n in range(20):
            orphaned.log({"mdl/n": n})
    warnings = [record.message for record in caplog.records if record.name == "harness.logger"]
    assert len(warnings) == 1
    assert "W&B failed" in warnings[0]
    wandb.teardown()


def test_a_requeued_run_is_marked_and_continued_under_the_same_id(tmp_path: Path) -> None:
    def stopped() -> None:
        with logger(tmp_path / "first") as first:
            first.log({"mdl/n": 100})
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        stopped()
    with logger(tmp_path / "second") as second:
        second.log({"mdl/n": 200})
    a, b = only_run(tmp_path / "first"), only_run(tmp_path / "second")
    assert (a.run.run_id, a.exit_code) == (b.run.run_id, 1) == ("mdl-x", 1)
    assert b.exit_code == 0
    for path, preempted in zip(sorted(tmp_path.rglob("*.wandb")), (True, False), strict=True):
        assert ("preempting" in [record.WhichOneof("record_type") for record in records(path)]) == preempted


def test_an_image_is_logged_and_a_vector_is_not(tmp_path: Path) -> None:
    with logger(tmp_path) as logged:
        logged.image("examples/test", lambda: torch.zeros(64, 128, 1, dtype=torch.uint8), "a, b")
        logged.image("examples/vectors", lambda: torch.zeros(64, 256, 12, dtype=torch.uint8), "c, d")
    (values,) = only_run(tmp_path).history
    assert values["examples/test._type"] == "image-file"
    assert values["examples/test.width"] == 128
    assert not [key for key in values if key.startswith("examples/vectors")]
