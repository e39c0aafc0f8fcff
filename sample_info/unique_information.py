"""Unique information F-SI and SI of examples, from leave-one-out effects on weights and outputs."""

from torch import Tensor

from sample_info.leave_one_out_effects import Changes


def functional_information(changes: Changes, sigma: float) -> Tensor:
    """F-SI_σ in nats, [n]: mean ‖f(x) - f_-i(x)‖² / (2σ²), σ the noise on every output (equation 8).

    The square is that of equation 8; equation 16 prints it without.
    """
    return changes.prediction / (2 * sigma**2)


def weight_information(changes: Changes, sigma: float) -> Tensor:
    """SI_Σ with Σ = σ²I in nats, [n]: ‖w - w_-i‖² / (2σ²), σ the noise on every weight (equation 5)."""
    return changes.weight / (2 * sigma**2)
