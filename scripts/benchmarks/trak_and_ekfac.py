"""Compare TRAK and EK-FAC with our methods and influence functions, on the network and trainings of a finished run.

    python -m sample_info -m +experiment=attribution model=wide_mlp
    uv run --group bench python -m scripts.benchmarks.trak_and_ekfac RUN_DIRECTORY

The run needs `sample_info.references.methods=[subsets,retraining]`. The network of its first seed is built and trained
again, and every method evaluated against the stored trainings on halves and without single examples. Seconds are those
of a method with its kernels, gradients and factors; the title has the time of training, which all but ours need.

TRAK (Park et al. 2023, in dattri) estimates influence functions through a random projection of gradients, EK-FAC
(Grosse et al. 2023, in kronfluence) through a Kronecker-factored curvature. They attribute the output, for the loss
½(f - y)² of one output (`require_one_output`).
"""

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from conf.schema import validate
from erasure.store.checked_files import load_tensors
from harness.result import read_result
from harness.results.table import Table
from sample_info.__main__ import experiment
from sample_info.attribution_quality import OURS, SETS, THINNED, datamodeling_score, evaluate
from sample_info.leave_one_out_effects import Effects
from sample_info.linearized.network import LinearizedNetwork
from sample_info.references import cosine, influence
from sample_info.result import Attribution, Interval
from sample_info.scored_examples import prepare
from sample_info.settings import SampleInfoConfig
from sample_info.training_problem import TrainingProblem
from scripts import command_line
from scripts.benchmarks.benchmark_helpers import Cost, machine, measured, shown
from scripts.benchmarks.plain_training import of_torch_layers

DAMPINGS = (1e-5, 0.1, 1.0, 10.0)  # of the mean loss
PROJECTIONS = (16, 64, 128)  # TRAK's sizes
_BATCH = 64


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_line.argument_parser("benchmarks.trak_and_ekfac", __doc__)
    parser.add_argument("directory", type=Path, help="of a finished run of python -m sample_info")
    asked = parser.parse_args(arguments)
    try:
        study = Study(asked.directory)
        require_installed()
    except (ValueError, OSError) as error:
        parser.error(str(error))
    rows = study.evaluate_methods()
    Table("attribution", (), HEADINGS, [_text(row) for row in rows]).show(study.title)
    return 0


@dataclass(frozen=True)
class Row:
    name: str
    attribution: Attribution
    cost: Cost


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value > 0.9985 else f"{value:.3f}"


def _interval(interval: Interval) -> str:
    return f"{_three(interval.mean)} ({_three(interval.low)} to {_three(interval.high)})"


HEADINGS = ("method", "datamodeling score", "leave-one-out r", "AUROC, wrong labels", "seconds", "peak MiB")


def _text(row: Row) -> list[str]:
    judged, cost = row.attribution, row.cost
    scores = _interval(judged.datamodeling), _three(judged.leave_one_out), _three(judged.auroc)
    return [row.name, *scores, shown(cost.seconds), shown(cost.peak_mib)]


class Study:
    """The first network of a finished run, and its stored trainings.

    Attributes:
        sets: halves that were left out, [S, s].
        truth: f(x) - f_-S(x), [S, m, 1].
        single: f(x) - f_-i(x), [n, m, 1], NaN where example i was not left out; None without retraining.

    Raises:
        ValueError: a run without trainings on halves, or with several outputs.
    """

    def __init__(self, directory: Path) -> None:
        result = read_result(directory / "result.json")
        seed = result.config["seeds"][0]
        path = directory / f"subsets-{seed}.safetensors"
        if not path.exists():
            raise ValueError(
                f"{directory}: no {path.name}: run with sample_info.references.methods=[subsets,retraining]"
            )
        tensors, _ = load_tensors(path)
        self.run_id, self.examples = result.run_id, prepare(experiment(validate(result.config, SampleInfoConfig)))
        self.problem = self.examples.problem(seed)
        require_one_output(self.problem)
        self.sets, self.truth, self.single = tensors["left_out"], tensors["outputs"], None
        if "alone" in tensors:
            unknown = torch.full((len(self.problem.x), *self.truth.shape[1:]), torch.nan, dtype=torch.float64)
            self.single = unknown.index_put((tensors["alone"],), tensors["alone_outputs"])

    @cached_property
    def trained(self) -> TrainingProblem:
        return replace(self.problem, weights=self.problem.training.trained())

    @cached_property
    def title(self) -> str:
        """Train; return run, sizes, machine and the time of training."""
        device = self.problem.x.device
        with measured(device) as cost:
            _ = self.trained
        sizes = f"{len(self.sets)} halves of n = {len(self.problem.x):,}, m = {len(self.problem.held_out):,}"
        weights = f"{sum(weight.numel() for weight in self.problem.weights.values()):,} weights"
        return f"{self.run_id}: {sizes}, {weights}; trained in {shown(cost.seconds)} s\n{machine(device)}"

    def evaluate_methods(
        self, dampings: Sequence[float] = DAMPINGS, projections: Sequence[int] = PROJECTIONS
    ) -> list[Row]:
        _ = self.title  # trains before anything is timed
        n, trained = len(self.problem.x), self.trained
        residual = trained.outputs(self.problem.x) - self.problem.y

        def influences(damping: float) -> Effects:
            return influence(trained.kernels(), residual, n * damping + self.problem.descent.weight_decay)

        def network() -> LinearizedNetwork:
            return LinearizedNetwork(self.problem, self.problem.kernels())

        ours = {
            OURS: lambda: network().all_left_out(),
            THINNED: lambda: network().thinned(self.sets.shape[1]).all_left_out(),
        }
        rows = [*(self.evaluate(name, work) for name, work in ours.items()), self.evaluate_sets(network())]
        methods = {f"influence {damping:g}": partial(influences, damping) for damping in dampings}
        methods |= {"gradient cosine": lambda: cosine(trained.kernels(), residual)}
        methods |= {f"TRAK {size}": partial(trak, trained, size) for size in projections}
        rows += [self.evaluate(name, work) for name, work in methods.items()]
        with measured(self.problem.x.device) as fitting:
            factors = EKFAC(trained)
        return rows + [self.evaluate(f"EK-FAC {d:g}", partial(factors.effects, d), fitting) for d in dampings]

    def evaluate(self, name: str, work: Callable[[], Effects], before: Cost | None = None) -> Row:
        """Evaluate one method; `before` is the shared cost of several."""
        with measured(self.problem.x.device) as cost:
            effects = work()
        if before is not None:
            peaks = [one.peak_mib for one in (cost, before) if one.peak_mib is not None]
            cost = Cost(cost.seconds + before.seconds, max(peaks, default=None))
        return Row(name, evaluate(effects, self.sets, self.truth, self.single, self.examples.wrong), cost)

    def evaluate_sets(self, network: LinearizedNetwork) -> Row:
        """Evaluate our exact prediction without whole sets."""
        with measured(self.problem.x.device) as cost:
            exact = (network.trained_held_out - network.without(self.sets)).cpu()
        return Row(SETS, Attribution(datamodeling=datamodeling_score(exact, self.truth)), cost)


def require_installed() -> None:
    """Import both packages before anything is timed.

    Raises:
        ValueError: one is not installed.
    """
    try:
        for name in ("dattri.algorithm.trak", "kronfluence"):
            importlib.import_module(name)
    except ImportError as error:
        command = "uv run --group bench python -m scripts.benchmarks.trak_and_ekfac"
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
        model = of_torch_layers(trained.model)  # which kronfluence requires
        model.load_state_dict(dict(trained.weights), strict=False)
        self._analyzer = Analyzer("ekfac", prepare_model(model.eval(), Outputs()), Outputs(), **options)
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


if __name__ == "__main__":
    raise SystemExit(main())
