"""Vectors from files: as exact as images, erased by every eraser, trained on, and refused in one line when damaged."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import erasure
from erasure.certificate import certify
from erasure.datasets.arrays import Arrays
from erasure.pipeline import ErasedDataset, erased_dataset
from erasure.store.cache import Cache
from mdl.__main__ import COMMAND as MDL
from train.__main__ import COMMAND as TRAIN

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6)) * [1, 2, 3, 0, 100, 1] + [0, 0, 5, 7, -300, 0]  # one column is constant
Y = np.arange(120) % 3
X[:, 0] += 2 * Y  # so that there is something to learn
QUICK = ("train.max_epochs=2", "mdl.min_chunk=20", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled")


def write(path: Path, **arrays) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({key: torch.as_tensor(value).contiguous() for key, value in arrays.items()}, path)
    return path


def source(path: Path, **changes) -> Arrays:
    options = {"flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0} | changes
    return Arrays(name="vectors", path=str(path), **options)


def erase(path: Path, eraser: type[erasure.Eraser], cache: Path, normalize="none", **options) -> ErasedDataset:
    dataset = source(path, normalize=normalize)
    return erased_dataset(dataset, eraser, options, dtype=torch.float64, cache=Cache(cache))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_vectors_and_labels_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    raw = source(write(tmp_path / f"a{suffix}", x=X, y=Y)).load()
    assert raw.test is None
    assert raw.class_names == ("0", "1", "2")
    assert torch.equal(raw.train.images, torch.from_numpy(X)[:, :, None, None])
    assert torch.equal(raw.train.labels, torch.from_numpy(Y))
    assert not raw.bounded


def test_labels_may_be_words_or_any_whole_numbers_and_values_whole_numbers(tmp_path: Path) -> None:
    words = np.array(["neg", "pos"])[Y % 2]
    raw = source(write(tmp_path / "a.npz", x=X.astype(np.int32), y=words)).load()
    assert raw.class_names == ("neg", "pos")
    assert torch.equal(raw.train.labels, torch.from_numpy(Y % 2))
    assert torch.equal(raw.train.images.flatten(1), torch.from_numpy(X.astype(np.int32)).double())
    raw = source(write(tmp_path / "b.npz", x=X, y=2 * (Y % 2) - 1)).load()
    assert raw.class_names == ("-1", "1")


@pytest.mark.parametrize("stored", [">f2", "<f4", ">f4", ">f8"])
def test_floats_keep_their_size_in_any_byte_order(tmp_path: Path, stored: str) -> None:
    vectors = source(write(tmp_path / "a.npz", x=X.astype(stored), y=Y.astype(">i8"))).load().train
    assert vectors.images.element_size() == int(stored[2])
    assert np.array_equal(vectors.images.flatten(1).numpy(), X.astype(stored))
    assert vectors.labels.tolist() == Y.tolist()


def test_keys_name_other_arrays_and_a_test_split(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", hidden=X[:90], z=Y[:90], held_out=X[90:], held_out_z=Y[90:])
    raw = source(path, x_key="hidden", y_key="z", test_x_key="held_out", test_y_key="held_out_z").load()
    assert raw.test is not None
    assert torch.equal(raw.test.images.flatten(1), torch.from_numpy(X[90:]))
    assert torch.equal(raw.test.labels, torch.from_numpy(Y[90:]))


def test_identity_is_that_of_the_content_not_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    here, there = write(tmp_path / "a.safetensors", x=X, y=Y), write(tmp_path / "b" / "c.safetensors", x=X, y=Y)
    assert source(here).identity() == source(there).identity()
    write(there, x=X + 1e-9, y=Y)
    assert source(here).identity() != source(there).identity()


def test_the_digits_as_vectors_are_erased_like_the_digits(tmp_path: Path, digits_source, digits) -> None:
    x, z = digits
    path = write(tmp_path / "digits.safetensors", x=x.flatten(1), y=z)
    vectors = erase(path, erasure.LeaceEraser, tmp_path)
    cache = Cache(tmp_path)
    images = erased_dataset(digits_source, erasure.LeaceEraser, {}, dtype=torch.float64, cache=cache)
    for name in images.splits:
        seen, expected = vectors.splits[name].images.flatten(1), images.splits[name].images.flatten(1)
        torch.testing.assert_close(seen, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in erasure.__all__
        if name.endswith("Eraser") and name not in {"Eraser", "PublishedGradientEraser"}  # which takes images alone
    ],
)
def test_every_eraser_keeps_its_promise_on_vectors(tmp_path: Path, name: str) -> None:
    options = {
        "AlfQleaceEraser": {"num_directions": 2, "target": None},
        "RandomEraser": {"num_directions": 2, "seed": 0},
        "GradientEraser": {"weights": (150.0, 24.0, 1.0)},
        "GradientOrdersEraser": {"weights": (1e4, 1e4, 1.0), "directions": 3, "max_iterations": 100},
    }.get(name, {})
    path = write(tmp_path / "a.npz", x=X, y=Y)
    dataset = erase(path, getattr(erasure, name), tmp_path, **options)
    certificate = dataset.certificate["train"]
    assert certificate.out_of_range == 0  # any value is possible
    if issubclass(getattr(erasure, name), erasure.GradientEraser):  # promises it of all splits together
        parts = dataset.splits.values()
        images, labels = torch.cat([p.images for p in parts]), torch.cat([p.labels for p in parts])
        certificate = certify(images, images, labels, erasure.ClassMoments.fit(images, labels))
        assert certificate.mean_gap < 0.02
        assert certificate.covariance_gap < 0.1
    if name == "IdentityEraser":
        assert certificate.mean_gap > 0.002  # the control of the line above: it was there to be erased
    assert dataset.example_shape == (6, 1, 1)
    assert dataset.channel_std[3] == 1  # the constant column is centred, not blown up


def test_values_far_from_unit_range_are_not_squeezed_into_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=X, y=Y)
    erased = erase(path, erasure.GradientEraser, tmp_path, weights=(150.0, 24.0, 1.0))
    assert erased.splits["train"].images[:, 4].mean() == pytest.approx(-300, rel=0.1)
    assert erased.certificate["train"].edit_size < 0.5


def test_both_commands_train_on_vectors(tmp_path: Path, command: Callable) -> None:
    path = write(tmp_path / "a.npz", x=X, y=Y)
    chosen = ("dataset=arrays", f"dataset.path={path}", "train=quick", "model.width=8", *QUICK)
    outcome = command(MDL, *chosen, "mdl=quick")
    assert outcome.code == 0, outcome.err
    assert "mdl-arrays-leace-mlp" in outcome.out
    outcome = command(TRAIN, *[c for c in chosen if not c.startswith("mdl")], "eraser=control")
    assert outcome.code == 0, outcome.err


def broken(path: Path, keep: float) -> Path:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    return path


def with_value(value: float) -> np.ndarray:
    changed = X.copy()
    changed[17, 2] = value
    return changed


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2", "<f2", "longdouble", "?"])
def test_every_kind_of_number_and_byte_order_is_read(tmp_path: Path, kind: str) -> None:
    values = X.astype(kind)
    raw = source(write(tmp_path / "a.npz", x=values, y=Y.astype(">i8"))).load()
    assert torch.equal(raw.train.images.flatten(1).double(), torch.from_numpy(values.astype(np.float64)))
    assert torch.equal(raw.train.labels, torch.from_numpy(Y))


def test_bfloat16_is_read_exactly(tmp_path: Path) -> None:
    values = torch.from_numpy(X / 10).bfloat16()
    raw = source(write(tmp_path / "a.safetensors", x=values, y=Y)).load()
    assert torch.equal(raw.train.images.flatten(1), values.float())


PIXELS = np.random.default_rng(1).integers(0, 256, (120, 5, 7, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (PIXELS, PIXELS.transpose(0, 3, 1, 2)),
        (PIXELS.transpose(0, 3, 1, 2), PIXELS.transpose(0, 3, 1, 2)),
        (PIXELS[..., 0], PIXELS[:, None, :, :, 0]),
        (PIXELS[..., :1], PIXELS[:, None, :, :, 0]),
        (PIXELS[:, :, :3], PIXELS[:, :, :3].transpose(0, 3, 1, 2)),
    ],
)
def test_images_come_back_exactly_in_any_order_of_axes(tmp_path: Path, suffix: str, x, expected) -> None:
    images = source(write(tmp_path / f"a{suffix}", x=x.copy(), y=Y))
    raw = images.load()
    assert raw.train.images.dtype == torch.uint8
    assert np.array_equal(raw.train.images.numpy(), expected)
    assert raw.bounded
    assert images.example_names(torch.tensor([0])) == ["row 0"]


MEDMNIST = {
    "x_key": "train_images", "y_key": "train_labels", "test_x_key": "test_images", "test_y_key": "test_labels",
}  # fmt: skip


def write_medmnist(path: Path) -> Path:
    sizes = {"train": slice(0, 80), "val": slice(80, 90), "test": slice(90, 120)}
    images = {f"{split}_images": PIXELS[part] for split, part in sizes.items()}
    return write(path, **images, **{f"{split}_labels": Y[part, None].astype(np.uint8) for split, part in sizes.items()})


def test_medmnist_is_read_and_its_validation_images_are_said_to_be_left_out(tmp_path: Path, caplog) -> None:
    path = write_medmnist(tmp_path / "a.npz")
    raw = source(path, **MEDMNIST).load()
    assert raw.test is not None
    assert (len(raw.train), len(raw.test)) == (80, 30)
    assert torch.equal(raw.test.labels, torch.from_numpy(Y[90:]))
    assert caplog.messages == [f"{path}: left out: the arrays val_images, val_labels"]


def huge_header(path: Path) -> Path:
    """An array of 8 TB, says its header."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 1000)})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", array.getvalue())
        file.writestr("y.npy", array.getvalue())
    return path


def no_array(path: Path) -> Path:
    """An archive with two members that are no arrays."""
    with zipfile.ZipFile(write(path, y=Y), "a") as file:
        file.writestr("x", b"text")
        file.writestr("text.npy", b"text")
    return path


Break = Callable[[Path], tuple[Path, dict]]
BROKEN: dict[str, tuple[Break, str]] = {
    "missing": (lambda d: (d / "no.npz", {}), r"path=.*no.npz: no such file"),
    "suffix": (lambda d: (d / "a.pkl", {}), r"need a file that ends in .npz or .safetensors"),
    "npz cut short": (lambda d: (broken(write(d / "a.npz", x=X, y=Y), 0.7), {}), r"cannot be read as a whole .npz"),
    "safetensors cut short": (
        lambda d: (broken(write(d / "a.safetensors", x=X, y=Y), 0.7), {}),
        r"cannot be read as a whole .safetensors",
    ),
    "empty": (lambda d: (broken(write(d / "a.npz", x=X, y=Y), 0.0), {}), r"cannot be read as a whole .npz"),
    "header of 8 TB": (lambda d: (huge_header(d / "a.npz"), {}), r"cannot be read as a whole .npz file \("),
    "times 1e100": (
        lambda d: (write(d / "a.npz", x=1e100 * X, y=Y), {}),
        r"size \de\+10\d, and their products .*multiply",
    ),
    "times 1e-100": (
        lambda d: (write(d / "a.npz", x=1e-100 * X, y=Y), {}),
        r"size \de-9\d, and their products .*multiply",
    ),
    "member that is no array": (lambda d: (no_array(d / "a.npz"), {}), r"'x' has shape \[\] and type \|S4"),
    "pickle inside": (
        lambda d: (write(d / "a.npz", x=np.array([object()] * 3), y=Y), {}),
        r"cannot be read as a whole .npz file \(.*pickle",
    ),
    "no such key": (
        lambda d: (write(d / "a.npz", a=X, b=Y), {}),
        r"has no array 'x', only a, b: choose with x_key=NAME and y_key=NAME",
    ),
    "one test key": (lambda d: (write(d / "a.npz", x=X, y=Y), {"test_x_key": "x"}), r"set both, or neither"),
    "three axes": (lambda d: (write(d / "a.npz", x=X[:, :, None], y=Y), {}), r"'x' has shape \[120, 6, 1\]"),
    "words for numbers": (
        lambda d: (write(d / "a.npz", x=X.astype(str), y=Y), {}),
        r"need vectors \[n, d\] of numbers",
    ),
    "too few labels": (lambda d: (write(d / "a.npz", x=X, y=Y[:-1]), {}), r"'y' has shape \[119\].*each of 120"),
    "labels with fractions": (lambda d: (write(d / "a.npz", x=X, y=Y + 0.5), {}), r"type float64: need one whole"),
    "one-hot labels": (lambda d: (write(d / "a.npz", x=X, y=np.eye(3)[Y]), {}), r"\[120, 3\] .* y\.argmax\(1\)"),
    "labels of bytes": (lambda d: (write(d / "a.npz", x=X, y=np.array([b"a", b"b"])[Y % 2]), {}), r"y\.astype\(str\)"),
    "mixed labels": (
        lambda d: (write(d / "a.npz", x=X, y=Y.astype(str), tx=X, ty=Y), {"test_x_key": "tx", "test_y_key": "ty"}),
        r"label 0 in 'ty' is none of 'y'",
    ),
    "floating images": (
        lambda d: (write(d / "a.npz", x=PIXELS / 255, y=Y), {}),
        r"and type float64: need vectors .*reshape\(len\(x\), -1\)\), or images of uint8",
    ),
    "images of ambiguous axes": (
        lambda d: (write(d / "a.npz", x=PIXELS[:, :3], y=Y), {}),
        r"'x' has shape \[120, 3, 7, 3\] and type uint8: need vectors",
    ),
    "volumes": (
        lambda d: (write(d / "a.npz", x=PIXELS[..., None], y=Y), {}),
        r"'x' has shape \[120, 5, 7, 3, 1\]",
    ),
    "test images of another size": (
        lambda d: (
            write(d / "a.npz", x=PIXELS, y=Y, tx=PIXELS[:, :4], ty=Y),
            {"test_x_key": "tx", "test_y_key": "ty"},
        ),
        r"'tx' has images of 3×4×7, but 'x' has images of 3×5×7",
    ),
    "another format": (lambda d: (d / "a.csv", {}), r"ends in .npz or .safetensors: np.savez\('a.npz', x=x, y=y\)"),
    "NaN": (lambda d: (write(d / "a.npz", x=with_value(np.nan), y=Y), {}), r"'x' is nan in row 17, column 2"),
    "infinity": (lambda d: (write(d / "a.npz", x=with_value(np.inf), y=Y), {}), r"'x' is inf in row 17, column 2"),
    "other columns in test": (
        lambda d: (write(d / "a.npz", x=X, y=Y, tx=X[:, 1:], ty=Y), {"test_x_key": "tx", "test_y_key": "ty"}),
        r"'tx' has 5 columns, but 'x' has 6",
    ),
    "other labels in test": (
        lambda d: (write(d / "a.npz", x=X, y=Y, tx=X, ty=Y + 1), {"test_x_key": "tx", "test_y_key": "ty"}),
        r"label 3 in 'ty' is none of 'y'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path, case: str) -> None:
    prepare, message = BROKEN[case]
    path, options = prepare(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        source(path, **options).load()
    assert "\n" not in str(caught.value)
