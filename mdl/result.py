"""The result of `python -m mdl` in result.json."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from harness.result import LONGEST_ERROR, TrainedResult
from harness.result_fields import Bits, Endings, Number, Part, Share, Whole
from mdl.online_code import published_units

_LEARNING_BITS = 10.0  # upper bound on a mixture code's excess over the uniform code: at most log2 375 bits
_TOLERANCE = 1e-6  # relative; sums may be taken in another order


@dataclass(frozen=True, kw_only=True)
class Point(Endings):
    """A training size n of a prequential run: losses in bits per label, by seed.

    Attributes:
        ce_next_bits: loss on the examples up to the next size; None for the last size, after which there are none.
            With `train.protocol=published` it is the loss on the test part.
        ce_test_averaged_bits: test loss of the averaged weights in evaluation mode. Only for
            `train.protocol=published`, whose other scores use the training sequence in training mode.
        ce_next_calibrated_bits: `ce_next_bits` with logits divided by `temperature` (`train.ensemble`).
    """

    n: Whole
    ce_next_bits: list[Bits] | None
    ce_test_bits: list[Bits]
    ce_next_calibrated_bits: list[Bits] | None = None
    ce_test_averaged_bits: list[Bits] | None = None
    temperature: list[Number] | None = None
    ce_train_bits: list[Bits] | None = None
    ce_validation_bits: list[Bits] | None = None
    test_accuracy: list[Share] | None = None


@dataclass(frozen=True, kw_only=True)
class CodelengthBits(Part):
    """Codelengths of the labels, by seed.

    Attributes:
        published: value in the unit of the paper's Table 16 (`published_units`), for any `train.protocol`.
        calibrated_bits_per_sample: codelength with logits divided by a temperature.
    """

    bits_per_sample: list[Bits]
    total_bits: list[Bits]
    published: list[Bits]
    calibrated_bits_per_sample: list[Bits] | None = None


@dataclass(frozen=True, kw_only=True)
class MdlResult(TrainedResult):
    """A result of `python -m mdl`; older results lack the entropy of the training labels."""

    mdl: CodelengthBits
    curve: list[Point]
    label_entropy_bits: Bits | None = None
    compared: ClassVar[Sequence[str]] = ("bits_per_label", "test_loss_bits")

    @property
    def trainings(self) -> Sequence[Endings]:
        return self.curve

    @property
    def coding(self) -> Sequence[Endings]:
        return [point for point in self.curve if point.ce_next_bits is not None]

    @property
    def test_losses(self) -> Sequence[tuple[int, Sequence[float]]]:
        return [(point.n, point.ce_test_bits) for point in self.curve]

    @property
    def sizes(self) -> list[int]:
        """The ends of the blocks of labels: all training sizes, and N even if no network was trained on all labels."""
        sizes = [point.n for point in self.curve]
        return sizes if sizes[-1] == self.train_size else [*sizes, self.train_size]

    def blocks(self, s: int) -> list[tuple[int, float]]:
        """Return labels and bits per label of each block of seed number s; the first block costs the remaining bits."""
        losses = [point.ce_next_bits[s] for point in self.curve if point.ce_next_bits]
        later = [(after - before, loss) for (before, after), loss in zip(pairwise(self.sizes), losses, strict=True)]
        first = self.mdl.total_bits[s] - sum(labels * loss for labels, loss in later)
        return [(self.sizes[0], first / self.sizes[0]), *later]

    def _area_bits(self, s: int) -> float:
        """Return the area between the learning curve and the loss per label of its last block, over all N labels.

        See Finzi et al. 2026 and docs/codes.md.
        """
        blocks = self.blocks(s)
        return sum(labels * (loss - blocks[-1][1]) for labels, loss in blocks)

    def surplus_bits(self, s: int, epsilon: float) -> float:
        """Return the SDL(ε) of seed number s, Σ_i max(loss_i - ε, 0) over the labels (Whitney et al. 2020)."""
        return sum(labels * max(0.0, loss - epsilon) for labels, loss in self.blocks(s))

    def sample_complexity(self, s: int, epsilon: float) -> float:
        """Return the εSC, the least training size whose network costs ε or less per new label; infinite: above N.

        New are the labels of the next block; after the last size, those of the test split (Whitney et al. 2020).
        """
        losses = ((point.n, (point.ce_next_bits or point.ce_test_bits)[s]) for point in self.curve)
        return next((n for n, loss in losses if loss <= epsilon), math.inf)

    def require_consistent(self) -> None:
        super().require_consistent()
        sizes = [point.n for point in self.curve]
        if len(sizes) < 2 or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)) or sizes[-1] > self.train_size:
            raise ValueError(f"curve has the sizes {sizes}: needs two or more, each larger than the one before")
        nothing_next = [point.n for point in self.curve if point.ce_next_bits is None]
        if nothing_next != [size for size in sizes if size == self.train_size]:
            raise ValueError("curve: every size but that of all training examples, and no other, has ce_next_bits")
        last = self.curve[-1]
        for name, values in (("loss_bits", last.ce_test_bits), ("accuracy", last.test_accuracy)):
            if values is not None and values != (final := getattr(self.final, name)):
                raise ValueError(f"final.{name} is {final}, but the learning curve ends at {values}"[:LONGEST_ERROR])
        self._require_codelengths()

    def _require_codelengths(self) -> None:
        """Recompute every codelength from its curve, and refuse nats or another unit.

        The curve does not contain the cost of the labels up to the first size. In the block-wise code they cost as much
        as in the uniform code. Codes that learn from them may pay less, or slightly more because of their mixture.

        Raises:
            ValueError: the codelengths do not follow from the learning curve in bits.
        """
        curve, total, sizes = self.curve, self.train_size, self.sizes
        max_first_block_bits = sizes[0] * math.log2(self.num_classes) + _LEARNING_BITS
        for s, seed in enumerate(self.seeds):
            later = sum(labels * loss for labels, loss in self.blocks(s)[1:])
            bits = later + min(max(self.mdl.total_bits[s] - later, 0.0), max_first_block_bits)
            expected = {
                "total_bits": bits,
                "bits_per_sample": bits / total,
                "published": published_units(sizes, [p.ce_test_bits[s] for p in curve][: len(sizes) - 1]),
            }
            for key, value in expected.items():
                if not math.isclose(getattr(self.mdl, key)[s], value, rel_tol=_TOLERANCE):
                    raise ValueError(
                        f"mdl.{key} of seed {seed} is {getattr(self.mdl, key)[s]:.6g}, but its curve in bits gives "
                        f"{value:.6g}: mixed units?"
                    )

    def by_seed(self) -> dict[str, Sequence[Any]]:
        bits = zip(self.mdl.total_bits, self.final.loss_bits, strict=True)
        columns = super().by_seed() | {
            "bits_per_label": self.mdl.bits_per_sample,
            "total_bits": self.mdl.total_bits,
            "published_units": self.mdl.published,
            "excess_bits": [total - self.train_size * loss for total, loss in bits],
            "area_bits": [self._area_bits(s) for s in range(len(self.seeds))],
        }
        if self.mdl.calibrated_bits_per_sample is not None:
            columns["calibrated_bits_per_label"] = self.mdl.calibrated_bits_per_sample
        if left := [training.left_plateau for training in self.coding if training.left_plateau is not None]:
            columns["coding_on_plateau"] = [len(left) - sum(of_seed) for of_seed in zip(*left, strict=True)]
        if self.label_entropy_bits is not None:
            columns["label_entropy_bits"] = [self.label_entropy_bits] * len(self.seeds)
        return columns
