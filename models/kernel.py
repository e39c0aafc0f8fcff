"""Kernels of MLPs of infinite width, and the Gaussian one: predictors of the kernel code (`python -m mdl`)."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from models.classifier import Model

Name = Literal["ntk", "nngp", "rbf"]
_BLOCK = 2**22  # entries computed at once
_SAME = 1 - 1e-14  # an image's cosine with itself, up to rounding, which acos would amplify from 1e-16 to 1e-8
_NOTHING = 1e-300  # stands for the norm of an image of zeros


class Similarity(Protocol):
    """A kernel K of images."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute K(x, y), [n, m] float64, of images [n, C, H, W] and [m, C, H, W]."""
        ...

    def diagonal(self, x: Tensor) -> Tensor:
        """Compute K(x, x) of each image, [n] float64."""
        ...


class KernelModel(Model):
    """A predictor of labels by a kernel, without training."""

    @abstractmethod
    def drawn(self, generator: torch.Generator, x: Tensor) -> Similarity:
        """Draw the kernel for training images x [n, C, H, W]; a kernel without random weights returns itself."""

    def temporary_bytes(self, examples: int) -> float:  # noqa: ARG002, an override may use them
        """Return the memory for computing the kernel of this many examples, without the kernel itself."""
        return 2**28


class Kernel(KernelModel):
    """A kernel of images, without weights.

    "nngp" and "ntk" belong to a ReLU MLP of infinite width, without biases, with weights N(0, 2 / fan-in) in hidden
    layers and N(0, 1 / fan-in) in the readout. "nngp" is the kernel of its outputs at initialisation (Lee et al. 2018,
    by the arc-cosine kernels of Cho & Saul 2009), "ntk" that of its gradients (Jacot et al. 2018). "rbf" is
    exp(-‖x - y‖² / (2 b² d)) on images of d values.

    Args:
        kernel: "ntk", "nngp" or "rbf".
        depth: hidden layers of the MLP.
        bandwidth: b of the Gaussian kernel; images are standardised, so that their norm is about √d.

    Raises:
        ValueError: a depth below 1, or a bandwidth that is not positive.
    """

    version: ClassVar[int] = 2  # numbers of version 1 differ in the tenth digit

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, *, kernel: Name, depth: int, bandwidth: float
    ) -> None:
        if depth < 1:
            raise ValueError(f"model.depth={depth}: a kernel of an MLP needs at least 1 hidden layer")
        if not 0 < bandwidth < math.inf:
            raise ValueError(f"model.bandwidth={bandwidth}: must be a positive number, e.g. 0.5")
        self.input_shape, self.num_classes = input_shape, num_classes
        self.kernel, self.depth, self.bandwidth = kernel, depth, bandwidth

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        if options.get("kernel") == "rbf":
            return {"depth": "kernel=ntk"}
        return {"bandwidth": "kernel=rbf"}

    def drawn(self, generator: torch.Generator, x: Tensor) -> "Kernel":  # noqa: ARG002, nothing is
        return self

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute K(x, y), [n, m] float64, of images [n, C, H, W] and [m, C, H, W], each from its two images."""
        x, y = (images.flatten(1).double() for images in (x, y))
        kernel = x.new_empty(len(x), len(y))
        block = max(1, _BLOCK // max(1, len(y)))
        for start in range(0, len(x), block):
            kernel[start : start + block] = self._of(x[start : start + block], y)
        return kernel

    def diagonal(self, x: Tensor) -> Tensor:
        """Compute K(x, x) of each image, [n] float64."""
        squares = x.flatten(1).double().square().mean(1)
        return torch.ones_like(squares) if self.kernel == "rbf" else squares

    def _of(self, x: Tensor, y: Tensor) -> Tensor:
        d = x.shape[1]
        if self.kernel == "rbf":
            squares = x.square().sum(1)[:, None] - 2 * x @ y.T + y.square().sum(1)
            return squares.clamp_min_(0).mul_(-0.5 / (d * self.bandwidth**2)).exp_()
        norms = [values.norm(dim=1).clamp_min_(_NOTHING) for values in (x, y)]
        cosine = ((x / norms[0][:, None]) @ (y / norms[1][:, None]).T).clamp_(-1, 1)
        cosine[cosine > _SAME] = 1.0
        tangent = cosine.clone()
        for _ in range(self.depth):  # hidden layers keep norms, so only cosines change
            angle = torch.acos(cosine)
            share = (math.pi - angle) / math.pi  # share of units that are on for both
            cosine = (angle.sin_().div_(math.pi) + share * cosine).clamp_(-1, 1)
            tangent = cosine + tangent.mul_(share)
        # each layer adds a term as large as the kernel itself; the mean keeps its scale
        kernel = cosine if self.kernel == "nngp" else tangent / (self.depth + 1)
        return kernel * (norms[0][:, None] * norms[1] / d)
