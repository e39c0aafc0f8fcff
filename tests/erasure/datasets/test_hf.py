"""Hugging Face datasets in their real format on disk."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from erasure.dataset import RawImages
from erasure.datasets.hf import HuggingFace
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
    assert len(linked.load().train) == 6


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
