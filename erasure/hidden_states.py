"""Erasure of hidden states inside a network, layer by layer."""

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from erasure.attached_erasers import Attachment, is_compiled
from erasure.concept_moments import SINGLE, ConceptMoments
from erasure.eraser import Eraser
from erasure.erasers.leace import LeaceEraser
from erasure.few_examples import warned_of_few
from erasure.inputs import (
    as_tensor,
    per_example,
    require_one_reading,
    require_same_rows,
    single_column,
    spread,
    whole_number,
)
from erasure.layer_sweep import BatchPass, LayerSweep, Storage, restored
from erasure.module_outputs import named_module
from erasure.moments import ClassMoments
from erasure.progress import report_progress

log = logging.getLogger(__name__)


def attach(model: nn.Module, erasers: Mapping[str, Eraser]) -> Attachment:
    """Erase the outputs of named modules until `.remove()` of the result is called (Belrose et al. 2023, section 6).

    Everything after a module sees erased states: later modules, recorded hidden states and caches of keys and values.
    Gradients pass through. Erasers compute in the precision of their tensors even under autocast;
    `eraser.to(device, torch.float32)` is as fast as the network. The logger `erasure` reports modules that do not run.
    A copy of the network by `copy.deepcopy` has no erasers, and the network cannot be pickled.

    Args:
        model: any network. A network that `torch.compile` has compiled is compiled again; attach to the compiled
            network, not to the one inside it.
        erasers: erasers by name of module, as in `model.named_modules()`. Each was fitted on the output of its module,
            or the first of several, as whole examples [n, ...] or as vectors [..., d].

    Raises:
        ValueError: no module has one of the names, a value is no eraser, or an eraser needs labels.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser, attach
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> x, z = torch.randn(50, 6), torch.arange(50) % 2
        >>> attached = attach(model, {"0": LeaceEraser.fit(model[0](x).detach(), z)})
        >>> logits = model(x)
        >>> attached.remove()
    """
    for name, eraser in erasers.items():
        require_eraser(eraser, f"erasers[{name!r}]")
        _require_unlabelled(name, type(eraser))
    return Attachment(model, erasers)


@contextmanager
def erase(model: nn.Module, erasers: Mapping[str, Eraser]) -> Iterator[nn.Module]:
    """Erase the outputs of named modules within the context; the arguments are those of `attach`.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser, erase
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> x, z = torch.randn(50, 6), torch.arange(50) % 2
        >>> eraser = LeaceEraser.fit(model[0](x).detach(), z)
        >>> with erase(model, {"0": eraser}):
        ...     logits = model(x)
    """
    with attach(model, erasers):
        yield model


def fit_layers(
    model: nn.Module,
    batches: Iterable[Any],
    modules: Sequence[str],
    *,
    num_classes: int | Mapping[str, int] | None = None,
    z: str | Sequence[str] | None = None,
    mask: str | None = None,
    ignore_index: int = -100,
    eraser: type[Eraser] = LeaceEraser,
    **options: Any,
) -> dict[str, Eraser]:
    """Fit an eraser for each of several modules, on outputs that earlier erasers have changed ("concept scrubbing").

    Every batch goes through the network once (Belrose et al. 2023, section 6). Its states at a module stay in memory
    until the eraser there is fitted. If there is no room for them, or a skip connection bypasses the module, the next
    pass starts from the input of the network. All passes start there if a module changes an attribute or a buffer of
    its own, or if the first batch's states differ in a final pass through the whole network.

    Args:
        model: network in evaluation mode, on the device of the batches.
        batches: pairs (x, z), triples (x, z, mask), or dictionaries. The network is called with x, or with the entries
            of x if x is a mapping. For a dictionary it is called with all entries except those named by `z`. z has a
            value for each example or each token, in any form that `ConceptMoments` takes: labels, real numbers
            ([batch, tokens, 1] for one per token), or a mapping of names to several concepts.
        modules: names of modules that run once in a pass. Outputs [batch, tokens, d] are taken as vectors, others as
            whole examples.
        num_classes: k, if z holds labels; for several concepts a mapping of the names of those that hold labels to k.
        z: entry or entries of a dictionary that hold the concept.
        mask: entry of a dictionary that is 0 for examples or tokens to leave out, such as "attention_mask". A mask is
            [batch] or [batch, tokens], also for tokens that the network itself adds.
        ignore_index: label of examples or tokens to leave out. Real numbers must not hold it: mask them instead.
        eraser: class of eraser, fitted from moments, whose map needs no labels.
        options: options of the class.

    Returns:
        Erasers by name of module, in the order in which the network runs the modules, in the precision of the states,
        at least float32.

    Raises:
        ValueError: as `attach`, a module that does not run once in a pass, or batches of another form.

    Example:
        >>> import torch
        >>> from erasure import erase, fit_layers
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
        >>> batches = [(torch.randn(50, 6), torch.arange(50) % 2) for _ in range(3)]
        >>> erasers = fit_layers(model, batches, ["0", "1"], num_classes=2)
        >>> with erase(model, erasers):
        ...     logits = model(batches[0][0])
    """
    if isinstance(modules, str):
        raise ValueError(f"modules={modules!r}: give a list of names, [{modules!r}]")
    if not (isinstance(eraser, type) and issubclass(eraser, Eraser)):
        raise ValueError(f"eraser={eraser!r:.60}: give a class such as LeaceEraser")
    modules = [*modules]
    if isinstance(num_classes, Mapping):
        counts = {name: whole_number(k, f"num_classes[{name!r}]") for name, k in num_classes.items()}
        if wrong := [name for name, k in counts.items() if k < 2]:
            raise ValueError(f"num_classes[{wrong[0]!r}]={counts[wrong[0]]}: need at least 2 classes")
        num_classes = {SINGLE if name == z else name: k for name, k in counts.items()}  # a single entry has no name
    elif num_classes is not None:
        num_classes = whole_number(num_classes, "num_classes")
    for name in modules:
        _require_vectors(name, named_module(model, name))
        _require_unlabelled(name, eraser)
    if any(module.training for module in model.modules()):
        log.warning("the network or a part of it is in training mode, which may change states: call model.eval() first")
    eager = torch.compiler.set_stance("force_eager") if is_compiled(model) else contextlib.nullcontext()
    warned = False  # once, not for every module

    def fitted(sweep: LayerSweep, passes: Iterable[BatchPass]) -> dict[str, Eraser]:
        nonlocal warned
        erasers: dict[str, Eraser] = {}
        with contextlib.ExitStack() as attached:
            for i, name in enumerate(sweep.names):
                report_progress("erasers of hidden states", i / len(sweep.names), name)
                moments, states = None, torch.empty(0)
                for batch, states in sweep.states(name, passes, keep=name != sweep.names[-1]):
                    labels, kept = restored((batch.z, batch.mask))
                    rows, concept = _selected(states, labels, kept, ignore_index, num_classes)
                    if moments is None:
                        moments = _moments(rows, concept, num_classes, pooled=eraser.any_concept)
                    moments.update(rows, concept)
                assert moments is not None
                if not moments.n:
                    raise ValueError("no example is left: the mask is 0, or the label is ignore_index, everywhere")
                warned = warned or warned_of_few(eraser, moments)
                precision = torch.promote_types(states.dtype, torch.float32)
                erasers[name] = eraser.fit_moments(moments, **options).to(dtype=precision)
                attached.enter_context(Attachment(model, {name: erasers[name]}, report_idle=False))
        return erasers

    with torch.inference_mode(False), torch.no_grad(), eager:
        first, passes = _passes(batches, z, mask, repeated=len(modules) > 1)
        with LayerSweep(model, modules, restored(first.x)) as sweep:
            erasers = fitted(sweep, passes)
            if len(modules) > 1 and not sweep.confirms(first, erasers):
                log.info("resumed passes differ from whole ones, so that every pass is repeated as a whole")
                sweep.whole = True
                erasers = fitted(sweep, passes)
    return erasers


def _passes(
    batches: Iterable[Any], z: str | Sequence[str] | None, mask: str | None, *, repeated: bool
) -> tuple[BatchPass, Iterable[BatchPass]]:
    """Return the first of the batches as a pass, and the passes of all, which are stored if they are to be repeated."""
    passes = (_batch_pass(batch, z, mask) for batch in batches)
    if repeated:
        passes = [*passes] if isinstance(batches, list | tuple) else _stored(passes)
    first = next(iter(passes), None)
    if first is None:
        raise ValueError("no batch: nothing to fit erasers on")
    return first, passes if repeated else itertools.chain([first], passes)


def _stored(passes: Iterable[BatchPass]) -> list[BatchPass]:
    """Return passes with copies of their batches, whose memory a loader may reuse."""
    storage, stored = Storage(), list[BatchPass]()
    for one in passes:
        try:
            stored.append(BatchPass(*storage.keep_all((one.x, one.z, one.mask))))
        except MemoryError as error:
            raise ValueError(
                f"the batches cannot be stored ({error}): pass a list, or fit one module at a time within `erase`"
            ) from None
    return stored


def _batch_pass(batch: Any, z: str | Sequence[str] | None, mask: str | None) -> BatchPass:
    """Return a batch as a pass through the network; see `fit_layers`.

    Raises:
        ValueError: the batch has another form, or lacks an entry.
    """
    if isinstance(batch, Mapping):
        if z is None:
            raise ValueError(f"batches are dictionaries: name the entry that holds the concept, z={min(batch)!r}")
        names = [z] if isinstance(z, str) else list(z)
        concepts = {name: _entry(batch, name) for name in names}
        x = {key: value for key, value in batch.items() if key not in names}
        return _as_tensors(x, concepts[z] if isinstance(z, str) else concepts, mask and _entry(x, mask))
    if z is not None or not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        wanted = "(x, z) or (x, z, mask), or dictionaries" if z is None else f"dictionaries with the entry {z!r}"
        raise ValueError(f"a batch is a {type(batch).__name__}: expected {wanted}")
    x, concept, *masks = batch
    if mask is not None:
        masks = [_entry(x if isinstance(x, Mapping) else {}, mask)]
    return _as_tensors(x, concept, masks[0] if masks else None)


def _as_tensors(x: Any, z: Any, mask: Any) -> BatchPass:
    require_same_rows(x, {"z": z, "mask": mask})
    concepts = {name: as_tensor(one, "z") for name, one in z.items()} if isinstance(z, Mapping) else as_tensor(z, "z")
    return BatchPass(x, concepts, None if mask is None else as_tensor(mask, "mask"))


def _entry(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        raise ValueError(f"a batch has no entry {name!r}: it has {', '.join(map(str, batch)) or 'none'}")
    return batch[name]


def _selected(
    states: Tensor, z: Any, mask: Tensor | None, ignore_index: int, num_classes: int | Mapping[str, int] | None
) -> tuple[Tensor, Any]:
    """Return states as rows [n, d] and their concept, without those to leave out.

    Raises:
        ValueError: the mask or the concept does not have a value for each example or each token.
    """
    leading = states.shape[:-1] if states.ndim == 3 else states.shape[:1]
    rows = states.reshape(leading.numel(), states.shape[len(leading) :].numel())
    known = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    if mask is not None:
        values = mask.to(rows.device)
        if not ((values == 0) | (values == 1)).all():
            raise ValueError("the mask holds other values than 0 and 1: pass 1 for tokens to keep, 0 for padding")
        if values.shape not in (leading[:1], leading):
            shapes = " or ".join(str(list(shape)) for shape in dict.fromkeys([leading[:1], leading]))
            raise ValueError(
                f"the mask has shape {list(values.shape)}, and the states {list(states.shape)} need {shapes}: "
                + ("fit modules of single states without mask=" if len(leading) == 1 else "one for every token of them")
            )
        known = spread(values != 0, leading)
    concepts = {}
    for name, values in (z if isinstance(z, Mapping) else {SINGLE: z}).items():
        values = as_tensor(values, name).to(rows.device)
        k = num_classes.get(name) if isinstance(num_classes, Mapping) else num_classes
        require_one_reading(values, leading, k, name)
        concepts[name] = _spread(name, single_column(values, leading), leading)
        if concepts[name].ndim == 1 and not values.is_floating_point():
            known = known & (concepts[name].long() != ignore_index)  # -100 is 156 among labels of eight bits
    if not known.all():
        rows, concepts = rows[known], {name: values[known] for name, values in concepts.items()}
    for name, values in concepts.items():
        if values.is_floating_point() and bool((values == ignore_index).any()):
            raise ValueError(
                f"{name} holds ignore_index={ignore_index} among real numbers, where it would count as a value: "
                "leave tokens out by a mask, or pass an ignore_index that is no value"
            )
    return rows, concepts if isinstance(z, Mapping) else concepts[SINGLE]


def _spread(name: str, values: Tensor, leading: torch.Size) -> Tensor:
    """Return values [n] or columns [n, m] for all examples or tokens, whose shape is `leading`."""
    if per_example(values, leading):
        return spread(values, leading)
    if values.ndim > 1 and values.shape[:-1] == leading[: values.ndim - 1]:
        return spread(values, leading, trailing=1)
    raise ValueError(f"{name} has shape {list(values.shape)}: expected one value per example or token, {list(leading)}")


def _moments(
    rows: Tensor, concept: Any, num_classes: int | Mapping[str, int] | None, *, pooled: bool
) -> ClassMoments | ConceptMoments:
    """Return empty moments of the kind that suits the concept."""
    dim = rows.shape[1]
    if isinstance(num_classes, int):
        if isinstance(concept, Mapping):
            raise ValueError(f"num_classes={num_classes} of {len(concept)} concepts: give it by name, {{'gender': 2}}")
        return ClassMoments(dim, num_classes, device=rows.device, pooled=pooled)
    known, sizes = num_classes or {}, {}
    for name, values in (concept if isinstance(concept, Mapping) else {SINGLE: concept}).items():
        if values.ndim == 1 and not values.is_floating_point() and name not in known:
            raise ValueError(
                f"{name} holds integers: give num_classes ({{'{name}': …}} of several concepts), or pass floats"
            )
        sizes[name] = known.get(name, 1 if values.ndim == 1 else values.shape[1])
    if unknown := known.keys() - sizes.keys():
        raise ValueError(f"num_classes has the name {min(unknown)!r}: the concepts are {', '.join(sizes)}")
    return ConceptMoments(dim, sizes, device=rows.device)


def _require_vectors(name: str, module: nn.Module) -> None:
    """Refuse a module whose states are not vectors along the last axis, and warn of states that are not erased."""
    if isinstance(module, nn.Conv1d):
        raise ValueError(
            f"{name}: Conv1d has states [batch, channels, length], whose last axis is not that of one token's values: "
            "name a module after it that has [batch, length, channels], or flattens them"
        )
    if isinstance(module, nn.RNNBase):
        log.warning("%s: its last states (h_n) are a second output, which stays as it is; use the first alone", name)


def require_eraser(eraser: Any, name: str) -> None:
    """Raise ValueError for something that is no fitted eraser, which a message calls `name`."""
    if not isinstance(eraser, Eraser):
        raise ValueError(f"{name} is {eraser!r:.60}: give a fitted eraser, such as LeaceEraser.fit(x, z)")


def _require_unlabelled(name: str, eraser: type[Eraser]) -> None:
    if eraser.uses_labels:
        raise ValueError(f"{name}: {eraser.__name__} needs labels, which a network does not pass on")
