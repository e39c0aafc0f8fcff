"""Passes of batches through a network that stop at one module after another, and resume there.

A resumed pass does not repeat computations before its last stop. Modules that have finished return stored values: the
last one on each level of nesting returns its output, and those before it return NaN, as nothing should read them any
more. If something does, such as a skip connection, NaN arrives, and the pass starts from the input of the network.
"""

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from erasure.attached_erasers import Attachment
from erasure.device_memory import free_bytes
from erasure.module_outputs import call, mapped, named_module, plain_name


class _Reached(BaseException):  # so that no network handles it as an error
    """A pass has reached the module at which it stops."""


class Stored:
    """A stored tensor, or only its shape, dtype and device."""

    def __init__(self, kept: Tensor, device: torch.device) -> None:
        self._kept: Tensor | None = kept
        self._shape, self._dtype, self._device = kept.shape, kept.dtype, device

    def forget(self) -> None:
        self._kept = None

    def tensor(self) -> Tensor:
        """Return a copy on the device of the tensor, or NaN if it was forgotten."""
        if self._kept is None:
            return torch.full(self._shape, torch.nan, dtype=self._dtype, device=self._device)
        return self._kept.to(self._device, copy=True)


class Storage:
    """Copies of tensors on their device, in main memory, or in mapped files, whichever has room first.

    Half of the space that was free at the start is left free.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir())
        self._reserves: dict[torch.device | Path, float] = {}

    def keep(self, tensor: Tensor) -> Stored:
        """Store a copy.

        Raises:
            OSError: no space is left.
        """
        tensor, cpu = tensor.detach(), torch.device("cpu")
        for device in dict.fromkeys([tensor.device, cpu]):
            if self._has_room(device, free_bytes(device), tensor.nbytes):
                return Stored(tensor.to(device, copy=True), tensor.device)
        if not tensor.numel() or not self._has_room(self._folder, shutil.disk_usage(self._folder).free, tensor.nbytes):
            raise OSError(f"no room for {tensor.nbytes:,} bytes, neither in memory nor in {self._folder}")
        with tempfile.NamedTemporaryFile(
            dir=self._folder, prefix="hidden-states-"
        ) as file:  # the mapping outlives the file
            mapped_file = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
        return Stored(mapped_file.view(tensor.shape).copy_(tensor), tensor.device)

    def keep_all(self, values: Any) -> Any:
        """Replace tensors in nested values by `Stored`; `restored` is the inverse."""
        return mapped(values, lambda leaf: self.keep(leaf) if isinstance(leaf, Tensor) else leaf)

    def _has_room(self, where: torch.device | Path, free: float, size: int) -> bool:
        return free - size >= self._reserves.setdefault(where, free / 2)


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
        """Store the output of a module in place of earlier ones on its level and of those within it."""
        if not _is_replaceable(output):
            return
        try:
            stored = storage.keep_all(output)
        except OSError:  # passes resume from an earlier module
            return
        for other in [one for one, outside in self._last.items() if outside == around or name in outside]:
            del self._last[other]
            mapped(self.outputs[other], lambda leaf: leaf.forget() if isinstance(leaf, Stored) else None)
        self._last[name], self.outputs[name] = around, stored


def _is_replaceable(output: Any) -> bool:
    """Return whether an output consists of floating tensors, which NaN can replace, and of plain values."""
    leaves: list[Any] = []
    mapped(output, leaves.append)
    plain = bool, int, float, str, type(None)
    return all(leaf.is_floating_point() if isinstance(leaf, Tensor) else isinstance(leaf, plain) for leaf in leaves)


class LayerSweep:
    """A network whose passes stop at named modules, one after another; a context that restores it in the end.

    Args:
        model: network, in evaluation mode.
        names: names of the modules.
        x: an input for one full pass.
        inputs: stop before the modules instead of after them.

    Attributes:
        names: names in the order in which the network runs the modules.

    Raises:
        ValueError: a module that does not run exactly once in a pass.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], x: Any, *, inputs: bool) -> None:
        self._model, self._inputs = model, inputs
        self.names: list[str] = []
        outer = _with_those_around(names)
        runs: Counter[str] = Counter()
        hooks = [
            named_module(model, name).register_forward_hook(lambda *_, name=name: runs.update([name])) for name in outer
        ]
        notes = {name: lambda states, name=name: self.names.append(name) or states for name in names}
        try:
            with Attachment(model, notes, inputs=inputs, report_idle=False):
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
        self._pass, self._open = BatchPass(None), list[str]()

    def __enter__(self) -> Self:
        for name in self._resumable:
            module = named_module(self._model, name)
            self._forwards.append((module, vars(module).get("forward")))
            vars(module)["forward"] = self._resuming(name, module.forward)  # some modules set attributes of others
        return self

    def __exit__(self, *_: object) -> None:
        for module, forward in reversed(self._forwards):
            del vars(module)["forward"]
            if forward is not None:
                vars(module)["forward"] = forward
        self._forwards = []

    def _resuming(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `forward` that returns the stored output if the module has finished for this batch."""

        def resuming(*args: Any, **kwargs: Any) -> Any:
            if (stored := self._pass.outputs.get(name)) is not None:
                return restored(stored)
            around = tuple(self._open)
            self._open.append(name)
            output = forward(*args, **kwargs)
            self._open.pop()
            if self._keep:
                self._pass.finished(name, around, output, self._storage)
            return output

        return resuming

    def states(self, name: str, passes: Iterable[BatchPass], *, keep: bool) -> Iterator[tuple[BatchPass, Tensor]]:
        """Yield every pass and its states at a module, in the order of `names`.

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
            self._open, reached[:] = [], []
            with contextlib.suppress(_Reached):
                call(self._model, restored(self._pass.x))
            if not reached:
                raise ValueError(f"{name} does not run for every batch: only what runs once in each can be erased")
            return reached[0]

        self._keep = keep
        with Attachment(self._model, {name: stop}, inputs=self._inputs, report_idle=False):
            for self._pass in passes:
                states = self._resumed(run) if self._pass.outputs else None
                if states is None:
                    self._pass.begin_again()
                    states = run()
                yield self._pass, states

    def _resumed(self, run: Callable[[], Tensor]) -> Tensor | None:
        """Return the states that a resumed pass reaches, or None if they depend on discarded values."""
        try:
            states = run()
        except Exception:  # caused by NaN; an error of the network itself recurs in the full pass
            return None
        return None if states.isnan().any() else states


def _with_those_around(names: Sequence[str]) -> list[str]:
    """Return the names of modules and of all modules that contain them, except the network."""
    parts = [name.split(".") for name in map(plain_name, names)]
    return [*dict.fromkeys(".".join(part[: i + 1]) for part in parts for i in range(len(part)))]
