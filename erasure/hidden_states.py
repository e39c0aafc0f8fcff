"""Erasure inside a network: hidden states are erased as they are computed, layer by layer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from erasure.eraser import Eraser
from erasure.erasers.leace import LeaceEraser
from erasure.few_examples import warned_of_few
from erasure.moments import ClassMoments


@contextmanager
def erase(model: nn.Module, erasers: Mapping[str, Eraser]) -> Iterator[nn.Module]:
    """Erase the outputs of named modules within the context (Belrose et al. 2023, section 6).

    Gradients pass through. Erasers compute in the precision of their tensors: `eraser.to(device, torch.float32)` is as
    fast as the network.

    Args:
        model: any network.
        erasers: by name of module, as in `model.named_modules()`; each was fitted on that module's output (its first,
            where it gives several), as whole examples [n, ...] or as vectors [..., d].

    Raises:
        ValueError: a name that no module has, or an eraser that asks for labels.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser, erase
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> x, z = torch.randn(50, 6), torch.arange(50) % 2
        >>> eraser = LeaceEraser.fit(model[0](x).detach(), z)
        >>> with erase(model, {"0": eraser}):
        ...     logits = model(x)
    """
    for name, eraser in erasers.items():
        _require_unlabelled(name, type(eraser))
    handles = [named_module(model, name).register_forward_hook(_changing(eraser)) for name, eraser in erasers.items()]
    try:
        yield model
    finally:
        for handle in handles:
            handle.remove()


def fit_layers(
    model: nn.Module,
    batches: Iterable[tuple[Any, Any]],
    modules: Sequence[str],
    *,
    num_classes: int,
    eraser: type[Eraser] = LeaceEraser,
    **options: Any,
) -> dict[str, Eraser]:
    """Fit an eraser for each of several modules, each on outputs after the erasers before ("concept scrubbing").

    The network runs once over all batches for every module (Belrose et al. 2023, section 6).

    Args:
        model: in evaluation mode, on the device of the batches.
        batches: inputs and labels, a label per example or per token; gone over as often as there are modules.
        modules: names, in the order in which the network runs them. Their outputs are taken as vectors where they are
            [batch, tokens, d], as whole examples otherwise.
        num_classes: k.
        eraser: class, fitted from moments, without labels.
        options: of the class.

    Raises:
        ValueError: as `erase`, batches that can be gone over only once, or a module that does not run once in a pass.

    Example:
        >>> import torch
        >>> from erasure import erase, fit_layers
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> batches = [(torch.randn(50, 6), torch.arange(50) % 2) for _ in range(3)]
        >>> erasers = fit_layers(model, batches, ["0", "1"], num_classes=2)
        >>> with erase(model, erasers):
        ...     logits = model(batches[0][0])
    """
    if iter(batches) is batches:
        raise ValueError("batches end after the first module: pass a list or a DataLoader, not an iterator")
    if isinstance(modules, str):
        raise ValueError(f"modules={modules!r}: give a list of names, [{modules!r}]")
    for name in modules:
        named_module(model, name)
        _require_unlabelled(name, eraser)
    fitted: dict[str, Eraser] = {}
    warned = False  # once, not for every module
    for name in modules:
        with erase(model, fitted):
            moments = _moments(model, batches, name, num_classes, pooled=issubclass(eraser, LeaceEraser))
        warned = warned or warned_of_few(eraser, moments)
        fitted[name] = eraser.fit_moments(moments, **options).to(dtype=torch.float32)
    return fitted


@torch.no_grad()
def _moments(
    model: nn.Module, batches: Iterable[tuple[Any, Any]], name: str, num_classes: int, *, pooled: bool
) -> ClassMoments:
    """Collect a module's outputs for all batches."""
    moments: ClassMoments | None = None
    seen: list[Tensor] = []
    handle = named_module(model, name).register_forward_hook(
        lambda _module, _inputs, output: seen.append(first_output(output))
    )
    try:
        for x, z in batches:
            model(x)
            if len(seen) != 1:
                raise ValueError(f"{name} runs {len(seen)} times in a pass: only what runs once can be erased")
            states = seen.pop()
            if moments is None:
                dim = states.shape[-1] if states.ndim == 3 else states[:1].numel()
                moments = ClassMoments(dim, num_classes, device=states.device, pooled=pooled)
            moments.update(states, z)
    finally:
        handle.remove()
    if moments is None:
        raise ValueError("no batch: nothing to fit erasers on")
    return moments


def _require_unlabelled(name: str, eraser: type[Eraser]) -> None:
    if eraser.uses_labels:
        raise ValueError(f"{name}: {eraser.__name__} asks for labels, which a network does not pass on")


def named_module(model: nn.Module, name: str) -> nn.Module:
    """Return a module by its name in `model.named_modules()`; raise ValueError for an unknown name."""
    known = dict(model.named_modules())
    if name not in known:
        names = list(known)[1:]
        more = " …" if len(names) > 7 else ""
        raise ValueError(f"the network has no module {name!r}; it has {', '.join(names[:7])}{more}")
    return known[name]


def first_output(output: Any) -> Tensor:
    """Return a module's output, or the first of several."""
    return output if isinstance(output, Tensor) else output[0]


def _changing(eraser: Eraser) -> Callable[[nn.Module, Any, Any], Any]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        erased = eraser(first_output(output))
        if isinstance(output, Tensor):
            return erased
        several = (erased, *output[1:])
        return output._make(several) if hasattr(output, "_make") else type(output)(several)

    return hook
