"""`python -m mdl` with a kernel instead of a network: every label predicted from all before it, without training."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conf.target import Target
from erasure.device_memory import free_bytes
from erasure.progress import Display
from harness.example_bits import save_coded_bits, save_test_bits
from harness.job import Job, erased
from harness.logger import Logger
from harness.result import as_json, parsed
from harness.result_fields import Coded, Part, Point
from harness.run_directory import Run
from mdl.chunks import chunk_sizes
from mdl.kernel_code import KernelCode
from mdl.prequential import bits_by_example, logged_result, split_positions
from mdl.settings import MdlConfig
from models.kernel import KernelModel, Similarity
from train.data import to_device
from train.prepare import PreparedData
from train.randomness import generator, permutation

_BIT_NATS = math.log(2)


@dataclass(frozen=True)
class PreparedKernel(PreparedData):
    """Prepared data with the kernel to predict by."""

    job: Job[MdlConfig]
    kernel: KernelModel

    @property
    def parameters(self) -> int:
        """The number of coefficients: one per training example and class."""
        return len(self.data["train"]) * self.num_classes


@dataclass(frozen=True, kw_only=True)
class SeedCoded(Part):
    """The code of one order: cost of each label in that order, and test losses and accuracies by size.

    Attributes:
        test_bits: of each test example, after all labels.
    """

    bits: list[float]
    ce_test_bits: list[float]
    test_accuracy: list[float]
    test_bits: list[float]


def load(job: Job[MdlConfig]) -> PreparedKernel:
    """Erase (or fetch) the dataset, and bring it to the device.

    Raises:
        ValueError: training sizes that do not fit, or a kernel that memory does not hold.
    """
    sizes = {name: len(part) for name, part in split_positions(job).items()}
    chunk_sizes(sizes["train"], job.config.mdl)
    dataset = erased(job)
    data = to_device(dataset, crop_padding=0, flip=False, device=job.device)
    kernel = Target(job.config.model).build(KernelModel, data["train"].image_shape, len(dataset.class_names))
    temporary_bytes = kernel.temporary_bytes(sizes["train"] + sizes["test"])
    require_memory(job.config.model["name"], sizes["train"], sizes["test"], temporary_bytes, job.device)
    return PreparedKernel(job, dataset, data, kernel)


def require_memory(name: str, n: int, m: int, temporary_bytes: float, device: torch.device) -> None:
    """Refuse n training and m test examples whose kernels the device's memory does not hold, in float64.

    Args:
        name: the model's.
        n: number of training examples.
        m: number of test examples.
        temporary_bytes: bytes for computing the kernel, without those that grow with the square of the examples.
        device: that holds the kernels.

    Raises:
        ValueError: says how much is needed, and what there is.
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


def code(prepared: PreparedKernel, run: Run, logger: Logger) -> Coded:
    """Code the training labels in each seed's order, the same as a network's; the command's fields of the result.

    Orders that an earlier, interrupted attempt finished are taken from the run's directory.
    """
    seeds, n = prepared.seeds, len(prepared.data["train"])
    sizes = chunk_sizes(n, prepared.job.config.mdl)
    coded: list[SeedCoded] = []
    kernel = computed = None

    def show(what: str) -> None:
        display.update(len(coded) / len(seeds), what)

    def of_order(seed: int) -> dict:
        nonlocal kernel, computed
        if (drawn := prepared.kernel.drawn(generator(seed, "init"), prepared.data["train"].images)) is not kernel:
            computed = None  # frees the previous seed's: memory need not hold both
            kernel, computed = drawn, matrices(prepared, drawn, show)
        assert computed is not None
        (coder, tested), order = computed, permutation(seed, n).to(prepared.job.device)
        return as_json(of_seed(*coder.code(order, *tested, sizes), prepared.data["test"].labels))

    with Display(run.id) as display:
        for seed in seeds:
            coded.append(parsed(SeedCoded, run.step(f"seed-{seed}", functools.partial(of_order, seed))))
            show(f"order {len(coded)} of {len(seeds)}: {sum(coded[-1].bits) / n:.3f} bits per label")
    return _finish(prepared, run, logger, sizes, coded)


def matrices(
    prepared: PreparedKernel, kernel: Similarity, show: Callable[[str], None]
) -> tuple[KernelCode, tuple[Tensor, Tensor]]:
    """Return the training labels' kernel code, the kernel of test with training images [m, n], and K(x, x) [m]."""
    train, test = prepared.data["train"], prepared.data["test"]
    show(f"the kernel of {len(train):,} training images")
    coder = KernelCode(kernel(train.images, train.images), train.labels, prepared.num_classes)
    show(f"the kernel of {len(test):,} test images")
    return coder, (kernel(test.images, train.images), kernel.diagonal(test.images))


def of_seed(bits: Tensor, tested: Tensor, z: Tensor) -> SeedCoded:
    """Collect costs [n], and log-probabilities of the test labels `z` [m] by size, [sizes, m, k]."""
    losses = -tested.gather(2, z.expand(len(tested), -1)[:, :, None]).squeeze(2) / _BIT_NATS
    return SeedCoded(
        bits=bits.tolist(),
        ce_test_bits=losses.mean(1).tolist(),
        test_accuracy=(tested.argmax(2) == z).double().mean(1).tolist(),
        test_bits=losses[-1].tolist(),
    )


def curve_of(sizes: Sequence[int], coded: Sequence[SeedCoded]) -> list[Point]:
    """Return the learning curve: costs between sizes, and the test split's loss after each, without epochs."""
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


def _finish(
    prepared: PreparedKernel, run: Run, logger: Logger, sizes: Sequence[int], coded: Sequence[SeedCoded]
) -> Coded:
    seeds, n = prepared.seeds, sizes[-1]
    bits = torch.tensor([one.bits for one in coded], dtype=torch.float64)
    orders = torch.stack([permutation(seed, n) for seed in seeds])
    known = torch.arange(n, dtype=torch.int32).expand_as(orders)
    save_coded_bits(run, bits_by_example(prepared.job, orders, bits, known))
    save_test_bits(run, seeds, torch.tensor([one.test_bits for one in coded]))
    return logged_result(logger, curve_of(sizes, coded), sizes, bits.sum(1).tolist())
