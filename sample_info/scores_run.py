"""A run of `python -m sample_info`: scores of every seed, references, summaries and files; resumable."""

import functools
from dataclasses import replace

from erasure.progress import Display, Show, part_of
from harness.logger import Logger
from harness.run_directory import Run
from sample_info.attribution_quality import attributions
from sample_info.data_summarization import try_summaries
from sample_info.references import references_of
from sample_info.report.save_scores import Scored, save_scores
from sample_info.report.score_summaries import information_of
from sample_info.result import InformationResult
from sample_info.scored_examples import Examples
from sample_info.scores import score_examples
from sample_info.training_problem import TrainingProblem, accuracy


def score(examples: Examples, run: Run, logger: Logger) -> InformationResult:
    """Score every example for every seed, and return the result.

    Writes scores.safetensors, scores.csv and scores.png into the run's directory.

    Raises:
        ValueError: impossible summaries of these examples, or a training that diverges.
    """
    examples.settings.summaries.require_examples(len(examples.x), len(examples.dataset.class_names))
    seeds = examples.experiment.config.seeds
    with Display(run.id) as display:
        scored = []
        for s, seed in enumerate(seeds):
            show = part_of(display.update, s / len(seeds), (s + 1) / len(seeds), f"seed {seed}: ")
            scored.append(_score_seed(examples, examples.problem(seed), run, show))
    information = information_of(examples, scored)
    save_scores(run.directory, logger, examples, scored, information)
    return information


def _score_seed(examples: Examples, problem: TrainingProblem, run: Run, show: Show) -> Scored:
    settings = examples.settings
    scoring = 0.1 if settings.summaries.trained else 0.9 if settings.summaries.orders else 1.0  # share of the time
    refitted = functools.partial(examples.without, problem) if examples.refitting else None
    network, scores = score_examples(
        problem,
        settings,
        steps=run.step,
        on_progress=part_of(show, 0, scoring),
        refitted=refitted,
    )
    methods = references_of(problem, settings.references, run)
    references = {name: one.changes for name, one in methods.items() if not bool(one.weight.isnan().all())}
    attribution = {}
    if "subsets" in settings.references.methods:
        attribution = attributions(network, methods, examples.wrong, settings.references, run)
    return Scored(
        seed=problem.seed,
        scores=replace(scores, references=references),
        attribution=attribution,
        train_accuracy=accuracy(network.trained, examples.train_labels),
        test_accuracy=accuracy(network.trained_held_out, examples.held_out_labels),
        summaries=try_summaries(examples, network, scores.nats["f_si_nats"], run, part_of(show, scoring, 1)),
    )
