"""Evaluation of attribution methods by retraining without random halves and without single examples.

The linear datamodeling score (Park et al. 2023) is a rank correlation over random halves. It correlates a held-out
output after retraining with the sum of a method's effects of the examples left out.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from erasure.store.checked_files import save_tensors
from harness.run_directory import Run
from sample_info.agreement import auroc, pearson, ranks
from sample_info.leave_one_out_effects import Effects
from sample_info.linearized.network import LinearizedNetwork
from sample_info.result import Attribution, Interval
from sample_info.retraining import halves, trained_without
from sample_info.settings import ReferenceSettings

OURS, THINNED = "our scores, added up", "our scores at half weight, added up"
SETS, TRUTH = "our sets, left out at once", "retraining"
_RESAMPLES = 1000


def attributions(
    network: LinearizedNetwork,
    methods: Mapping[str, Effects],
    wrong: Tensor | None,
    settings: ReferenceSettings,
    run: Run,
) -> dict[str, Attribution]:
    """Judge attribution methods by trainings on random halves; return the results by name.

    Judged are all `methods` but retraining; the sums of our effects over a set (`OURS`); the same sums for a training
    in which each example has its mean weight over halves (`THINNED`); and our prediction of leaving out a whole set
    (`SETS`). The trainings' results are written to subsets-SEED.safetensors in the run's directory: `left_out` [S, s]
    and `outputs`, f(x) - f_-S(x), [S, m, k]; and, for single examples, `alone` [e] and `alone_outputs` [e, m, k].

    Args:
        network: our linearised network.
        methods: effects of all n examples, by method; those of retraining are NaN for examples not left out.
        wrong: mask of wrong labels, [n], or None.
        settings: options of the references, such as the number of halves.
        run: where the trainings are stored.
    """
    problem = network.problem
    sets = halves(len(problem.x), settings.subsets)
    truth = trained_without(problem, sets, "subsets", run).outputs
    tensors, single = {"left_out": sets, "outputs": truth}, methods[TRUTH].outputs if TRUTH in methods else None
    if single is not None:
        alone = known(single).nonzero().squeeze(1)
        tensors |= {"alone": alone, "alone_outputs": single[alone]}
    save_tensors(run.directory / f"subsets-{problem.seed}.safetensors", tensors)
    linearized = {OURS: network.all_left_out(), THINNED: network.thinned(sets.shape[1]).all_left_out()}
    results = {name: evaluate(effects, sets, truth, single, wrong) for name, effects in linearized.items()}
    exact = (network.trained_held_out - network.without(sets)).cpu()
    results[SETS] = Attribution(datamodeling=datamodeling_score(exact, truth))
    others = {name: effects for name, effects in methods.items() if name != TRUTH}
    return results | {name: evaluate(effects, sets, truth, single, wrong) for name, effects in others.items()}


def evaluate(effects: Effects, sets: Tensor, truth: Tensor, single: Tensor | None, wrong: Tensor | None) -> Attribution:
    """Compare effects with retrainings: `truth` of those without `sets`, `single` of those without one example."""
    outputs = effects.outputs.cpu()
    return Attribution(
        datamodeling=datamodeling_score(added_up(outputs, sets), truth),
        leave_one_out=None if single is None else leave_one_out_correlation(outputs, single),
        auroc=None if wrong is None else auroc(effects.prediction.cpu(), wrong.cpu()),
    )


def added_up(outputs: Tensor, sets: Tensor) -> Tensor:
    """Return the sums of effects `outputs` [n, m, k] over the examples of each of `sets` [S, s], as [S, m, k]."""
    members = torch.zeros(len(sets), len(outputs), dtype=outputs.dtype).scatter_(1, sets, 1)
    return (members @ outputs.flatten(1)).view(-1, *outputs.shape[1:])


def datamodeling_score(predicted: Tensor, truth: Tensor) -> Interval:
    """Return Spearman's correlation of two methods' outputs [S, m, k] over S sets, averaged over the m held-out inputs.

    The 95 % interval is a bootstrap over both sets and inputs, which is conservative (Owen 2007). Ranks are computed
    once, over all sets.
    """
    ranked = (ranks(part.flatten(1)) for part in (predicted, truth))
    a, b = ((one - one.mean(0)) / len(one) for one in ranked)  # from -1/2 to 1/2; 0 if all are tied
    s, (_, m, k) = len(a), truth.shape
    generator = torch.Generator().manual_seed(0)

    def drawn(size: int, times: int) -> Tensor:
        """Return bootstrap weights, [times, size]."""
        draws = torch.randint(size, (times, size), generator=generator)
        shares = torch.zeros(times, size, dtype=torch.float64)
        return shares.scatter_add_(1, draws, torch.full_like(shares, 1.0 / size))

    def means(shares: Tensor) -> Tensor:
        """Return correlations [b, m] under weights [b, S] of the sets."""
        centre_a, centre_b = shares @ a, shares @ b
        spread = (shares @ a.square() - centre_a.square()) * (shares @ b.square() - centre_b.square())
        correlations = (shares @ (a * b) - centre_a * centre_b) / spread.clamp(min=1e-30).sqrt()
        return correlations.view(-1, m, k).mean(-1)

    mean = float(means(torch.full((1, s), 1.0 / s, dtype=torch.float64)).mean())
    parts = [(means(part) * drawn(m, len(part))).sum(1) for part in drawn(s, _RESAMPLES).split(50)]
    low, high = torch.cat(parts).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(mean=mean, low=low, high=high)


def leave_one_out_correlation(effects: Tensor, truth: Tensor) -> float | None:
    """Return Pearson's correlation of effects [n, m, k] with `truth` over examples, averaged over inputs.

    `truth` is NaN for examples that were not left out. Returns None if nothing varies.
    """
    alone = known(truth)
    columns = zip(effects[alone].flatten(1).T, truth[alone].flatten(1).T, strict=True)
    correlations = [value for a, b in columns if (value := pearson(a, b)) is not None]
    return sum(correlations) / len(correlations) if correlations else None


def known(truth: Tensor) -> Tensor:
    """Return the mask [n] of examples that were left out; `truth` [n, m, k] is NaN for the others."""
    return ~truth[:, 0, 0].isnan()
