"""Conversion of the examples and models passed to Python functions into the form that trainings need."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from conf.check import check
from conf.groups import choices, preset
from conf.target_class import Target, check_target
from erasure.dataset import LabelledImages
from erasure.inputs import as_tensor, require_same_columns, require_same_rows, whole_numbers
from erasure.pipeline import channel_statistics
from harness.device_and_precision import pick_precision
from models.any_module import AnyModule
from models.classifier import Classifier, Model
from models.kernel import KernelModel
from train.device_images import DeviceImages
from train.settings import TrainSettings

log = logging.getLogger(__name__)
Examples = tuple[Any, Any]  # x and y

_ROUNDED = 4 * torch.finfo(torch.float64).eps  # largest relative standard deviation that is taken for rounding
_DOUBTFUL = 1e-11  # relative standard deviation below which values may differ by the rounding of their calculation
_ARGUMENTS = {"train": "x", "validation": "validation x", "test": "test x", "held_out": "held_out"}  # in messages


def class_positions(y: Any) -> tuple[Tensor, pd.Index]:
    """Return the labels as positions in the sorted classes, [n] int64, and these classes.

    Raises:
        ValueError: the labels are not one class per example.
    """
    values = _labels(y, "y")
    if values.isna().any():
        raise ValueError(f"y has no label at place {int(values.isna().to_numpy().argmax())}: leave such examples out")
    if pd.api.types.is_float_dtype(values) or pd.api.types.is_complex_dtype(values):
        given = getattr(y, "dtype", values.dtype)
        raise ValueError(f"y has type {given}: labels are integers or strings; cut real numbers into classes")
    try:
        positions, classes = pd.factorize(values, sort=True)
    except TypeError as error:
        raise ValueError(f"y cannot be sorted ({error}): pass integers, or strings such as an Enum's names") from error
    if len(classes) < 2:
        raise ValueError(f"y has {len(classes)} class: there is nothing to predict, need at least 2")
    return torch.from_numpy(positions.astype(np.int64)), pd.Index(classes)


def _labels(y: Any, name: str) -> pd.Series:
    """Return labels of shape [n] or [n, 1] as a series.

    Raises:
        ValueError: the labels have another shape.
    """
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()  # NumPy has no bfloat16
    elif isinstance(y, list | tuple):  # tensors of equal value have different hashes, and arrays have none
        y = [value.tolist() if _is_array(value) else value for value in y]
    shape = np.shape(y)
    if len(shape) == 2 and shape[1] == 1:
        y = y.iloc[:, 0] if hasattr(y, "iloc") else np.asarray(y)[:, 0]
    elif len(shape) != 1 or not shape[0]:
        hint = "; of one-hot rows pass y.argmax(1)" if len(shape) == 2 else ""
        raise ValueError(f"{name} has shape {list(shape)}: need one label for each example, [n]{hint}")
    labels = pd.Series(y)
    if labels.dtype == object and any(map(_is_array, labels)):
        return _labels(labels.tolist(), name)
    return in_native_order(labels.to_frame()).iloc[:, 0]


def _is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array, which may have no axes."""
    return hasattr(value, "tolist") and not isinstance(value, np.generic)


def in_native_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame in this machine's byte order, the only one in which pandas selects and compares."""
    native = [dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype for dtype in frame.dtypes]
    if native == [*frame.dtypes]:
        return frame
    columns = [column.astype(dtype) for (_, column), dtype in zip(frame.items(), native, strict=True)]
    return pd.concat(columns, axis=1)


def as_images(x: Any, n: int | None, name: str = "x") -> Tensor:
    """Return x as images [n, C, H, W]; vectors are images [n, d, 1, 1].

    Args:
        x: images or vectors.
        n: number of their labels; None where they have none.
        name: name of x in messages.

    Returns:
        float64, int32 or int64 where x has numbers that float32 may round (`InputScale` decides), else float32.

    Raises:
        ValueError: another shape, or values that are not finite.
    """
    values = as_tensor(x, name).cpu()
    if values.ndim == 4 and values.shape[3] in (1, 3) and values.shape[1] not in (1, 3):
        raise ValueError(
            f"{name} has shape {list(values.shape)}, which looks like [n, H, W, C]: pass [n, C, H, W], an array's "
            f"{name}.transpose(0, 3, 1, 2) or a tensor's {name}.permute(0, 3, 1, 2)"
        )
    if values.ndim not in (2, 4) or n not in (None, len(values)) or not values.numel():
        labels, rows = ("", "n") if n is None else (f" for {n} labels", n)
        raise ValueError(f"{name} has shape {list(values.shape)}{labels}: need [{rows}, d] or [{rows}, C, H, W]")
    if values.is_complex():
        raise ValueError(f"{name} has type {values.dtype}: need real numbers")
    scale = 255 if values.ndim == 4 and values.dtype == torch.uint8 else 1
    wide = values.dtype in (torch.float64, torch.int64, torch.int32)
    images = values if wide else (values.double() / scale).float()
    finite = images.flatten(1).isfinite().all(1)
    if not finite.all():
        raise ValueError(f"{name} is not finite in row {int((~finite).nonzero()[0])}: remove or fill in such rows")
    return images if images.ndim == 4 else images[:, :, None, None]


def splits_of(
    x: Any, y: Any, validation: Examples | None, test: Examples | None
) -> tuple[dict[str, LabelledImages], pd.Index]:
    """Return splits "train", "validation" and "test" and their classes; a split without examples is empty.

    Raises:
        ValueError: invalid examples or labels; says what is allowed.
    """
    require_same_rows(x, y, "y")
    z, classes = class_positions(y)
    images = as_images(x, len(z))
    splits = {"train": LabelledImages(images, z)}
    for name, given in (("validation", validation), ("test", test)):
        if given is None:
            splits[name] = LabelledImages(images[:0], z[:0])
        else:
            splits[name] = other_examples(given, images, classes, name)
            require_alike(x, given[0], f"{name} x")
    return splits, classes


def other_examples(given: Examples, images: Tensor, classes: pd.Index, name: str) -> LabelledImages:
    """Return a pair (x, y) of other examples as a split, with labels as positions in `classes`."""
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise ValueError(f"{name}: pass a pair (x, y)")
    x, y = given
    require_same_rows(x, y, f"{name} y", f"{name} x")
    labels = _labels(y, f"{name} y")
    positions = classes.get_indexer(pd.Index(labels))
    if (positions < 0).any():
        raise ValueError(f"{name}: label {labels.tolist()[int((positions < 0).argmax())]!r} is none of y's")
    other = _images_like(images, x, len(labels), f"{name} x")
    return LabelledImages(other, torch.from_numpy(positions.astype(np.int64)))


def unlabelled_examples(x: Any, images: Tensor, name: str) -> LabelledImages:
    """Return examples of the shape of training images, with placeholders as labels."""
    other = _images_like(images, x, None, name)
    return LabelledImages(other, torch.zeros(len(other), dtype=torch.int64))


def _images_like(images: Tensor, x: Any, n: int | None, name: str) -> Tensor:
    """Return x, with n labels, as images of the shape of training images."""
    other = as_images(x, n, name)
    if other.shape[1:] != images.shape[1:]:
        raise ValueError(
            f"{name} has examples {list(other.shape[1:])}, but the training examples are {list(images.shape[1:])}"
        )
    return other


def require_alike(x: Any, other: Any, name: str, x_name: str = "x") -> None:
    """Require other examples to have the scale of x and, for frames, the same columns in the same order.

    Raises:
        ValueError: the columns differ, or one holds uint8 pixels, which stand for 0..1, and the other values above 1.
    """
    require_same_columns(x, other, name, x_name)
    given = [as_tensor(each, called) for each, called in ((x, "x"), (other, name))]
    pixels = [each.ndim == 4 and each.dtype == torch.uint8 for each in given]
    if pixels[0] == pixels[1] or given[0].ndim != given[1].ndim or not all(each.numel() for each in given):
        return
    if float(given[pixels.index(False)].max()) > 1:
        raise ValueError(
            f"{name} has type {given[1].dtype}, but the training examples have {given[0].dtype}: uint8 pixels stand "
            "for 0..1, and the others go above 1: pass both in one type"
        )


def require_seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    """Return the list of seeds for a number of seeds or a list of them.

    Raises:
        ValueError: there are no seeds, or equal or negative ones.
    """
    try:
        numbers = whole_numbers(seeds, "seeds")
    except (ValueError, TypeError):
        numbers = []
    listed = range(numbers) if isinstance(numbers, int) else numbers
    if not listed or min(listed) < 0 or len({*listed}) < len(listed):
        raise ValueError(f"seeds={seeds}: need a number of seeds, or distinct ones that are not negative")
    return listed


def train_settings(settings: TrainSettings | str, device: str | torch.device) -> TrainSettings:
    """Check training settings, and resolve their precision.

    Raises:
        ValueError: settings that are refused.
    """
    allowed = [name for name in choices("train") if name != "published"]
    if not isinstance(settings, TrainSettings) and settings not in allowed:
        raise ValueError(f"settings={settings!r}: choose from {', '.join(allowed)}, or pass TrainSettings")
    options = preset("train", settings) if isinstance(settings, str) else asdict(settings)
    settings = check("settings.", options, TrainSettings)
    if settings.protocol != "standard":
        raise ValueError(f"settings.protocol={settings.protocol}: only python -m mdl has it; leave it at standard")
    precision: Any = pick_precision(settings.precision, device)
    return replace(settings, precision=precision)


def predictor(
    model: Any, x: Any, input_shape: Sequence[int], k: int, *, training: bool = True
) -> Classifier | KernelModel:
    """Build the predictor with k outputs from the argument `model` of `codelength` or `fit`.

    Args:
        model: the argument.
        x: examples in their original shape, the input shape of a user's module.
        input_shape: shape of an example as an image, [C, H, W].
        k: number of outputs.
        training: whether a user's module is used in training mode.
    """
    if isinstance(model, (Classifier, KernelModel)):
        return copy.deepcopy(model)
    if hasattr(model, "fit") and hasattr(model, "predict"):
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ValueError(
            f"model={name}: no network; of classifiers, mdl.codelength alone takes instances that have predict_proba"
        )
    if isinstance(model, nn.Module) or callable(model):
        return AnyModule(model, as_tensor(x[:1], "x").shape[1:], k, training=training)
    options = dict(model) if isinstance(model, Mapping) else {"name": model}
    name = options.get("name")
    if name not in choices("model"):
        raise ValueError(
            f"model={name!r}: choose from {', '.join(choices('model'))}, or pass a torch.nn.Module, a function that "
            "makes one, or a scikit-learn classifier"
        )
    section = check_target("model", {**preset("model", str(name)), **options}, "model")
    built: Any = Target(section, Model).build(tuple(input_shape), k)
    return built


def name_of(model: Any, built: Classifier | KernelModel) -> str:
    """Return the display name of a predictor; warn if training redraws the weights of a user's module."""
    if isinstance(built, AnyModule) and built.given is not None:
        log.warning(
            "%s: every training draws its weights anew, by reset_parameters() of its parts; pass a function that "
            "makes it to keep an initialisation of its own",
            built.name,
        )
    return model if isinstance(model, str) else getattr(built, "name", type(built).__name__)


@dataclass(frozen=True)
class InputScale:
    """The scale of the training examples, to which all examples are brought; each attribute is per channel, [C].

    Networks compute in float32. A channel that float32 can represent is first rounded to float32, as in the commands.
    Other channels, such as Unix times, are first standardised in float64 as (x - shift) / unit.
    """

    shift: Tensor
    unit: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, images: Tensor) -> "InputScale":
        """Return the scale of training images [N, C, H, W].

        A channel is standardised in float64 if it exceeds the range of float32, or if rounding to float32 changes its
        values by more than a thousandth of their standard deviation, as in `erasure.zscore.require_precision`.
        """
        shift, unit = torch.zeros(images.shape[1]).double(), torch.ones(images.shape[1]).double()
        if images.dtype != torch.float32:
            channels, single = images.transpose(0, 1).flatten(1), torch.finfo(torch.float32)
            largest = channels.double().abs().amax(1)
            if images.is_floating_point():
                relative = channels / largest.clamp(min=torch.finfo(torch.float64).tiny)[:, None]  # no overflow
                mean, std = relative.mean(1) * largest, relative.std(1) * largest
                varies = std > _ROUNDED * largest
            else:
                first = channels[:, :1].double()
                centred = _less(channels, first)
                mean, std = (first[:, 0] + centred.mean(1)).round(), centred.std(1)
                varies = std > 0
            too_large = largest > single.max / 2
            lost = too_large | (std < single.tiny) | (single.eps / 12**0.5 * mean.abs() > 1e-3 * std)
            shift = torch.where(lost & varies, mean, shift)
            unit = torch.where(lost & varies, std, torch.where(too_large, largest, unit))
        statistics = channel_statistics(_rounded(images, shift, unit))
        return cls(shift, unit, statistics["channel_mean"], statistics["channel_std"])

    def to_device(
        self, part: LabelledImages, name: str, *, padding: int = 0, flip: bool = False, device: torch.device
    ) -> DeviceImages:
        """Bring examples, called `name` in errors, to this scale and copy them to the device.

        Raises:
            ValueError: a value is too far from the training examples for float32.
        """
        images = _rounded(part.images, self.shift, self.unit)
        finite = images.flatten(1).isfinite().all(1)
        if not finite.all():
            raise ValueError(
                f"{name} exceeds float32 in row {int((~finite).nonzero()[0])}, on the scale of the training examples: "
                "correct or remove such rows"
            )
        rounded = LabelledImages(images, part.labels)
        return DeviceImages(rounded, self.mean, self.std, padding=padding, flip=flip, device=device)


def _rounded(images: Tensor, shift: Tensor, unit: Tensor) -> Tensor:
    """Return (images - shift) / unit in float32, computed in float64."""
    if bool((shift == 0).all() and (unit == 1).all()):
        return images.float()
    return (_less(images, shift[:, None, None]) / unit[:, None, None]).float()


def _less(values: Tensor, shift: Tensor) -> Tensor:
    """Return values - shift in float64; exact for integers, which float64 does not hold beyond 2^53."""
    if values.is_floating_point() or not values.numel():
        return values.double() - shift
    least, largest = map(int, values.aminmax())
    if max(-least, largest) < 2**53:
        return values.double().sub_(shift)
    high = (shift / 2**32).floor()
    low = shift - high * 2**32
    return ((values.long() >> 32).double() - high) * 2**32 + ((values.long() & (2**32 - 1)).double() - low)


def on_device(
    parts: Mapping[str, LabelledImages], device: torch.device, crop_padding: float, *, flip: bool
) -> dict[str, DeviceImages]:
    """Copy every split to the device, standardised like the training split; only that split is cropped and mirrored.

    Raises:
        ValueError: raised by `InputScale.to_device`.
    """
    train = parts["train"].images
    scale = InputScale.of(train)
    doubtful = (scale.unit < _DOUBTFUL * scale.shift.abs()) & train.is_floating_point()
    if doubtful.any():
        i = int(doubtful.nonzero()[0])
        log.warning(
            "x: %d of %d columns vary by less than %g of their mean, e.g. column %d (mean %.3g, standard deviation "
            "%.3g): they are standardised; leave out those that vary by rounding alone",
            int(doubtful.sum()), len(doubtful), _DOUBTFUL, i, scale.shift[i], scale.unit[i],
        )  # fmt: skip
    padding = round(crop_padding * max(parts["train"].images.shape[-2:]))
    augmented = {"padding": padding, "flip": flip}
    return {
        name: scale.to_device(part, _ARGUMENTS[name], device=device, **(augmented if name == "train" else {}))
        for name, part in parts.items()
    }
