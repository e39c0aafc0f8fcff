"""Hugging Face datasets in their real format on disk."""

import io
import shutil
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
    cells = [
        i if i is None or isinstance(i, dict) else {"bytes": i if isinstance(i, bytes) else png(i), "path": None}
        for i in images
    ]
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


def test_the_files_that_the_hub_converts_a_dataset_to_are_read(tmp_path: Path) -> None:
    images, labels = write_cifarnet(tmp_path / "own")
    converted = tmp_path / "converted" / "default"
    write_parquet(converted / "train" / "0000.parquet", images[:20], labels[:20])
    write_parquet(converted / "train" / "0001.parquet", images[20:], labels[20:])
    write_parquet(converted / "test" / "0000.parquet", random_images(9), [i % 3 for i in range(9)])
    own, raw = source(tmp_path / "own").load(), source(converted.parent).load()
    assert torch.equal(raw.train.images, own.train.images)
    assert torch.equal(raw.train.labels, own.train.labels)
    assert raw.test is not None
    assert len(raw.test) == 9
    write_parquet(converted.parent / "other" / "train" / "0000.parquet", images, labels)
    with pytest.raises(ValueError, match="config=None: the parquet files of .* are in default, other: choose"):
        source(converted.parent).load()
    assert len(source(converted.parent, config="other", test_split=None).load().train) == 30
    write_parquet(tmp_path / "flat" / "0000.parquet", images, labels)
    with pytest.raises(ValueError, match="split train of .* choose from 0000"):
        source(tmp_path / "flat").load()


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
    write_parquet(tmp_path / "two" / "train.parquet", random_images(6), ["1", "0", "cat"] * 2, described=False)
    write_parquet(tmp_path / "two" / "test.parquet", random_images(6), [1, 0] * 3, described=False)
    raw = source(tmp_path / "two").load()  # numbers are names that are digits, and no positions
    assert raw.test is not None
    assert [raw.class_names[label] for label in raw.test.labels] == ["1", "0"] * 3


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
    write_cifarnet(tmp_path / "one")
    for folder in ("small", "large"):
        write_parquet(tmp_path / "two" / folder / "train.parquet", random_images(3), [0, 1, 2])
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "train.csv").write_text("img,label\n0.png,cat\n")
    cases = {
        r"^image_column=image: .* has no such column; choose from img, label": {"image_column": "image"},
        r"label_column=fine: .* has no such column": {"label_column": "fine"},
        r"split val of path=.* has no files val-\*\.parquet: choose from test, train with": {"test_split": "val"},
        r"test_split=train: it is also the training split": {"test_split": "train"},
        r"config=x: the parquet files of .* are in data: choose": {"config": "x"},
        r"config=None: the parquet files of .* are in large, small: choose": {"path": str(tmp_path / "two")},
        r"csv: no \.parquet files: .*Dataset\.to_parquet.*ImageFolder": {"path": str(tmp_path / "csv")},
        r"path=/no/where: no such folder or parquet file, and no name on": {"path": "/no/where"},
    }
    for line, changes in cases.items():
        with pytest.raises(ValueError, match=line) as error:
            source(**({"path": tmp_path / "one"} | changes)).load()
        assert "\n" not in str(error.value)
    assert len(source(tmp_path / "two", config="large", test_split=None).load().train) == 3


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
        with pytest.raises(ValueError, match=r"path=.*: train-00000-of-00001\.parquet cannot be read|image \d+ of"):
            source(tmp_path, test_split=None).load()
    with pytest.raises(ValueError, match="image 2 of split train of .* cannot be read as an image"):
        load([*images[:2], png(images[2])[:60], *images[3:]], labels)
    for empty in (None, {"bytes": None, "path": "/home/me/private.png"}):
        with pytest.raises(ValueError, match="image 3 of split train of .* is not in the file: .*ImageFolder"):
            load([*images[:3], empty, *images[4:]], labels)
    with pytest.raises(ValueError, match="image 4 .* is 9×9 but image 0 .* is 8×8: give one side for all with size="):
        load([*images[:4], *random_images(1, side=9), images[5]], labels)
    with pytest.raises(ValueError, match=r"label_column=label: 0\.5 is no class; need whole numbers"):
        load(images, [0.5] * 6, described=False)
    with pytest.raises(ValueError, match=r"label_column=label: -1 is no class"):
        load(images, [-1, 0, 1, 2, 0, 1], described=False)
    write_cifarnet(tmp_path)
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", images, [-1] * 6)
    shard.unlink()
    with pytest.raises(ValueError, match=r"which is none of the 3 training classes: .*test_split=None"):
        source(tmp_path).load()


BRIGHTNESS = {"ant": 10, "bee": 100, "cat": 200}  # the pixels of a class say which it is


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


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (["ant", "bee", "cat"], ["bee", "cat"]),
        (["cat", "bee"], ["ant", "bee", "cat"]),
        (["bee", "cat"], ["cat", "bee"]),
    ],
)
def test_splits_that_number_the_same_classes_differently_are_matched_by_name(
    tmp_path: Path, train: list[str], test: list[str]
) -> None:
    write_files(tmp_path, train=bright(train * 5, train), test=bright(["bee", "cat", "cat"], test))
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


def test_files_of_one_split_that_number_the_classes_differently_are_matched_by_name(tmp_path: Path) -> None:
    orders = [["bee", "cat"], ["cat", "bee"]]
    write_files(tmp_path, **{f"train-{i}": bright(["bee", "cat"] * 3, order) for i, order in enumerate(orders)})
    raw = source(tmp_path, test_split=None).load()
    assert raw.train.labels.tolist() == [0, 1] * 6
    assert read_right(raw)


def test_what_is_left_out_is_counted(tmp_path: Path, caplog) -> None:
    write_cifarnet(tmp_path)
    assert source(tmp_path).load().test is not None
    assert caplog.messages == []
    write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", random_images(9), [0, 1, 2] * 3)
    source(tmp_path).load()
    assert caplog.messages == [f"{tmp_path}: left out: split validation"]


def test_labels_that_are_missing_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for labels in (
        [0, 1, None, 0, None, 1],
        ["a", "b", None, "a", None, "b"],
        [0.0, 1.0, float("nan"), 0.0, None, 1.0],
    ):
        write_parquet(path, random_images(6), labels, described=False)
        with pytest.raises(ValueError, match="2 of 6 labels are missing: drop these rows"):
            source(path, test_split=None).load()


def write_card(root: Path, *lines: str) -> None:
    (root / "README.md").write_text("\n".join(["---", *lines, "---", "Pets.", ""]))


USUAL = [
    ["configs:", "- config_name: default", "  data_files:", "  - split: train", "    path: data/train-*",
     "  - split: test", "    path: data/test-*", "  - {split: extra, path: data/extra-*}"],
    ["configs:", "- config_name: data", "  data_dir: data", "  data_files: [{split: train, path: [train-00000*, "
     "train-00001*]}, {split: test, path: test-0.parquet}]"],
    ["configs:", "- {config_name: other, data_files: small.csv}", "- {config_name: default, data_dir: data}"],
    ["dataset_info:", "  features:", "  - {name: img, dtype: image}", "  - name: label",
     "    dtype: {class_label: {names: {'0': bee, '1': cat}}}"],
    ["configs:", "- {config_name: default, data_files: [{split: train, path: [data/train-*, data/nothing-*]}, "
     "{split: test, path: data/test-*}]}"],
    ["dataset_info: {features: 3}"],
    ["license: mit"],
]  # fmt: skip
OTHER_FILES = [
    ["configs:", "- config_name: default", "  data_files:", "  - {split: train, path: data/small-*}",
     "  - {split: test, path: data/test-*}"],
    ["configs:", "- config_name: default",
     "  data_files: [{split: train, path: data/train-00000*}, {split: test, path: data/test-*}]"],
    ["configs:", "- {config_name: default, data_files: data/*.parquet}"],
    ["configs:", "- {config_name: default, data_files: [{split: train, path: data/train-*}]}"],
    ["configs:", "- {config_name: default, data_dir: small}"],
    ["configs:", "- {config_name: default, data_files: {train: data/train-*}}"],
    ["configs:", "- {config_name: default, data_files: [{split: train, path: [data/train-*, ../more.parquet]}]}"],
]  # fmt: skip


def write_shards(root: Path) -> None:
    shards = {f"train-0000{i}": bright(["bee", "cat"] * 3, ["bee", "cat"]) for i in range(2)}
    small = bright(["cat", "bee"], ["bee", "cat"])
    write_files(root / "data", **shards, **{"test-0": small, "small-0": small})


@pytest.mark.parametrize("lines", USUAL)
def test_a_readme_that_names_the_files_that_are_read_changes_nothing(tmp_path: Path, lines: list[str]) -> None:
    write_shards(tmp_path)
    write_card(tmp_path, *lines)
    raw = source(tmp_path).load()
    assert (len(raw.train), raw.class_names) == (12, ("bee", "cat"))
    files = hub_download.checksums(tmp_path)
    assert source(tmp_path).content() == fingerprint({"files": files, "decoded": image_decoding.VERSION})
    assert len(source(tmp_path, config="data").load().train) == 12


@pytest.mark.parametrize("lines", OTHER_FILES)
def test_a_readme_that_names_other_files_is_refused(tmp_path: Path, lines: list[str]) -> None:
    write_shards(tmp_path)
    write_card(tmp_path, *lines)
    for read in (source(tmp_path).content, source(tmp_path).load):
        with pytest.raises(
            ValueError, match=r"^split \w+ of path=.*README.md names other files .*: copy those"
        ) as error:
            read()
        assert "\n" not in str(error.value)


def test_a_readme_of_several_configurations_is_read_for_the_chosen_one(tmp_path: Path) -> None:
    for name in ("large", "small"):
        write_files(tmp_path / name, **{"train-0": bright(["bee", "cat"], ["bee", "cat"])})
    swapped = [f"- {{config_name: {one}, data_files: {other}/train-*}}" for one, other in
               (("large", "small"), ("small", "small"))]  # fmt: skip
    write_card(tmp_path, "configs:", *swapped)
    assert len(source(tmp_path, config="small", test_split=None).load().train) == 2
    with pytest.raises(ValueError, match="README.md names other files"):
        source(tmp_path, config="large", test_split=None).load()
    write_card(tmp_path, "configs: [")
    with pytest.raises(ValueError, match=r"README\.md begins with broken metadata .*: fix it"):
        source(tmp_path, config="small").load()
    write_card(tmp_path, "date: 2023-13-45")
    with pytest.raises(ValueError, match=r"README\.md begins with broken metadata .*: fix it"):
        source(tmp_path, config="small", test_split=None).load()


CLASSES_IN_README = ["dataset_info:", "- config_name: default", "  features:", "  - name: label",
                     "    dtype: {class_label: {names: {'0': a, '1': b, '2': c}}}"]  # fmt: skip


@pytest.mark.parametrize("description", ["README.md", "dataset_infos.json"])
def test_class_names_that_the_files_lack_are_refused(tmp_path: Path, description: str) -> None:
    write_parquet(tmp_path / "train.parquet", random_images(4), [0, 1, 0, 1], described=False)
    if description == "README.md":
        write_card(tmp_path, *CLASSES_IN_README)
    else:
        (tmp_path / description).write_text('{"default": %s}' % FEATURES[len('{"info": ') : -1])  # noqa: UP031
    with pytest.raises(ValueError, match=f"label_column=label: {description} of .* names classes, but train.parquet"):
        source(tmp_path, test_split=None).load()
    write_parquet(tmp_path / "train.parquet", random_images(4), [0, 1, 0, 1])
    assert source(tmp_path, test_split=None).load().class_names == tuple(NAMES)  # the negative control


@pytest.mark.parametrize("names", [["1", "2", "3"], ["1", "0", "2"], ["ant", "bee", "cat"]])
@pytest.mark.parametrize("unnamed", ["test", "train-1"])
def test_files_of_which_only_some_name_their_classes_are_refused(
    tmp_path: Path, names: list[str], unnamed: str
) -> None:
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    rows = {"img": [{"bytes": png(image), "path": None} for image in random_images(3)], "label": [0, 1, 2]}
    for split in ("train-0", "train-1", "test"):
        write_files(tmp_path, **{split: datasets.Dataset.from_dict(rows, features=features)})
    assert source(tmp_path).load().train.labels.tolist() == [0, 1, 2] * 2
    write_parquet(tmp_path / f"{unnamed}.parquet", random_images(3), [1, 2, 0], described=False)
    with pytest.raises(ValueError, match=f"stores the names of its classes, but {unnamed}.parquet does not: write all"):
        source(tmp_path).load()
    converted = tmp_path / "converted" / "default"
    for split, file in (("train", "train-0"), ("test", unnamed)):
        (converted / split).mkdir(parents=True)
        shutil.copy(tmp_path / f"{file}.parquet", converted / split / "0000.parquet")
    with pytest.raises(ValueError, match=r"default/test/0000\.parquet does not: write all"):
        source(converted.parent).load()
    write_parquet(converted / "test" / "0000.parquet", random_images(2), [names[1], names[0]], described=False)
    raw = source(converted.parent).load()  # words name their classes
    assert raw.test is not None
    assert raw.test.labels.tolist() == [1, 0]


def test_two_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", random_images(3), [0, 1, 2])
    table = pq.read_table(tmp_path / "train.parquet")
    repeated = FEATURES.replace("bird", "truck")
    pq.write_table(table.replace_schema_metadata({"huggingface": repeated}), tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="label_column=label: train.parquet of .* calls two classes truck: rename one"):
        source(tmp_path, test_split=None).load()
