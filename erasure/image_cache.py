"""The images of a source, cached if they are slow to load."""

import logging
import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.datasets.class_subset import ClassSubset
from erasure.store.cache import Cache, Entry
from erasure.store.checked_files import fingerprint

log = logging.getLogger(__name__)

_MOST_NAMES = 5


def raw_images(source: Source, cache: Cache) -> RawImages:
    """Return the images of a source; those that are slow to load are cached the first time."""
    if isinstance(source, ClassSubset):
        whole = raw_images(source.base, cache)
        source.warn_of_other_numbers(whole.class_names)
        return source.restrict(whole)
    if not source.slow_to_load:
        return _loaded(source)
    key = raw_key(source)

    def build() -> Entry:
        raw = _loaded(source)
        if raw_key(source) != key:
            raise ValueError(f"dataset {source.name} was changed while it was read: load it again")
        parts = {"train": raw.train} | ({} if raw.test is None else {"test": raw.test})
        described = {"class_names": list(raw.class_names), "max_value": raw.max_value, "bounded": raw.bounded}
        return packed(parts), described | {"parts": dict(raw.parts)}

    tensors, metadata = cache.fetch(key, build)
    images = unpacked(tensors, [name for name in ("train", "test") if f"{name}.images" in tensors])
    names = tuple(metadata.pop("class_names"))
    return RawImages(
        images["train"], images.get("test"), names, **metadata
    )  # old entries lack fields that have defaults


def _loaded(source: Source) -> RawImages:
    """Read the images, and warn of possible mistakes in the data."""
    raw = source.load()
    counts = raw.train.labels.clamp(min=0).bincount(minlength=len(raw.class_names)).tolist()
    classes = zip(raw.class_names, counts, strict=False)  # `splits` refuses other labels
    if empty := [repr(name) for name, count in classes if count == 0]:
        shown = ", ".join(empty[:_MOST_NAMES]) + (", …" if len(empty) > _MOST_NAMES else "")
        message = "%s: %d of %d classes have no training example: %s"
        log.warning(message, source.name, len(empty), len(raw.class_names), shown)
    if raw.bounded:
        train, test = ([] if part is None else _digests(part) for part in (raw.train, raw.test))
        if repeated := len(train) - len({*train}) if raw.test is None else 0:
            message = "%s: %d of %d images repeat an earlier one, and the splits may share them"
            log.warning(message, source.name, repeated, len(train))
        if shared := sum(map({*train}.__contains__, test)):
            log.warning("%s: %d of %d test images are also training images", source.name, shared, len(test))
    return raw


def _digests(part: LabelledImages) -> list[int]:
    return [hash(image.tobytes()) for image in part.images.numpy()]


def packed(parts: Mapping[str, LabelledImages]) -> dict[str, Tensor]:
    """Return images and labels by name, as tensors of a cache entry."""
    images = {f"{name}.images": part.images for name, part in parts.items()}
    return images | {f"{name}.labels": part.labels for name, part in parts.items()}


def unpacked(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, LabelledImages]:
    """Return the named parts of a cache entry."""
    return {name: LabelledImages(tensors[f"{name}.images"], tensors[f"{name}.labels"]) for name in names}


def whole_images(source: Source, cache: Cache) -> RawImages:
    """Return the images of the whole dataset, even if `source` has only some of its classes."""
    return raw_images(source.base if isinstance(source, ClassSubset) else source, cache)


def raw_key(source: Source) -> str:
    """Return the cache key of the images of a source, which does not depend on splits and normalisation."""
    return f"{file_name(source.name)}-raw-{fingerprint(source.stored_identity())}"


def file_name(name: str) -> str:
    """Return the name of a dataset as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name)
