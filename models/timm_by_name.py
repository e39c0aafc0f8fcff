"""Any classifier of timm by its name, from random weights, pretrained ones or a file."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from models.classifier import Classifier, require_images
from models.stackable_layers import Linear
from models.stochastic_depth import replace_drop_path

log = logging.getLogger(__name__)


class TimmByName(Classifier):
    """A network of timm without its head, and a readout that starts at zero, so that a fresh model predicts uniformly.

    Everything else is timm's: stem, initialisation, and one learning rate for all layers (no μP: tune `train.lr`).
    Seeds that start from pretrained weights differ only in the order of their data. Dropout is off.

    Batch norm uses the running averages that came with the weights, as the released code of Harutyunyan et al. 2021
    does, and never updates them: they are not weights, so seeds trained together would share them. Without weights they
    are mean 0 and variance 1, and batch norm normalises nothing.

    Args:
        architecture: timm's name.
        pretrained: start from timm's weights.
        weights: .safetensors file with the architecture's state dict to start from; a head in it is left out.
        size: side that images are resized to (bilinear); None keeps their size.

    Raises:
        ValueError: an unknown architecture, weights that are not available or do not fit, images too small.
    """

    version = 1

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        architecture: str,
        pretrained: bool,
        weights: str | None,
        size: int | None,
    ) -> None:
        super().__init__()
        require_images(input_shape, architecture, 1)
        if pretrained and weights is not None:
            raise ValueError(f"model.pretrained=true, model.weights={weights}: choose one to start from")
        if size is not None and size < 1:
            raise ValueError(f"model.size={size}: must be at least 1 pixel, or null")
        if ":" in architecture or not timm.is_model(architecture):
            raise ValueError(f"model.architecture={architecture}: timm has no such model; see timm.list_models()")
        self._name, self.size = architecture, size
        channels, *sides = input_shape
        sides = [size, size] if size else sides
        self._options: dict[str, Any] = {"in_chans": channels, "num_classes": 0}
        if getattr(timm.get_pretrained_cfg(architecture), "fixed_input_size", False):
            self._options["img_size"] = tuple(sides)
        try:
            network = self._build()
            with torch.no_grad():
                features = network.eval()(torch.zeros(2, channels, *sides)).shape[1]
        except (RuntimeError, ValueError, TypeError, AssertionError, ZeroDivisionError) as error:
            raise ValueError(
                f"model.architecture={architecture} cannot work on images of {channels}×{sides[0]}×{sides[1]} "
                f"({_line(error)}): set model.size, e.g. model.size=32 or 224"
            ) from error
        given = pretrained or weights is not None
        if given:
            network = self._with_weights(weights, network) if weights else self._pretrained()
        elif any(isinstance(module, _BatchNorm) for module in network.modules()):
            log.warning("%s starts from random weights: its batch norm normalises nothing", architecture)
        replace_drop_path(network)
        self.network = network
        self.train()
        self.readout = Linear(features, num_classes)
        self._given = {name: p.detach().clone() for name, p in network.named_parameters()} if given else None

    def train(self, mode: bool = True) -> "TimmByName":
        """Set the mode, and leave timm's network in evaluation mode, without dropout or new batch statistics."""
        super().train(mode)
        self.network.eval()
        return self

    def reset_parameters(self, generator: torch.Generator) -> None:
        initial = self._given
        if initial is None:
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            initial = dict(self._build(seed).named_parameters())
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(initial[name])
        self.readout.reset_parameters(generator, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.size is not None:
            x = F.interpolate(x, (self.size, self.size), mode="bilinear", antialias=True)
        return self.readout(self.network(x))

    @classmethod
    def identity(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with the checksum of the file of weights in place of its path."""
        if options["weights"] is None:
            return options
        with _existing(options["weights"]).open("rb") as file:
            return {**options, "weights": hashlib.file_digest(file, "sha256").hexdigest()}

    def _build(self, seed: int = 0, **source: Any) -> nn.Module:
        """Build timm's network, with random weights of this seed unless `source` names others."""
        with torch.random.fork_rng(devices=[]):  # timm draws from PyTorch's own generator
            torch.manual_seed(seed)
            network = timm.create_model(self._name, **self._options, **source)
        for module in network.modules():
            if hasattr(module, "inplace"):
                vars(module)["inplace"] = False  # derivatives by torch.func need the values
        return network

    def _pretrained(self) -> nn.Module:
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries; the last failure is raised below
        try:
            return self._build(pretrained=True)
        except Exception as error:  # whatever a download library raises
            raise ValueError(
                f"model.pretrained=true: timm's weights of {self._name} are not available ({_line(error)}): they are "
                "fetched on first use, check the network; or set model.weights to a .safetensors file"
            ) from error

    def _with_weights(self, weights: str, network: nn.Module) -> nn.Module:
        """Build timm's network with the weights of a file, which has all that `network` has."""
        try:
            state = load_file(_existing(weights))
            if missing := sorted(network.state_dict().keys() - state.keys()):  # timm would leave them random
                raise KeyError(missing[0])
            return self._build(pretrained=True, pretrained_cfg_overlay={"state_dict": state})
        except (SafetensorError, OSError, RuntimeError, KeyError) as error:
            raise ValueError(
                f"model.weights={weights} is not a complete state dict of {self._name} ({_line(error)}): save one by "
                "safetensors.torch.save_file"
            ) from error


def _existing(weights: str) -> Path:
    path = Path(weights).expanduser()
    if path.suffix != ".safetensors" or not path.is_file():
        raise ValueError(f"model.weights={weights}: there is no such .safetensors file")
    return path


def _line(error: Exception) -> str:
    """Return an error's reason in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
