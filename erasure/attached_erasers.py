"""Functions that change outputs of the modules of a network, before other hooks see them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from erasure.module_outputs import first_tensor, named_module, replaced

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Change:
    """A function that changes the states of a module.

    Attributes:
        name: name of the module.
        function: function of the first tensor of its output.
        ran: whether the module has run.
        compiled: whether `torch.compile` has compiled the function into its code.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    ran: bool = False
    compiled: bool = False


class _Changes:
    """The changes of the output of a module, in the order in which they were attached.

    They share one hook, the first of the module. Hooks that record states, such as those of transformers, therefore see
    changed states, and an eraser that was fitted after others is applied after them.
    """

    def __init__(self, module: nn.Module) -> None:
        self.changes: list[_Change] = []
        self.hook = module.register_forward_hook(self._after, prepend=True)

    def __deepcopy__(self, _: Any) -> "_Changes":
        """Return a copy without changes, because nothing could remove them from a copy of the network."""
        copied = object.__new__(_Changes)
        copied.changes, copied.hook = [], self.hook
        return copied

    def __reduce__(self) -> str:
        """Not possible: raises ValueError, as what is stored would erase for good."""
        raise ValueError(
            "erasers are attached to the network: call .remove() of what `attach` returned, or leave `erase`, before "
            "the network is pickled, and save the erasers by their method save"
        )

    def _after(self, _: nn.Module, _inputs: Any, output: Any) -> Any:
        for change in self.changes:
            change.ran = True
            if torch.compiler.is_compiling():
                change.compiled = True
            states = first_tensor(output, change.name)
            changed = change.function(states)
            if changed is not states:
                output = replaced(output, states, changed)
        return output


_CHANGES: WeakKeyDictionary[nn.Module, _Changes] = WeakKeyDictionary()


class Attachment:
    """Functions that change the states of modules of a network, until `remove` is called.

    The states of modules that do not run in a pass of the network are not changed; the logger `erasure` reports them.

    Args:
        model: any network; `torch.compile` compiles it again if it was compiled.
        functions: functions by name of module.
        report_idle: report modules that do not run.

    Raises:
        ValueError: no module has one of the names.
    """

    def __init__(
        self,
        model: nn.Module,
        functions: Mapping[str, Callable[[Tensor], Tensor]],
        *,
        report_idle: bool = True,
    ) -> None:
        modules = {name: named_module(model, name) for name in functions}
        self._attached: list[tuple[nn.Module, _Change]] = []
        self._model = model
        self._watch = model.register_forward_hook(self._after)
        self._reported = not report_idle
        self._was_compiled = is_compiled(model)
        if self._was_compiled:
            torch.compiler.reset()  # compiled code ignores new hooks
        for name, module in modules.items():
            if module not in _CHANGES:
                _CHANGES[module] = _Changes(module)
            change = _Change(name, functions[name])
            _CHANGES[module].changes.append(change)
            self._attached.append((module, change))

    __reduce__ = _Changes.__reduce__  # pyright: ignore

    def __deepcopy__(self, _: Any) -> Self:
        return self  # the hook of a copied network

    def _after(self, ran: nn.Module, *_: Any) -> None:
        if ran is self._model:  # not a copy, to which nothing is attached
            self._report_idle()

    def remove(self) -> None:
        """Restore the network; a second call does nothing."""
        if not self._attached:
            return
        if self._was_compiled or any(change.compiled for _, change in self._attached):
            torch.compiler.reset()
        self._watch.remove()
        self._report_idle()
        for module, change in self._attached:
            changes = _CHANGES[module]
            changes.changes.remove(change)
            if not changes.changes:
                changes.hook.remove()
                del _CHANGES[module]
        self._attached = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._reported |= error[0] is not None  # the error may have occurred before the modules ran
        self.remove()

    def _report_idle(self) -> None:
        """Warn once of modules that have not run."""
        if self._reported:
            return
        if idle := [change.name for _, change in self._attached if not change.ran]:
            self._reported = True
            log.warning(
                "%s did not run, so nothing is erased there: name the module that reads its weights, or pass the "
                "network that torch.compile returned",
                ", ".join(idle),
            )


def is_compiled(model: nn.Module) -> bool:
    """Return whether `torch.compile` has compiled a network or a part of it."""
    return any(
        name.split(".")[-1] == "_orig_mod" or getattr(module, "_compiled_call_impl", None) is not None
        for name, module in model.named_modules()
    )
