"""Every architecture at a size at which tests are quick."""

from collections.abc import Callable, Mapping
from typing import Any

from models.cnn import CNN
from models.convnextv2 import ConvNeXtV2
from models.lenet import LeNet
from models.mlp import MLP
from models.mup import Parametrization
from models.mup_classifier import MupClassifier
from models.polynomial import PolynomialClassifier
from models.resnet import ResNet
from models.swinv2 import SwinV2
from models.timm_by_name import TimmByName

Shape = tuple[int, int, int]
SMALL: Shape = (1, 8, 8)

TINY: dict[str, Any] = {
    "architecture": "test_resnet",
    "pretrained": False,
    "weights": None,
    "size": 32,  # docs/limitations.md: bfloat16 gradients of strided convolutions of single pixels are garbage
}
SCALED: Mapping[str, Callable[..., MupClassifier]] = {
    "mlp-relu": lambda shape=SMALL, **size: MLP(shape, 10, **_filled(size, 32), activation="relu"),
    "mlp-gelu": lambda shape=SMALL, **size: MLP(shape, 10, **_filled(size, 32), activation="gelu"),
    "mlp-swiglu": lambda shape=SMALL, **size: MLP(shape, 10, **_filled(size, 32), activation="swiglu"),
    "lenet": lambda shape=SMALL, **size: LeNet(shape, 10, **_filled(size, 64)),
    "cnn": lambda shape=SMALL, **size: CNN(shape, 10, **_filled(size, 4)),
    "resnet": lambda shape=SMALL, **size: ResNet(shape, 10, **_filled(size, 8)),
    "convnextv2": lambda shape=SMALL, **size: ConvNeXtV2(shape, 10, **_filled(size, 8), drop_path=0.1),
    "swinv2": lambda shape=SMALL, **size: SwinV2(shape, 10, **_filled(size, 20), drop_path=0.2),
}
EVERY = {
    "linear": lambda shape=SMALL: PolynomialClassifier(shape, 10),
    "quadratic": lambda shape=SMALL: PolynomialClassifier(shape, 10, degree=2, sketch=16),
    "cubic": lambda shape=SMALL: PolynomialClassifier(shape, 10, degree=3, sketch=8),
    "timm": lambda shape=SMALL, **options: TimmByName(shape, 10, **TINY | options),
    **SCALED,
}


def _filled(size: Mapping[str, int | Parametrization], width: int) -> dict:
    return {"width": width, "depth": 1, "parametrization": "mup"} | dict(size)
