"""Influence functions: what leaving out an example would do, to first order in its weight.

Cook 1977; Koh & Liang 2017, equation 1; the baseline of Harutyunyan et al. 2021, table 1.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from erasure.progress import Display
from sample_info.curvature import SquaredLoss
from sample_info.leave_one_out import LeaveOneOut, check_targets, mean_square
from sample_info.solvers import Solver

_AT_ONCE = 16  # examples whose systems are solved together at most: what an interruption loses


@torch.no_grad()
def influence_parts(
    loss: SquaredLoss,
    x_test: Tensor,
    solver: Solver,
    examples: Tensor | None = None,
    *,
    weight_decay: float = 0.0,
    memory_bytes: int = 2**31,
    title: str = "influence",
) -> Iterator[LeaveOneOut]:
    """Predicted changes: w_-i - w ≈ H⁻¹ ∇ ½‖f_w(x_i) - y_i‖², and of predictions, J(x) (w_-i - w); a few at a time.

    H is the curvature of the summed loss over all training examples, plus λ. The formula assumes that w is a
    minimum; at weights that are still in training it says something else than retraining does.

    Args:
        loss: network, final weights, training inputs and targets.
        x_test: inputs on which predictions are compared, [m, ...].
        solver: applies H⁻¹; says how H is approximated and damped.
        examples: positions of those to leave out; all by default.
        weight_decay: λ.
        memory_bytes: for the rows of P numbers that are held at a time, about eight per example.
        title: of the progress that is shown.

    Raises:
        ValueError: targets that are not [n, k], or a solver that cannot work with these options.
    """
    check_targets(loss.x, loss.y)
    examples = torch.arange(len(loss.x)) if examples is None else examples.cpu()
    outputs = loss.y.numel() * loss.x[:1].numel() // max(1, loss.y.shape[1])  # a guess at what activations take
    row_bytes = loss.y.element_size() * (8 * loss.num_parameters + 2 * outputs)
    parts = examples.split(min(_AT_ONCE, max(1, memory_bytes // row_bytes)))
    with Display(title) as display:
        for i, part in enumerate(parts):
            display.update(i / len(parts), f"{len(part)} examples at once")
            change = solver.solve(loss, weight_decay, loss.gradients(part))
            weight_change = change.double().square().sum(1).cpu()
            yield LeaveOneOut(part, weight_change, mean_square(loss.change_of_outputs(change, x_test)))
