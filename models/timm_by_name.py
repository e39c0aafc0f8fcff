"""Any classifier of timm by its name, from random weights, pretrained ones or a file."""

import contextlib
import difflib
import hashlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

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

    Running averages of batch statistics are never updated: they are not weights, so seeds trained together would share
    them, and checkpoints would not hold them. "frozen" uses the averages that came with the weights, as the released
    code of Harutyunyan et al. 2021 does; without weights they are mean 0 and variance 1, and batch norm normalises
    nothing. "batch" uses the statistics of each batch, in training and at evaluation.

    Args:
        architecture: timm's name.
        pretrained: start from timm's weights.
        weights: .safetensors file with the architecture's state dict to start from; a head in it is left out.
        batch_norm: statistics that batch norm uses, the stored ones ("frozen") or the batch's ("batch").
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
        batch_norm: Literal["frozen", "batch"],
        size: int | None,
    ) -> None:
        super().__init__()
        require_images(input_shape, architecture, 1)
        if pretrained and weights is not None:
            raise ValueError(f"model.pretrained=true, model.weights={weights}: choose one to start from")
        if size is not None and size < 1:
            raise ValueError(f"model.size={size}: must be at least 1 pixel, or null")
        self._name, self.size = architecture, size
        channels, *sides = input_shape
        self._options: dict[str, Any] = {"in_chans": channels, "num_classes": 0}
        if getattr(_configuration(architecture), "fixed_input_size", False):
            self._options["img_size"] = (size, size) if size else tuple(sides)
        with self._explained(input_shape):
            network = self._build()
        if pretrained or weights is not None:
            network = self._with_weights(weights, network) if weights else self._pretrained()
        replace_drop_path(network)
        self.network = network
        self._choose_statistics(batch_norm, stored=pretrained or weights is not None)
        self.train()
        self.readout = Linear(self._features(input_shape), num_classes)
        parameters = network.named_parameters()
        self._given = {name: p.detach().clone() for name, p in parameters} if pretrained or weights else None

    def _choose_statistics(self, batch_norm: Literal["frozen", "batch"], *, stored: bool) -> None:
        norms = [module for module in self.network.modules() if isinstance(module, _BatchNorm)]
        self.mixes_examples = bool(norms) and batch_norm == "batch"
        said = ""
        if self.mixes_examples:
            for norm in norms:
                norm.running_mean = norm.running_var = None  # without running averages, the batch's statistics are used
            said = "%s with model.batch_norm=batch: predictions depend on the batch (train.eval_batch_size)"
        elif norms and not stored:
            said = "%s starts from random weights: frozen batch norm normalises nothing (or set model.batch_norm=batch)"
        if said:
            log.warning(said, self._name)

    def train(self, mode: bool = True) -> "TimmByName":
        """Set the mode, and leave timm's network in evaluation mode: see `batch_norm`."""
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
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(
                f"model.pretrained=true: timm's weights of {self._name} are not available ({reason}): they are fetched "
                "on first use, check the network; or set model.weights to a .safetensors file"
            ) from error

    def _with_weights(self, weights: str, network: nn.Module) -> nn.Module:
        path = _existing(weights)
        try:
            state = load_file(path)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"model.weights={weights} is not a complete safetensors file ({error})") from error
        if missing := sorted(network.state_dict().keys() - state.keys()):
            raise ValueError(
                f"model.weights={weights} lacks {missing[0]} and {len(missing) - 1} more: it is not a state dict of "
                f"{self._name}"
            )
        try:
            return self._build(pretrained=True, pretrained_cfg_overlay={"state_dict": state})
        except (RuntimeError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"model.weights={weights} does not fit {self._name} ({reason})") from error

    def _features(self, input_shape: tuple[int, int, int]) -> int:
        """Count the features before the readout by a trial, which shows whether the images are large enough."""
        channels, *sides = input_shape
        sides = [self.size] * 2 if self.size else sides
        with self._explained(input_shape), torch.no_grad():
            return self.network(torch.zeros(2, channels, *sides)).shape[1]

    @contextlib.contextmanager
    def _explained(self, input_shape: tuple[int, int, int]) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError, TypeError, AssertionError, ZeroDivisionError) as error:
            channels, height, across = input_shape
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(
                f"model.architecture={self._name} cannot work on {channels}×{height}×{across} images, "
                f"model.size={self.size or 'null'} ({reason}): set model.size, e.g. model.size=32 or 224"
            ) from error


def _configuration(architecture: str) -> Any:
    """Return timm's configuration of an architecture.

    Raises:
        ValueError: timm has no such architecture; the message suggests the nearest names.
    """
    if ":" in architecture or not timm.is_model(architecture):
        nearest = difflib.get_close_matches(architecture, timm.list_models(), n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(nearest)}? " if nearest else ""
        raise ValueError(
            f"model.architecture={architecture}: timm has no model of that name; {hint}see timm.list_models()"
        )
    return timm.get_pretrained_cfg(architecture)


def _existing(weights: str) -> Path:
    path = Path(weights).expanduser()
    if path.suffix != ".safetensors" or not path.is_file():
        raise ValueError(f"model.weights={weights}: there is no such .safetensors file")
    return path
