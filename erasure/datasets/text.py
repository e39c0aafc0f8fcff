"""Texts as means of the vectors of their words (Harutyunyan et al. 2021, appendix A.8)."""

import functools
import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from erasure.dataset import RawImages
from erasure.datasets.hf import HuggingFaceTable
from erasure.store.checked_files import file_checksum, fingerprint

log = logging.getLogger(__name__)

_MARKUP = re.compile(  # comments and tags; "a < b and c > d" has none
    r"""<!--.*?-->|</?[a-z][\w:-]*(?:\s+[\w:-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>=]+))*\s*/?>""",
    re.DOTALL | re.IGNORECASE,
)
_JOINERS = "\u200c\u200d"  # between letters of one word, as in Persian and Malayalam
_SHOWN = 60  # characters of a text in figures


@dataclass(frozen=True, kw_only=True)
class MeanWordVectors(HuggingFaceTable):
    """Texts and labels from two columns of a Hugging Face table; a text is the mean of the vectors of its words.

    Words are runs of letters, digits and combining marks, in lower case and normal form C, without markup. Words
    without a vector do not count. Texts in languages without blanks between words have to be segmented first. A text
    without any known word becomes the zero vector, and a warning counts such texts. A vector is kept as d channels of
    one point, float32 [n, d, 1, 1], as in `Arrays`.

    Args:
        vectors: text file with a word and its d numbers on each line, the format of GloVe; a first line of two numbers,
            as in word2vec, is skipped.
        text_column: name of the column of texts.

    Raises:
        ValueError: `vectors` is missing or no such file; raised when texts are loaded.
    """

    vectors: str
    text_column: str = "text"

    version = 3
    locations: ClassVar[tuple[str, ...]] = (*HuggingFaceTable.locations, "vectors")

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        return {**super().unread_options(options), "flip": "a dataset of images"}

    def load(self) -> RawImages:
        return replace(super().load(), bounded=False)

    def content(self) -> str:
        """Return a digest of the files of texts and vectors."""
        vectors = file_checksum(self._file())  # vectors first: unlike texts, they cannot be fetched
        return fingerprint({"texts": super().content(), "vectors": vectors})

    def example_names(self, index: Tensor) -> list[str]:
        """Return the number of words and the beginning of the training texts at these positions [n]."""
        wanted = set(index.tolist())
        texts = {
            i: _plain(text) for i, (text, _) in enumerate(self._rows(self.train_split, "text_column")) if i in wanted
        }
        return [f"{len(_words(texts[i]))} words: {texts[i][:_SHOWN]}" for i in index.tolist()]

    def _read(self, split: str) -> tuple[Tensor, list[Any]]:
        texts, labels = [], []
        for i, (text, label) in enumerate(self._rows(split, "text_column")):
            if not isinstance(text, str):
                raise ValueError(f"row {i} of split {split} of {self.path} has no text: drop it")
            texts.append(_words(_plain(text)))
            labels.append(label)
        vectors = _read_vectors(self._file(), {word for words in texts for word in words})
        d = len(next(iter(vectors.values())))
        means = np.zeros((len(texts), d))
        for mean, words in zip(means, texts, strict=True):
            if known := [vectors[word] for word in words if word in vectors]:
                mean[:] = np.mean(known, axis=0, dtype=np.float64)
        if empty := int((~means.any(1)).sum()):
            log.warning("%d of %d texts of %s have no word in %s: zeros", empty, len(texts), split, self.vectors)
        return torch.from_numpy(means.astype(np.float32))[:, :, None, None], labels

    def _file(self) -> Path:
        path = Path(self.vectors).expanduser()
        if not path.is_file():
            raise ValueError(
                f"vectors={self.vectors}: no such file: put word vectors there, a word and its numbers on each "
                "line (glove.6B.300d.txt of nlp.stanford.edu/projects/glove)"
            )
        return path


def _plain(text: str) -> str:
    """Remove markup and line breaks."""
    return " ".join(_MARKUP.sub(" ", text).split())


def _words(text: str) -> list[str]:
    text = unicodedata.normalize("NFC", text.lower())
    joining = "".join(sorted(c for c in set(text) if c in _JOINERS or unicodedata.category(c).startswith("M")))
    return [word.rstrip(_JOINERS) for word in _word(joining).findall(text)]


@functools.lru_cache
def _word(joining: str) -> re.Pattern[str]:
    """Return the pattern of words in which these characters, which are no letters to `re`, may follow a letter."""
    return re.compile(rf"[^\W_](?:[^\W_]|[{re.escape(joining)}])*" if joining else r"[^\W_]+")


def _read_vectors(path: Path, wanted: set[str]) -> Mapping[str, np.ndarray]:
    """Read the vectors [d] float32 of some words; raise ValueError for an invalid line, or if no word is found."""
    vectors: dict[str, np.ndarray] = {}
    d = None
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for i, line in enumerate(file, 1):
            word, _, numbers = line.rstrip().partition(" ")
            if i == 1 and word.isdigit() and numbers.isdigit():
                continue
            d = d or numbers.count(" ") + 1
            word = unicodedata.normalize("NFC", word)
            if word not in wanted:
                continue
            values = numbers.split(" ")
            if len(values) > d:  # a word of several parts, as GloVe 840B has
                continue
            try:
                vector = np.array(values, dtype=np.float32)
            except ValueError:
                vector = np.empty(0, np.float32)
            if len(vector) != d or not np.isfinite(vector).all():
                raise ValueError(f"{path}, line {i}: need a word and {d} numbers: fetch or write the file again")
            vectors[word] = vector
    if not vectors:
        raise ValueError(f"{path} has no vector for any word of the texts: is it in their language and in lower case?")
    return vectors
