"""Forward calibration of a network that is still learning."""

import torch
from torch import Tensor

INVERSE_TEMPERATURES = (0.0, *(2 ** (j / 3) for j in range(-12, 4)))


class TemperatureMixture:
    """A Bayes mixture over temperatures of each member's predictions, weighted by what each has paid so far.

    Bornschein, Li & Hutter (2022) move one temperature by a gradient step on every batch before the batch is learnt.
    The mixture, ours, learns from the same losses and has no rate to choose. Its share at inverse temperature 0 ignores
    the network and bounds the code: if labels are coded one at a time, it exceeds the uniform code by at most
    log2 17 = 4.1 bits in all. In batches it can exceed it by more, where the first labels contradict the network.

    Attributes:
        log_weights: in nats and not normalised, [S, temperatures] float64.
    """

    def __init__(self, members: int, device: torch.device) -> None:
        self.log_weights = torch.zeros(members, len(INVERSE_TEMPERATURES), dtype=torch.float64, device=device)

    def nats(self, logits: Tensor, z: Tensor) -> Tensor:
        """Return the cost of labels [S, B] by logits [S, B, k] under the mixture as it stands, [S, B] float64."""
        return self._mixed(_log_probabilities(logits, z))

    def coded(self, logits: Tensor, z: Tensor) -> Tensor:
        """Return the cost as `nats`, and let the mixture learn from the labels."""
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
