"""From a named dataset to an erased, certified, cached one: load, split, fit, apply, certify, store."""

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from erasure.certificate import Certificate, certify, require_erased, whitening_of
from erasure.code_identity import code_identity
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.eraser import Eraser
from erasure.erasers.gradient import GradientEraser
from erasure.erasers.gradient_orders import GradientOrdersEraser
from erasure.few_examples import few_examples
from erasure.fitting_device import fitting_device
from erasure.image_cache import file_name, packed, raw_images, unpacked
from erasure.inputs import by_rows
from erasure.large_offsets import require_precision
from erasure.moments import ClassMoments
from erasure.progress import shown_progress
from erasure.splits import splits
from erasure.store.cache import Cache, Entry
from erasure.store.checked_files import digest, fingerprint
from erasure.threads import threads_for
from erasure.zscore import Scaling

log = logging.getLogger(__name__)

ERASURE_VERSION = 3  # raise it when the same configuration gives other numbers, so that old entries are not used


@dataclass(frozen=True)
class ErasedDataset:
    """An erased dataset, ready to train on.

    Attributes:
        splits: "train", "validation", "test", and "apart" for training examples left out of the fit. Images have the
            stored floating dtype, before standardisation: on the scale of 0..1, or z-scored.
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
        """(C, H, W) for images, (d, 1, 1) for vectors."""
        c, h, w = self.splits["train"].images.shape[1:]
        return c, h, w

    @property
    def dim(self) -> int:
        """Number of values of an example."""
        return math.prod(self.example_shape)

    @property
    def smallest_class(self) -> int:
        """Number of training examples of the smallest class."""
        return int(self.splits["train"].labels.bincount().min())

    def pixels(self, images: Tensor) -> Tensor:
        """Return images [n, C, H, W] of `splits` on the scale 0..1, for display; erased ones may lie outside."""
        return images if self.scaling is None else self.scaling.undo(images)


def erased_dataset(
    source: Source,
    eraser: type[Eraser],
    options: Mapping[str, Any],
    *,
    dtype: torch.dtype,
    cache: Cache,
    left_out: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> ErasedDataset:
    """Return a source's splits erased by `eraser`, with certificates: from the cache, or computed and cached.

    The eraser is fitted on the training split and applied to every split. Label-dependent erasers use the true labels
    of held-out data as well: that is how the paper sees backfiring in the validation loss.

    Args:
        source: the dataset.
        eraser: its class.
        options: keyword arguments of its fit.
        dtype: dtype of the stored images.
        cache: where erased datasets are stored.
        left_out: positions of training examples to leave out of the fit; they become the split "apart".
        device: where moments, erasers and certificates are computed, if they fit there; images stay on the CPU and
            are copied to the device in blocks.

    Raises:
        ValueError: the dataset is missing or cannot be erased, or memory is short.
        BrokenGuaranteeError: the erased training split does not have the moments that the eraser promises.
    """
    request = _Request(source, eraser, options, dtype, left_out)
    built = False

    def build() -> Entry:
        nonlocal built
        built = True
        return _build(request, cache, torch.device(device))

    with shown_progress():
        tensors, metadata = cache.fetch(request.key, build)
    parts = unpacked(tensors, metadata["certificate"])
    if not built:
        _warn_of_few(request, parts["train"])
    return ErasedDataset(
        splits=parts,
        class_names=tuple(metadata["class_names"]),
        certificate={name: Certificate(**values) for name, values in metadata["certificate"].items()},
        channel_mean=tensors["channel_mean"],
        channel_std=tensors["channel_std"],
        scaling=Scaling(tensors["scale"], tensors["shift"]) if "scale" in tensors else None,
    )


@dataclass(frozen=True)
class _Request:
    """An erased dataset to be built; see `erased_dataset`."""

    source: Source
    eraser: type[Eraser]
    options: Mapping[str, Any]
    dtype: torch.dtype
    left_out: Tensor | None

    @property
    def key(self) -> str:
        described = {
            "dataset": {key: value for key, value in self.source.identity().items() if key not in {"name", "flip"}},
            "eraser": code_identity(self.eraser),
            "options": dict(self.options),
            "dtype": str(self.dtype),
            "version": ERASURE_VERSION,
            **({} if self.left_out is None else {"apart": digest(self.left_out)}),
        }
        return f"{file_name(self.source.name)}-{self.eraser.__name__}-{fingerprint(described)}"


def _build(request: _Request, cache: Cache, device: torch.device) -> Entry:
    raw = raw_images(request.source, cache)
    n, d, k = len(raw.train), raw.train.images[0].numel(), len(raw.class_names)
    with threads_for(n * d**2 + k * d**3):  # class covariances, and their decompositions
        return _erase(request, raw, device)


def _erase(request: _Request, raw: RawImages, device: torch.device) -> Entry:
    source, kind, dtype, left_out = request.source, request.eraser, request.dtype, request.left_out
    originals = splits(source, raw)
    if left_out is not None:
        mask = torch.ones(len(originals["train"]), dtype=torch.bool)
        mask[left_out] = False
        originals |= {"train": originals["train"][mask], "apart": originals["train"][left_out]}
    _warn_of_few(request, originals["train"])
    device = fitting_device(kind, raw.train.images[0].numel(), len(raw.class_names), device)
    moments, scaling = _statistics(source, raw, originals["train"], dtype, device)
    log.info("fitting %s on %d examples of %s", kind.__name__, moments.n, source.name)
    numbers = Numbers(raw.max_value, scaling, torch.promote_types(dtype, torch.float32), device)
    train = originals["train"]
    eraser = kind.fit_examples(numbers.rounded(train.images), train.labels, moments, **request.options)
    ends = (0.0, 1.0) if raw.bounded else (-math.inf, math.inf)
    ends = torch.tensor(ends, dtype=torch.float64)[:, None, None, None].expand(2, *raw.train.images.shape[1:])
    if isinstance(eraser, GradientEraser):  # its range is that of pixels: bring it to this scale; vectors have none
        if not raw.bounded:
            eraser.lift_range()
        if scaling is not None:
            eraser.rescale_range(scaling.scale.flatten(), scaling.shift.flatten())
    if scaling is not None:
        ends = scaling(ends)
    # Round the ends of the range like the images: otherwise a black pixel could lie outside by a rounding error.
    least, largest = ends.to(dtype).split(1)
    seen = [originals[name].images for name in ("train", "apart") if name in originals]
    tensors = channel_statistics(numbers.rounded(torch.cat(seen)))
    certificates, whitening = dict[str, Certificate](), None
    erased_splits = numbers.erase(eraser, originals, dtype)
    for name, part in originals.items():  # the training split is first
        erased = erased_splits.pop(name)
        tensors |= packed({name: LabelledImages(erased, part.labels)})
        after = ClassMoments.fit(erased, part.labels, num_classes=moments.num_classes, device=device)
        whitening = whitening or whitening_of(after)
        certificates[name] = certify(
            numbers.rounded(part.images),
            erased,
            part.labels,
            moments,
            admissible=(least, largest),
            after=(after, whitening),
        )
    require_erased(certificates["train"], eraser.erased_order, kind.__name__)
    if scaling is not None:
        tensors |= {"scale": scaling.scale, "shift": scaling.shift}
    described = {name: asdict(certificate) for name, certificate in certificates.items()}
    return tensors, {"class_names": list(raw.class_names), "certificate": described}


def _warn_of_few(request: _Request, train: LabelledImages) -> None:
    """Warn of training images that are too few for the eraser, with what to do about it."""
    shape, order, smallest = train.images.shape[1:], request.eraser.erased_order, int(train.labels.bincount().min())
    if said := few_examples(len(train), smallest, shape.numel(), order):
        enough = math.isqrt(
            ((smallest if order >= 2 else len(train)) - 1) // shape[0]
        )  # side of images of fewer values
        sized = f"smaller images (dataset.size={enough}) or " if hasattr(request.source, "size") and enough >= 4 else ""
        log.warning("%s; take %smore of them", said, sized)


def _statistics(
    source: Source, raw: RawImages, train: LabelledImages, dtype: torch.dtype, device: torch.device
) -> tuple[ClassMoments, Scaling | None]:
    """Return class moments of the training images on the scale of erasure, and the scaling to it from 0..1."""
    if (k := len(raw.class_names)) < 2:
        raise ValueError(
            f"dataset {source.name} has {k} class: there is no class information to erase, need at least 2"
        )
    moments = ClassMoments.fit(train.images, train.labels, num_classes=k, device=device)
    moments.require_examples(raw.class_names)
    if not train.images.is_floating_point():
        moments.rescale(1 / raw.max_value)  # after the fit, which is exact on 8-bit integers
    scaling = Scaling.zscore(train.images, moments) if source.normalize == "zscore" else None
    if not raw.bounded:
        again = "subtract each column's mean in float64 and write the file again"
        require_precision(train.images, moments, train.images.dtype, again)
    if scaling is not None:
        moments.rescale(scaling.scale.flatten(), scaling.shift.flatten())
    if not raw.bounded:
        require_precision(train.images, moments, dtype, "set normalize=zscore, or subtract each column's mean")
    return moments, scaling


@dataclass(frozen=True)
class Numbers:
    """Numbers that are erased: pixels on the scale 0..1, or z-scored, in float64 as the moments have them.

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

    def erase(self, eraser: Eraser, splits: Mapping[str, LabelledImages], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the erased images [n, ...] of every split, rounded once, to `dtype`.

        An eraser without a map erases the images of all splits together.
        """
        if eraser.transductive:
            images = torch.cat([self.rounded(part.images) for part in splits.values()])
            labels = torch.cat([part.labels for part in splits.values()])
            erased = eraser(images, labels).to(dtype)
            if isinstance(eraser, GradientOrdersEraser):
                eraser.require_orders(erased, labels)
            return dict(zip(splits, erased.split([len(part) for part in splits.values()]), strict=True))
        return {
            name: by_rows(
                lambda rows, part=part: eraser(self.exact(part.images[rows]), part.labels[rows]),
                torch.empty(part.images.shape, dtype=dtype),
            )
            for name, part in splits.items()
        }


def channel_statistics(images: Tensor) -> dict[str, Tensor]:
    """Compute each channel's mean and standard deviation; 1 for a constant channel, which is then only centred."""
    channels = images.double().transpose(0, 1).flatten(1)
    std = channels.std(1)
    rounding = torch.finfo(images.dtype).eps * channels.abs().amax(1)
    return {"channel_mean": channels.mean(1), "channel_std": torch.where(std > rounding, std, 1.0)}
