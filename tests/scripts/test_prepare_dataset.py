"""scripts.prepare_dataset by its command line: fetched, verified, converted, summarised; or one line and a code."""

from pathlib import Path

import pytest
import torchvision.datasets as published

from erasure.datasets.cifar10 import Cifar10
from scripts.prepare_dataset import main
from tests.conftest import REPOSITORY
from tests.erasure.datasets.test_hf import write_cifarnet
from tests.erasure.datasets.test_image_folder import grey
from tests.erasure.made_up_datasets import pack_cifar10, write_cifar10
from tests.faulty_file_server import serving
from train.__main__ import COMMAND as TRAIN


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def prepare(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_cifar10_is_fetched_converted_and_summarised_once(tmp_path: Path, monkeypatch, capsys) -> None:
    write_cifar10(tmp_path / "data", monkeypatch)
    pack_cifar10(tmp_path / "data", tmp_path / "server" / "cifar-10-python.tar.gz", monkeypatch)
    with serving(tmp_path / "server") as address:
        monkeypatch.setattr(published.CIFAR10, "url", f"{address}/cifar-10-python.tar.gz")
        code, out, err = prepare(capsys, "dataset=cifar10")
    assert code == 0, err
    assert "dataset cifar10 is not in data: fetching" in err
    assert "cifar10: 240 images, 3×32×32, 10 classes, ready in" in out
    for words in (["class", "train", "validation", "test"], ["airplane", "18", "2", "4"], ["all", "180", "20", "40"]):
        assert words in [line.split() for line in out.splitlines()]
    (stored,) = Path("cache").glob("*.safetensors")
    assert f"{stored}, 0.7 MB" in out
    with monkeypatch.context() as patch:
        patch.setattr(Cifar10, "load", None)
        patch.setattr(Cifar10, "download", None)
        assert prepare(capsys, "dataset=cifar10", "dataset.normalize=zscore")[0] == 0
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-5])
    assert prepare(capsys, "dataset=cifar10")[0] == 0
    assert stored.stat().st_size == len(whole)
    assert len(list(Path("cache").glob("*.damaged-*"))) == 1


def test_a_prepared_dataset_is_what_a_run_uses(tmp_path: Path, command, capsys) -> None:
    write_cifarnet(tmp_path / "pets")
    options = ["dataset=hf", "dataset.path=pets", "dataset.image_column=img", "dataset.validation_size=6"]
    code, out, err = prepare(capsys, *options)
    assert code == 0, err
    assert "hf: 39 images, 3×8×8, 3 classes" in out
    prepared = set(Path("cache").iterdir())
    quick = ["train=quick", "train.max_epochs=2", "seeds=[0]", "logger.mode=disabled", "model=linear"]
    outcome = command(TRAIN, *options, *quick, "dataset.normalize=zscore")
    assert outcome.code == 0, outcome.err
    assert len(list(Path("cache").glob("*-raw-*"))) == 1
    assert prepared < set(Path("cache").iterdir())


def test_what_cannot_be_fetched_is_one_line_and_code_1(monkeypatch, capsys) -> None:
    monkeypatch.setattr(published.CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    code, _, err = prepare(capsys, "dataset=cifar10")
    assert code == 1
    first, second = err.splitlines()
    assert first == "dataset cifar10 is not in data: fetching"
    assert second.startswith("dataset cifar10 could not be fetched (<urlopen error [Errno 111] Connection refused>)")
    Path("file").write_text("no folder")
    code, _, err = prepare(capsys, "dataset=cifar10", "dataset.root=file")
    assert code == 1
    assert "dataset cifar10 cannot be written to file: choose your own with dataset.root=FOLDER" in err


def test_bad_input_is_one_line_and_code_2(capsys) -> None:
    code, out, err = prepare(capsys, "dataset=hf", "dataset.path=/no/where")
    assert (code, out) == (2, "")
    assert "dataset.path=/no/where: no such folder or parquet file" in err
    assert err.count("\n") == 1


def test_help_names_every_dataset(capsys) -> None:
    code, out, _ = prepare(capsys, "--help")
    assert code == 0
    for path in (REPOSITORY / "conf" / "dataset").glob("*.yaml"):
        assert path.stem in out


def test_embedded_data_needs_no_preparation(capsys) -> None:
    code, out, err = prepare(capsys)
    assert code == 0, err
    assert "digits: 1,797 images, 1×8×8, 10 classes, ready in" in out
    assert not Path("cache").exists()


def test_class_names_neither_steer_the_terminal_nor_are_markup(tmp_path: Path, capsys) -> None:
    names = ["[/red]", "[red]no[/red]", "a\x1b[31mb\x07\x9b", "line\nbreak", "plain"]
    for value, name in enumerate(names):
        for i in range(12):
            grey(tmp_path / "mine" / "train" / name.replace("/", "") / f"{i}.png", 20 * value + i)
    code, out, err = prepare(capsys, "dataset=image_folder", "dataset.root=mine")
    assert code == 0, err
    assert [c for c in out if c in "\x1b\x07\x9b"] == []
    assert {"[red]no[red]", "a", "line", "plain"} <= {line.split()[0] for line in out.splitlines() if line.strip()}
