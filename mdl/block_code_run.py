"""The block-wise code as a run of `python -m mdl`, whose steps are training sizes."""

from collections.abc import Callable
from dataclasses import asdict, replace

from erasure.progress import Display
from harness.example_bits import bits_by_example, save_coded_bits, save_test_bits
from harness.experiment import Experiment, split_positions
from harness.logger import Logger, log_loss_curves
from harness.result import as_json, parsed
from harness.result_fields import Timing
from harness.run_directory import Run
from mdl.block_code import OnFinal, SizeTrained, block_code
from mdl.coded_result import log_point, log_summary
from mdl.result import Coded
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes, warn_of_few
from train import prepared_training
from train.early_stopping import warn_of_unlike_validation
from train.ensemble import Evaluation
from train.epoch_trainer import Fit
from train.prepared_training import PreparedTraining


def load(experiment: Experiment[MdlConfig]) -> PreparedTraining[MdlConfig]:
    """Prepare the data and the architecture, once the training sizes are known to fit.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    labels, settings = split_positions(experiment)["train"].labels, experiment.config.mdl
    k = len(labels.unique())
    sizes = chunk_sizes(len(labels), settings, k)
    if settings.code == "blocks":  # the other scores a network that it trains on all
        warn_of_few(sizes, k)
    return prepared_training.load(experiment)


def code_labels(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> Coded:
    """Code the labels of the training split, and store what each cost; the command's fields of the result.

    Sizes that an earlier, interrupted attempt has finished are taken from the run's directory.
    """
    settings = prepared.experiment.config.mdl
    if settings.validation == "given":
        instead = "mdl.validation=prefix stops them by training images"
        warn_of_unlike_validation(prepared.dataset.certificate, instead)

    def step(name: str, compute: Callable[[], SizeTrained]) -> SizeTrained:
        part = parsed(SizeTrained, run.step(name, lambda: as_json(compute())))
        log_point(logger, part.point)
        return part

    with Display(run.id) as display:
        coded = block_code(
            prepared.ensemble,
            prepared.data,
            prepared.num_classes,
            prepared.seeds,
            prepared.settings,
            settings,
            stack=prepared.stacking.stack,
            checkpoints=prepared.checkpoints(run),
            steps=step,
            on_progress=display.update,
            on_final=_saving(prepared, run),
        )
    run.save_curves(row for part in coded.parts for row in part.losses)
    save_coded_bits(run, bits_by_example(prepared.experiment, coded.orders, *coded.label_bits()))
    log_loss_curves(logger, coded.parts[-1].losses)  # of the whole dataset
    result = coded.result()
    log_summary(logger, result)
    return replace(result, timing=Timing(stacking=asdict(prepared.stacking)))


def _saving(prepared: PreparedTraining, run: Run) -> OnFinal:
    """Return a function that stores the networks trained on everything, and their losses on single test examples."""

    def save(fitted: Fit, test: Evaluation) -> None:
        save_test_bits(run, prepared.seeds, test.example_bits)
        prepared.save_weights(run, fitted)

    return save
