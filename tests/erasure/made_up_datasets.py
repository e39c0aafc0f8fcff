"""Small datasets in the formats in which CIFAR-10, SVHN and MNIST are published, with checksums to match."""

import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets as published
from scipy.io import savemat

from erasure.dataset import Published
from erasure.datasets.cifar10 import Cifar10
from erasure.datasets.mnist import Mnist
from erasure.datasets.svhn import Svhn

OPTIONS = {"flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cifar10, np.ndarray, list[int]]:
    """Pickled batches of 40 images; returns the dataset, its training images [200, 3, 32, 32] and labels."""
    generator = np.random.default_rng(0)
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    listed, images, labels = {}, [], []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        data = generator.integers(0, 256, (40, 3072), dtype=np.uint8)
        batch = {"batch_label": name, "labels": generator.permutation(list(range(10)) * 4).tolist(), "data": data}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
        listed[name] = md5(folder / name)
        if name != "test_batch":
            images.append(data)
            labels += batch["labels"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": CIFAR_NAMES, "num_vis": 3072}, protocol=2))
    monkeypatch.setattr(published.CIFAR10, "train_list", [[n, m] for n, m in listed.items() if n != "test_batch"])
    monkeypatch.setattr(published.CIFAR10, "test_list", [["test_batch", listed["test_batch"]]])
    meta = published.CIFAR10.meta | {"md5": md5(folder / "batches.meta")}
    monkeypatch.setattr(published.CIFAR10, "meta", meta)
    source = Cifar10(name="cifar10", root=str(root), **OPTIONS)
    return source, np.concatenate(images).reshape(-1, 3, 32, 32), labels


def pack_cifar10(root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the batches into the archive that they are published as."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        for path in sorted((root / "cifar-10-batches-py").iterdir()):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{path.name}")
            member.size = path.stat().st_size
            file.addfile(member, io.BytesIO(path.read_bytes()))
            path.unlink()
    (root / "cifar-10-batches-py").rmdir()
    monkeypatch.setattr(published.CIFAR10, "tgz_md5", md5(archive))


def write_svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Svhn, np.ndarray, np.ndarray]:
    """MATLAB files, X [32, 32, 3, n] and y [n, 1] in 1..10; returns the dataset, its training X and y."""
    generator = np.random.default_rng(1)
    root.mkdir(parents=True)
    split_list, written = {}, []
    for split, counts in {"train": [9, 7, 6, 5, 5, 4, 4, 3, 3, 4], "test": [3] * 10}.items():
        y = generator.permutation(np.repeat(np.arange(1, 11, dtype=np.uint8), counts))[:, None]
        x = generator.integers(0, 256, (32, 32, 3, len(y)), dtype=np.uint8)
        path = root / f"{split}_32x32.mat"
        savemat(path, {"X": x, "y": y}, do_compression=True)
        split_list[split] = [path.as_uri(), path.name, md5(path)]
        written.append((x, y))
    monkeypatch.setattr(published.SVHN, "split_list", split_list)
    return Svhn(name="svhn", root=str(root), **OPTIONS), *written[0]


def write_mnist(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Mnist, np.ndarray, np.ndarray]:
    """Compressed idx files; returns the dataset, its training images [60, 28, 28] and labels."""
    generator = np.random.default_rng(2)
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    resources, written = [], []
    for prefix, n in (("train", 60), ("t10k", 20)):
        images = generator.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = generator.permutation(np.arange(n, dtype=np.uint8) % 10)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"{prefix}-{kind}-ubyte.gz"
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            path.write_bytes(gzip.compress(header + array.tobytes()))
            resources.append((path.name, md5(path)))
        written.append((images, labels))
    monkeypatch.setattr(published.MNIST, "resources", resources)
    return Mnist(name="mnist", root=str(root), **OPTIONS), *written[0]


WRITERS = {"cifar10": write_cifar10, "svhn": write_svhn, "mnist": write_mnist}
FIRST_FILE = {
    "cifar10": "cifar-10-batches-py/data_batch_1",
    "svhn": "train_32x32.mat",
    "mnist": "MNIST/raw/train-labels-idx1-ubyte.gz",
}


def write(choice: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    return WRITERS[choice](root, monkeypatch)[0]
