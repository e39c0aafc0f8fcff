"""Schedule-free AdamW whose averaged weights can be read without leaving training, and whose members can stop."""

import torch
from schedulefree import AdamWScheduleFree
from torch import Tensor


class ScheduleFree(AdamWScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024) over parameters that may carry a leading member axis.

    The library's `eval()` and `train()` rewrite the weights in place and are not exact inverses; here the
    averaged sequence x is computed beside the training sequence y, so that looking changes nothing.
    """

    @torch.no_grad()
    def averaged(self) -> list[Tensor]:
        """The averaged weights x, one tensor per parameter, in order."""
        averages = []
        for group in self.param_groups:
            beta1, _ = group["betas"]
            for y in group["params"]:
                z = self.state[y].get("z")
                averages.append(y.detach().clone() if z is None else torch.lerp(y.detach(), z, 1 - 1 / beta1))
        return averages

    def keep_members(self, kept: Tensor) -> list[Tensor]:
        """Drop all members but `kept` (indices into the leading axis); returns the new parameters, in order."""
        for group in self.param_groups:
            shrunk = []
            for old in group["params"]:
                new = old.detach()[kept].requires_grad_()
                self.state[new] = {name: value[kept] for name, value in self.state.pop(old).items()}
                shrunk.append(new)
            group["params"] = shrunk
        return [parameter for group in self.param_groups for parameter in group["params"]]
