"""Reviews in the hub's format and vectors in GloVe's: means of known words, prepared, scored, refused in one line."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from erasure.datasets.text import MeanWordVectors
from scripts.prepare_dataset import main

FEATURES = {
    "info": {
        "features": {
            "text": {"dtype": "string", "_type": "Value"},
            "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        }
    }
}
VECTORS = {"good": (1.0, 0.5, 0.25), "bad": (-1.0, 0.5, 0.125), "film": (0.0, 0.0, 2.0), "it's": (9.0, 9.0, 9.0)}
D = 3


def write_imdb(folder: Path, train: list[tuple[str, int]], test: list[tuple[str, int]]) -> None:
    """Write reviews as stanfordnlp/imdb has them on the hub."""
    (folder / "plain_text").mkdir(parents=True)
    for split, rows in (("train", train), ("test", test)):
        table = pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(FEATURES)})
        pq.write_table(table, folder / "plain_text" / f"{split}-00000-of-00001.parquet")


def write_glove(path: Path, vectors=None, first: str = "") -> Path:
    lines = [" ".join([word, *map(str, values)]) for word, values in (vectors or VECTORS).items()]
    path.write_text(first + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def source(folder: Path, vectors: Path, **changes) -> MeanWordVectors:
    options = {"flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0} | changes
    return MeanWordVectors(name="imdb", path=str(folder), vectors=str(vectors), **options)


TRAIN = [("A <br /><br />Good, GOOD film!", 1), ("bad\nfilm", 0), ("Unheard-of words only", 0)]


def test_a_text_is_the_mean_of_its_words_vectors(tmp_path: Path, caplog) -> None:
    write_imdb(tmp_path / "imdb", TRAIN, [("good", 1), ("bad bad", 0)])
    reviews = source(tmp_path / "imdb", write_glove(tmp_path / "glove.txt"))
    raw = reviews.load()
    expected = [np.mean([VECTORS["good"]] * 2 + [VECTORS["film"]], 0), np.mean([VECTORS["bad"], VECTORS["film"]], 0)]
    torch.testing.assert_close(raw.train.images[:2, :, 0, 0], torch.tensor(np.array(expected), dtype=torch.float32))
    assert raw.train.images.shape == (3, D, 1, 1)
    assert not raw.train.images[2].any()
    assert "1 of 3 texts of train have no word in" in caplog.text
    assert raw.train.labels.tolist() == [1, 0, 0]
    assert raw.class_names == ("neg", "pos")
    assert not raw.bounded
    assert raw.test is not None
    assert raw.test.images[1, :, 0, 0].tolist() == list(VECTORS["bad"])
    assert reviews.example_names(torch.tensor([1, 0])) == ["2 words: bad film", "4 words: A Good, GOOD film!"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("यह फिल्म, अच्छी है", ["यह", "फिल्म", "अच्छी", "है"]),
        (unicodedata.normalize("NFD", "Café déjà_vu"), ["café", "déjà", "vu"]),
        ("İstanbul'da", ["i\u0307stanbul", "da"]),
        ("مَدرسة می\u200cخواهم\u200c.", ["مَدرسة", "می\u200cخواهم"]),
        ("a < b and c > d", ["a", "b", "and", "c", "d"]),
        ("x<y and z>w <<< 1 >>>", ["x", "y", "and", "z", "w", "1"]),
        (
            "<p>A<br/>b<BR class='x y' id=z>\n<a href=\"http://x/?y>z\">link</a ><!-- no\n<i> -->end</p>",
            ["a", "b", "link", "end"],
        ),
    ],
)
def test_words_keep_their_marks_and_comparisons_are_no_markup(tmp_path: Path, text: str, words: list[str]) -> None:
    """Each text is read as the mean of its words' vectors, whatever normal form the vectors are written in."""
    places = {word: np.eye(len(words))[i] for i, word in enumerate(words)}
    write_imdb(tmp_path / "imdb", [(text, 0), (words[0], 1)], [(text, 0)])
    glove = write_glove(tmp_path / "v.txt", {unicodedata.normalize("NFD", word): v for word, v in places.items()})
    texts = source(tmp_path / "imdb", glove)
    assert texts.load().train.images[0, :, 0, 0].tolist() == pytest.approx([1 / len(words)] * len(words))
    assert texts.example_names(torch.tensor([0]))[0].startswith(f"{len(words)} words: ")


def test_vectors_may_have_a_first_line_of_word2vec_a_byte_order_mark_and_words_of_several_parts(tmp_path: Path) -> None:
    write_imdb(tmp_path / "imdb", TRAIN, [("good", 1)])
    plain = source(tmp_path / "imdb", write_glove(tmp_path / "plain.txt"))
    other = source(tmp_path / "imdb", write_glove(tmp_path / "other.txt", VECTORS | {"good film": (7, 7, 7)}, "5 3\n"))
    marked = source(tmp_path / "imdb", write_glove(tmp_path / "marked.txt", first="\ufeff"))
    for vectors_of in (other, marked):
        assert torch.equal(plain.load().train.images, vectors_of.load().train.images)
        assert plain.content() != vectors_of.content()


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (VECTORS | {"bad": (1.0, 2.0)}, "line 2: need a word and 3 numbers"),
        (VECTORS | {"film": (1.0, "x", 2.0)}, "line 3: need a word and 3 numbers"),
        ({"gut": (1.0, 2.0, 3.0)}, "has no vector for any word of the texts"),
    ],
)
def test_files_that_are_no_word_vectors_are_refused(tmp_path: Path, vectors, said: str) -> None:
    write_imdb(tmp_path / "imdb", TRAIN, [("good", 1)])
    with pytest.raises(ValueError, match=said):
        source(tmp_path / "imdb", write_glove(tmp_path / "glove.txt", vectors)).load()


def test_prepare_makes_vectors_once_and_says_what_is_missing(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    write_imdb(tmp_path / "imdb", [*TRAIN[:2]] * 20, [*TRAIN[:2]] * 5)
    assert main(["dataset=imdb"]) == 2  # before reviews are fetched
    assert "dataset.vectors=data/glove.6B.300d.txt: no such file" in capsys.readouterr().err
    assert main(["dataset=imdb", "dataset.path=imdb"]) == 2
    assert "dataset.vectors=data/glove.6B.300d.txt: no such file: put word vectors there" in capsys.readouterr().err
    (tmp_path / "data").mkdir()
    write_glove(tmp_path / "data" / "glove.6B.300d.txt")
    assert main(["dataset=imdb", "dataset.path=imdb"]) == 0
    assert "imdb: 50 vectors of 3 values, 2 classes" in capsys.readouterr().out
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert len(written) > 0
    assert main(["dataset=imdb", "dataset.path=imdb"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == written
