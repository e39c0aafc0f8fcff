"""The base classes of datasets: labelled images with an identity, and published ones, verified by their checksums."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from erasure.code_identity import code_identity
from erasure.fetch_errors import fetching
from erasure.store.checked_files import fingerprint


class MissingDataError(ValueError):
    """A missing or damaged dataset that `Source.fetch` can download.

    Attributes:
        problem: description of the missing or damaged part.
        source: the dataset.
    """

    def __init__(self, problem: str, source: "Source") -> None:
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.problem}: fetch() brings it"


@dataclass(frozen=True)
class LabelledImages:
    """One split: `images` [n, C, H, W], `labels` [n] int64. Vectors are images [n, d, 1, 1]: d channels of a point."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "LabelledImages":
        return LabelledImages(self.images[index], self.labels[index])


@dataclass(frozen=True)
class RawImages:
    """A dataset as its source stores it.

    Attributes:
        train: training images, uint8 in 0..max_value or floating in 0..1; vectors floating, of any values.
        test: the official held-out split, or None where there is none.
        class_names: one per label.
        max_value: largest possible value of a uint8 pixel (255; 16 for the digits).
        bounded: whether values outside 0..1 are impossible, as for images but not for vectors.
        parts: number of training images of each part of a mixture, by name; the images follow in this order.

    Raises:
        ValueError: training and test images of different shapes.
    """

    train: LabelledImages
    test: LabelledImages | None
    class_names: tuple[str, ...]
    max_value: int = 255
    bounded: bool = True
    parts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        train, test = (None if part is None else tuple(part.images.shape[1:]) for part in (self.train, self.test))
        if test is not None and train != test:
            shapes = ("×".join(map(str, shape)) for shape in (train or (), test))
            raise ValueError(
                "training images are {}, but test images are {} (channels×height×width): give one side for all with "
                "size=PIXELS".format(*shapes)
            )

    def map(self, function: Callable[[LabelledImages], LabelledImages]) -> "RawImages":
        """Apply a function to the training images, and to the test images where there are any."""
        return replace(self, train=function(self.train), test=None if self.test is None else function(self.test))


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A named dataset.

    Args:
        name: name in tables and figures.
        flip: whether horizontal flips are a valid augmentation (they are not for digits).
        validation_size: number of images taken out of the training split for early stopping; None for 1,024, as in the
            paper, or a tenth, whichever is less.
        test_fraction: share of the images held out for testing if there is no official test split.
        split_seed: seed of these two splits, which belong to the dataset and do not depend on the seeds of a run.
        normalize: "zscore" gives every coordinate mean 0 and variance 1 on the training split before erasure; "none"
            leaves pixels as they are.
    """

    name: str
    flip: bool
    validation_size: int | None
    test_fraction: float
    split_seed: int
    normalize: Literal["none", "zscore"] = "none"

    version: ClassVar[int]  # of the loaded data; a subclass without one is identified by its source
    slow_to_load: ClassVar[bool] = True  # whether to cache the images as one tensor file
    locations: ClassVar[tuple[str, ...]] = ()  # fields that hold paths, which are not part of the identity

    @abstractmethod
    def load(self) -> RawImages:
        """Read the images.

        Raises:
            MissingDataError: the data is missing or damaged, and can be fetched.
            ValueError: the data is missing or invalid.
        """

    @abstractmethod
    def content(self) -> str:
        """Return an identity of the stored images, without decoding them; it is the same on every machine."""

    def example_names(self, index: Tensor) -> list[str]:
        """Return the names of the training examples at these positions [n], those of their files or rows."""
        return [f"row {i}" for i in index.tolist()]

    def identity(self) -> dict[str, object]:
        """Return the properties of this dataset that determine the numbers of a run, without those of this machine."""
        described = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.locations}
        return described | {"code": code_identity(type(self)), "content": self.content()}

    def stored_identity(self) -> dict[str, object]:
        """Return the part of the identity that `load` depends on, without splits, normalisation and names."""
        shared = {f.name for f in fields(Source)}
        return {key: value for key, value in self.identity().items() if key not in shared}

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG003, an override may use them
        """Return options that have no effect under the other options, each with the setting or kind that reads it."""
        return {}

    def fetch(self) -> None:  # noqa: B027 nothing to do is the common case
        """Download published data; embedded data and files of the user need no download.

        Raises:
            FetchError: no network or space, or a download that differs from the published data.
        """


@dataclass(frozen=True, kw_only=True)
class Published(Source):
    """A dataset in the files that its authors published, laid out below `root` as torchvision does.

    Args:
        root: folder of the files, to which they are downloaded.
    """

    root: str = "data"

    locations: ClassVar[tuple[str, ...]] = ("root",)

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG003
        return {"test_fraction": "a dataset without an official test split"}

    @abstractmethod
    def files(self) -> Mapping[str, str]:
        """Return the published MD5 of every file that `read` opens, by path below `root`."""

    @abstractmethod
    def read(self) -> RawImages:
        """Read the files, all of them verified."""

    @abstractmethod
    def download(self) -> None:
        """Download missing or damaged files."""

    @property
    def folder(self) -> Path:
        return Path(self.root).expanduser()

    def load(self) -> RawImages:
        self.verify()
        return self.read()

    def content(self) -> str:
        """Return a digest of the published checksums, the same on every machine, with or without the files."""
        return fingerprint(sorted(self.files().values()))

    def verify(self) -> None:
        """Compare every file with its checksum; raise MissingDataError if one is missing, cut short or altered."""
        for name, md5 in self.files().items():
            path = self.folder / name
            if not path.is_file():
                raise MissingDataError(f"dataset {self.name} is not in {self.folder}", self)
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, "md5").hexdigest()
            if actual != md5:
                raise MissingDataError(f"{path} is damaged (its checksum is not the published one)", self)

    def fetch(self) -> None:
        with fetching(f"dataset {self.name}", self.folder):
            self.download()
        self.verify()
