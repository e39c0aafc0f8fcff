"""The control erases nothing."""

import torch

from erasure import IdentityEraser


def test_the_control_changes_nothing(digits) -> None:
    x, z = digits
    assert torch.equal(IdentityEraser.fit(x, z)(x), x)
