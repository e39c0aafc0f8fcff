"""The exact kernel code, `python -m mdl` with a kernel: each label is predicted from all labels before it.

Nothing is trained. A Cholesky factor gives all one-step-ahead predictions at once. They are mixed over temperatures and
ridges.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from conf.target_class import Target
from erasure.device_memory import free_bytes
from erasure.progress import Display, Show, hidden
from harness.example_bits import save_coded_bits, save_test_bits
from harness.experiment import Experiment, Prepared, erased
from harness.logger import Logger
from harness.result_fields import Part
from harness.run_directory import Run
from harness.steps import computed, json_steps
from mdl.coded_result import logged, result_of_curve
from mdl.result import MdlResult, Point
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes
from models.kernel import KernelModel, Similarity
from train.device_images import DeviceImages, to_device
from train.randomness import generator, permutation

RIDGES = tuple(10.0**e for e in range(-4, 1))  # λ; images are standardised, so that K(x, x) is about 1
SHARPNESS = tuple(2.0 ** (e / 2) for e in range(-12, 13))  # β, inverse temperatures
POWERS = (0, 1, 2)  # p: scores are β μ / s^p
_GATHERED = 2**22  # kernel entries that are reordered at once
_BLOCK = 1024  # examples that all members predict at once
_BIT_NATS = math.log(2)


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor for one λ: K + λI = L Lᵀ, with the n training examples in coding order.

    Attributes:
        lower: L, [n, n] float64.
        targets: α = L⁻¹ y, [n, k]; y is the one-hot label minus 1/k.
    """

    lower: Tensor
    targets: Tensor

    def ahead(self) -> tuple[Tensor, Tensor]:
        """Compute mean [n, k] and standard deviation [n] of the prediction of each example from the earlier ones.

        μ_i = Σ_{j<i} L_ij α_j equals y_i - L_ii α_i, but is computed without y_i; s_i = L_ii includes the noise.
        """
        diagonal = self.lower.diagonal()
        deviation = diagonal.clone()
        diagonal.zero_()
        mean = self.lower @ self.targets
        diagonal.copy_(deviation)
        return mean, deviation

    def predict(self, cross: Tensor, variance: Tensor, sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield mean [m, k] and standard deviation [m] of the prediction of other examples from the first n.

        Args:
            cross: kernel of the training examples, in coding order, with the other examples, [n, m].
            variance: K(x, x) + λ of each other example, [m].
            sizes: numbers n, ascending.
        """
        solved = torch.linalg.solve_triangular(self.lower, cross, upper=False)
        mean, variance = cross.new_zeros(cross.shape[1], self.targets.shape[1]), variance.clone()
        for before, n in itertools.pairwise([0, *sizes]):
            mean = mean + solved[before:n].T @ self.targets[before:n]
            variance = variance - solved[before:n].square().sum(0)
            yield mean, variance.clamp_min(1e-12).sqrt()


def code_in_order(
    kernel: Tensor,
    labels: Tensor,
    num_classes: int,
    order: Tensor,
    tested: tuple[Tensor, Tensor] | None = None,
    sizes: Sequence[int] = (),
    ridges: Sequence[float] = RIDGES,
) -> tuple[Tensor, Tensor]:
    """Code labels in an order, each predicted by a mixture of kernel regressions on all earlier examples.

    The mixture has a member softmax(β μ / s^p) for each λ, β and p of the grids. Here μ and s are mean and standard
    deviation of a Gaussian process's prediction of the label's one-hot vector. Members have equal weights at first, and
    are then weighted by the probability that they gave to the labels so far. The prediction for an example depends
    neither on its label nor on later labels or inputs.

    Args:
        kernel: K of the training examples, [n, n] float64.
        labels: [n] in 0..k-1.
        num_classes: k.
        order: coding order of the training examples, [n].
        tested: kernel of test examples with the training examples, [m, n], and K(x, x) of the test examples, [m].
        sizes: numbers of labels after which the test examples are predicted, ascending.
        ridges: values of λ; each needs a Cholesky factor.

    Returns:
        Cost of the labels in this order, [n] bits; log-probabilities of the test examples' classes in nats,
        [sizes, m, k].
    """
    z, known = labels[order], [n - 1 for n in sizes]
    paid: list[Tensor] = []
    said: list[Tensor] = []
    for ridge, factor in factors(kernel, z, num_classes, order, ridges):
        paid.append(_log_probabilities(*factor.ahead(), z))
        if tested is not None:
            cross, diagonal = tested
            weights = paid[-1].cumsum(0)[known]
            parts = zip(cross.split(_BLOCK), (diagonal + ridge).split(_BLOCK), strict=True)
            blocks = [_tested(factor, part[:, order].T, variance, sizes, weights) for part, variance in parts]
            said.append(torch.cat(blocks, 1))
    log_p = torch.cat(paid, 1)
    if not said:
        return mixture_bits(log_p), log_p.new_empty(0)
    total = log_p.cumsum(0)[known].logsumexp(1)
    return mixture_bits(log_p), torch.stack(said).logsumexp(0) - total[:, None, None]


def factors(
    kernel: Tensor, z: Tensor, num_classes: int, order: Tensor, ridges: Sequence[float]
) -> Iterator[tuple[float, Factor]]:
    """Yield each λ and the factor of the examples in an order, of labels `z` [n]; the next factor overwrites it."""
    n = len(order)
    targets = F.one_hot(z, num_classes).double() - 1 / num_classes
    memory = kernel.new_empty(n, n)
    rows = max(1, _GATHERED // n)
    for ridge in ridges:
        for start in range(0, n, rows):
            some = kernel[order[start : start + rows]]
            torch.index_select(some, 1, order, out=memory[start : start + rows])
        memory.diagonal().add_(ridge)
        upper = memory.mT  # a column-major matrix, which the factor overwrites
        info = torch.empty((), dtype=torch.int32, device=memory.device)
        torch.linalg.cholesky_ex(upper, out=(upper, info))
        assert not info, "a kernel with a ridge is positive definite"
        yield ridge, Factor(upper, torch.linalg.solve_triangular(upper, targets, upper=False))


def members(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return each member's log-probabilities of the classes, for one λ, [members, n, k]."""
    powers, sharpness = (mean.new_tensor(grid) for grid in (POWERS, SHARPNESS))
    scores = mean / deviation[:, None] ** powers[:, None, None]
    return (scores[:, None] * sharpness[:, None, None]).flatten(0, 1).log_softmax(2)


def _log_probabilities(mean: Tensor, deviation: Tensor, z: Tensor) -> Tensor:
    """Return the log-probabilities [n, members] of the labels `z` [n] under the members of one λ."""
    parts = zip(*(values.split(_BLOCK) for values in (mean, deviation, z)), strict=True)
    return torch.cat([members(m, s)[:, torch.arange(len(labels)), labels].T for m, s, labels in parts])


def _tested(factor: Factor, cross: Tensor, variance: Tensor, sizes: Sequence[int], weights: Tensor) -> Tensor:
    """Return the contribution of one λ to the mixture's test log-probabilities after each size, [sizes, m, k]."""
    said = (members(*one) for one in factor.predict(cross, variance, sizes))
    return torch.stack([(weight[:, None, None] + one).logsumexp(0) for weight, one in zip(weights, said, strict=True)])


def mixture_bits(log_p: Tensor) -> Tensor:
    """Return each label's cost in bits, [n], under a mixture of M members; `log_p` [n, M] is in nats.

    A member's weight before example i is the product of the probabilities that it gave labels 1..i-1.
    """
    weights = F.pad(log_p.cumsum(0)[:-1], (0, 0, 1, 0))
    return (weights.logsumexp(1) - (weights + log_p).logsumexp(1)) / math.log(2)


@dataclass(frozen=True)
class PreparedKernel(Prepared[MdlConfig]):
    """An experiment's data on the device, and the kernel to predict by."""

    data: Mapping[str, DeviceImages]
    kernel: KernelModel

    @property
    def parameters(self) -> int:
        """The number of coefficients: one per training example and class."""
        return len(self.data["train"]) * self.num_classes

    @property
    def step_multiply_adds(self) -> float:
        """The order of magnitude of the multiplications of a Cholesky factorisation."""
        return len(self.data["train"]) ** 3


@dataclass(frozen=True, kw_only=True)
class SeedCoded(Part):
    """The code of one seed: the cost of each label in the seed's order, and test losses and accuracies by size.

    Attributes:
        test_bits: loss on each test example, after all labels.
    """

    bits: list[float]
    ce_test_bits: list[float]
    test_accuracy: list[float]
    test_bits: list[float]


def prepare(experiment: Experiment[MdlConfig]) -> PreparedKernel:
    """Erase the dataset or read it from the cache, and copy it to the device.

    Raises:
        ValueError: the training sizes do not fit the dataset, or the kernel does not fit into memory.
    """
    labels = {name: of_split for name, (_, of_split) in experiment.split_positions.items()}
    n, m = len(labels["train"]), len(labels["test"])
    chunk_sizes(n, experiment.config.mdl, len(labels["train"].unique()))
    dataset = erased(experiment)
    data = to_device(dataset, crop_padding=0, flip=False, device=experiment.device)
    kernel = Target(experiment.config.model, KernelModel).build(data["train"].image_shape, len(dataset.class_names))
    require_memory(experiment.config.model["name"], n, m, kernel.temporary_bytes(n + m), experiment.device)
    return PreparedKernel(experiment, dataset, data, kernel)


def require_memory(name: str, n: int, m: int, temporary_bytes: float, device: torch.device) -> None:
    """Refuse n training and m test examples if their float64 kernels do not fit into the device's memory.

    Args:
        name: the model's name.
        n: number of training examples.
        m: number of test examples.
        temporary_bytes: bytes for computing the kernel, except those that grow with the square of the examples.
        device: the device of the kernels.

    Raises:
        ValueError: too little memory; says how much is needed and how much is free.
    """
    free, needed = free_bytes(device), 8 * n * (2 * n + m + 2048) + temporary_bytes
    if needed > free:
        where = "on the CPU" if device.type == "cpu" else f"on {device}: try device=cpu"
        fits = int(math.sqrt(max(0.0, free - temporary_bytes) / 8 / (2 + m / n)))
        raise ValueError(
            f"model={name}: kernels of {n:,} training and {m:,} test examples take {needed / 1e9:,.1f} GB, but "
            f"{free / 1e9:,.1f} GB are free {where}; about {fits:,} training examples would fit: take a smaller "
            "dataset, a machine with more memory, or a network, e.g. model=mlp"
        )


def code_labels(prepared: PreparedKernel, run: Run, logger: Logger) -> MdlResult:
    """Code the training labels in each seed's order, the same as a network's; return the result.

    Orders that an earlier, interrupted attempt finished are taken from the run's directory.
    """
    sizes = chunk_sizes(len(prepared.data["train"]), prepared.experiment.config.mdl, prepared.num_classes)
    with Display(run.id) as display:
        data, k = prepared.data, prepared.num_classes
        steps = json_steps(run, SeedCoded)
        coded = kernel_code(prepared.kernel, data, k, prepared.seeds, sizes, steps=steps, on_progress=display.update)
    bits = torch.tensor([one.bits for one in coded], dtype=torch.float64)
    orders = torch.stack([permutation(seed, sizes[-1]) for seed in prepared.seeds])
    known = torch.arange(sizes[-1], dtype=torch.int32).expand_as(orders)
    save_coded_bits(run, prepared.experiment, orders, bits, known)
    save_test_bits(run, prepared.seeds, torch.tensor([one.test_bits for one in coded]))
    return logged(result_of_curve(prepared, curve_of(sizes, coded), sizes, bits.sum(1).tolist()), logger)


def kernel_code(
    model: KernelModel,
    data: Mapping[str, DeviceImages],
    num_classes: int,
    seeds: Sequence[int],
    sizes: Sequence[int],
    *,
    steps: Callable[[str, Callable[[], "SeedCoded"]], "SeedCoded"] = computed,
    on_progress: Show = hidden,
) -> list["SeedCoded"]:
    """Code the labels of the training split in each seed's order, predicting each label from all earlier ones.

    Args:
        model: the kernel; it may draw weights for each seed.
        data: "train" and "test" on the device.
        num_classes: k.
        seeds: one order per seed.
        sizes: numbers of labels after which the test split is scored, ascending.
        steps: called with a name and a function for each seed; returns the function's value, or the value stored by an
            earlier, interrupted attempt.
        on_progress: called with the share done, from 0 to 1, and the current task.
    """
    train, test = data["train"], data["test"]
    coded: list[SeedCoded] = []
    kernel = known = None

    def show(what: str) -> None:
        on_progress(len(coded) / len(seeds), what)

    def of_order(seed: int) -> SeedCoded:
        nonlocal kernel, known
        if (drawn := model.drawn(generator(seed, "init"), train.images)) is not kernel:
            known = None  # free the previous seed's matrices before building new ones
            kernel, known = drawn, matrices(data, drawn, show)
        assert known is not None
        order = permutation(seed, len(train)).to(train.labels.device)
        return of_seed(*code_in_order(known[0], train.labels, num_classes, order, known[1:], sizes), test.labels)

    for seed in seeds:
        coded.append(steps(f"seed-{seed}", functools.partial(of_order, seed)))
        show(f"order {len(coded)} of {len(seeds)}: {sum(coded[-1].bits) / len(train):.3f} bits per label")
    return coded


def matrices(
    data: Mapping[str, DeviceImages], kernel: Similarity, show: Callable[[str], None]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the kernel of training examples [n, n] and of test with training ones [m, n], and K(x, x) of tests [m]."""
    train, test = data["train"], data["test"]
    show(f"the kernel of {len(train):,} training examples")
    of_train = kernel(train.images, train.images)
    show(f"the kernel of {len(test):,} test examples")
    return of_train, kernel(test.images, train.images), kernel.diagonal(test.images)


def of_seed(bits: Tensor, tested: Tensor, z: Tensor) -> SeedCoded:
    """Collect the costs `bits` [n], and score log-probabilities `tested` [sizes, m, k] on the test labels `z` [m]."""
    losses = -tested.gather(2, z.expand(len(tested), -1)[:, :, None]).squeeze(2) / _BIT_NATS
    return SeedCoded(
        bits=bits.tolist(),
        ce_test_bits=losses.mean(1).tolist(),
        test_accuracy=(tested.argmax(2) == z).double().mean(1).tolist(),
        test_bits=losses[-1].tolist(),
    )


def curve_of(sizes: Sequence[int], coded: Sequence[SeedCoded]) -> list[Point]:
    """Return the learning curve: mean cost up to the next size and test loss at each size; epochs are 0."""
    return [
        Point(
            n=n,
            ce_next_bits=[sum(one.bits[n:after]) / (after - n) for one in coded] if after else None,
            ce_test_bits=[one.ce_test_bits[i] for one in coded],
            test_accuracy=[one.test_accuracy[i] for one in coded],
            epochs=[0] * len(coded),
        )
        for i, (n, after) in enumerate(itertools.zip_longest(sizes, sizes[1:]))
    ]
