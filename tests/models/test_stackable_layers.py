"""Layers on a stack of members against PyTorch's on each."""

import torch
from torch import nn

from models.stackable_layers import GroupNorm
from tests.models.test_resnet import images


def test_group_norm_of_a_stack_is_each_members() -> None:
    ours, theirs, x = GroupNorm(2, 6), nn.GroupNorm(2, 6), images(3, 5, 6, 4, 4).float()
    weight, bias = images(3, 6).float(), images(2, 3, 6)[1].float()
    stacked = torch.func.functional_call(ours, {"weight": weight, "bias": bias}, (x,))
    for s in range(3):
        member = {"weight": weight[s], "bias": bias[s]}
        expected = torch.func.functional_call(theirs, member, (x[s],))
        torch.testing.assert_close(stacked[s], expected)
        torch.testing.assert_close(torch.func.functional_call(ours, member, (x[s],)), expected)
