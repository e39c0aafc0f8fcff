"""CUDA graphs: all kernels of a training step launched at once, because small networks wait for launches."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

log = logging.getLogger(__name__)
Output = TypeVar("Output")

_FIRST_CALLS = 3  # without a graph: libraries choose kernels and allocate workspaces in them


class GraphedFunction(Generic[Output]):
    """A function of tensors, captured as a CUDA graph for every shape of its inputs; on a CPU, the function itself.

    A graph launches the same kernels on the same memory, so results are the same. The function must not wait for the
    device, and other tensors that it reads must stay where they lie. One that cannot be captured is called
    as it is, with a line in the log.

    Args:
        function: of tensors on one device.

    Attributes:
        enabled: whether functions are captured; benchmarks and tests compare with False.
    """

    enabled: ClassVar[bool] = True

    def __init__(self, function: Callable[..., Output]) -> None:
        self._function = function
        self._calls = Counter[Any]()  # by shapes
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
            # a failed capture leaves the device's generator as if the capture went on: give it a new state
            unused = torch.Generator(device)
            unused.set_state(random_state)
            torch.cuda.default_generators[device.index].graphsafe_set_state(unused)
        else:
            self._graphs[shapes] = graph, captured, output
