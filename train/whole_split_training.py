"""One training of every seed on the whole training split: loss curves and final losses."""

from dataclasses import asdict

from erasure.progress import Display
from erasure.threads import threads_for
from harness.example_bits import save_test_bits
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import endings, label_entropy_bits, sharp_drops
from harness.result import per_seed
from harness.result_fields import Final, Timing
from harness.run_directory import Run
from train.counterpart_losses import draw_counterparts, results_of
from train.early_stopping import warn_of_unlike_validation
from train.epoch_trainer import EpochReport, fit_members
from train.prepared_training import PreparedTraining
from train.progress_estimate import TrainingProgress
from train.randomness import permutations
from train.result import TrainResult
from train.settings import TrainConfig


def train_on_everything(prepared: PreparedTraining[TrainConfig], run: Run, logger: Logger) -> TrainResult:
    """Train every seed on the whole training split and return the result.

    The trainings and their weights equal those of the last size of a prequential run with the same options.
    """
    warn_of_unlike_validation(
        prepared.dataset.certificate, "python -m mdl mdl.validation=prefix stops them by training images"
    )
    train = prepared.data["train"]
    images = prepared.dataset.splits["test"].images
    with threads_for(images.numel() * images[0].numel()):  # for class covariances
        counterparts, spectra = draw_counterparts(prepared.experiment, prepared.dataset)
    with Display(run.id) as display:
        work = TrainingProgress([len(train)])

        def show(report: EpochReport) -> None:
            if len(report.validation_bits) == report.members:  # a mean over fewer seeds would jump
                validation = sum(report.validation_bits) / report.members
                logger.log({"live/epoch": report.epoch, "live/validation_bits": validation})
            display.update(work.share(0, *report.mean_epochs), str(report))

        fitted = fit_members(
            prepared.ensemble,
            prepared.data,
            prepared.seeds,
            permutations(prepared.seeds, len(train)).to(train.labels.device),
            prepared.settings,
            show,
            counterparts=counterparts,
            stack=prepared.stacking.stack,
            checkpoints=prepared.checkpoints(run),
        )
    prepared.save_weights(run, fitted)
    test = fitted.score(prepared.data["test"])
    save_test_bits(run, prepared.seeds, test.example_bits)
    losses = [row for curve in fitted.curves for row in curve.rows(len(train))]
    run.save_curves(losses)
    log_loss_curves(logger, losses)
    final = Final(
        loss_bits=test.bits.tolist(),
        accuracy=test.accuracy.tolist(),
        validation_loss_bits=[curve.best_validation_bits for curve in fitted.curves],
        train_loss_bits=fitted.score(train).bits.tolist(),
        end_train_loss_bits=fitted.score(train, weights=fitted.last).bits.tolist(),
    )
    logger.summarise({f"result/{name}": sum(values) / len(values) for name, values in per_seed(final)})
    return TrainResult(
        **prepared.result_fields(),
        final=final,
        label_entropy_bits=label_entropy_bits(train.labels),
        sharp_drop=sharp_drops(losses),
        counterparts=results_of(fitted.counterparts, spectra, prepared.seeds),
        timing=Timing(stacking=asdict(prepared.stacking)),
        **endings(fitted.curves),
    )
