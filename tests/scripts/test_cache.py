"""The report shows what is there; clear deletes what was asked for, and only after a yes."""

import os
import time
from pathlib import Path

import pytest

from scripts.cache import main, size

FILES = {  # name: (bytes, age in days)
    "cifar10-leace.safetensors": (3 * 2**20, 10),
    "cifar10-qleace.safetensors": (1536, 0),
    "digits-leace.safetensors": (100, 10),
    "digits-leace.damaged-123": (2048, 20),
    ".digits-leace.safetensors.ab12.tmp": (512, 0),
}
LOCK = "digits-leace.lock"


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    for name, (size_bytes, days) in FILES.items():
        path = tmp_path / name
        if path.suffix == ".tmp":  # a killed writer leaves a folder
            path.mkdir()
            path /= ".tmpPEVl13"
        path.write_bytes(bytes(size_bytes))
        written = time.time() - 86400 * days
        os.utime(path, (written, written))
    (tmp_path / LOCK).write_text("{}")
    return tmp_path


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch):
    """Set what the person answers; without it, being asked is a failure."""
    asked: list[str] = []

    def reply(text: str | None) -> list[str]:
        def ask(question: str) -> str:
            asked.append(question)
            if text is None:
                raise EOFError
            return text

        monkeypatch.setattr("builtins.input", ask)
        return asked

    monkeypatch.setattr("builtins.input", lambda question: pytest.fail(f"asked: {question}"))
    return reply


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {LOCK}


def test_the_report_lists_files_by_size_with_their_kind_age_and_sum(cache_dir: Path, capsys, answer) -> None:
    assert main(["report", "--cache-dir", str(cache_dir)]) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert lines["cifar10-leace.safetensors"] == ["entry", "3.0", "MiB", "10", "days", "ago"]
    assert lines["cifar10-qleace.safetensors"] == ["entry", "1.5", "KiB", "0.0", "h", "ago"]
    assert lines["digits-leace.safetensors"] == ["entry", "100", "B", "10", "days", "ago"]
    assert lines["digits-leace.damaged-123"] == ["damaged", "2.0", "KiB", "20", "days", "ago"]
    assert lines[".digits-leace.safetensors.ab12.tmp"] == ["leftover", "512", "B", "0.0", "h", "ago"]
    assert lines["5"] == ["files", "3.0", "MiB"]
    order = [name for name in lines if name in FILES]
    assert order == sorted(FILES, key=lambda name: -FILES[name][0])
    assert LOCK not in shown
    assert names(cache_dir) == set(FILES)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], set(FILES)),
        (["--match", "cifar10-*"], {"cifar10-leace.safetensors", "cifar10-qleace.safetensors"}),
        (["--only", "entry"], {name for name in FILES if name.endswith(".safetensors")}),
        (["--only", "leftover"], {".digits-leace.safetensors.ab12.tmp"}),
        (["--older-than", "15"], {"digits-leace.damaged-123"}),
        (["--older-than", "9.5", "--only", "entry", "--match", "digits*"], {"digits-leace.safetensors"}),
        (["--match", "nothing*"], set()),
    ],
)
def test_clear_deletes_exactly_what_the_same_options_report(
    cache_dir: Path, capsys, answer, options: list[str], chosen: set[str]
) -> None:
    main(["report", "--cache-dir", str(cache_dir), *options])
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert shown & set(FILES) == chosen
    assert main(["clear", "--cache-dir", str(cache_dir), "--yes", *options]) == 0
    assert names(cache_dir) == set(FILES) - chosen
    assert (cache_dir / LOCK).exists()  # somebody may be building
    out = capsys.readouterr().out
    total = size(sum(FILES[name][0] for name in chosen))
    assert (f"deleted {len(chosen)} files, {total}" if chosen else "none of the 5 files matches") in out


@pytest.mark.parametrize("reply", ["", "maybe", None])
def test_without_a_yes_nothing_is_deleted(cache_dir: Path, capsys, answer, reply: str | None) -> None:
    asked = answer(reply)
    assert main(["clear", "--cache-dir", str(cache_dir)]) == 1
    assert asked == ["delete these 5 files? [y/N] "]
    assert names(cache_dir) == set(FILES)
    assert "nothing deleted" in capsys.readouterr().out


@pytest.mark.parametrize("reply", ["y", " Y ", "yes"])
def test_a_yes_deletes(cache_dir: Path, answer, reply: str) -> None:
    asked = answer(reply)
    assert main(["clear", "--cache-dir", str(cache_dir), "--only", "entry"]) == 0
    assert asked == ["delete these 3 files? [y/N] "]
    assert names(cache_dir) == {"digits-leace.damaged-123", ".digits-leace.safetensors.ab12.tmp"}


@pytest.mark.parametrize("action", ["report", "clear"])
def test_an_empty_cache_is_said_to_be_empty(tmp_path: Path, capsys, answer, action: str) -> None:
    assert main([action, "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == f"{tmp_path} is empty"


@pytest.mark.parametrize("action", ["report", "clear"])
def test_a_missing_folder_is_named_in_one_line(tmp_path: Path, capsys, answer, action: str) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(SystemExit) as ended:
        main([action, "--cache-dir", str(missing)])
    assert ended.value.code == 2
    (complaint,) = capsys.readouterr().err.splitlines()
    assert f"--cache-dir={missing}: no such folder; a run's cache_dir is in its config.yaml" in complaint
    assert not missing.exists()
