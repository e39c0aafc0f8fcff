"""Forward calibration of a network that is still learning."""

import torch
from torch import Tensor

INVERSE_TEMPERATURES = (0.0, *(2 ** (j / 3) for j in range(-12, 4)))


class TemperatureMixture:
    """A Bayesian mixture over temperatures of each member's predictions, weighted by the cost of earlier labels.

    Bornschein, Li & Hutter (2022) move one temperature by a gradient step on every batch before the batch is learnt.
    Our mixture learns from the same losses without a learning rate. Its component at inverse temperature 0 ignores the
    network, which bounds the codelength: if labels are coded one at a time, it exceeds the uniform code's by at most
    log2 17 = 4.1 bits in all. In batches the excess can be larger, if the first labels contradict the network.

    Attributes:
        log_weights: unnormalised log-weights in nats, [S, temperatures] float64.
    """

    def __init__(self, members: int, device: torch.device) -> None:
        self.log_weights = torch.zeros(members, len(INVERSE_TEMPERATURES), dtype=torch.float64, device=device)

    def nats(self, logits: Tensor, z: Tensor) -> Tensor:
        """Return the cost of labels `z` [S, B] with logits [S, B, k] under the current mixture, [S, B] float64."""
        return self._mixed(_log_probabilities(logits, z))

    def coded(self, logits: Tensor, z: Tensor) -> Tensor:
        """Return the same cost as `nats`, and update the mixture with the labels."""
        each = _log_probabilities(logits, z)
        paid = self._mixed(each)
        self.log_weights += each.sum(-1)
        return paid

    def _mixed(self, each: Tensor) -> Tensor:
        return -(self.log_weights.log_softmax(1)[..., None] + each).logsumexp(1)


def _log_probabilities(logits: Tensor, z: Tensor) -> Tensor:
    """Return log-probabilities of labels [S, B] at every temperature, [S, temperatures, B] float64."""
    logits, target = logits.double(), z[..., None]
    each = [(beta * logits).log_softmax(-1).gather(-1, target).squeeze(-1) for beta in INVERSE_TEMPERATURES]
    return torch.stack(each, 1)
