"""`codelength`: the cost in bits of labels y, given x, in a prequential code by networks, classifiers or kernels."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from conf.check import check
from conf.groups import preset
from erasure.inputs import as_tensor, whole_numbers
from erasure.pipeline import channel_statistics
from erasure.progress import Show, hidden
from erasure.threads import threads_for
from erasure.torch_modes import default_modes
from harness.device_and_precision import pick_device
from harness.example_bits import by_example
from harness.loss_curves import label_entropy_bits
from harness.statistics import Difference, Spread, compression, paired_difference, seeds_text, signed
from mdl.block_code import block_code
from mdl.kernel_code import curve_of, kernel_code, require_memory
from mdl.replay_code import replay_code
from mdl.result import Point
from mdl.settings import MdlSettings
from mdl.training_sizes import chunk_sizes, first_size, warn_of_few
from models.kernel import KernelModel
from train.device_images import DeviceImages, standardised
from train.ensemble import Ensemble
from train.examples_in_memory import (
    Examples,
    name_of,
    predictor,
    require_seeds,
    splits_of,
    train_settings,
)
from train.randomness import permutation
from train.settings import TrainSettings
from train.stacking_rule import choose, step_multiply_adds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

_PROBABILITY_ROUNDING = 1e-3  # allowed deviation from 1 of the sum of an example's probabilities
_warn_once_of_few = functools.cache(warn_of_few)  # a notebook makes many calls with the same sizes
_LEAST = 1e-12  # added to each probability of a scikit-learn classifier: a label costs at most 40 bits


@dataclass(frozen=True, eq=False)
class Codelength:
    """The prequential codelength of labels, for S seeds.

    `print` shows the mean, `a - b` is the difference paired by seed, `plot` draws the learning curve.

    Attributes:
        model: name of the predictor.
        seeds: each seed determines an order of the examples and initial weights.
        sizes: training sizes, ascending; the last is the number of all examples.
        num_classes: k.
        total_bits: codelength of all labels, by seed.
        labels: y as positions in the sorted list of classes, [N].
        label_bits: cost of each label, in the order of y, [S, N].
        label_entropy_bits: entropy of the class shares: the cost of a label without x, once the shares are known.
        curve: one row per size and seed, with `n`, `seed` and `loss_bits`, the loss on the labels up to the next size.
            Test examples add `test_loss_bits` and a row for the last size, whose `loss_bits` is NaN. Networks add
            `epochs` and `untrained`, which is true if no epoch improved on the initial weights' loss on the examples
            that stop the training.
    """

    model: str
    seeds: Sequence[int]
    sizes: Sequence[int]
    num_classes: int
    total_bits: Sequence[float]
    labels: NDArray[np.int64]
    label_bits: Array
    label_entropy_bits: float
    curve: pd.DataFrame

    @property
    def bits_per_label(self) -> list[float]:
        """Codelength divided by the number of labels, by seed."""
        return [bits / self.sizes[-1] for bits in self.total_bits]

    @property
    def uniform_bits(self) -> float:
        """Cost of a label in the uniform code, log2 k."""
        return math.log2(self.num_classes)

    @property
    def compression(self) -> float:
        """Codelength of the uniform code divided by this codelength, averaged over seeds (Voita & Titov 2020)."""
        return compression(self.bits_per_label, self.num_classes)

    def __str__(self) -> str:
        text = (
            f"{Spread.of(self.bits_per_label):.3f} bits per label (uniform {self.uniform_bits:.3f}, label entropy "
            f"{self.label_entropy_bits:.3f}, compression {self.compression:.2f}), {seeds_text(len(self.seeds))}"
        )
        untrained, trainings = self.untrained
        return (
            f"{text}; in {untrained} of {trainings} trainings the untrained network was scored" if untrained else text
        )

    @property
    def untrained(self) -> tuple[int, int]:
        """Numbers of trainings that coded labels: those that kept their initial weights, and all."""
        coding = self.curve[self.curve["n"] < self.sizes[-1]]
        return int(coding["untrained"].sum()) if "untrained" in coding else 0, len(coding)

    def __sub__(self, other: "Codelength") -> "CodelengthDifference":
        """Return the difference in bits per label, paired by seed.

        Raises:
            ValueError: seeds, training sizes or labels differ.
        """
        if not isinstance(other, Codelength):
            return NotImplemented
        for name, mine, theirs in (("seeds", [*self.seeds], [*other.seeds]),
                                   ("sizes", [*self.sizes], [*other.sizes])):  # fmt: skip
            if mine != theirs:
                raise ValueError(f"codelengths of {name} {mine} and {theirs}: only equal ones can be compared in pairs")
        if (different := self.labels != other.labels).any():
            raise ValueError(
                f"codelengths of different labels, first at place {int(different.argmax())}: pass the same examples in "
                "the same order to compare them in pairs"
            )
        difference = paired_difference(self.bits_per_label, other.bits_per_label)
        return CodelengthDifference(**vars(difference), untrained=(self.untrained, other.untrained))

    def plot(self, ax: "Axes | None" = None, **line: Any) -> "Axes":
        """Draw the loss on the next labels over training size: mean over seeds, and a band of one standard deviation.

        Args:
            ax: axes to draw on; by default a new figure's.
            **line: options of matplotlib's `plot`, e.g. label="before".
        """
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots()[1]
        losses = self.curve.dropna(subset="loss_bits").groupby("n")["loss_bits"]
        mean, std = losses.mean(), losses.std().fillna(0.0)
        (drawn,) = ax.plot(mean.index, mean, **{"marker": "o", "label": self.model, **line})
        ax.fill_between(mean.index, mean - std, mean + std, color=drawn.get_color(), alpha=0.2, linewidth=0)
        ax.axhline(self.uniform_bits, color="#777777", linestyle=":", linewidth=1)
        ax.set(xscale="log", xlabel="training examples", ylabel="loss on the next labels (bits)")
        return ax


@dataclass(frozen=True)
class CodelengthDifference(Difference):
    """The difference of two codelengths in bits per label, paired by seed.

    Attributes:
        untrained: `Codelength.untrained` of the two codelengths.
    """

    untrained: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def __str__(self) -> str:
        (mine, trainings), (theirs, _) = self.untrained
        remark = f"; the untrained network was scored in {mine} and {theirs} of {trainings} trainings"
        remark = remark if mine or theirs else ""
        if self.standard_error is None:
            return f"{signed(self.mean)} bits per label, one seed{remark}"
        about = f"standard error over {self.seeds} paired seeds, p = {self.p_value:.2g}"
        return f"{signed(self.mean)} ± {self.standard_error:.3f} bits per label ({about}){remark}"


@default_modes()
def codelength(
    x: Any,
    y: Any,
    model: Any = "mlp",
    *,
    seeds: int | Sequence[int] = 5,
    sizes: int | Sequence[int] | None = None,
    settings: TrainSettings | str = "default",
    validation: Examples | None = None,
    test: Examples | None = None,
    code: Literal["blocks", "replay"] = "blocks",
    flip: bool = False,
    device: str | torch.device = "auto",
    on_progress: Show = hidden,
) -> Codelength:
    """Compute the cost in bits of the labels y, given x, predicting each part from all labels before it.

    By default this is the online code of Voita & Titov (2020, section 3.2). Each seed orders the examples. The first
    labels are sent with the uniform code. Then, for each size n, a new model is trained on the first n examples and
    codes the labels up to the next size. The replay code of Bornschein, Li & Hutter (2022) trains one network
    throughout.

    Args:
        x: vectors [n, d] or images [n, C, H, W]: a tensor, an array or a frame; standardised per channel or column.
        y: classes [n], integers or strings.
        model: a name as `python -m mdl model=` takes it ("linear", "mlp", "lenet", "kernel", ...); a dictionary of such
            options, {"name": "mlp", "width": 256}; a torch.nn.Module or a function that makes one, which gets x in its
            own shape and returns logits [B, k] (`models.any_module.AnyModule`); a scikit-learn classifier.
        seeds: number of seeds, or the seeds.
        sizes: number of training sizes, or the ascending sizes, of which the last is the number of examples; by
            default ten in geometric progression.
        settings: how networks are trained: a choice of `train=`, such as "quick", or `TrainSettings`. Like
            `validation` and `flip`, refused if no network is trained.
        validation: examples (x, y) that stop trainings. By default the last tenth of each prefix stops them, and the
            code needs only x and y. A scikit-learn classifier or a kernel takes none, because nothing stops it.
        test: examples (x, y) on which every trained model is scored as well.
        code: "blocks" trains a network for each size; "replay" trains one network, which codes a few labels and then
            learns them. Nothing stops it, so it takes no validation examples.
        flip: whether images may be mirrored in the training of networks.
        device: "auto", "cpu", "cuda" or "cuda:N", or a torch.device.
        on_progress: called with the share done, from 0 to 1, and the current task.

    Raises:
        ValueError: an invalid value; the message says what is allowed.
    """
    if code not in ("blocks", "replay"):
        raise ValueError(f"code={code!r}: choose blocks or replay")
    if code == "replay" and validation is not None:
        raise ValueError("code='replay' trains all along, and nothing stops it: leave out validation")
    parts, classes = splits_of(x, y, validation, test)
    (images, z), k, seeds = (parts["train"].images, parts["train"].labels), len(classes), require_seeds(seeds)
    where, trained, classifier = pick_device(device), train_settings(settings, device), _is_classifier(model)
    built = None if classifier else predictor(model, x, images.shape[1:], k)
    name = type(model).__name__ if built is None else name_of(model, built)
    trains = built is not None and not isinstance(built, KernelModel)
    if not trains:
        what = f"a {name} is fitted to whole prefixes" if classifier else f"model={name} has an exact code"
        options = {"code": code == "replay", "validation": validation is not None, "flip": flip}
        options["settings"] = settings != "default"
        for option in (option for option, passed in options.items() if passed):
            raise ValueError(f"{option} is for networks, and {what}: leave it out")
    stops_itself = trains and validation is None and code == "blocks"
    sizes, blocks = _sizes(sizes, len(z), k, "prefix" if stops_itself else "given")
    if built is None:
        pairs = {name: (_as_given(given[0]), parts[name].labels.numpy()) for name, given in
                 (("train", (x, y)), ("test", test)) if given is not None}  # fmt: skip
        bits, total_bits, curve = _by_classifier(model, classes, pairs, seeds, sizes, on_progress)
    else:
        mean, std = channel_statistics(images)
        data = standardised(parts, mean, std, crop_padding=trained.crop_padding, flip=flip, device=where)
        if isinstance(built, KernelModel):
            bits, total_bits, curve = _by_kernel(built, data, k, seeds, sizes, on_progress)
        else:
            instead = ", or pass validation=(x, y), which stops trainings in place of a tenth of each prefix"
            _warn_once_of_few(tuple(sizes), k, f"take more examples{instead if stops_itself else ''}")
            precision = getattr(torch, trained.precision)
            ensemble = Ensemble(built.to(where), precision, eval_batch_size=trained.eval_batch_size)
            stack = choose(ensemble, len(seeds), data["train"], trained).stack
            with threads_for(step_multiply_adds(ensemble, stack, data["train"], trained)):
                options: Any = {"sizes": sizes, "stack": stack, "on_progress": on_progress}
                if code == "replay":
                    replayed = replay_code(ensemble, data, seeds, trained, blocks.replay, **options)
                    bits, total_bits = by_example(replayed.bits, replayed.orders), replayed.bits.sum(1).tolist()
                    curve = _curve(seeds, replayed.curve)
                else:
                    coded = block_code(ensemble, data, k, seeds, trained, blocks, **options)
                    bits, total_bits = by_example(coded.label_bits()[0], coded.orders), coded.total_bits
                    curve = _curve(seeds, [size.point for size in coded.trained])
    if test is None:
        curve = curve[curve["n"] < sizes[-1]].drop(columns="test_loss_bits", errors="ignore")
    entropy, costs = label_entropy_bits(z), bits.double().numpy()
    coded_labels = Codelength(name, [*seeds], sizes, k, total_bits, z.numpy(), costs, entropy, curve)
    on_progress(1.0, str(coded_labels))
    return coded_labels


def _sizes(
    sizes: int | Sequence[int] | None, n: int, num_classes: int, validation: str
) -> tuple[Sequence[int], MdlSettings]:
    """Return training sizes, and the settings of the block code."""
    options = preset("mdl", "default") | {"validation": validation}
    sizes = whole_numbers(options["num_chunks"] if sizes is None else sizes, "sizes")
    if isinstance(sizes, int):
        if sizes < 2:
            raise ValueError(f"sizes={sizes}: need at least two training sizes")
        options["num_chunks"] = sizes
    settings = check("mdl.", options, MdlSettings)
    if isinstance(sizes, int):
        first = first_size(n, settings, num_classes)
        if sizes * first > n:
            raise ValueError(
                f"sizes={sizes}: need {sizes * first:,} examples, at least {first} each, but there are {n:,}: take "
                f"more examples, or pass a list, ascending from 2 to {n}"
            )
        return chunk_sizes(n, settings, num_classes), settings
    if len(sizes) < 2 or any(a >= b for a, b in itertools.pairwise([0, *sizes])) or sizes[-1] != n:
        raise ValueError(f"sizes={sizes}: need two or more, ascending, the last all {n} examples")
    if validation == "prefix" and sizes[0] < 2:
        raise ValueError(f"sizes={sizes}: one example cannot stop a training on none; begin with 2 or more")
    return sizes, settings


def _is_classifier(model: Any) -> bool:
    """Return whether this is a scikit-learn classifier."""
    return all(hasattr(model, name) for name in ("fit", "predict_proba", "get_params")) and not isinstance(model, type)


def _as_given(x: Any) -> Any:
    """Return x for a scikit-learn classifier: a frame as it is, anything else as an array of the same shape."""
    if hasattr(x, "iloc"):
        return x
    array = as_tensor(x, "x").cpu()
    return (array.float() if array.dtype in (torch.float16, torch.bfloat16) else array).numpy()


def _by_kernel(
    model: KernelModel,
    data: Mapping[str, DeviceImages],
    k: int,
    seeds: Sequence[int],
    sizes: Sequence[int],
    show: Show,
) -> tuple[Tensor, list[float], pd.DataFrame]:
    """Code every label from all labels before it with a kernel; returns the same values as `_by_classifier`."""
    n, m = (len(data[name]) for name in ("train", "test"))
    require_memory(type(model).__name__, n, m, model.temporary_bytes(n + m), data["train"].labels.device)
    with threads_for(n**3):
        coded = kernel_code(model, data, k, seeds, sizes, on_progress=show)
    bits = torch.tensor([one.bits for one in coded], dtype=torch.float64)
    orders = torch.stack([permutation(seed, n) for seed in seeds])
    curve = _curve(seeds, curve_of(sizes, coded)).drop(columns="epochs")
    return by_example(bits, orders), bits.sum(1).tolist(), curve


def _curve(seeds: Sequence[int], points: Sequence[Point]) -> pd.DataFrame:
    """Return a frame of a row per size and seed, of the columns of `Codelength.curve` that any size has."""
    rows = [
        {
            "n": point.n,
            "seed": seed,
            "loss_bits": math.nan if point.ce_next_bits is None else point.ce_next_bits[s],
            "test_loss_bits": point.ce_test_bits[s],
            "epochs": point.epochs[s],
            **({} if point.untrained is None else {"untrained": point.untrained[s]}),
        }
        for point in points
        for s, seed in enumerate(seeds)
    ]
    return pd.DataFrame(rows)


def _by_classifier(
    model: Any,
    classes: pd.Index,
    data: Mapping[str, tuple[Any, NDArray[np.int64]]],
    seeds: Sequence[int],
    sizes: Sequence[int],
    show: Show,
) -> tuple[Tensor, list[float], pd.DataFrame]:
    """Code the labels with clones of a scikit-learn classifier, each fitted to a whole prefix.

    In every part of the classifier, a `random_state` of None is replaced by the seed. Weights of classes that a prefix
    lacks are left out, as scikit-learn refuses them.

    Returns:
        costs of labels [S, N], codelengths by seed, and the learning curve.
    """
    from sklearn.base import clone
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier

    binary = OneVsOneClassifier | OneVsRestClassifier | OutputCodeClassifier  # whose parts weigh 0 and 1
    (x, z), tested, names = data["train"], data.get("test"), classes.to_numpy()
    bits = np.full((len(seeds), len(z)), math.log2(len(classes)))
    rows: list[dict[str, float]] = []
    for s, seed in enumerate(seeds):
        order = permutation(seed, len(z)).numpy()
        for i, (n, after) in enumerate(itertools.zip_longest(sizes, sizes[1:], fillvalue=sizes[-1])):
            show((s + i / len(sizes)) / len(seeds), f"n = {n:,}, seed {seed}")
            known, following = order[:n], order[n:after]
            if not len(following) and tested is None:
                continue  # nothing is left to code
            fitted: Any = clone(model)
            parameters = fitted.get_params()  # includes those of a pipeline's steps
            for name, value in parameters.items():
                *path, last = name.split("__")
                if value is None and last == "random_state":
                    fitted.set_params(**{name: seed % 2**32})  # scikit-learn takes no larger one
                elif value is not None and getattr(value, "random_state", seed) is None:  # e.g. KFold
                    value.random_state = seed % 2**32
                elif last == "class_weight" and isinstance(value, Mapping):
                    around = [fitted, *(parameters.get("__".join(path[: i + 1])) for i in range(len(path)))]
                    if any(isinstance(one, binary) for one in around):
                        continue
                    lacking = {*names} - {*names[z[known]]}
                    fitted.set_params(**{name: {label: w for label, w in value.items() if label not in lacking}})
            if len(np.unique(z[known])) > 1:
                fitted.fit(_rows(x, known), names[z[known]])
            else:
                fitted = None  # many classifiers refuse a single class; the code is uniform then
            rows.append({"n": n, "seed": seed, "loss_bits": math.nan})
            if len(following):
                bits[s, following] = _costs(fitted, classes, _rows(x, following), z[following])
                rows[-1]["loss_bits"] = bits[s, following].mean()
            if tested is not None:
                rows[-1]["test_loss_bits"] = _costs(fitted, classes, *tested).mean()
    curve = pd.DataFrame(rows).sort_values(["n", "seed"], kind="stable", ignore_index=True)
    return torch.from_numpy(bits), bits.sum(1).tolist(), curve


def _rows(x: Any, index: NDArray) -> Any:
    """Return rows of a frame, or of an array."""
    return x.iloc[index] if hasattr(x, "iloc") else x[index]


def _costs(fitted: Any, classes: pd.Index, x: Any, z: NDArray[np.int64]) -> Array:
    """Return the cost of each label in bits, [m]; `fitted` is None if there was a single class to learn.

    Each class that the classifier has not seen gets probability 1/k, as in the uniform code. Every class gets at least
    1e-12, so that no label costs more than 40 bits.

    Raises:
        ValueError: the classifier returns something other than a probability of each class in its `classes_`.
    """
    k = len(classes)
    p = np.full((len(z), k), 1 / k)
    if fitted is not None:
        seen = classes.get_indexer(pd.Index(getattr(fitted, "classes_", [])))
        predicted = np.asarray(fitted.predict_proba(x))
        if not (
            predicted.shape == (len(z), len(seen))
            and (seen >= 0).all()
            and (predicted >= 0).all()
            and (abs(predicted.sum(1) - 1) <= _PROBABILITY_ROUNDING).all()
        ):
            raise ValueError(
                f"model={type(fitted).__name__}: predict_proba must return a probability of each class in classes_, "
                f"[{len(z)}, {len(seen)}], not negative and with a sum of 1 for each example"
            )
        p[:, seen] = predicted * (len(seen) / k)
    return -np.log2((1 - k * _LEAST) * p[np.arange(len(z)), z] + _LEAST)
