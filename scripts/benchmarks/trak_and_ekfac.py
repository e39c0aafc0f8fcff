"""Leave-one-out effects of a trained network by TRAK (dattri) and EK-FAC (kronfluence).

Both estimate influence functions: TRAK (Park et al. 2023) through a random projection of gradients, EK-FAC (Grosse et
al. 2023) through a Kronecker-factored curvature. They attribute the output, for the loss ½(f - y)² of one output
(`require_one_output`).
"""

import copy
import importlib
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from models.layers import Conv2d, Linear
from sample_info.training_problem import TrainingProblem
from sample_info.unique_information import Effects

_BATCH = 64


def require_installed() -> None:
    """Import both packages before anything is timed.

    Raises:
        ValueError: one is not installed.
    """
    try:
        for name in ("dattri.algorithm.trak", "kronfluence"):
            importlib.import_module(name)
    except ImportError as error:
        command = "uv run --group bench python -m scripts.benchmarks.baselines"
        raise ValueError(f"{error.name} is not installed: {command}") from error


def trak(trained: TrainingProblem, size: int) -> Effects:
    """Score every example by gradients projected to `size` numbers; `trained` is at the final weights.

    TRAK's weight of example i, 1 - p_i for the cross-entropy, is -∂ℓ/∂f for any loss: y - f for squared loss.
    """
    from dattri.algorithm.trak import TRAKAttributor  # pyright: ignore[reportMissingImports]
    from dattri.task import AttributionTask  # pyright: ignore[reportMissingImports]

    model = copy.deepcopy(trained.model)

    def output(weights: Any, example: Any) -> Tensor:
        return functional_call(model, weights, (example[0][None],))[0, 0]

    task = AttributionTask(output, model, [dict(trained.weights)])
    projection = {"proj_dim": size, "proj_seed": 0, "device": str(trained.x.device)}
    attributor = TRAKAttributor(
        task,
        lambda weights, example: 1 - (example[1][0] - output(weights, example)),
        projector_kwargs=projection,
        device=str(trained.x.device),
    )
    train, held_out = _datasets(trained)
    attributor.cache(DataLoader(train, _BATCH))
    with torch.no_grad():
        scores = attributor.attribute(DataLoader(held_out, _BATCH))
    return method(scores.detach())


class EKFAC:
    """Scores of every example under any damping of the mean loss, by one Kronecker-factored curvature.

    The Fisher matrix is that of labels with unit variance, the Gauss-Newton matrix of this loss; pseudo-labels one
    below the output have its gradients without noise.
    """

    def __init__(self, trained: TrainingProblem) -> None:
        from kronfluence import Analyzer, Task, prepare_model  # pyright: ignore[reportMissingImports]

        class Outputs(Task):
            def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
                x, y = batch
                outputs = model(x)
                return (outputs - (outputs.detach() - 1 if sample else y)).square().sum() / 2

            def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
                return model(batch[0]).sum()

        self._train, self._held_out = _datasets(trained)
        self._files, on_cpu = TemporaryDirectory(), trained.x.device.type == "cpu"
        options = {"cpu": on_cpu, "disable_tqdm": True, "output_dir": self._files.name}
        self._analyzer = Analyzer("ekfac", prepare_model(plain(trained), Outputs()), Outputs(), **options)
        self._analyzer.fit_all_factors("factors", self._train, per_device_batch_size=_BATCH)

    def effects(self, damping: float) -> Effects:
        from kronfluence import ScoreArguments  # pyright: ignore[reportMissingImports]

        name, analyzer = f"damping-{damping:g}", self._analyzer
        analyzer.compute_pairwise_scores(
            name,
            "factors",
            self._held_out,
            self._train,
            per_device_query_batch_size=_BATCH,
            per_device_train_batch_size=_BATCH,
            score_args=ScoreArguments(damping_factor=damping),
        )
        scores = analyzer.load_pairwise_scores(name)
        assert scores is not None
        return method(-scores["all_modules"].T / len(self._train))


def method(outputs: Tensor) -> Effects:
    """Return effects on one output [n, m]; weight changes are NaN."""
    outputs = outputs.double().cpu()[:, :, None]
    return Effects(torch.full((len(outputs),), torch.nan), outputs.square().sum(-1).mean(-1), outputs)


def plain(trained: TrainingProblem) -> nn.Module:
    """Return the network with its weights, built of torch.nn layers, which kronfluence requires."""
    model = copy.deepcopy(trained.model)
    model.load_state_dict(dict(trained.weights), strict=False)
    for name, layer in [*model.named_modules()]:
        if isinstance(layer, Linear):
            same = nn.Linear(layer.weight.shape[1], layer.weight.shape[0])
        elif isinstance(layer, Conv2d):
            out, into, side, _ = layer.weight.shape
            same = nn.Conv2d(into, out, side, layer.stride, layer.padding)
        else:
            continue
        same.load_state_dict(layer.state_dict())
        model.set_submodule(name, same.to(layer.weight))
    return model.eval()


def _datasets(trained: TrainingProblem) -> tuple[TensorDataset, TensorDataset]:
    """Return examples with targets, and held-out inputs with unused ones."""
    y = trained.y.to(trained.x.dtype)
    return TensorDataset(trained.x, y), TensorDataset(trained.held_out, y.new_zeros(len(trained.held_out), 1))


def require_one_output(trained: TrainingProblem) -> None:
    """Raise ValueError for several outputs."""
    if (k := trained.y.shape[1]) != 1:
        raise ValueError(
            f"{k} outputs: TRAK and EK-FAC are compared on one; score two classes, sample_info.classes=[4,9]"
        )
