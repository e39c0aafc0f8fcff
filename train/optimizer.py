"""Schedule-free AdamW whose averaged weights can be read without leaving training, and whose members can stop."""

from collections.abc import Mapping

import torch
from schedulefree import AdamWScheduleFree
from torch import Tensor


class ScheduleFree(AdamWScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024) over named parameters that may carry a leading member axis.

    The library's `eval()` and `train()` rewrite the weights in place and are not exact inverses; here the
    averaged sequence x is computed beside the training sequence y, so that looking changes nothing.

    Args:
        parameters: by name; one group is made for each learning rate, which lists their "names".
        learning_rates: factor on `lr` per name; 1 for all by default.
        lr: after warm-up.
        betas: β₁ and β₂.
        weight_decay: decoupled; every parameter shrinks by `lr` × `weight_decay` per step, whatever its factor,
            so that the time over which weights are forgotten does not depend on width.
        warmup_steps: over which learning rates rise linearly from zero.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        learning_rates: Mapping[str, float] | None = None,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
    ) -> None:
        self._names = list(parameters)
        factors = dict.fromkeys(parameters, 1.0) if learning_rates is None else learning_rates
        groups = []
        for factor in dict.fromkeys(factors[name] for name in parameters):
            names = [name for name in parameters if factors[name] == factor]
            tensors = [parameters[name] for name in names]
            decay = weight_decay / factor  # the library multiplies it by the group's learning rate
            groups.append({"params": tensors, "names": names, "lr": lr * factor, "weight_decay": decay})
        super().__init__(groups, lr=lr, betas=betas, warmup_steps=warmup_steps)

    @torch.no_grad()
    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights x by name, in the order the parameters were given in."""
        averages = {}
        for group in self.param_groups:
            beta1, _ = group["betas"]
            for name, y in zip(group["names"], group["params"], strict=True):
                z = self.state[y].get("z")
                averages[name] = y.detach().clone() if z is None else torch.lerp(y.detach(), z, 1 - 1 / beta1)
        return {name: averages[name] for name in self._names}

    def keep_members(self, kept: Tensor) -> dict[str, Tensor]:
        """Drop all members but `kept` (indices into the leading axis); returns the new parameters by name, in order."""
        remaining = {}
        for group in self.param_groups:
            for i, (name, old) in enumerate(zip(group["names"], group["params"], strict=True)):
                new = old.detach()[kept].requires_grad_()
                self.state[new] = {key: value[kept] for key, value in self.state.pop(old).items()}
                group["params"][i] = remaining[name] = new
        return {name: remaining[name] for name in self._names}
