"""Any `torch.nn.Module` as a network that can be initialised anew and trained for each seed."""

import contextlib
import copy
import functools
import inspect
import logging
import threading
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.classifier import Classifier, Model, is_repeatable

log = logging.getLogger(__name__)

_EXAMPLES = 3  # of the batch that tries a network out
_COINCIDE = 1e-6  # share of draws from N(0, 1) that may be equal by chance
_GLOBAL_GENERATOR = threading.RLock()


class AnyModule(Classifier):
    """A network of any module, initialised as the module initialises itself.

    It trains one seed after another, unless train.stack=all, and at one learning rate for all weights (no μP).

    Args:
        network: a class or function that makes a module and is called again for each seed; or a module, which is
            copied. Parts of the copy draw new weights by `reset_parameters()`, as PyTorch's layers do; weights that
            were set in another way are lost. Buffers are kept.
        example_shape: shape of the module's input, without the batch. Passed to a class or function with an argument
            `input_shape`.
        num_classes: k; the module returns logits [B, k]. Passed to a class or function with an argument `num_classes`.
        options: other arguments of the class or function, by name.
        training: whether the module is used in training mode, whichever mode it is in; else in evaluation mode.

    Raises:
        ValueError: the network cannot be trained from several seeds; the message says why and what to change.
    """

    version: ClassVar[int] = 2  # version 1 kept tangent gradients of in-place layers, and reset batch statistics

    def __init__(
        self,
        network: nn.Module | Callable[..., Any],
        example_shape: Sequence[int],
        num_classes: int,
        options: Mapping[str, Any] | None = None,
        *,
        training: bool = True,
    ) -> None:
        super().__init__()
        self.name = _name(network)
        self._make = None
        if not isinstance(network, nn.Module):
            of_data = {"input_shape": tuple(example_shape), "num_classes": num_classes}
            asked = {name: value for name, value in of_data.items() if name in _arguments(network)}
            self._make = functools.partial(network, **(options or {}), **asked)
        try:
            with _seeded(torch.Generator().manual_seed(0)):
                made = copy.deepcopy(network) if self._make is None else self._make()
        except RuntimeError as error:
            if self._make is not None:
                raise
            reason = str(error).splitlines()[0]
            raise self._refused(f"it cannot be copied ({reason})", "pass a function that makes it") from error
        except TypeError as error:
            passed = self._make.keywords if self._make else {}
            named = ", ".join(f"{name}={value!r}" for name, value in passed.items())
            correct = "correct them, and annotate its arguments, e.g. width: int, to have their values checked"
            how, remedy = (f"with {named}", correct) if options else ("without arguments", "wrap it in a lambda")
            raise self._refused(f"it cannot be called {how} ({error})", remedy) from error
        if not isinstance(made, nn.Module):
            raise ValueError(f"model={self.name}: returned a {type(made).__name__}: return a torch.nn.Module")
        if isinstance(made, Classifier):  # its weights are not drawn yet
            raise self._refused("it makes a models.classifier.Classifier", "pass that, or name its class in _target_")
        if lazy := [name for name, parameter in made.named_parameters() if nn.parameter.is_lazy(parameter)]:
            raise self._refused(f"{lazy[0]} has no shape before the first examples", "use layers that are not lazy")
        if self._make is not None:
            self._require_anew(made, self._make)
        self.network = made.train(training)
        self.given = None  # weights of a module that was passed, before others are drawn
        if isinstance(network, nn.Module):
            self.given = {name: weight.detach().clone() for name, weight in self.named_parameters()}
        self.example_shape = tuple(example_shape)
        self._require_resettable()
        self._require_independent_examples(num_classes)
        self._require_exchangeable_weights()

    def forward(self, x: Tensor) -> Tensor:
        """Map examples [B, C, H, W], reshaped for the module, to logits [B, k]."""
        return self.network(x.reshape(len(x), *self.example_shape))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw weights as the module does, while torch's global generator is seeded from `generator`."""
        with _seeded(generator), torch.no_grad():
            if self._make is not None:
                fresh = dict(self._make().named_parameters())
                for name, parameter in self.network.named_parameters():
                    parameter.copy_(fresh[name])
            else:
                buffers = {name: buffer.clone() for name, buffer in self.named_buffers()}
                for part in dict.fromkeys(_innermost_first(self.network)):
                    if (reset := _reset_of(part)) is not None:
                        reset()
                for name, buffer in self.named_buffers():  # BatchNorm's statistics are reset with its parameters
                    if not torch.equal(buffer, buffers[name]):
                        buffer.copy_(buffers[name])

    @classmethod
    def identity(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options, and the version of this class, which initialises the module."""
        return {**options, "any_module": AnyModule.version}

    def _require_anew(self, made: nn.Module, make: Callable[[], nn.Module]) -> None:
        """Refuse a function that returns the same module again; warn of random buffers, which seeds share."""
        with _seeded(torch.Generator().manual_seed(1)):
            other = make()
        if other is made:
            raise self._refused("it returns the same module again", "make a new one in every call")
        pairs = zip(made.named_buffers(), other.buffers(), strict=True)
        if shared := [name for (name, buffer), drawn in pairs if not torch.equal(buffer, drawn)]:
            log.warning("%s: all seeds share %s, which is random and not trained", self.name, ", ".join(shared))

    def _require_resettable(self) -> None:
        names = [name for name, parameter in self.network.named_parameters() if not parameter.requires_grad]
        if names:
            raise self._refused(
                f"{names[0]} is frozen (requires_grad=False), and every parameter is drawn anew and trained",
                "pass the frozen part's outputs as x",
            )
        other = [p.dtype for p in self.network.parameters() if p.is_floating_point() and p.dtype != torch.float32]
        if other:
            raise self._refused(
                f"it has weights of {other[0]}, and trainings start from torch.float32", "pass the module's .float()"
            )
        if self._make is None and self.network.training:
            others = torch.Generator().manual_seed(1)
            before = {name: torch.randn(w.shape, generator=others).to(w) for name, w in self.network.named_parameters()}
            self.network.load_state_dict(before, strict=False)
            self.reset_parameters(torch.Generator().manual_seed(0))
            for name, weight in self.network.named_parameters():
                if (weight == before[name]).sum() > _COINCIDE * weight.numel():
                    raise self._refused(
                        f"no reset_parameters() of its parts draws {name} anew",
                        f"pass a function that makes the network, e.g. lambda: {self.name}(...)",
                    )
        if not is_repeatable(self):
            raise self._refused(
                "it has drawn different weights from equal seeds, so that nothing could be repeated",
                "draw them by torch's global generator, as torch.nn.init does",
            )

    def _require_independent_examples(self, num_classes: int) -> None:
        """Refuse outputs that have another shape, are random, or depend on other examples of the batch."""
        x = torch.randn(_EXAMPLES, *self.example_shape, generator=torch.Generator().manual_seed(0))
        if self.given is not None and not self.network.training:  # statistics may fit the given weights alone
            self.load_state_dict(self.given, strict=False)
        else:
            self.reset_parameters(torch.Generator().manual_seed(1))  # other weights than buffers were computed from
        before = {name: buffer.clone() for name, buffer in self.named_buffers()}
        with _seeded(torch.Generator().manual_seed(1)), torch.no_grad():
            try:
                outputs, again = self(x), self(x)
            except Exception as error:
                reason = " ".join(str(error).split())[:200]
                shape = list(x.shape)
                raise self._refused(f"it fails on examples {shape} ({reason})", "give x the shape it takes") from error
            if not isinstance(outputs, Tensor) or outputs.shape != (_EXAMPLES, num_classes):
                got = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
                raise self._refused(
                    f"it returns {got} for {_EXAMPLES} examples, and {num_classes} outputs are needed",
                    f"return logits [{_EXAMPLES}, {num_classes}]",
                )
            if any(not torch.equal(buffer, before[name]) for name, buffer in self.named_buffers()):
                raise self._refused(
                    "its buffers change in training (BatchNorm? spectral_norm?), and seeds would share them",
                    "use LayerNorm or GroupNorm",
                )
            if not outputs.isfinite().all():
                raise self._refused("its outputs are not finite", "check its weights and statistics")
            if not torch.equal(outputs, again):
                raise self._refused("its outputs are random in training (dropout?)", "set the rate to 0")
            if self.network.training and (outputs >= 0).all() and torch.allclose(outputs.sum(1), torch.ones(())):
                raise self._refused("it returns probabilities", "return logits, without softmax")
            fewer = self(x[:-1])
        if not torch.allclose(fewer, outputs[:-1], rtol=1e-3, atol=1e-4):
            raise self._refused(
                "an example's outputs depend on the others of its batch (BatchNorm?)", "use LayerNorm or GroupNorm"
            )

    def _require_exchangeable_weights(self) -> None:
        """Refuse a network that does not compute with the parameters that its parts hold: tied or copied weights."""
        count = len([*self.network.named_parameters(remove_duplicate=False)])
        if count > len([*self.network.named_parameters()]):
            raise self._refused("two of its parts share a parameter", "give each its own")
        if any(isinstance(part, nn.RNNBase) for part in self.network.modules()):
            raise self._refused("a recurrent layer computes with copies of its weights", "use another layer")
        x = torch.randn(_EXAMPLES, *self.example_shape, generator=torch.Generator().manual_seed(0))
        with torch.enable_grad():
            outputs = self(x).sum()
            gradients = torch.autograd.grad(outputs, [*self.parameters()], allow_unused=True)
        for (name, _), gradient in zip(self.network.named_parameters(), gradients, strict=True):
            if gradient is None:
                raise self._refused(f"its outputs do not depend on {name}", "remove it")
        with torch.no_grad():
            self(x)  # a tensor that a part keeps, such as a pruned weight, can be copied once it needs no gradient

    def _refused(self, reason: str, remedy: str) -> ValueError:
        return ValueError(f"model={self.name}: {reason}: {remedy}")


@functools.cache
def model_class(target: Any) -> Any:
    """Return a model class for a class of modules, or a function that makes a module, named by `_target_`.

    Its options are the arguments besides `input_shape` and `num_classes`, except those whose default no YAML file can
    hold. Vectors, which datasets hold as images [d, 1, 1], reach the module as [B, d].

    Args:
        target: any object; models, and objects that are neither classes of modules nor functions, are returned.
    """
    is_module = inspect.isclass(target) and issubclass(target, nn.Module) and not issubclass(target, Model)
    if not (is_module or inspect.isfunction(target)):
        return target
    arguments = {
        name: argument
        for name, argument in _arguments(target).items()
        if name not in ("input_shape", "num_classes")
        and (argument.default is argument.empty or _plain(argument.default))
    }

    def __init__(self: AnyModule, input_shape: Sequence[int], num_classes: int, /, **options: Any) -> None:  # noqa: N807
        shape = input_shape if max(input_shape[1:]) > 1 else input_shape[:1]
        AnyModule.__init__(self, target, shape, num_classes, options)

    hints = typing.get_type_hints(target.__init__ if is_module else target)
    __init__.__annotations__ = {name: hints.get(name, Any) for name in arguments}
    signature = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in arguments.values()])
    contents = {
        "__init__": __init__,
        "__signature__": signature,
        "__doc__": target.__doc__,
        "__module__": target.__module__,
        "__qualname__": target.__qualname__,
        "optional": [name for name, each in arguments.items() if each.default is not each.empty],
    }
    version = {"version": vars(target)["version"]} if "version" in vars(target) else {}
    return type(target.__name__, (AnyModule,), contents | version)


def _arguments(network: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments that may be passed by name; empty if Python cannot tell."""
    try:
        arguments = inspect.signature(network).parameters
    except (TypeError, ValueError):
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: argument for name, argument in arguments.items() if argument.kind in named}


def _plain(value: Any) -> bool:
    """Return whether a YAML file can hold a value."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _name(network: object) -> str:
    name = getattr(network, "__name__", type(network).__name__)
    return "the network" if name == "<lambda>" else name


def _reset_of(part: nn.Module) -> Callable[[], object] | None:
    """Return the function with which a part of a network draws its own parameters."""
    return getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)


def _innermost_first(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of a module before the module itself, as they are made."""
    for part in module.children():
        yield from _innermost_first(part)
    yield module


@contextlib.contextmanager
def _seeded(generator: torch.Generator) -> Iterator[None]:
    """Seed torch's global generator of the CPU from another one within the block, and restore it afterwards.

    Blocks of several threads take turns.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
