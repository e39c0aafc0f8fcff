"""From a named dataset to an erased, certified, cached one: load, split, fit, apply, certify, store."""

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from erasure.batches import by_rows
from erasure.certificate import Certificate, certify, require_erased, whitening_of
from erasure.classes import ClassSubset
from erasure.code_identity import code_identity
from erasure.eraser import Eraser
from erasure.moments import ClassMoments
from erasure.normalize import Scaling, require_precision
from erasure.placement import placed
from erasure.source import LabelledImages, RawImages, Source, splits
from erasure.store.cache import Cache, Entry
from erasure.store.storage import digest, fingerprint

log = logging.getLogger(__name__)

ERASURE_VERSION = 3  # raise it when the same configuration gives other numbers: old entries are then left alone


@dataclass(frozen=True)
class ErasedDataset:
    """An erased dataset, ready to train on.

    Attributes:
        splits: "train", "validation", "test", and "apart" if there is one, images floating in the stored dtype, before
            standardisation: on the scale where the original images lie in 0..1, or z-scored.
        class_names: one per label.
        certificate: one per split.
        channel_mean: of the training images before erasure, [C]: every eraser's data is standardised alike.
        channel_std: the same for the standard deviation.
        scaling: from pixels in 0..1 to the scale of `splits`; None if that is the same.
    """

    splits: Mapping[str, LabelledImages]
    class_names: tuple[str, ...]
    certificate: Mapping[str, Certificate]
    channel_mean: Tensor
    channel_std: Tensor
    scaling: Scaling | None = None

    @property
    def example_shape(self) -> tuple[int, int, int]:
        """(C, H, W); (d, 1, 1) of vectors, which are no images."""
        c, h, w = self.splits["train"].images.shape[1:]
        return c, h, w

    def pixels(self, images: Tensor) -> Tensor:
        """Images [n, C, H, W] of `splits` on the scale 0..1, for display; erased ones may lie outside."""
        return images if self.scaling is None else self.scaling.undo(images)


def erased_dataset(
    source: Source,
    eraser: type[Eraser],
    options: Mapping[str, Any],
    *,
    dtype: torch.dtype,
    cache: Cache,
    apart: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> ErasedDataset:
    """Fit `eraser` on the training split of `source`, apply it to every split, certify; or fetch all that.

    Label-dependent erasers use the true labels on held-out data, too: that is how the paper sees
    backfiring in the validation loss.

    Args:
        source: the dataset.
        eraser: its class.
        options: of its fit.
        dtype: of the images that are stored.
        cache: where they are.
        apart: positions of training examples that nothing is fitted on, and that are a split "apart" of their own.
        device: where moments, erasers and certificates are computed, if they fit there; images stay on the CPU, from
            where they stream in blocks.

    Raises:
        ValueError: the dataset is missing or cannot be erased, or memory is short.
        BrokenGuaranteeError: the erased training split is not what the eraser promises.
    """
    described = {
        "dataset": {key: value for key, value in source.identity().items() if key not in {"name", "flip"}},
        "eraser": code_identity(eraser),
        "options": dict(options),
        "dtype": str(dtype),
        "version": ERASURE_VERSION,
        **({} if apart is None else {"apart": digest(apart)}),
    }

    key = f"{_file_name(source.name)}-{eraser.__name__}-{fingerprint(described)}"
    tensors, metadata = cache.fetch(
        key, lambda: _build(source, eraser, options, dtype, cache, apart, torch.device(device))
    )
    return ErasedDataset(
        splits=_unpacked(tensors, metadata["certificate"]),
        class_names=tuple(metadata["class_names"]),
        certificate={name: Certificate(**values) for name, values in metadata["certificate"].items()},
        channel_mean=tensors["channel_mean"],
        channel_std=tensors["channel_std"],
        scaling=Scaling(tensors["scale"], tensors["shift"]) if "scale" in tensors else None,
    )


def raw_images(source: Source, cache: Cache) -> RawImages:
    """The source's images; a source that is slow to load is kept in the cache after the first time."""
    if isinstance(source, ClassSubset):
        return source.restrict(raw_images(source.base, cache))
    if not source.slow_to_load:
        return source.load()
    key = raw_key(source)

    def build() -> Entry:
        raw = source.load()
        if raw_key(source) != key:
            raise ValueError(f"dataset {source.name} was changed while it was read: launch the run again")
        parts = {"train": raw.train} | ({} if raw.test is None else {"test": raw.test})
        described = {"class_names": list(raw.class_names), "max_value": raw.max_value, "bounded": raw.bounded}
        return _packed(parts), described | {"parts": dict(raw.parts)}

    tensors, metadata = cache.fetch(key, build)
    found = _unpacked(tensors, [name for name in ("train", "test") if f"{name}.images" in tensors])
    return RawImages(
        found["train"],
        found.get("test"),
        tuple(metadata["class_names"]),
        metadata["max_value"],
        metadata.get("bounded", True),  # entries older than vectors
        metadata.get("parts", {}),  # entries older than mixtures
    )


def _packed(parts: Mapping[str, LabelledImages]) -> dict[str, Tensor]:
    images = {f"{name}.images": part.images for name, part in parts.items()}
    return images | {f"{name}.labels": part.labels for name, part in parts.items()}


def _unpacked(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, LabelledImages]:
    return {name: LabelledImages(tensors[f"{name}.images"], tensors[f"{name}.labels"]) for name in names}


def whole_images(source: Source, cache: Cache) -> RawImages:
    """The images of the whole dataset, also where `source` has some of its classes only."""
    return raw_images(source.base if isinstance(source, ClassSubset) else source, cache)


def positions(source: Source, raw: RawImages) -> dict[str, LabelledImages]:
    """For each split, where its images stand in the dataset's own training or test images, [n] int64, and labels.

    Args:
        source: the dataset, or some of its classes.
        raw: `whole_images`, which the positions number.
    """

    numbers = raw.map(lambda part: LabelledImages(torch.arange(len(part)), part.labels))
    if isinstance(source, ClassSubset):
        numbers = source.restrict(numbers)
    return splits(source, numbers)


def raw_key(source: Source) -> str:
    """What a source's images are called in the cache: the same however they are split and normalised."""
    return f"{_file_name(source.name)}-raw-{fingerprint(source.stored_identity())}"


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", name)


def _build(
    source: Source,
    kind: type[Eraser],
    options: Mapping[str, Any],
    dtype: torch.dtype,
    cache: Cache,
    apart: Tensor | None,
    device: torch.device,
) -> Entry:
    raw = raw_images(source, cache)
    originals = splits(source, raw)
    if apart is not None:
        kept = torch.ones(len(originals["train"]), dtype=torch.bool)
        kept[apart] = False
        originals |= {"train": originals["train"][kept], "apart": originals["train"][apart]}
    device = placed(kind, raw.train.images[0].numel(), len(raw.class_names), device)
    moments, scaling = _statistics(source, raw, originals["train"], dtype, device)
    log.info("fitting %s on %d images of %s", kind.__name__, moments.n, source.name)
    numbers = _Numbers(raw.max_value, scaling, torch.promote_types(dtype, torch.float32), device)
    train = originals["train"]
    eraser = kind.fit_examples(numbers.rounded(train.images), train.labels, moments, **options)
    # rounded like the images: a black pixel is not out of range
    admissible = (0.0, 1.0) if raw.bounded else (-math.inf, math.inf)
    ends = torch.tensor(admissible, dtype=torch.float64)[:, None, None, None].expand(2, *raw.train.images.shape[1:])
    if not raw.bounded:
        eraser.lift_range()
    if scaling is not None:
        eraser.rescale_range(scaling.scale.flatten(), scaling.shift.flatten())
        ends = scaling(ends)
    low, high = ends.to(dtype).split(1)
    seen = [originals[name].images for name in ("train", "apart") if name in originals]
    tensors = _channel_statistics(numbers.rounded(torch.cat(seen)))
    certificates, whitening = dict[str, Certificate](), None
    for name, part in originals.items():  # the training split is first
        erased = numbers.erase(eraser, part, dtype)
        if name == "train":
            eraser.require_orders(erased, part.labels)
            eraser.keep_reference(erased)
        tensors |= _packed({name: LabelledImages(erased, part.labels)})
        after = ClassMoments.fit(erased, part.labels, num_classes=moments.num_classes, device=device)
        whitening = whitening or whitening_of(after)
        certificates[name] = certify(
            numbers.rounded(part.images), erased, part.labels, moments,
            low=low, high=high, after=after, whitening=whitening,
        )  # fmt: skip
    require_erased(certificates["train"], eraser.erased_order, kind.__name__)
    if scaling is not None:
        tensors |= {"scale": scaling.scale, "shift": scaling.shift}
    described = {name: asdict(certificate) for name, certificate in certificates.items()}
    return tensors, {"class_names": list(raw.class_names), "certificate": described}


def _statistics(
    source: Source, raw: RawImages, train: LabelledImages, dtype: torch.dtype, device: torch.device
) -> tuple[ClassMoments, Scaling | None]:
    """Class moments of the training images on the scale on which they are erased, and the way there from 0..1."""
    if (k := len(raw.class_names)) < 2:
        raise ValueError(
            f"dataset {source.name} has {k} class: there is no class information to erase, need at least 2"
        )
    moments = ClassMoments.fit(train.images, train.labels, num_classes=k, device=device)
    moments.require_examples()
    if not train.images.is_floating_point():
        moments.rescale(1 / raw.max_value)  # of 8-bit images exact until here
    scaling = Scaling.zscore(train.images, moments) if source.normalize == "zscore" else None
    if not raw.bounded:
        again = "subtract each column's mean in float64 and write the file again"
        require_precision(train.images, moments, train.images.dtype, again)
    if scaling is not None:
        moments.rescale(scaling.scale.flatten(), scaling.shift.flatten())
    if not raw.bounded:
        require_precision(train.images, moments, dtype, "set dataset.normalize=zscore, or subtract each column's mean")
    return moments, scaling


def _channel_statistics(images: Tensor) -> dict[str, Tensor]:
    """Mean and standard deviation of every channel; 1 for a channel that does not vary, which is only centred."""
    channels = images.double().transpose(0, 1).flatten(1)
    std = channels.std(1)
    rounding = torch.finfo(images.dtype).eps * channels.abs().amax(1)
    return {"channel_mean": channels.mean(1), "channel_std": torch.where(std > rounding, std, 1.0)}


@dataclass(frozen=True)
class _Numbers:
    """What is erased: pixels on the scale 0..1, or z-scored, in float64 as the moments have them.

    Attributes:
        max_value: what an integer pixel is divided by.
        scaling: applied afterwards; None for none.
        working: dtype of those that stay around whole, [n, ...], on the CPU.
        device: where they are computed.
    """

    max_value: int
    scaling: Scaling | None
    working: torch.dtype
    device: torch.device

    def exact(self, images: Tensor) -> Tensor:
        images = images.to(self.device)
        unit = images.double() if images.is_floating_point() else images.double() / self.max_value
        return unit if self.scaling is None else self.scaling(unit)

    def rounded(self, images: Tensor) -> Tensor:
        return by_rows(lambda rows: self.exact(images[rows]), torch.empty(images.shape, dtype=self.working))

    def erase(self, eraser: Eraser, part: LabelledImages, dtype: torch.dtype) -> Tensor:
        """Erased images [n, ...], rounded once, to `dtype`."""
        if eraser.transductive:
            return eraser(self.rounded(part.images), part.labels).to(dtype)
        erased = torch.empty(part.images.shape, dtype=dtype)
        return by_rows(lambda rows: eraser(self.exact(part.images[rows]), part.labels[rows]), erased)
