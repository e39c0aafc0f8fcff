"""S models of one shape as one: parameters stacked along a leading member axis."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.classifier import Classifier

Weights = dict[str, Tensor]  # parameter name -> [S, ...]
Fetch = Callable[[Tensor], tuple[Tensor, Tensor]]  # index -> images and labels


class Ensemble:
    """Applies S members of one architecture to their own batches, or to one that they share.

    A stackable architecture runs all members in one call; another takes one member at a time (S = 1).

    Args:
        model: the architecture; its own parameters are only used to draw initial ones.
        precision: dtype of the forward pass in training; bfloat16 means autocast. Scores are always float32's.
    """

    def __init__(self, model: Classifier, precision: torch.dtype = torch.float32) -> None:
        self.model = model
        self.precision = precision
        self.names = [name for name, _ in model.named_parameters()]
        self._places = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in self.names]

    @property
    def stacks(self) -> bool:
        """Whether several members can run at once."""
        return self.model.stackable

    def initial_weights(self, generators: Sequence[torch.Generator], device: torch.device) -> Weights:
        """Fresh weights, each member's drawn from its own generator."""
        members = []
        for generator in generators:
            self.model.reset_parameters(generator)
            members.append([parameter.detach().clone() for parameter in self.model.parameters()])
        return {
            name: torch.stack(parameters).to(device)
            for name, parameters in zip(self.names, zip(*members, strict=True), strict=True)
        }

    def logits(self, weights: Weights, x: Tensor) -> Tensor:
        """Logits [S, B, k] of images [S, B, C, H, W], or of [B, C, H, W] shared by all members."""
        alone = len(weights[self.names[0]]) == 1  # plain layers are faster than a stack of one
        if alone:
            weights = {name: weight.squeeze(0) for name, weight in weights.items()}
            x = x if x.ndim == 4 else x.squeeze(0)
        with self._carrying(weights):
            logits = self.model(x).float()
        return logits[None] if alone else logits

    def autocast(self, device: torch.device) -> torch.autocast:
        """Within it the forward pass is in the precision of training."""
        return torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32)

    @contextlib.contextmanager
    def training(self, generator: torch.Generator) -> Iterator[None]:
        """Within it the forward pass is a training step's: stochastic depth is on, drawn from the generator."""
        self.model.generator = generator
        try:
            yield
        finally:
            self.model.generator = None

    def gradients(self, weights: Weights, x: Tensor, z: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Mean cross-entropy of each member in nats, and every member's gradient of its own.

        Args:
            weights: of the S members, leaves of autograd.
            x: images [S, B, C, H, W].
            z: labels [S, B].

        Returns:
            losses [S], and one tensor [S, ...] per parameter, in the order of `names`.
        """
        with self.autocast(x.device):
            logits = self.logits(weights, x)
        with torch.no_grad():  # d loss / d logits = (softmax - one-hot) / B: cheaper written down than derived
            target = z.unsqueeze(-2)
            log_probabilities = logits.mT.log_softmax(-2)  # [S, k, B]: vectorises over examples, k being small
            losses = log_probabilities.gather(-2, target).mean((1, 2)).neg_()
            slope = log_probabilities.exp_()
            slope.scatter_add_(-2, target, slope.new_full((1, 1, 1), -1.0).expand_as(target)).div_(z.shape[1])
        return losses, torch.autograd.grad(logits, [weights[name] for name in self.names], slope.mT)

    @torch.no_grad()
    def score(self, weights: Weights, fetch: Fetch, index: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy in bits and accuracy of each member, both [S] float64.

        Args:
            weights: of the S members.
            fetch: index -> (images, labels), such as `DeviceImages.plain`.
            index: examples to score, [N] for all members or [S, N] for each its own.
            batch_size: examples of one member per forward pass.
        """
        members = len(next(iter(weights.values())))
        nats = torch.zeros(members, dtype=torch.float64, device=index.device)
        correct = torch.zeros_like(nats)
        for losses, hits in self._scored(weights, fetch, index, batch_size):
            nats += losses.double().sum(1)
            correct += hits.sum(1)
        n = index.shape[-1]
        return nats / n / torch.log(torch.tensor(2.0, dtype=torch.float64)), correct / n

    @torch.no_grad()
    def example_bits(self, weights: Weights, fetch: Fetch, index: Tensor, batch_size: int) -> Tensor:
        """Cross-entropy of single examples in bits [S, N], arguments as of `score`."""
        parts = [losses for losses, _ in self._scored(weights, fetch, index, batch_size)]
        return torch.cat(parts, 1) / math.log(2)

    def _scored(
        self, weights: Weights, fetch: Fetch, index: Tensor, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batch by batch, losses in nats and whether the label is the likeliest, both [S, b]."""
        members = len(next(iter(weights.values())))
        for part in index.split(batch_size, dim=-1):
            x, z = fetch(part)
            z = z.expand(members, -1)
            logits = self.logits(weights, x)
            losses = F.cross_entropy(logits.flatten(0, 1), z.flatten(), reduction="none").view_as(z)
            yield losses, logits.argmax(-1) == z

    @contextlib.contextmanager
    def _carrying(self, weights: Weights) -> Iterator[None]:
        """Within it the model computes with these weights (what `functional_call` does, at a tenth of its cost)."""
        own = [module._parameters[name] for module, name in self._places]
        for (module, name), key in zip(self._places, self.names, strict=True):
            module._parameters[name] = weights[key]  # pyright: ignore[reportArgumentType]
        try:
            yield
        finally:
            for (module, name), parameter in zip(self._places, own, strict=True):
                module._parameters[name] = parameter
