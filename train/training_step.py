"""A training step launched as a whole, because small networks spend their time on launching kernels."""

import importlib.util
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from train.ensemble import Ensemble
from train.schedule_free import ScheduleFree

log = logging.getLogger(__name__)
Output = TypeVar("Output")
TrainingStep = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, labels and factors to losses

_FIRST_CALLS = 3  # number of calls without a graph, in which libraries choose kernels and allocate workspaces


def training_step(ensemble: Ensemble, optimizer: ScheduleFree, *, compiled: bool = False) -> TrainingStep:
    """Return a function that takes one step and returns the members' losses [S].

    On a GPU the step is captured as a CUDA graph.

    Args:
        ensemble: the architecture.
        optimizer: optimizer whose weights are updated.
        compiled: whether to compile gradients and update by `torch.compile`.

    Raises:
        ValueError: `compiled` is true, and there is no compiler.
    """
    device = next(iter(optimizer.weights.values())).device
    if compiled:
        require_compiler(device)

    def step(x: Tensor, z: Tensor, factors: Tensor, coefficients: Tensor | None = None) -> Tensor:
        losses, slopes = ensemble.gradients(optimizer.weights, x, z, factors, compiled=compiled)
        if coefficients is None:
            optimizer.step(slopes)
        else:
            optimizer.step_on_device(slopes, coefficients, compiled=compiled)
        return losses

    if device.type == "cpu" and not compiled:
        return step
    graphed = GraphedFunction(step)
    return lambda x, z, factors: graphed(x, z, factors, optimizer.next_coefficients())


def require_compiler(device: torch.device) -> None:
    """Refuse train.compile=true if `torch.compile` lacks a compiler for the device.

    Raises:
        ValueError: the compiler is missing; the message names it.
    """
    on_gpu = device.type == "cuda"
    language, variable, usual = ("C", "CC", ("gcc", "clang")) if on_gpu else ("C++", "CXX", ("g++",))
    compilers = [os.environ[variable]] if variable in os.environ else usual
    missing = None if any(map(shutil.which, compilers)) else f"a {language} compiler ({' or '.join(compilers)})"
    if on_gpu and not importlib.util.find_spec("triton"):
        missing = "triton, which comes with PyTorch for CUDA"
    if missing:
        raise ValueError(f"train.compile=true on {device.type}: needs {missing}; install it, or choose auto or false")


class GraphedFunction(Generic[Output]):
    """A function of tensors, captured as a CUDA graph for every shape of its inputs; on a CPU it is called directly.

    A graph launches the same kernels on the same memory, so results are the same. The function must not wait for the
    device. Tensors that it uses, other than its inputs, must keep their addresses. If the function cannot be captured,
    a warning is logged, and it is called directly.

    Args:
        function: function of tensors on one device.

    Attributes:
        enabled: whether functions are captured. Benchmarks and tests set it to False for comparison.
    """

    enabled: ClassVar[bool] = True

    def __init__(self, function: Callable[..., Output]) -> None:
        self._function = function
        self._calls = Counter[Any]()  # number of calls by shapes
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Sequence[Tensor], Output]] = {}

    def __call__(self, *inputs: Tensor) -> Output:
        """Return the function's output; on a GPU the next call with inputs of these shapes overwrites it."""
        if inputs[0].device.type != "cuda" or not self.enabled:
            return self._function(*inputs)
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        self._calls[shapes] += 1
        if self._calls[shapes] == _FIRST_CALLS + 1:
            self._capture(shapes, inputs)
        if shapes not in self._graphs:
            return self._function(*inputs)
        graph, captured, output = self._graphs[shapes]
        for target, tensor in zip(captured, inputs, strict=True):
            target.copy_(tensor)
        graph.replay()
        return output

    def _capture(self, shapes: Any, inputs: Sequence[Tensor]) -> None:
        device, captured = inputs[0].device, [tensor.clone() for tensor in inputs]
        graph, random_state = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(device)
        try:
            with torch.cuda.device(device), torch.cuda.graph(graph, stream=torch.cuda.Stream(device)):
                output = self._function(*captured)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("training without a CUDA graph: %s", str(error).splitlines()[0])
            # After a failed capture the device's generator stays in capture mode until its state is replaced.
            unused = torch.Generator(device)
            unused.set_state(random_state)
            torch.cuda.default_generators[device.index].graphsafe_set_state(unused)
        else:
            self._graphs[shapes] = graph, captured, output
