"""The file of a run's trained weights."""

from erasure.store.checked_files import save_tensors
from harness.run_directory import Run
from train.epoch_trainer import Fit
from train.prepared_training import PreparedTraining

WEIGHTS = "weights.safetensors"  # of each seed at its lowest validation loss, stacked: [S, ...] by name


def save_weights(prepared: PreparedTraining, run: Run, fitted: Fit) -> None:
    """Keep every seed's best weights after training on everything in the run's directory, as `WEIGHTS`."""
    run.require_lease()
    save_tensors(
        run.directory / WEIGHTS,
        fitted.best,
        {"seeds": list(prepared.seeds), "model": prepared.experiment.model_identity},
    )
