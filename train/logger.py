"""Weights & Biases, offline by default. A mirror of the run's files, never the truth."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoggerSettings:
    """Options of `conf/logger`.

    Args:
        mode: "offline" writes beside the run's files (upload later with `wandb sync`); "online" needs an
            account; "disabled" writes nothing.
        project: W&B project.
        entity: W&B user or team; None for the account's default.
        init_timeout_s: seconds to wait for the server before falling back to offline.
    """

    mode: Literal["online", "offline", "disabled"]
    project: str
    entity: str | None
    init_timeout_s: float


class Logger:
    """One W&B run per run of ours, with the same id; a context manager that ends it finished or failed."""

    def __init__(
        self,
        settings: LoggerSettings,
        *,
        run_id: str,
        verb: str,
        group: str | None,
        tags: Sequence[str],
        config: Mapping[str, Any],
        directory: Path,
        axes: Mapping[str, str],
    ) -> None:
        self._wandb_run = None
        if settings.mode == "disabled":
            return
        import wandb

        def init(mode: Literal["online", "offline"]):
            return wandb.init(
                id=run_id,
                name=run_id,
                project=settings.project,
                entity=settings.entity,
                group=group,
                job_type=verb,
                tags=list(tags),
                config=dict(config),
                dir=directory,
                mode=mode,
                resume="allow",
                reinit="finish_previous",  # the default hands the previous run of a sweep back
                settings=wandb.Settings(
                    silent=True,
                    console="off",
                    x_disable_stats=True,
                    init_timeout=settings.init_timeout_s,
                    login_timeout=settings.init_timeout_s,
                ),
            )

        try:
            self._wandb_run = init(settings.mode)
        except wandb.Error as error:
            if settings.mode == "offline":
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            log.warning("W&B is not reachable (%s): this run is logged offline", reason)
            wandb.teardown()  # the service still holds the run's id
            self._wandb_run = init("offline")
        for metrics, axis in axes.items():
            self._wandb_run.define_metric(axis)
            self._wandb_run.define_metric(metrics, step_metric=axis)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Log one point, its x axis among the metrics."""
        if self._wandb_run is not None:
            self._wandb_run.log(dict(metrics))

    def summarise(self, values: Mapping[str, float]) -> None:
        if self._wandb_run is not None:
            self._wandb_run.summary.update(dict(values))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table, such as a row per example."""
        if self._wandb_run is not None:
            import wandb

            self._wandb_run.log({name: wandb.Table(columns=list(columns), data=[list(row) for row in rows])})

    def image(self, name: str, path: Path) -> None:
        """Log a figure."""
        if self._wandb_run is not None:
            import wandb

            self._wandb_run.log({name: wandb.Image(str(path))})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wandb_run is not None:
            self._wandb_run.finish(exit_code=0 if kind is None else 1)
