"""Folders that are runs, and what is believed of their files."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf.groups import choices
from erasure.store.checked_files import read_json
from harness.limits import require_config, require_plain
from harness.result import read_result
from harness.run_ids import RUN_ID, run_id
from harness.untrusted_runs import (
    read_config,
    run_directories,
)
from tests.made_up_runs import write_information_run, write_run


def test_every_run_has_a_name_that_is_a_runs() -> None:
    for dataset in [*choices("dataset"), "my data, of 2024", "../../etc", "数字"]:
        described = {part: {"name": dataset} for part in ("dataset", "eraser", "model")}
        assert RUN_ID.fullmatch(run_id("sample_info", described, {}))
    for name in (
        "runs",
        "mdl-a-b-c",
        "mdl-a-b-c-0123456789/..",
        "mdl-a-b-c-0123456789\n",
        "../mdl-a-b-c-0123456789",
        "",
    ):
        assert not RUN_ID.fullmatch(name)


def test_folders_are_found_in_the_order_of_their_names_and_links_are_not_followed(tmp_path: Path) -> None:
    root, notes = tmp_path / "root", list[str]()
    for place in ("b/2", "b/10", "a", ".hidden", "b/2/inner"):
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / "config.yaml").touch()
    (root / "b" / "again").symlink_to(root)
    (root / "outside").symlink_to(tmp_path)
    (root / "broken").symlink_to(tmp_path / "none")
    paths = [str(path.relative_to(root)) for path in run_directories(root, notes.append)]
    assert paths == ["a", "b/10", "b/2"]
    said = "a link to a folder, which is not followed: search that folder itself"
    assert notes == [f"{root}/outside: {said}", f"{root}/b/again: {said}"]
    (tmp_path / "link").symlink_to(root)  # what a user names is searched
    assert len([*run_directories(tmp_path / "link")]) == 3


def test_what_runs_write_is_believed(tmp_path: Path) -> None:
    for run in (write_run(tmp_path), write_run(tmp_path, "train"), write_information_run(tmp_path)):
        values = read_json(run.directory / "result.json")
        assert read_result(run.directory / "result.json").run_id == run.id
        assert read_config(run.directory)["eraser"]["name"] == values["config"]["eraser"]["name"]


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.pop("seeds"),
        lambda config: config.update(seeds=[True]),
        lambda config: config.update(train=None),
        lambda config: config.update(logger="offline"),
        lambda config: config["eraser"].pop("name"),
        lambda config: config["model"].update(name="a\nb"),
        lambda config: config["dataset"].update(name=""),
        lambda config: config["train"].update(lr=float("inf")),
    ],
)
def test_a_configuration_that_cannot_be_shown_is_refused(tmp_path: Path, change: Callable[[dict], Any]) -> None:
    config = read_json(write_run(tmp_path).directory / "result.json")["config"]
    require_config(config, "mdl")
    changed = copy.deepcopy(config)
    change(changed)
    with pytest.raises(ValueError, match="config|which no run writes"):
        require_config(changed, "mdl")


@pytest.mark.parametrize("value", [10**400, float("nan"), "x" * 5000, "\ud800", {1: 2}, b"", {"a", "b"}, [[[...]]]])
def test_values_that_no_run_writes_are_refused(value: Any) -> None:
    require_plain({"a": [1, 2.5, None, True, "b"]}, 10)
    with pytest.raises(ValueError, match="holds "):
        require_plain({"a": value}, 10)
    with pytest.raises(ValueError, match="more than 2 values"):
        require_plain([1, 2], 2)


def test_a_linked_run_has_no_configuration(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (tmp_path / run.id).symlink_to(run.directory)
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        read_config(tmp_path / run.id)
    (run.directory / "config.yaml").write_text(yaml.safe_dump({"dataset": 3}))
    with pytest.raises(ValueError, match=r"config\.dataset is 3, not a section"):
        read_config(run.directory)
