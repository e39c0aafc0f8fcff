"""Ensembles of S models of one architecture, with parameters stacked along a leading member axis."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.classifier import Classifier
from train.device_images import DeviceImages
from train.memory import advice

Weights = dict[str, Tensor]  # parameter name -> [S, ...]
Nats = Callable[[Tensor, Tensor], Tensor]  # from logits [S, B, k] and labels [S, B] to costs of labels [S, B]

_BIT_NATS = math.log(2)
_WIDEST = math.log(100)  # temperatures lie between 1/100 and 100
_HALVINGS = 40  # number of bisections of that interval, on the logarithmic scale


class Evaluation(NamedTuple):
    """Predictions of N examples by S members.

    Attributes:
        bits: mean cross-entropy, [S] float64.
        accuracy: share of correct predictions, [S] float64.
        example_bits: cross-entropy of each example, [S, N].
    """

    bits: Tensor
    accuracy: Tensor
    example_bits: Tensor


def cross_entropy(logits: Tensor, z: Tensor) -> Tensor:
    """Return the cost in nats, [S, B], of labels [S, B] under the softmax of logits [S, B, k]."""
    return F.cross_entropy(logits.flatten(0, 1), z.flatten(), reduction="none").view_as(z)


def tempered(temperatures: Tensor | None) -> Nats:
    """Return the cross-entropy of logits divided by temperatures [S]."""
    if temperatures is None:
        return cross_entropy
    return lambda logits, z: cross_entropy(logits / temperatures.to(logits)[:, None, None], z)


class Ensemble:
    """S members of one architecture, applied to separate batches or to one shared batch.

    The layers of a stackable architecture accept stacked parameters. Members of other architectures run together
    through `torch.func.vmap`, whose convolutions stay in float32 under autocast on a CPU. A single member runs as a
    plain network.

    Args:
        model: the architecture; its parameters serve only to draw initial weights.
        precision: dtype of the forward pass in training; bfloat16 means autocast. Scores are always float32.
        eval_batch_size: number of examples per member in a forward pass for scoring.
    """

    def __init__(
        self, model: Classifier, precision: torch.dtype = torch.float32, *, eval_batch_size: int = 4096
    ) -> None:
        self.model, self.precision, self.eval_batch_size = model, precision, eval_batch_size
        self.names = [name for name, _ in model.named_parameters()]
        self._owners = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in self.names]
        self._stochastic_depth = model.stochastic_depth()

    @property
    def drop_rates(self) -> list[float]:
        """The rates of the model's layers of stochastic depth."""
        return [layer.rate for layer in self._stochastic_depth]

    def initial_weights(self, generators: Sequence[torch.Generator], device: torch.device) -> Weights:
        """Draw fresh weights, each member's from its own generator."""
        members = []
        for generator in generators:
            self.model.reset_parameters(generator)
            members.append([parameter.detach().clone() for parameter in self.model.parameters()])
        return {
            name: torch.stack(parameters).to(device)
            for name, parameters in zip(self.names, zip(*members, strict=True), strict=True)
        }

    def logits(self, weights: Weights, x: Tensor, factors: Tensor | None = None) -> Tensor:
        """Compute logits [S, B, k] of images [S, B, C, H, W], or of [B, C, H, W] shared by all members.

        Args:
            weights: weights of the S members.
            x: the images.
            factors: factors of the model's layers of stochastic depth, [S, layers, B]; None drops nothing.
        """
        if len(weights[self.names[0]]) == 1:  # plain layers are faster than a stack of one
            weights = {name: weight.squeeze(0) for name, weight in weights.items()}
            x = x if x.ndim == 4 else x.squeeze(0)
            return self._apply(weights, x, None if factors is None else factors.squeeze(0))[None]
        if self.model.stackable and not self._stochastic_depth:
            return self._apply(weights, x, None)
        axes = (0, None if x.ndim == 4 else 0, None if factors is None else 0)
        members = torch.func.vmap(self._apply, axes)
        if torch.compiler.is_compiling():  # the compiler cannot trace the filter of warnings
            return members(weights, x, factors)
        with warnings.catch_warnings():  # a few operations have no batching rule: vmap loops over their members
            warnings.filterwarnings("ignore", "There is a performance drop")
            return members(weights, x, factors)

    @cached_property
    def compiled_logits(self) -> Callable[[Weights, Tensor, Tensor | None], Tensor]:
        """`logits` and its backward pass, compiled by `torch.compile`: equal to rounding, in fewer kernels.

        The first call with inputs of a new shape compiles, which takes seconds to minutes.
        """
        return torch.compile(self.logits)

    def autocast(self, device: torch.device) -> torch.autocast:
        """Return the autocast context for the forward pass in the precision of training."""
        return torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32)

    def gradients(
        self, weights: Weights, x: Tensor, z: Tensor, factors: Tensor | None = None, *, compiled: bool = False
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Compute each member's mean cross-entropy in nats, and its gradient.

        Args:
            weights: weights of the S members, leaves of autograd.
            x: images [S, B, C, H, W].
            z: labels [S, B].
            factors: factors of the model's layers of stochastic depth, [S, layers, B]; by default nothing is dropped.
            compiled: whether to use `compiled_logits`.

        Returns:
            losses [S], and one tensor [S, ...] per parameter, in the order of `names`.
        """
        with self.autocast(x.device):
            logits = (self.compiled_logits if compiled else self.logits)(weights, x, factors)
        with torch.no_grad():  # d loss / d logits = (softmax - one-hot) / B, which is cheaper than autograd
            target = z.unsqueeze(-2)
            log_probabilities = logits.mT.log_softmax(-2)  # [S, k, B]: vectorised over examples, as k is small
            losses = log_probabilities.gather(-2, target).mean((1, 2)).neg_()
            slope = log_probabilities.exp_()
            slope.scatter_add_(-2, target, slope.new_full((1, 1, 1), -1.0).expand_as(target)).div_(z.shape[1])
        return losses, torch.autograd.grad(logits, [weights[name] for name in self.names], slope.mT)

    @torch.no_grad()
    def score(
        self, weights: Weights, images: DeviceImages, index: Tensor | None = None, *, nats: Nats = cross_entropy
    ) -> Evaluation:
        """Score the S members of these weights.

        Args:
            weights: weights of the S members.
            images: the examples, without augmentation.
            index: positions of the examples to score, [N] for all members or [S, N]; all by default.
            nats: function that returns the cost of each label in nats.

        Raises:
            MemoryExhaustedError: names the setting to lower.
        """
        members = len(weights[self.names[0]])
        n = len(images) if index is None else index.shape[-1]
        none = torch.zeros(members, dtype=torch.float64, device=images.labels.device)
        if not n:
            return Evaluation(none / 0, none / 0, none[:, None][:, :0])  # NaN: the mean of no examples
        costs, hits = [], []
        for logits, z in self.outputs(weights, images, index):
            costs.append(nats(logits, z))
            hits.append(logits.argmax(-1) == z)
        total, correct = (sum((part.double().sum(1) for part in parts), none) for parts in (costs, hits))
        return Evaluation(total / n / _BIT_NATS, correct / n, torch.cat(costs, 1) / _BIT_NATS)

    def outputs(
        self, weights: Weights, images: DeviceImages, index: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits [S, B, k] and labels [S, B], batch by batch."""
        members = len(weights[self.names[0]])
        index = torch.arange(len(images), device=images.labels.device) if index is None else index
        with advice("evaluating", eval_batch_size=self.eval_batch_size, stack="one" if members == 1 else "all"):
            for part in index.split(self.eval_batch_size, dim=-1):
                x, z = images.plain(part)
                yield self.logits(weights, x), z.expand(members, -1)

    def _apply(self, weights: Weights, x: Tensor, factors: Tensor | None) -> Tensor:
        """Compute logits with these weights and factors, as `functional_call` does, at a tenth of its cost."""
        parameters = [module._parameters[name] for module, name in self._owners]
        for (module, name), key in zip(self._owners, self.names, strict=True):
            module._parameters[name] = weights[key]  # pyright: ignore[reportArgumentType]
        if factors is not None:
            for i, layer in enumerate(self._stochastic_depth):
                layer.factors = factors[i]
        try:
            return self.model(x).float()
        finally:
            for (module, name), parameter in zip(self._owners, parameters, strict=True):
                module._parameters[name] = parameter
            for layer in self._stochastic_depth:
                layer.factors = None


def temperatures(logits: Tensor, z: Tensor) -> Tensor:
    """Fit the temperatures T [S] for which softmax(logits / T) [S, n, k] best predicts the labels `z` [S, n].

    This is temperature scaling (Guo et al. 2017, section 4.2) with a log-normal prior of unit width on T, so that few
    examples change T little. Bisection of the derivative minimises Σ_i CE_i(e^t) + t²/2 over t = -ln T.
    """
    of_label = logits.gather(2, z[:, :, None]).squeeze(2)
    low = logits.new_full((len(logits),), -_WIDEST, dtype=torch.float64)
    high = -low
    for _ in range(_HALVINGS):
        t = (low + high) / 2
        scale = t.exp().to(logits)
        expected = ((logits * scale[:, None, None]).softmax(2) * logits).sum(2)
        rising = t + scale * (expected - of_label).sum(1, dtype=torch.float64) > 0
        low, high = torch.where(rising, low, t), torch.where(rising, t, high)
    return (-(low + high) / 2).exp()
