"""Conversion of the examples and models passed to Python functions into the form that trainings need."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from conf.check import check
from conf.groups import choices, preset
from conf.target_class import Target, check_target
from erasure.dataset import LabelledImages
from erasure.inputs import as_array, as_tensor, require_same_columns, require_same_rows, whole_numbers
from harness.device_and_precision import pick_precision
from models.any_module import AnyModule
from models.classifier import Classifier, Model
from models.kernel import KernelModel
from train.settings import TrainSettings

log = logging.getLogger(__name__)

Examples = tuple[Any, Any]  # x and y
_ROUNDED = 4 * torch.finfo(torch.float64).eps  # largest relative standard deviation that is taken for rounding


def class_positions(y: Any) -> tuple[Tensor, pd.Index]:
    """Return the labels as positions in the sorted classes, [n] int64, and these classes.

    Raises:
        ValueError: the labels are not one class per example.
    """
    classes, positions = np.unique(_labels(y, "y"), return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y has {len(classes)} class: there is nothing to predict, need at least 2")
    return torch.from_numpy(positions.astype(np.int64)), pd.Index(classes)


def _labels(y: Any, name: str) -> np.ndarray:
    """Return labels of shape [n] or [n, 1] as an array [n].

    Raises:
        ValueError: labels of another shape, or neither integers, booleans nor strings.
    """
    labels = as_array(y, name)
    if labels.dtype.kind not in "biuU":
        raise ValueError(
            f"{name} has type {labels.dtype}: labels are integers or strings; cut real numbers into classes"
        )
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"{name} has shape {list(labels.shape)}: need one label for each example, [n]; of one-hot rows "
            f"pass {name}.argmax(1)"
        )
    return labels.astype(labels.dtype.newbyteorder("="), copy=False)


def as_images(x: Any, n: int | None, name: str = "x") -> Tensor:
    """Return x as images [n, C, H, W]; vectors are images [n, d, 1, 1].

    Args:
        x: images or vectors.
        n: number of their labels; None where they have none.
        name: name of x in messages.

    Returns:
        float32; uint8 images in 0..1.

    Raises:
        ValueError: another shape, or values that are not finite in float32.
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
    images = (values.double() / scale).float()
    finite = images.flatten(1).isfinite().all(1)
    if not finite.all():
        raise ValueError(f"{name} is not finite in float32, in row {int((~finite).nonzero()[0])}: correct such rows")
    return images if images.ndim == 4 else images[:, :, None, None]


def training_images(x: Any, n: int) -> Tensor:
    """Return the examples x of n labels as images, as `as_images` does.

    Raises:
        ValueError: raised by `as_images`; or rounding to float32 changes the values of a channel or column by more than
            a thousandth of their standard deviation.
    """
    images, values = as_images(x, n), as_tensor(x, "x").cpu()
    if values.dtype not in (torch.float64, torch.int64, torch.int32):
        return images
    channels = values.transpose(0, 1).flatten(1)
    varies = channels.amax(1) > channels.amin(1)
    channels = channels.double()
    mean, std = channels.mean(1), channels.std(1, correction=0)
    single = torch.finfo(torch.float32)
    blurred = (std < single.tiny) | (single.eps / 12**0.5 * mean.abs() > 1e-3 * std)
    if values.is_floating_point():
        varies = std > _ROUNDED * channels.abs().amax(1)  # a column that varies by rounding alone is constant
    blurred &= varies
    if blurred.any():
        i = int(blurred.nonzero()[0])
        raise ValueError(
            f"x: float32 blurs column {i} of mean {mean[i]:.3g} and standard deviation {std[i]:.3g}: pass all examples "
            "standardised, as (x - x.mean(0)) / x.std(0), or leave out columns that hardly vary"
        )
    return images


def splits_of(
    x: Any, y: Any, validation: Examples | None, test: Examples | None
) -> tuple[dict[str, LabelledImages], pd.Index]:
    """Return splits "train", "validation" and "test" and their classes; a split without examples is empty.

    Raises:
        ValueError: invalid examples or labels; says what is allowed.
    """
    require_same_rows(x, y, "y")
    z, classes = class_positions(y)
    images = training_images(x, len(z))
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
        training: whether networks are trained from new weights; otherwise modules are in evaluation mode.

    Raises:
        ValueError: anything else than a name, options, a network or a function that makes one.
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
