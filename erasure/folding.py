"""Fold affine erasers into the weights of linear layers, so that erasure inside a network costs nothing."""

import copy
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from erasure.eraser import Eraser
from erasure.hidden_states import erase, require_eraser
from erasure.module_outputs import call, close, first_tensor, leaves, named_module

_TOLERANCE = 1e-4  # relative to the largest value of an output; float32 rounds to 1e-6
_TOLERANCE_DOUBLE = 1e-9
_REMEDY = "remove parametrizations and pruning by torch.nn.utils"


Layer = TypeVar("Layer", bound=nn.Module)


def fold(linear: Layer, eraser: Eraser, *, after: bool = False) -> Layer:
    """Return a linear layer that computes `linear(eraser(x))`, or `eraser(linear(x))`.

    An affine eraser x -> M x + c turns W x + b into W M x + (W c + b), or into M W x + (M b + c) with `after`. Products
    are computed in float64. See Belrose et al. 2023, section 6, for erasure inside networks.

    Args:
        linear: layer with weight [m, d], or `Conv1D` of transformers with its transpose; it is not changed.
        eraser: eraser of vectors [n, d], or of [n, m] with `after`.
        after: erase the output of the layer instead of its input.

    Returns:
        A layer of the same dtype and device, which has a bias even if `linear` has none.

    Raises:
        ValueError: an eraser that uses labels, is not affine, or has another dimension, or a layer that is not linear
            or computes more than W x + b from its parameters, such as LoRA or weight normalisation.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser, fold
        >>> x, z = torch.randn(90, 4), torch.arange(90) % 3
        >>> eraser, linear = LeaceEraser.fit(x, z), torch.nn.Linear(4, 2)
        >>> bool((fold(linear, eraser)(x) - linear(eraser(x))).abs().max() < 1e-5)
        True
    """
    require_eraser(eraser, "eraser")
    _require_plain(linear)
    old = _weight(linear)
    dim = old.shape[0 if after else 1]
    if eraser.mean.numel() != dim:
        side = "outputs" if after else "inputs"
        raise ValueError(f"the eraser is of {eraser.mean.numel()} dimensions, the layer has {dim} {side}: fit it there")
    matrix, mean, erased = _affine(eraser.to(old.device, torch.float64))
    weight = old.detach().double()
    constant: Any = linear.bias
    bias = weight.new_zeros(len(weight)) if constant is None else constant.detach().double()
    if after:
        weight, bias = matrix @ weight, matrix @ (bias - mean) + erased
    else:
        weight, bias = weight @ matrix, weight @ (erased - matrix @ mean) + bias
    folded = copy.deepcopy(linear)
    weight = weight.T.contiguous() if _is_conv1d(linear) else weight
    folded.weight = nn.Parameter(weight.to(old), requires_grad=old.requires_grad)
    folded.bias = nn.Parameter(bias.to(old), requires_grad=old.requires_grad)
    return folded


@torch.no_grad()
def fold_layers(model: nn.Module, erasers: Mapping[str, Eraser], x: Any) -> nn.Module:
    """Return a copy of a network that computes what `erase(model, erasers)` computes, without hooks.

    The eraser of a linear layer is folded into that layer. The eraser of another module, such as a normalisation, is
    folded into the linear layers that read its output; one pass of the network finds these layers. (Belrose et al.
    2023, section 6, erase at such places.) After each fold, every tensor of the output for `x` is compared with its
    value under hooks. The tolerance is 1e-4 of the tensor's largest value, or 1e-9 in float64; integers and booleans
    must be equal. In float32, an unerased connection of weight 1e-6 cannot be told from rounding; fold `model.double()`
    where that matters.

    Args:
        model: network in evaluation mode; it is not changed, and erasers that are attached to it are left out. Linear
            layers without a bias get one. File formats that build the network from a configuration lose it, so save the
            whole network, for example by `torch.save`.
        erasers: erasers by name of module, each fitted on vectors [..., d], as for `erase`.
        x: an input of the network with several examples, [n, ...], or a mapping of its keyword arguments.

    Raises:
        ValueError: as `fold` and `erase`; an output that still needs its hook, because the network returns it or
            something other than a linear layer reads it; a linear layer that shares its weight with another module; or
            a network that cannot be copied.

    Example:
        >>> import torch
        >>> from erasure import fit_layers, fold_layers
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
        >>> x, z = torch.randn(50, 6), torch.arange(50) % 2
        >>> erasers = fit_layers(model, [(x, z)], ["1"], num_classes=2)
        >>> erased = fold_layers(model, erasers, x)(x)
    """
    folded = _copied(model)
    for name, eraser in erasers.items():
        require_eraser(eraser, f"erasers[{name!r}]")
        eraser = eraser.to(dtype=torch.float64)  # float32 would round more than a network in float64
        with erase(folded, {name: eraser}):
            readers = _readers(folded, name, x)
            expected = call(folded, x)
        is_linear = _is_linear(named_module(folded, name))
        for reader in [name] if is_linear else readers:
            linear = named_module(folded, reader)
            _require_own_weight(folded, reader, linear)
            try:
                _replace(folded, reader, fold(linear, eraser, after=is_linear))
            except ValueError as error:
                raise ValueError(f"{reader}: {error}") from None
        if not (is_linear or readers) or not _same_outputs(expected, call(folded, x)):
            if is_linear:
                reason = "the network computes something else with the folded layer"
            else:
                reason = (
                    "its output must be read by linear layers only, once each, and those that read it are "
                    f"{', '.join(readers) or 'none'}"
                )
            raise ValueError(f"{name} cannot be folded: {reason}; leave its eraser in `erase`")
    return folded


def _copied(model: nn.Module) -> nn.Module:
    """Return a deep copy; raise ValueError if weights are computed from others, which torch does not copy."""
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        if "deepcopy protocol" not in str(error):
            raise
        raise ValueError(f"the network has weights that are computed from others: {_REMEDY}") from None


def _same_outputs(expected: Any, outputs: Any) -> bool:
    """Return whether the tensors of two outputs of a network are equal, floating ones up to rounding."""
    wanted, got = ([leaf for leaf in leaves(one) if isinstance(leaf, Tensor)] for one in (expected, outputs))
    if not any(one.is_floating_point() for one in wanted):
        raise ValueError("the network returns no tensor of floating numbers, by which a fold could be checked")
    return len(wanted) == len(got) and all(map(_same, wanted, got))


def _same(expected: Tensor, output: Tensor) -> bool:
    if not expected.is_floating_point():
        return expected.dtype == output.dtype and torch.equal(expected, output)
    least = _TOLERANCE_DOUBLE if expected.dtype == torch.float64 else _TOLERANCE
    return close(expected, output, max(least, 4 * torch.finfo(expected.dtype).eps))


def _is_conv1d(module: nn.Module) -> bool:
    """Return whether a module is the linear layer of GPT-2 in transformers, whose weight is transposed, [d, m]."""
    return (type(module).__module__, type(module).__name__) == ("transformers.pytorch_utils", "Conv1D")


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_conv1d(module)


def _weight(linear: Any) -> Tensor:
    """Return the weight [m, d] of a linear layer."""
    return linear.weight.T if _is_conv1d(linear) else linear.weight


def _require_plain(linear: Any) -> None:
    """Raise ValueError for a layer that computes anything but W x + b, where W and b are its parameters."""
    plain = (type(linear) is nn.Linear or _is_conv1d(linear)) and "forward" not in vars(linear)
    if plain and {*dict(linear.named_parameters(recurse=False))} in ({"weight"}, {"weight", "bias"}):
        x = torch.linspace(-1, 1, 3 * _weight(linear).shape[1]).view(3, -1).to(linear.weight)
        with torch.no_grad():
            if _same(nn.functional.linear(x, _weight(linear), linear.bias), linear(x)):  # hooks may change it
                return
    raise ValueError(
        f"{type(linear).__name__} is no plain torch.nn.Linear, or Conv1D of transformers: merge adapters such as LoRA, "
        f"{_REMEDY}, and hooks that change it"
    )


def _require_own_weight(model: nn.Module, name: str, linear: nn.Module) -> None:
    """Raise ValueError if a linear layer shares its weight with another module."""
    for other, parameter in model.named_parameters(remove_duplicate=False):
        if parameter is linear.weight and other != f"{name}.weight":
            raise ValueError(
                f"{name} shares its weight with {other}, and folding would untie them: leave its eraser in `erase`"
            )


def _affine(eraser: Eraser) -> tuple[Tensor, Tensor, Tensor]:
    """Return M [d, d], m [d] and e [d] of an eraser x -> M (x - m) + e, where m is its mean, in float64."""
    kind = type(eraser).__name__
    if eraser.uses_labels or eraser.transductive:
        raise ValueError(f"{kind} maps each class differently: only one map for all examples can be folded")
    mean = eraser.mean.flatten()
    step = max(1.0, float(mean.abs().max()))  # around the mean, where the least is lost to rounding
    points = mean + step * torch.eye(len(mean), dtype=torch.float64, device=mean.device)
    erased = eraser.transform(mean[None].clone(), None)
    matrix = (eraser.transform(points, None) - erased) / step
    for size in {1.0, step}:
        shift = size * torch.linspace(-1, 1, len(mean)).to(mean)
        image = eraser.transform((mean + shift)[None], None)
        if not (image - erased - shift @ matrix).abs().max() <= 1e-8 * (1 + size) + 1e-12 * step:
            raise ValueError(f"{kind} is not an affine map: only affine maps can be folded")
    return matrix.T, mean, erased[0]


def _readers(model: nn.Module, name: str, x: Any) -> list[str]:
    """Return the names of the linear layers whose input is the output of a module."""
    outputs, readers = list[Tensor](), list[str]()

    def reads(reader: str, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        tensor = inputs[0] if inputs else None
        if any(isinstance(tensor, Tensor) and _same_memory(tensor, output) for output in outputs):
            readers.append(reader)

    handles = [
        named_module(model, name).register_forward_hook(
            lambda *arguments: outputs.append(first_tensor(arguments[2], name))
        ),
        *(
            module.register_forward_pre_hook(functools.partial(reads, reader))
            for reader, module in model.named_modules()
            if _is_linear(module)
        ),
    ]
    try:
        call(model, x)
    finally:
        for handle in handles:
            handle.remove()
    return [reader for reader in dict.fromkeys(readers) if readers.count(reader) == 1]


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors hold the same vectors, possibly with different leading axes."""
    return a.data_ptr() == b.data_ptr() and a.numel() == b.numel() and a.shape[-1] == b.shape[-1]


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
