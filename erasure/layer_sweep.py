"""Passes of batches through a network that stop at one module after another, and go on where they stopped.

A pass need not compute again what came before its last stop. Modules that have finished return what they returned: the
last one on each level of nesting its output, which is kept, and those before it NaN, as nothing should read them any
more. Where something does, such as a skip connection, NaN arrives, and the pass begins at the network's input again.
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
    """A pass has come to the module where it stops."""


class Stored:
    """A tensor that is kept, or of which only shape, dtype and device are remembered."""

    def __init__(self, kept: Tensor, device: torch.device) -> None:
        self._kept: Tensor | None = kept
        self._shape, self._dtype, self._device = kept.shape, kept.dtype, device

    def forget(self) -> None:
        self._kept = None

    def tensor(self) -> Tensor:
        """Return a copy on the tensor's device, or NaN."""
        if self._kept is None:
            return torch.full(self._shape, torch.nan, dtype=self._dtype, device=self._device)
        return self._kept.to(self._device, copy=True)


class Storage:
    """Copies of tensors on their device, in memory, or in files mapped into memory: the first that has room.

    Half of what was free at the start is left to others.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir())
        self._reserves: dict[torch.device | Path, float] = {}

    def keep(self, tensor: Tensor) -> Stored:
        """Store a copy.

        Raises:
            OSError: there is no room.
        """
        tensor, cpu = tensor.detach(), torch.device("cpu")
        for device in dict.fromkeys([tensor.device, cpu]):
            if self._has_room(device, free_bytes(device), tensor.nbytes):
                return Stored(tensor.to(device, copy=True), tensor.device)
        if not tensor.numel() or not self._has_room(self._folder, shutil.disk_usage(self._folder).free, tensor.nbytes):
            raise OSError(f"no room for {tensor.nbytes:,} bytes, neither in memory nor in {self._folder}")
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="hidden-states-") as file:  # mapped, it lives on
            mapped_file = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
        return Stored(mapped_file.view(tensor.shape).copy_(tensor), tensor.device)

    def keep_all(self, values: Any) -> Any:
        """Return tuples, mappings and the like with `Stored` in place of tensors; `restored` is the inverse."""
        return mapped(values, lambda leaf: self.keep(leaf) if isinstance(leaf, Tensor) else leaf)

    def _has_room(self, where: torch.device | Path, free: float, size: int) -> bool:
        return free - size >= self._reserves.setdefault(where, free / 2)


def restored(values: Any) -> Any:
    """Return tuples, mappings and the like with tensors in place of `Stored`."""
    return mapped(values, lambda leaf: leaf.tensor() if isinstance(leaf, Stored) else leaf)


class BatchPass:
    """One batch on its way through a network: what modules that have finished return from now on.

    Args:
        x: the network's input, where some tensors may be `Stored`.
        z: the concept.
        mask: zero for examples or tokens to leave out; None to leave none out.
    """

    def __init__(self, x: Any, z: Any = None, mask: Any = None) -> None:
        self.x, self.z, self.mask = x, z, mask
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what has been computed."""
        self.outputs: dict[str, Any] = {}
        self._last: dict[str, tuple[str, ...]] = {}  # modules whose output is kept, and the modules around them

    def finished(self, name: str, around: tuple[str, ...], output: Any, storage: Storage) -> None:
        """Keep a module's output instead of those before it on its level, and of those within it."""
        if not _is_replaceable(output):
            return
        try:
            stored = storage.keep_all(output)
        except OSError:  # passes go on from an earlier module
            return
        for other in [one for one, outside in self._last.items() if outside == around or name in outside]:
            del self._last[other]
            mapped(self.outputs[other], lambda leaf: leaf.forget() if isinstance(leaf, Stored) else None)
        self._last[name], self.outputs[name] = around, stored


def _is_replaceable(output: Any) -> bool:
    """Return whether all that matters in an output are floating tensors, which NaN can stand for."""
    leaves: list[Any] = []
    mapped(output, leaves.append)
    plain = bool, int, float, str, type(None)
    return all(leaf.is_floating_point() if isinstance(leaf, Tensor) else isinstance(leaf, plain) for leaf in leaves)


class LayerSweep:
    """A network whose passes stop at named modules, one after another; a context that leaves it as it was.

    Args:
        model: network, in evaluation mode.
        names: modules.
        x: an input, for one full pass.
        inputs: stop before the modules, not after them.

    Attributes:
        names: in the order in which the network runs them.

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
        """Return a `forward` that returns what the module returned if it has finished for this batch."""

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
            name: of the module.
            passes: of the batches.
            keep: they will go on from there.
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
        """Return the states that a resumed pass reaches, or None where what it did not compute would matter."""
        try:
            states = run()
        except Exception:  # of NaN: an error of the network itself comes again in the full pass
            return None
        return None if states.isnan().any() else states


def _with_those_around(names: Sequence[str]) -> list[str]:
    """Return the names of modules and of all modules around them but the network."""
    parts = [name.split(".") for name in map(plain_name, names)]
    return [*dict.fromkeys(".".join(part[: i + 1]) for part in parts for i in range(len(part)))]
