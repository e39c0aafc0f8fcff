"""From a named dataset to an erased, certified, cached one: load, split, fit, apply, certify, store."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from erasure.certificate import (
    Certificate,
    class_certificate,
    edit_size,
    out_of_range,
    require_erased,
    whitening_of,
)
from erasure.code_identity import code_identity
from erasure.dataset import LabelledImages, Source
from erasure.device_memory import free_bytes
from erasure.eraser import Eraser
from erasure.few_examples import few_examples
from erasure.image_cache import file_name, packed, raw_images, unpacked
from erasure.inputs import require_range
from erasure.moments import ClassMoments
from erasure.progress import shown_progress
from erasure.splits import splits
from erasure.store.cache import Cache, Entry
from erasure.store.checked_files import digest, fingerprint
from erasure.threads import threads_for
from erasure.zscore import Preprocessing, Scaling, require_precision

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
        channel_mean: mean of the training images before erasure, [C], so that data of all erasers is standardised
            alike.
        channel_std: their standard deviation, [C].
        scaling: map from pixels in 0..1 to the scale of `splits`; None if both are the same.
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
    of held-out data as well, which is why the paper sees backfiring in the validation loss.

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

    def build() -> Entry:
        return _build(source, eraser, options, dtype, cache=cache, left_out=left_out, device=torch.device(device))

    with shown_progress():
        tensors, metadata = cache.fetch(_key(source, eraser, options, dtype, left_out), build)
    parts = unpacked(tensors, metadata["certificate"])
    _warn_of_few(source, eraser, parts["train"])
    return ErasedDataset(
        splits=parts,
        class_names=tuple(metadata["class_names"]),
        certificate={name: Certificate(**values) for name, values in metadata["certificate"].items()},
        channel_mean=tensors["channel_mean"],
        channel_std=tensors["channel_std"],
        scaling=Scaling(tensors["scale"], tensors["shift"]) if "scale" in tensors else None,
    )


def _key(
    source: Source, eraser: type[Eraser], options: Mapping[str, Any], dtype: torch.dtype, left_out: Tensor | None
) -> str:
    """Return the cache key of an erased dataset, which depends on everything that determines its numbers."""
    described = {
        "dataset": {key: value for key, value in source.identity().items() if key not in {"name", "flip"}},
        "eraser": code_identity(eraser),
        "options": dict(options),
        "dtype": str(dtype),
        "version": ERASURE_VERSION,
        **({} if left_out is None else {"apart": digest(left_out)}),
    }
    return f"{file_name(source.name)}-{eraser.__name__}-{fingerprint(described)}"


def _build(
    source: Source,
    eraser: type[Eraser],
    options: Mapping[str, Any],
    dtype: torch.dtype,
    *,
    cache: Cache,
    left_out: Tensor | None,
    device: torch.device,
) -> Entry:
    """Fit the eraser to the training split, apply it to every split, and certify each."""
    raw = raw_images(source, cache)
    n, d, k = len(raw.train), raw.train.images[0].numel(), len(raw.class_names)
    parts = splits(source, raw)
    if left_out is not None:
        mask = torch.ones(len(parts["train"]), dtype=torch.bool)
        mask[left_out] = False
        parts |= {"train": parts["train"][mask], "apart": parts["train"][left_out]}
    device = fitting_device(eraser, d, k, device)
    pixels = Preprocessing(raw.max_value, raw.bounded, torch.promote_types(dtype, torch.float32), device)
    names = raw.class_names
    del raw  # the parts are copies
    with threads_for(n * d**2 + k * d**3):  # class covariances, and their decompositions
        moments, scaling = _statistics(source, parts["train"], names, pixels, dtype)
        numbers = replace(pixels, scaling=scaling)
        log.info("fitting %s on %d examples of %s", eraser.__name__, moments.n, source.name)
        if eraser.needs_examples():
            train = numbers.rounded(parts["train"].images)
            fitted = eraser.fit_examples(train, parts["train"].labels, moments, **options)
            del train
        else:
            fitted = eraser.fit_moments(moments, **options)
        mean, total = moments.mean, moments.total
        del moments  # class covariances take the most memory

        before = (parts[s].images for s in ("train", "apart") if s in parts)
        channel_mean, channel_std = channel_statistics(numbers.rounded(*before))
        tensors = {"channel_mean": channel_mean, "channel_std": channel_std}
        erased = fitted.erase_splits(parts, numbers, dtype)
        certificates, whitening = dict[str, Certificate](), None
        for name, part in parts.items():  # the training split is the first
            rows = erased[name].flatten(1)
            edit = edit_size(numbers.batches(part.images), rows, total)
            after = _class_moments(rows, part.labels, k, device)
            whitening = whitening or whitening_of(after)
            # The ends of the range are rounded like the images, so that a black pixel is not outside by rounding.
            ends = numbers.ends(part.images.shape[1:]).to(dtype).split(1)
            certificates[name] = class_certificate(
                rows,
                part.labels,
                after,
                mean=mean,
                total=total,
                edit=edit,
                outside=out_of_range(erased[name], *ends),
                whitening=whitening,
            )
            tensors |= packed({name: LabelledImages(erased[name], part.labels)})
            del after  # it holds class covariances as well
        require_erased(certificates["train"], fitted.erased_order, eraser.__name__)
    if scaling is not None:
        tensors |= {"scale": scaling.scale, "shift": scaling.shift}
    described = {name: asdict(certificate) for name, certificate in certificates.items()}
    return tensors, {"class_names": list(names), "certificate": described}


def fitting_device(eraser: type[Eraser], dim: int, num_classes: int, device: torch.device) -> torch.device:
    """Return `device`, or the CPU if `device` cannot hold moments and fitting; raise ValueError if neither can."""
    needed = eraser.fitting_bytes(dim, num_classes)
    cpu = torch.device("cpu")
    if device.type != "cpu" and (device.type == "mps" or needed > free_bytes(device)):  # Apple's GPU has no float64
        log.info("%s is fitted on the CPU: it needs %.1f GB in float64", eraser.__name__, needed / 1e9)
        device = cpu
    if device == cpu and needed > (free := free_bytes(cpu)):
        raise ValueError(
            f"{eraser.__name__} needs about {needed / 1e9:.0f} GB at once for {dim:,} values per example and "
            f"{num_classes} classes, but {free / 1e9:.0f} GB are free: take smaller images, fewer classes, or "
            "another machine"
        )
    return device


def _warn_of_few(source: Source, eraser: type[Eraser], train: LabelledImages) -> None:
    """Warn of too few training images for the eraser, and say what to do about it."""
    shape, order, smallest = train.images.shape[1:], eraser.erased_order, int(train.labels.bincount().min())
    if warning := few_examples(len(train), smallest, shape.numel(), order):
        examples = smallest if order >= 2 else len(train)
        side = math.isqrt((examples - 1) // shape[0])  # side of images with fewer values than `examples`
        sized = f"smaller images (dataset.size={side}) or " if hasattr(source, "size") and side >= 4 else ""
        log.warning("%s; take %smore of them", warning, sized)


def _statistics(
    source: Source, train: LabelledImages, names: Sequence[str], pixels: Preprocessing, dtype: torch.dtype
) -> tuple[ClassMoments, Scaling | None]:
    """Return class moments of the training images on the scale of erasure, and the scaling to it from 0..1."""
    if (k := len(names)) < 2:
        raise ValueError(
            f"dataset {source.name} has {k} class: there is no class information to erase, need at least 2"
        )
    moments = _class_moments(train.images.flatten(1), train.labels, k, pixels.device)
    moments.require_examples(names)
    if not train.images.is_floating_point():
        moments.rescale(1 / pixels.max_value)  # after the fit, which is exact on 8-bit integers
    scaling = Scaling.zscore(train.images, moments) if source.normalize == "zscore" else None
    if not pixels.bounded:
        again = "subtract each column's mean in float64 and write the file again"
        require_precision(train.images, moments, train.images.dtype, again)
    if scaling is not None:
        moments.rescale(scaling.scale.flatten(), scaling.shift.flatten())
    if not pixels.bounded:
        require_precision(train.images, moments, dtype, "set normalize=zscore, or subtract each column's mean")
    return moments, scaling


def _class_moments(x: Tensor, z: Tensor, num_classes: int, device: torch.device) -> ClassMoments:
    """Return class moments of examples [n, d] whose labels `splits` has checked."""
    require_range(x, "x")
    return ClassMoments(x.shape[1], num_classes, device=device).add_rows(x, z)


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and standard deviation; 1 for a constant channel, which is then only centred."""
    channels = images.transpose(0, 1).flatten(1).double()
    std = channels.std(1)
    low, high = channels.aminmax(dim=1)
    rounding = torch.finfo(images.dtype).eps * torch.maximum(-low, high)
    return channels.mean(1), torch.where(std > rounding, std, 1.0)
