"""Ways to launch a sweep. Each job must be the run that it was when the sweep was launched (`Sweep.planned_run`)."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, setup_globals
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher
from omegaconf import DictConfig, OmegaConf

from conf.compose import Composer
from conf.errors import explain
from conf.schema import ConfigError
from conf.sweep import Sweep

log = logging.getLogger(__name__)

Jobs = Sequence[Sequence[str]]


class InProcess(BasicLauncher):
    """One job after the other in this process. What cannot be run is told in its turn, and ends no other job."""

    def launch(self, job_overrides: Jobs, initial_job_idx: int) -> Sequence[JobReturn]:
        assert self.hydra_context is not None
        assert self.config is not None
        assert Sweep.job is not None
        compose = Composer(self.config.hydra.job.config_name, self.hydra_context.config_loader)
        planned: list[str | None] = []
        for overrides in job_overrides:
            try:
                planned.append(Sweep.job(compose(overrides)).name)
            except Exception:  # whatever it is, the job will come upon it and say so
                planned.append(None)
        returned: list[JobReturn] = []
        for number, (overrides, run) in enumerate(zip(job_overrides, planned, strict=True), initial_job_idx):
            Sweep.planned_run = run
            returned += super().launch([overrides], number)
        return returned


class _Array(BaseSubmititLauncher):
    """Submits all jobs of a sweep at once, but those that have finished, and waits for all of them.

    Every configuration is checked before anything is submitted. Tasks leave their results on disk; the driver only
    waits for them and reads these.
    """

    def launch(self, job_overrides: Jobs, initial_job_idx: int) -> Sequence[JobReturn]:
        sweep = Sweep.current
        assert sweep is not None
        setup_globals()
        assert self.hydra_context is not None
        assert self.config is not None
        compose = Composer(self.config.hydra.job.config_name, self.hydra_context.config_loader)
        runs = [self._run_directory(compose(overrides), overrides) for overrides in job_overrides]
        sweep.plan(list(zip(job_overrides, runs, strict=True)))
        left = []
        for number, (overrides, run) in enumerate(zip(job_overrides, runs, strict=True), initial_job_idx):
            if done := _done(run):
                sweep.record(number, {"overrides": list(overrides)} | done)
            else:
                left.append((run.name, list(overrides), "hydra.sweep.dir", number, str(number), Singleton.get_state()))
        log.info("%d of %d runs have finished before, or run already", len(runs) - len(left), len(runs))
        if left:
            self._wait(self._submit(left))
        return []  # results are on disk

    def __call__(self, run: str, *arguments: Any) -> None:  # type: ignore[override]
        """In the task: one job, planned as the run of this id.

        A failure ends the task as failed, so that the cluster's own records say so.
        """
        from hydra_plugins.erasure_mdl.requeue import requeue_on_signals

        logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
        requeue_on_signals()
        Sweep.planned_run = run
        returned = super().__call__(*arguments)
        _ = returned.return_value  # raises what the job raised

    def _run_directory(self, config: DictConfig, overrides: Sequence[str]) -> Path:
        assert Sweep.job is not None
        try:
            if self._EXECUTOR == "slurm" and config.device == OmegaConf.select(config, "train.precision") == "auto":
                raise ConfigError(
                    "device=auto: where tasks run there may be another kind of device than here, and then "
                    "train.precision=auto is another: add device=cuda, or device=cpu"
                )
            return Sweep.job(config)
        except ValueError as error:
            raise ConfigError(f"{' '.join(overrides)}: {explain(error, '')}; nothing was submitted") from error

    def _submit(self, left: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Submit the jobs whose arguments are `left`, as one array.

        Raises:
            ConfigError: there is no such cluster here, or it does not accept the sweep.
        """
        try:
            return self._executor().map_array(self, *zip(*left, strict=True))
        except (RuntimeError, OSError) as error:  # submitit's own, with what sbatch said
            said = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in said if "error" in line.lower()), said[0] if said else repr(error))
            raise ConfigError(f"hydra/launcher: {self._EXECUTOR} does not take the sweep: {reason}") from error

    def _executor(self) -> Any:
        import submitit

        cluster = self._EXECUTOR
        parameters = dict(self.params)
        executor = submitit.AutoExecutor(
            parameters.pop("submitit_folder"),
            cluster=cluster,
            **{f"{cluster}_max_num_timeout": parameters.pop("max_num_timeout", 100)},
        )
        shared = OmegaConf.structured(BaseQueueConf).keys()
        executor.update_parameters(
            **{key if key in shared else f"{cluster}_{key}": value for key, value in parameters.items()}
        )
        return executor

    def _wait(self, jobs: Sequence[Any]) -> None:
        """Wait for every job. One that fails or is killed does not end the others, nor this wait."""
        from submitit.core.utils import UncompletedJobError

        ids = sorted({job.job_id.split("_")[0] for job in jobs})
        log.info("submitted %d jobs as %s; they go on if this process ends", len(jobs), ", ".join(ids))
        for job in jobs:
            try:
                job.results()
            except UncompletedJobError as error:  # also what a task raised, which it has recorded
                log.debug("%s", error)
                log.info("job %s did not finish: see %s", job.job_id, job.paths.stderr)


def _done(run: Path) -> dict[str, Any] | None:
    """The outcome of a run that needs no job: it has finished, or another process is at it."""
    from erasure.store.lease import file_system_time
    from harness.state import state_of

    if not run.parent.is_dir():
        return None
    state = state_of(run, file_system_time(run.parent))
    if state.name == "finished":
        return {"exit_code": 0, "run_id": run.name, "result": str(run / "result.json")}
    if state.name == "running":
        return {"exit_code": 1, "error": f"runs already ({state.detail}): left to it"}
    return None


class SlurmArray(_Array):
    _EXECUTOR = "slurm"


class LocalArray(_Array):
    _EXECUTOR = "local"
