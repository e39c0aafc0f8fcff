"""Hugging Face datasets in their real format on disk."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from erasure import image_decoding
from erasure.dataset import RawImages
from erasure.datasets import hub_download
from erasure.datasets.hf import HuggingFace
from erasure.store.checked_files import fingerprint
from tests.erasure.datasets.test_image_folder import write_images

NAMES = ["airplane", "truck", "bird"]
FEATURES = (
    '{"info": {"features": {"img": {"_type": "Image"}, '
    '"label": {"names": ["airplane", "truck", "bird"], "_type": "ClassLabel"}}}}'
)
Pixels = list[np.ndarray]


def random_images(n: int, *, side: int = 8) -> Pixels:
    """Every third is grayscale, as some of CIFARNet's are."""
    generator = np.random.default_rng(n)
    shapes = [(side, side) if i % 3 == 0 else (side, side, 3) for i in range(n)]
    return [generator.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_parquet(path: Path, images: list[Any], labels: list[Any], *, described: bool = True) -> None:
    """Write images as `datasets` does: {bytes, path}, the types of the columns in the schema's metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [None if i is None else {"bytes": i if isinstance(i, bytes) else png(i), "path": None} for i in images]
    table = pa.table({"img": pa.array(cells, pa.struct({"bytes": pa.binary(), "path": pa.string()})), "label": labels})
    pq.write_table(table.replace_schema_metadata({"huggingface": FEATURES} if described else {}), path)


def write_cifarnet(folder: Path) -> tuple[Pixels, list[int]]:
    """A repository in CIFARNet's layout; its training images and labels."""
    images, labels = random_images(30), [i % 3 for i in range(30)]
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", images[:20], labels[:20])
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", images[20:], labels[20:])
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", random_images(9), [i % 3 for i in range(9)])
    (folder / "README.md").write_text("---\ntask_categories: [image-classification]\n---\nTen kinds of things.\n")
    return images, labels


def source(path: Path | str, **changes: Any) -> HuggingFace:
    shared: dict[str, Any] = {"flip": True, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
    options: dict[str, Any] = {**shared, "image_column": "img", **changes}
    return HuggingFace(name="hf", path=str(path), **options)


def test_parquet_shards_come_back_exactly_with_grayscale_as_rgb(tmp_path: Path) -> None:
    images, labels = write_cifarnet(tmp_path)
    raw = source(tmp_path).load()
    assert raw.class_names == tuple(NAMES)
    assert raw.train.images.shape == (30, 3, 8, 8)
    assert raw.train.images.dtype == torch.uint8
    assert raw.train.labels.tolist() == labels
    for i in (0, 1, 20, 29):
        expected = images[i] if images[i].ndim == 3 else np.repeat(images[i][:, :, None], 3, 2)
        assert np.array_equal(raw.train.images[i].permute(1, 2, 0).numpy(), expected)
    assert raw.test is not None
    assert len(raw.test) == 9
    assert source(tmp_path, channels=1, size=4).load().train.images.shape == (30, 1, 4, 4)
    assert source(tmp_path).example_names(torch.tensor([29, 0])) == ["row 29", "row 0"]


def test_one_parquet_file_words_and_numbers_as_labels(tmp_path: Path) -> None:
    words = tmp_path / "pets.parquet"
    write_parquet(words, random_images(6), ["dog", "cat"] * 3, described=False)
    raw = source(words, test_split=None).load()
    assert raw.class_names == ("cat", "dog")
    assert raw.train.labels.tolist() == [1, 0] * 3
    assert raw.test is None
    write_parquet(tmp_path / "n.parquet", random_images(6), [0, 2, 1] * 2, described=False)
    raw = source(tmp_path / "n.parquet", test_split=None).load()
    assert raw.class_names == ("0", "1", "2")
    assert raw.train.labels.tolist() == [0, 2, 1] * 2


def test_a_folder_of_images_is_read_as_the_hub_would(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 3)
    write_images(tmp_path, "test", 2)
    raw = source(tmp_path, image_column="image").load()
    assert raw.class_names == ("cat", "dog")
    assert raw.train.labels.bincount().tolist() == [3, 3]
    stored = np.asarray(Image.open(tmp_path / "train" / "cat" / "000.png"))
    assert any(np.array_equal(image.permute(1, 2, 0).numpy(), stored) for image in raw.train.images)
    (tmp_path / "train" / "dog" / "000.png").unlink()
    (tmp_path / "train" / "dog" / "000.png").symlink_to(tmp_path / "train" / "cat" / "000.png")
    (tmp_path.parent / f"link-{tmp_path.name}").symlink_to(tmp_path)
    linked = source(tmp_path.parent / f"link-{tmp_path.name}", image_column="image")
    raw, names = linked.load(), linked.example_names(torch.arange(6))
    assert len(raw.train) == 6
    assert sorted(names) == [f"train/{animal}/00{i}.png" for animal in ("cat", "dog") for i in range(3)]
    for name, image in zip(names, raw.train.images, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(Image.open(tmp_path / name)))


def test_identity_is_that_of_the_content_wherever_it_lies(tmp_path: Path) -> None:
    write_cifarnet(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "there" / ".gitattributes").write_text("hidden files are no data")
    here, there = source(tmp_path / "here"), source(tmp_path / "there", root="elsewhere")
    assert here.identity() == there.identity()
    assert here.identity() != source(tmp_path / "here", size=4).identity()
    shard = tmp_path / "there" / "data" / "train-00000-of-00002.parquet"
    altered = bytearray(shard.read_bytes())
    altered[100] ^= 1  # one pixel, the same length
    shard.write_bytes(altered)
    assert here.identity() != there.identity()


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    write_cifarnet(tmp_path)
    cases = {
        r"^image_column=image: .* has no such column; choose from img, label": {"image_column": "image"},
        r"label_column=fine: .* has no such column": {"label_column": "fine"},
        r"split val of path=.* cannot be read \(Bad split: val": {"test_split": "val"},
        r"cannot be read \(BuilderConfig 'x' not found.* config=NAME": {"config": "x"},
    }
    for line, changes in cases.items():
        with pytest.raises(ValueError, match=line) as error:
            source(tmp_path, **changes).load()
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"path=/no/where: no such folder or parquet file, and no name on"):
        source("/no/where").load()


def test_broken_files_and_rows_are_named(tmp_path: Path) -> None:
    shard = tmp_path / "data" / "train-00000-of-00001.parquet"
    images, labels = random_images(6), [0, 1, 2, 0, 1, 2]

    def load(images: list[Any], labels: list[Any], *, described: bool = True) -> None:
        write_parquet(shard, images, labels, described=described)
        source(tmp_path, test_split=None).load()

    load(images, labels)
    whole = shard.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"<html>", whole[:50] + b"\0" * 200 + whole[250:]):
        shard.write_bytes(content)
        with pytest.raises(ValueError, match=r"split train of .* (cannot be read|which is none of)|image \d+ of"):
            source(tmp_path, test_split=None).load()
    with pytest.raises(ValueError, match="image 2 of split train of .* cannot be read as an image"):
        load([*images[:2], png(images[2])[:60], *images[3:]], labels)
    with pytest.raises(ValueError, match="image 3 of split train of .* is empty"):
        load([*images[:3], None, *images[4:]], labels)
    with pytest.raises(ValueError, match="image 4 .* is 9×9 but image 0 .* is 8×8: give one side for all with size="):
        load([*images[:4], *random_images(1, side=9), images[5]], labels)
    with pytest.raises(ValueError, match=r"label_column=label: 0\.5 is no class; need whole numbers"):
        load(images, [0.5] * 6, described=False)
    with pytest.raises(ValueError, match=r"label_column=label: -1 is no class"):
        load(images, [-1, 0, 1, 2, 0, 1], described=False)
    write_cifarnet(tmp_path)
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", images, [-1] * 6)
    shard.unlink()
    with pytest.raises(ValueError, match=r"label -1, which is none of the 3 training classes: .*test_split=None"):
        source(tmp_path).load()


@pytest.mark.parametrize("name", ["{outside}", "../private/0.png", "link/0.png", "0.png"])
def test_a_cell_names_no_file_outside_the_datasets_folder(tmp_path: Path, name: str) -> None:
    """A path in the place of an image's bytes may be that of any image of this machine."""
    data, private = tmp_path / "data", tmp_path / "private"
    private.mkdir()
    data.mkdir()
    (private / "0.png").write_bytes(png(random_images(1)[0]))
    (data / "link").symlink_to(private)
    (data / "0.png").symlink_to(private / "0.png")
    (data / "own.png").write_bytes(png(random_images(2)[1]))

    def load(path: str) -> RawImages:
        cells = [{"bytes": None, "path": path}, *({"bytes": png(each), "path": None} for each in random_images(5))]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        pq.write_table(pa.table({"img": pa.array(cells, kind), "label": [0, 1] * 3}), data / "a.parquet")
        return source(data / "a.parquet", test_split=None).load()

    named = name.format(outside=private / "0.png")
    with pytest.raises(ValueError, match=f"row 0 names a file outside the dataset's folder: {named}") as error:
        load(named)
    assert "\n" not in str(error.value)
    for inside in ("own.png", str(data / "own.png")):  # the negative control
        assert np.array_equal(load(inside).train.images[0].permute(1, 2, 0).numpy(), random_images(2)[1])


@pytest.mark.parametrize("place", ["{outside}/a.parquet", "../private/a.parquet"])
def test_a_readme_names_no_file_outside_the_datasets_folder(tmp_path: Path, place: str) -> None:
    data, private = tmp_path / "data", tmp_path / "private"
    write_parquet(private / "a.parquet", random_images(6), [0, 1] * 3)
    data.mkdir()

    def load(path: str) -> RawImages:
        (data / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: {path}\n---\n")
        return source(data, test_split=None).load()

    with pytest.raises(ValueError, match=r"it names a file outside its folder: .*/private/a\.parquet"):
        load(place.format(outside=private))
    (data / "a.parquet").symlink_to(private / "a.parquet")  # the negative control, and as the hub's cache has them
    assert len(load("a.parquet").train) == 6


BRIGHTNESS = {"ant": 10, "bee": 100, "cat": 200}  # the pixels of a class say which it is
Write = Callable[..., None]


def save(root: Path, **splits: datasets.Dataset) -> None:
    datasets.DatasetDict(**splits).save_to_disk(str(root))


def write_files(root: Path, **splits: datasets.Dataset) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, split in splits.items():
        split.to_parquet(str(root / f"{name}.parquet"))


def bright(words: list[str], names: list[str]) -> datasets.Dataset:
    """Images whose pixels say which class they are of, numbered in the order of `names`."""
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    cells = [{"bytes": png(np.full((4, 4), BRIGHTNESS[word], np.uint8)), "path": None} for word in words]
    labels = [names.index(word) for word in words]
    return datasets.Dataset.from_dict({"img": cells, "label": labels}, features=features)


def read_right(raw: RawImages) -> bool:
    parts = [raw.train, *([raw.test] if raw.test else [])]
    return all(
        int(image[0, 0, 0]) == BRIGHTNESS[raw.class_names[label]]
        for part in parts
        for image, label in zip(part.images, part.labels, strict=True)
    )


@pytest.mark.parametrize("write", [save, write_files])
@pytest.mark.parametrize(
    ("train", "test"),
    [
        (["ant", "bee", "cat"], ["bee", "cat"]),
        (["cat", "bee"], ["ant", "bee", "cat"]),
        (["bee", "cat"], ["cat", "bee"]),
    ],
)
def test_splits_that_number_the_same_classes_differently_are_matched_by_name(
    tmp_path: Path, write: Write, train: list[str], test: list[str]
) -> None:
    write(tmp_path, train=bright(train * 5, train), test=bright(["bee", "cat", "cat"], test))
    raw = source(tmp_path).load()
    assert raw.class_names == tuple(train)
    assert raw.test is not None
    assert raw.test.labels.tolist() == [train.index(word) for word in ("bee", "cat", "cat")]
    assert read_right(raw)


def test_how_the_files_number_their_classes_is_part_of_the_identity_only_where_they_differ(tmp_path: Path) -> None:
    """The same files were read otherwise, so that their results must not be taken for new ones."""
    for name, order in (("equal", ["bee", "cat"]), ("other", ["cat", "bee"])):
        write_files(tmp_path / name, train=bright(["bee", "cat"] * 3, ["bee", "cat"]), test=bright(["cat"], order))

    def files_alone(name: str) -> str:
        files = hub_download.checksums(tmp_path / name)
        return fingerprint({"files": files, "decoded": image_decoding.VERSION})

    assert source(tmp_path / "equal").content() == files_alone("equal")
    assert source(tmp_path / "other").content() != files_alone("other")


def test_files_of_one_split_that_number_the_classes_differently_are_refused(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{f"train-{i}": bright(["bee", "cat"] * 3, o) for i, o in enumerate([["bee", "cat"], ["cat", "bee"]])},
    )
    with pytest.raises(
        ValueError, match=r"its files number the classes differently, \('bee', 'cat'\) and \('cat', 'bee'\)"
    ):
        source(tmp_path, test_split=None).load()


@pytest.mark.parametrize("splits", [("train", "test"), None])
def test_files_that_map_leaves_are_no_examples(tmp_path: Path, splits: tuple[str, str] | None, caplog) -> None:
    words = ["bee", "cat"] * 10
    if splits is None:
        bright(words, ["bee", "cat"]).save_to_disk(str(tmp_path))
    else:
        save(tmp_path, **{name: bright(words, ["bee", "cat"]) for name in splits})
    options = {} if splits else {"test_split": None}
    before = source(tmp_path, **options).content()
    datasets.load_from_disk(str(tmp_path)).map(lambda row: {"label": 1 - row["label"]})
    assert list(tmp_path.rglob("cache-*.arrow"))
    raw = source(tmp_path, **options).load()
    assert len(raw.train) == 20
    assert read_right(raw)
    assert source(tmp_path, **options).content() == before
    n = 2 if splits else 1
    assert caplog.messages == [f"{tmp_path}: left out: {n} .arrow files in no split"]
    next(iter(tmp_path.rglob("state.json"))).write_text("{")
    with pytest.raises(ValueError, match=r"its state\.json cannot be read .*: save the dataset again"):
        source(tmp_path, **options).content()


@pytest.mark.parametrize("words", [("train", "train"), ("train", "test")])
def test_file_names_that_would_decide_the_split_are_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    for name, word in zip(("bus", "tram"), words, strict=True):
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / (f"{name}_{word}_{i}.png" if i < 3 else f"{name}_{i}.png")).write_bytes(
                png(np.eye(4, dtype=np.uint8))
            )
    images = source(tmp_path, image_column="image", test_split=None)
    for read in (images.load, images.content):
        with pytest.raises(
            ValueError, match=r"14 of 20 images belong to no split, .*bus/bus_train_0\.png.*image_folder"
        ):
            read()


def test_a_class_called_train_beside_another_is_refused(tmp_path: Path) -> None:
    for name in ("train", "bus"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(png(np.eye(4, dtype=np.uint8)))
    with pytest.raises(ValueError, match="1 of 2 images belong to no split"):
        source(tmp_path, image_column="image", test_split=None).load()


def test_what_is_left_out_is_counted(tmp_path: Path, caplog) -> None:
    write_cifarnet(tmp_path)
    assert source(tmp_path).load().test is not None
    assert caplog.messages == []
    write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", random_images(9), [0, 1, 2] * 3)
    write_parquet(tmp_path / "more.parquet", random_images(9), [0, 1, 2] * 3)
    source(tmp_path).load()
    assert caplog.messages == [f"{tmp_path}: left out: 1 .parquet files in no split, 1 files of split validation"]


def test_images_that_metadata_does_not_name_and_splits_in_upper_case_are_said(tmp_path: Path, caplog) -> None:
    write_images(tmp_path / "a", "train", 5)
    rows = "".join(f"cat/{i:03}.png,{i % 2}\n" for i in range(4))
    (tmp_path / "a" / "train" / "metadata.csv").write_text("file_name,label\n" + rows)
    assert len(source(tmp_path / "a", image_column="image", test_split=None).load().train) == 4
    assert caplog.messages == [f"{tmp_path}/a: left out: 6 images of split train"]
    caplog.clear()
    for split in ("Train", "Test"):
        write_images(tmp_path / "b", split, 2)
    assert len(source(tmp_path / "b", image_column="image", test_split=None).load().train) == 8
    assert caplog.messages == [f"{tmp_path}/b: Test is read as training data: splits are written in lower case"]


def test_a_csv_file_of_paths_is_read(tmp_path: Path) -> None:
    for i, image in enumerate(random_images(4)):
        (tmp_path / f"{i}.png").write_bytes(png(image))
    rows = "".join(f"{i}.png,{word}\n" for i, word in enumerate(["cat", "dog"] * 2))
    (tmp_path / "train.csv").write_text("img,label\n" + rows)
    raw = source(tmp_path, test_split=None).load()
    assert raw.class_names == ("cat", "dog")
    assert np.array_equal(raw.train.images[1].permute(1, 2, 0).numpy(), random_images(4)[1])
    assert source(tmp_path, test_split=None).example_names(torch.tensor([1])) == ["1.png"]
    (tmp_path / "train.csv").write_text(f"img,label\n../{tmp_path.name}-private/0.png,cat\n" + rows)
    with pytest.raises(ValueError, match="names a file outside the dataset's folder"):
        source(tmp_path, test_split=None).load()


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("tags: [a\n: b", r"README\.md begins with broken metadata \(.*\): fix it, or delete the lines"),
        ("- a", "split train of .* cannot be read"),
        (
            "configs:\n- config_name: a\n  data_files: http://127.0.0.1:9/a.parquet",
            "file outside its folder: http://127",
        ),
        (
            "configs:\n- config_name: a\n  data_files:\n  - split: train\n    path: [hf://datasets/a/b.parquet]",
            "folder: hf:",
        ),
    ],
)
def test_a_readme_that_is_broken_or_names_addresses_is_one_line(
    tmp_path: Path, yaml: str, said: str, monkeypatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    write_cifarnet(tmp_path)
    (tmp_path / "README.md").write_text(f"---\n{yaml}\n---\n")
    with pytest.raises(ValueError, match=said) as error:
        source(tmp_path).load()
    assert "\n" not in str(error.value)


def test_hidden_configurations_are_refused(tmp_path: Path) -> None:
    """They have no checksum, and would decide what is read."""
    write_cifarnet(tmp_path)
    (tmp_path / ".huggingface.yaml").write_text("configs:\n- config_name: a\n  data_files: data/test*")
    with pytest.raises(ValueError, match=r"\.huggingface\.yaml is not read: move its lines into README\.md"):
        source(tmp_path).load()


def test_labels_that_are_missing_are_counted_and_whole_floats_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, random_images(6), [0.0, 1.0, 1.0, 0.0, 1.0, 0.0], described=False)
    raw = source(path, test_split=None).load()
    assert raw.class_names == ("0", "1")
    assert raw.train.labels.tolist() == [0, 1, 1, 0, 1, 0]
    for labels in (
        [0, 1, None, 0, None, 1],
        ["a", "b", None, "a", None, "b"],
        [0.0, 1.0, float("nan"), 0.0, None, 1.0],
    ):
        write_parquet(path, random_images(6), labels, described=False)
        with pytest.raises(ValueError, match="2 of 6 labels are missing: drop these rows"):
            source(path, test_split=None).load()
