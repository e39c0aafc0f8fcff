"""CIFAR-10, SVHN and MNIST in their real formats on disk: whole, missing, cut short, altered, fetched."""

import dataclasses
import errno
import multiprocessing
import pickle
import signal
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torchvision.datasets as published
from torchvision.datasets.utils import download_url

from erasure.dataset import MissingDataError
from erasure.datasets.cifar10 import Cifar10
from erasure.fetch_errors import FetchError
from erasure.splits import splits
from erasure.store.atomic_files import DiskFullError
from tests.erasure.made_up_datasets import (
    CIFAR_NAMES,
    FIRST_FILE,
    WRITERS,
    pack_cifar10,
    write,
    write_cifar10,
    write_mnist,
    write_svhn,
)
from tests.faulty_file_server import serving


def test_cifar10_batches_are_planes_of_colour_in_order(tmp_path: Path, monkeypatch) -> None:
    source, images, labels = write_cifar10(tmp_path / "data", monkeypatch)
    raw = source.load()
    assert torch.equal(raw.train.images, torch.from_numpy(images))
    assert raw.train.labels.tolist() == labels
    assert raw.class_names == tuple(CIFAR_NAMES)
    assert raw.test is not None
    assert raw.test.images.shape == (40, 3, 32, 32)
    assert {name: len(part) for name, part in splits(source, raw).items()} == {
        "train": 180,
        "validation": 20,
        "test": 40,
    }


def test_svhn_keeps_its_imbalance_and_calls_zero_0(tmp_path: Path, monkeypatch) -> None:
    source, x, y = write_svhn(tmp_path / "data", monkeypatch)
    raw = source.load()
    assert raw.train.images.dtype == torch.uint8
    assert raw.train.images.is_contiguous()
    for i in (0, 17, 49):
        assert np.array_equal(raw.train.images[i].numpy(), x[:, :, :, i].transpose(2, 0, 1))
        assert int(raw.train.labels[i]) == int(y[i, 0]) % 10
    assert raw.train.labels.bincount().tolist() == [4, 9, 7, 6, 5, 5, 4, 4, 3, 3]
    assert raw.class_names[0] == "0"


def test_mnist_is_read_from_its_compressed_files(tmp_path: Path, monkeypatch) -> None:
    source, images, labels = write_mnist(tmp_path / "data", monkeypatch)
    unpacked = tmp_path / "data" / "MNIST" / "raw" / "train-images-idx3-ubyte"
    unpacked.write_bytes(b"what an interrupted download left")
    raw = source.load()
    assert torch.equal(raw.train.images, torch.from_numpy(images)[:, None])
    assert raw.train.labels.tolist() == labels.tolist()
    assert raw.test is not None
    assert raw.test.images.shape == (20, 1, 28, 28)


@pytest.mark.parametrize("choice", WRITERS)
def test_missing_cut_short_or_altered_files_are_one_line(choice: str, tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "data"
    source = write(choice, root, monkeypatch)
    first = root / FIRST_FILE[choice]
    whole = first.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    for content in (whole[: len(whole) // 2], b"", bytes(altered)):
        first.write_bytes(content)
        with pytest.raises(MissingDataError) as error:
            source.load()
        line = f"{first} is damaged (its checksum is not the published one): fetch() brings it"
        assert str(error.value) == line
    first.unlink()
    with pytest.raises(MissingDataError) as error:
        source.load()
    assert str(error.value) == f"dataset {choice} is not in {root}: fetch() brings it"


def test_an_unknown_pickle_is_never_opened(tmp_path: Path, monkeypatch) -> None:
    source, *_ = write_cifar10(tmp_path / "data", monkeypatch)
    witness = tmp_path / "it ran"

    class Malicious:
        def __reduce__(self):
            return Path.touch, (witness,)

    for name in ("data_batch_3", "test_batch", "batches.meta"):
        path = tmp_path / "data" / "cifar-10-batches-py" / name
        whole = path.read_bytes()
        path.write_bytes(pickle.dumps(Malicious()))
        with pytest.raises(MissingDataError, match=f"{name} is damaged"):
            source.load()
        assert not witness.exists()
        path.write_bytes(whole)
    touch, arguments = Malicious().__reduce__()  # what opening it would have called
    touch(*arguments)
    assert witness.exists()


def test_identity_is_known_without_the_files_and_moves_with_their_checksums(tmp_path: Path, monkeypatch) -> None:
    here, *_ = write_cifar10(tmp_path / "here", monkeypatch)
    there = dataclasses.replace(here, root=str(tmp_path / "nowhere"))
    assert here.identity() == there.identity()
    before = here.identity()
    monkeypatch.setattr(published.CIFAR10, "test_list", [["test_batch", "0" * 32]])
    assert here.identity() != before


@pytest.fixture
def cifar10_on_a_server(tmp_path: Path, monkeypatch) -> tuple[Cifar10, np.ndarray, Path]:
    """The dataset, its training images, and the folder to serve; nothing is below its root yet."""
    source, images, _ = write_cifar10(tmp_path / "data", monkeypatch)
    pack_cifar10(tmp_path / "data", tmp_path / "server" / "cifar-10-python.tar.gz", monkeypatch)
    return source, images, tmp_path / "server"


def test_a_killed_download_leaves_nothing_that_passes_for_whole_and_is_repeated(
    cifar10_on_a_server, tmp_path: Path, monkeypatch
) -> None:
    source, images, server = cifar10_on_a_server
    archive = tmp_path / "data" / "cifar-10-python.tar.gz"
    with serving(server, "stalls") as address:
        arguments = (f"{address}/{archive.name}", archive.parent, archive.name, published.CIFAR10.tgz_md5)
        download = multiprocessing.get_context("fork").Process(target=download_url, args=arguments)
        download.start()
        while not archive.exists() or archive.stat().st_size < 32 * 1024:
            assert download.is_alive()
            time.sleep(0.02)
        download.kill()
        download.join()
        assert download.exitcode == -signal.SIGKILL
    assert 0 < archive.stat().st_size < (server / archive.name).stat().st_size  # under its final name
    with pytest.raises(MissingDataError, match="is not in"):
        source.load()
    fetch_from(server, source, monkeypatch)
    assert torch.equal(source.load().train.images, torch.from_numpy(images))


def test_killed_unpacking_is_repeated_without_another_download(
    cifar10_on_a_server, tmp_path: Path, monkeypatch
) -> None:
    source, images, server = cifar10_on_a_server
    fetch_from(server, source, monkeypatch)
    batch = tmp_path / "data" / "cifar-10-batches-py" / "data_batch_2"
    batch.write_bytes(batch.read_bytes()[:1000])
    with pytest.raises(MissingDataError, match="data_batch_2 is damaged"):
        source.load()
    source.fetch()  # the server is gone
    assert torch.equal(source.load().train.images, torch.from_numpy(images))


def test_a_download_that_breaks_off_or_a_file_that_is_gone_is_refused(
    cifar10_on_a_server, tmp_path: Path, monkeypatch
) -> None:
    source, _, server = cifar10_on_a_server
    with pytest.raises(FetchError, match=r"dataset cifar10 could not be fetched \(File not found or corrupted"):
        fetch_from(server, source, monkeypatch, "breaks off")
    assert not (tmp_path / "data" / "cifar-10-batches-py").exists()
    (server / "cifar-10-python.tar.gz").unlink()
    with pytest.raises(FetchError, match=r"could not be fetched \(HTTP Error 404.*: check the network and try again"):
        fetch_from(server, source, monkeypatch)


def test_mnist_falls_back_to_the_next_mirror(tmp_path: Path, monkeypatch) -> None:
    source, images, _ = write_mnist(tmp_path / "data", monkeypatch)
    (tmp_path / "data" / "MNIST" / "raw").rename(tmp_path / "server")
    with serving(tmp_path / "server") as address:
        monkeypatch.setattr(published.MNIST, "mirrors", [f"{address}/gone/", f"{address}/"])
        source.fetch()
    assert torch.equal(source.load().train.images[:, 0], torch.from_numpy(images))


def test_no_space_is_said(tmp_path: Path, monkeypatch) -> None:
    source, *_ = write_mnist(tmp_path / "data", monkeypatch)

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("erasure.datasets.mnist.download_url", full)
    with pytest.raises(
        DiskFullError,
        match=r"no space left in .*data for dataset mnist: free some, or choose another disk with root=",
    ):
        source.fetch()


def fetch_from(server: Path, source: Cifar10, monkeypatch, fault: Literal["breaks off"] | None = None) -> None:
    with serving(server, fault) as address:
        monkeypatch.setattr(published.CIFAR10, "url", f"{address}/cifar-10-python.tar.gz")
        source.fetch()
