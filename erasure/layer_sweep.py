"""Passes of batches through a network that stop at one module after another, and resume there.

A resumed pass does not repeat computations before its last stop. Modules that have finished return stored values: the
last one on each level of nesting returns its output, and those before it return a tensor without values. Whatever is
computed from such a tensor has no values either. The pass starts from the input of the network instead if the states at
the stop have no values, for example after a skip connection. It also does so if the network needs such values, for
example to choose between two branches.

A module that changes its input in place always runs. If a module changes anything that it holds, such as an attribute
or a buffer, no pass is resumed, because a resumed pass would find values of another batch there. Changes elsewhere show
when one batch passes through the whole network in the end (`LayerSweep.confirms`).
"""

import contextlib
import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from erasure.attached_erasers import Attachment
from erasure.device_memory import free_bytes
from erasure.module_outputs import call, close, leaves, mapped, named_module, plain_name

_PLAIN = bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device
_CONTENTS = {"_parameters", "_buffers", "_modules", "training"}
_HOOKS = vars(nn.Module()).keys() - _CONTENTS  # hooks and flags, which no forward changes
_MEMORY = "__set__", "__dlpack__", "data_ptr", "untyped_storage"


class _Reached(BaseException):  # so that no network handles it as an error
    """A pass has reached the module at which it stops."""


class _Unusable(BaseException):  # as above
    """A resumed pass needs values that it does not have."""


class _Discarded(Tensor):
    """A tensor without values, of some shape, dtype and device; whatever is computed from it has none either.

    Operations run on the device "meta", where those whose results depend on values raise an error.
    """

    meta: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def __new__(cls, meta: Tensor, device: torch.device) -> "_Discarded":
        one = Tensor._make_wrapper_subclass(  # pyright: ignore
            cls, meta.shape, strides=meta.stride(), dtype=meta.dtype, device=device
        )
        one.meta = meta
        return one

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments = func._schema.arguments
        passed = dict(zip((one.name for one in arguments), args, strict=False)) | kwargs
        written = leaves([passed[one.name] for one in arguments if one.is_write and one.name in passed])
        if any(isinstance(leaf, Tensor) and not isinstance(leaf, cls) for leaf in written):
            raise _Unusable
        involved = leaves((args, kwargs))
        devices = [one for one in involved if isinstance(one, torch.device)]
        devices += [one.device for one in involved if isinstance(one, cls)]

        def on_meta(leaf: Any) -> Any:
            if isinstance(leaf, cls):
                return leaf.meta
            if isinstance(leaf, torch.device):
                return torch.device("meta")
            return leaf.to("meta") if isinstance(leaf, Tensor) else leaf

        result = func(*mapped(args, on_meta), **mapped(kwargs, on_meta))
        if not all(leaf is None or isinstance(leaf, Tensor) for leaf in leaves(result)):
            raise _Unusable
        return mapped(result, lambda leaf: None if leaf is None else cls(leaf, devices[0]))


class _NoDiscardedMemory(TorchFunctionMode):
    """A context that refuses access, such as by `.data = `, to the memory of tensors without values: it would crash."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _MEMORY and any(isinstance(one, _Discarded) for one in args):
            raise _Unusable
        return func(*args, **(kwargs or {}))


class Stored:
    """A stored tensor, or only its shape, dtype and device."""

    def __init__(self, kept: Tensor, device: torch.device) -> None:
        self._kept: Tensor | None = kept
        self._shape, self._dtype, self._device = kept.shape, kept.dtype, device

    def forget(self) -> None:
        self._kept = None

    def tensor(self) -> Tensor:
        """Return a copy on the device of the tensor, or a tensor without values if it was forgotten."""
        if self._kept is None:
            return _Discarded(torch.empty(self._shape, dtype=self._dtype, device="meta"), self._device)
        return self._kept.to(self._device, copy=True)


class Storage:
    """Copies of tensors on their device, or in main memory. Half of what was free at the start is left free."""

    def __init__(self) -> None:
        self._reserves: dict[torch.device, float] = {}

    def keep(self, tensor: Tensor) -> Stored:
        """Store a copy.

        Raises:
            MemoryError: there is no room.
        """
        tensor = tensor.detach()
        for device in dict.fromkeys([tensor.device, torch.device("cpu")]):
            free = free_bytes(device)
            if free - tensor.nbytes >= self._reserves.setdefault(device, free / 2):
                return Stored(tensor.to(device, copy=True), tensor.device)
        raise MemoryError(f"no room for {tensor.nbytes:,} bytes")

    def keep_all(self, values: Any) -> Any:
        """Replace tensors in nested values by `Stored`; `restored` is the inverse."""
        return mapped(values, lambda leaf: self.keep(leaf) if isinstance(leaf, Tensor) else leaf)


def restored(values: Any) -> Any:
    """Replace `Stored` in nested values by tensors."""
    return mapped(values, lambda leaf: leaf.tensor() if isinstance(leaf, Stored) else leaf)


class BatchPass:
    """One batch on its way through a network, with the stored outputs of modules that have finished.

    Args:
        x: input of the network, in which some tensors may be `Stored`.
        z: concept.
        mask: zero for examples or tokens to leave out; None to leave none out.
    """

    def __init__(self, x: Any, z: Any = None, mask: Any = None) -> None:
        self.x, self.z, self.mask = x, z, mask
        self.begin_again()

    def begin_again(self) -> None:
        """Discard all stored outputs."""
        self.outputs: dict[str, Any] = {}
        self._last: dict[str, tuple[str, ...]] = {}  # modules whose output is kept, and the modules around them

    def finished(self, name: str, around: tuple[str, ...], output: Any, storage: Storage) -> None:
        """Store the output of a module; forget those of earlier modules on its level and of modules within it."""
        if not _is_replaceable(output):
            return
        try:
            stored = storage.keep_all(output)
        except MemoryError:  # passes resume from an earlier module
            return
        for other in [one for one, outside in self._last.items() if outside == around or name in outside]:
            del self._last[other]
            mapped(self.outputs[other], lambda leaf: leaf.forget() if isinstance(leaf, Stored) else None)
        self._last[name], self.outputs[name] = around, stored


def _is_replaceable(output: Any) -> bool:
    """Return whether an output consists of floating tensors, which may lose their values, and of plain values."""
    plain = bool, int, float, str, type(None)
    return all(
        leaf.is_floating_point() and not isinstance(leaf, _Discarded)
        if isinstance(leaf, Tensor)
        else isinstance(leaf, plain)
        for leaf in leaves(output)
    )


class LayerSweep:
    """A network whose passes stop at named modules, one after another; a context that restores it in the end.

    Args:
        model: network, in evaluation mode.
        names: names of the modules.
        x: an input for one full pass.

    Attributes:
        names: names in the order in which the network runs the modules.
        whole: whether every pass runs all modules from the start.

    Raises:
        ValueError: a module that does not run exactly once in a pass.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], x: Any) -> None:
        self._model = model
        self.names: list[str] = []
        outer = _with_those_around(names)
        runs: Counter[str] = Counter()
        hooks = [
            named_module(model, name).register_forward_hook(lambda *_, name=name: runs.update([name])) for name in outer
        ]
        notes = {name: lambda states, name=name: self.names.append(name) or states for name in names}
        try:
            with Attachment(model, notes, report_idle=False):
                call(model, x)
        finally:
            for hook in hooks:
                hook.remove()
        for name in names:
            if (times := self.names.count(name)) != 1:
                raise ValueError(f"{name} runs {times} times in a pass: only what runs once can be erased")
        self._resumable = [name for name in outer if runs[name] == 1]
        self._storage = Storage()
        self._forwards: list[tuple[nn.Module, Any]] = []
        self._pass, self._open, self._ran = BatchPass(None), list[str](), set[str]()
        self._first: dict[str, Stored] = {}
        self.whole, self._was_resumed, self._resumes, self._has_effects = False, False, False, False

    def __enter__(self) -> Self:
        for name in self._resumable:
            module = named_module(self._model, name)
            self._forwards.append((module, vars(module).get("forward")))
            vars(module)["forward"] = self._resuming(name, module)  # some modules set attributes of others
        return self

    def __exit__(self, *_: object) -> None:
        for module, forward in reversed(self._forwards):
            del vars(module)["forward"]
            if forward is not None:
                vars(module)["forward"] = forward
        self._forwards = []

    def _resuming(self, name: str, module: nn.Module) -> Callable[..., Any]:
        """Return a `forward` that returns the stored output if the module has finished for this batch."""
        forward = module.forward

        def resuming(*args: Any, **kwargs: Any) -> Any:
            if name in self._ran:  # a second time, unlike for the first batch
                self.whole = True
                if self._resumes:
                    raise _Unusable
            self._ran.add(name)
            if (stored := self._pass.outputs.get(name)) is not None:
                return restored(stored)
            around = tuple(self._open)
            self._open.append(name)
            if not self._keep or self.whole:
                output = forward(*args, **kwargs)
                self._open.pop()
                return output
            entered = [
                (leaf, leaf._version)
                for leaf in leaves((args, kwargs))
                if isinstance(leaf, Tensor) and not leaf.is_inference()
            ]
            held = _held(module)
            output = forward(*args, **kwargs)
            self._open.pop()
            if not _equal(held, _held(module)):
                self.whole = self._has_effects = True
            elif not self.whole and all(leaf._version == version for leaf, version in entered):
                self._pass.finished(name, around, output, self._storage)
            return output

        return resuming

    def states(self, name: str, passes: Iterable[BatchPass], *, keep: bool) -> Iterator[tuple[BatchPass, Tensor]]:
        """Yield every pass and its states at a module; to be called for the modules in the order of `names`.

        Args:
            name: name of the module.
            passes: passes of all batches.
            keep: whether the passes will resume from there.
        """
        reached: list[Tensor] = []

        def stop(states: Tensor) -> Tensor:
            reached.append(states)
            raise _Reached

        def run() -> Tensor:
            self._begin()
            reached.clear()
            with contextlib.suppress(_Reached):
                call(self._model, restored(self._pass.x))
            if not reached:
                raise ValueError(f"{name} does not run for every batch: only what runs once in each can be erased")
            return reached[0]

        self._keep = keep
        with Attachment(self._model, {name: stop}, report_idle=False):
            for i, self._pass in enumerate(passes):
                states = self._resumed(run) if self._pass.outputs and not self.whole else None
                if states is None:
                    self._pass.begin_again()
                    states = run()
                if i == 0 and not self.whole:
                    with contextlib.suppress(MemoryError):
                        self._first[name] = self._storage.keep(states)
                yield self._pass, states

    def _begin(self) -> None:
        self._open, self._ran = [], set()

    def _resumed(self, run: Callable[[], Tensor]) -> Tensor | None:
        """Return the states that a resumed pass reaches, or None if they depend on discarded values."""
        self._resumes = True
        try:
            with _NoDiscardedMemory():
                states = run()
        except (Exception, _Unusable):  # for lack of values; an error of the network itself recurs in the full pass
            return None
        finally:
            self._resumes = False
        if isinstance(states, _Discarded):
            return None
        self._was_resumed = True
        return states

    def confirms(self, first: BatchPass, functions: Mapping[str, Callable[[Tensor], Tensor]]) -> bool:
        """Return whether the first batch had the states of a full pass, and no module had side effects.

        True if no pass was resumed.

        Args:
            first: the first pass.
            functions: functions that change the states, by name of module.
        """
        if self.whole or not self._was_resumed:
            return not (self._has_effects and self._was_resumed)
        wrong = list[str]()

        def compared(name: str, states: Tensor) -> Tensor:
            if name in self._first:
                expected = self._first[name].tensor()
                if not close(states, expected, 16 * torch.finfo(states.dtype).eps):
                    wrong.append(name)
            return functions[name](states)

        self._pass, self._keep = first, False
        first.begin_again()
        self._begin()
        watched = {name: functools.partial(compared, name) for name in self.names}
        with Attachment(self._model, watched, report_idle=False):
            call(self._model, restored(first.x))
        return not wrong


def _with_those_around(names: Sequence[str]) -> list[str]:
    """Return the names of modules and of all modules that contain them, except the network."""
    parts = [name.split(".") for name in map(plain_name, names)]
    return [*dict.fromkeys(".".join(part[: i + 1]) for part in parts for i in range(len(part)))]


def _held(module: nn.Module) -> list[tuple[Any, Any]]:
    """Return everything a module holds: plain values, and other objects, each with a state that shows its changes.

    Modules, containers and objects with attributes are searched. Arrays of other libraries count as changed only if
    they are replaced. Containers of more than 1,000 values count as changed only if they are replaced or change in
    length.
    """
    held: list[tuple[Any, Any]] = []
    searched: dict[int, Any] = {}
    waiting: list[Any] = [module]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            held.append((one, (None if one.is_inference() else one._version, _address(one))))
        elif isinstance(one, _PLAIN):
            held.append((None, (type(one), one)))
        elif id(one) in searched or (callable(one) and not isinstance(one, nn.Module)):
            held.append((one, None))
        elif isinstance(one, Mapping | list | tuple | set | frozenset | deque):
            searched[id(one)] = one
            held.append((None, (type(one), len(one))))
            if len(one) <= 1000:
                waiting.extend(one)
                waiting.extend(one.values() if isinstance(one, Mapping) else ())
        else:
            searched[id(one)] = one
            held.append((one, None))
            attributes = getattr(one, "__dict__", {})
            names = attributes.keys() - _HOOKS if isinstance(one, nn.Module) else attributes
            waiting.extend(attributes[name] for name in sorted(names))
    return held


def _equal(before: list[tuple[Any, Any]], after: list[tuple[Any, Any]]) -> bool:
    return len(before) == len(after) and all(
        one is other and value == other_value for (one, value), (other, other_value) in zip(before, after, strict=True)
    )


def _address(tensor: Tensor) -> int | None:
    """Return the address of the values of a tensor, or None if it has none, as on the device "meta"."""
    try:
        return None if isinstance(tensor, _Discarded) else tensor.data_ptr()
    except RuntimeError:
        return None
