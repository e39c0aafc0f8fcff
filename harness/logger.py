"""Copies of a run's files on Weights & Biases, offline by default; failures of W&B never stop a run."""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor

from conf import Options
from conf.schema import LoggerSettings
from erasure.pipeline import ErasedDataset
from harness.loss_curves import CurveRow

log = logging.getLogger(__name__)

_LEAST_SIDE = 64  # pixels; smaller images are enlarged for W&B


class Logger:
    """The W&B run of a run, with the same id; a context manager that marks it as finished or failed at the end.

    A resumed run continues its W&B run. If W&B fails, the run logs one warning and continues without it.

    Args:
        settings: options of the logger.
        options: arguments of `wandb.init`: id, group, job_type, tags and config.
        directory: the run's directory; W&B writes below it.
        axes: for patterns of metrics, the metric on their x axis.
    """

    def __init__(self, settings: LoggerSettings, options: Options, directory: Path, axes: Mapping[str, str]) -> None:
        self._wandb_run: Any = None
        self._name, self._directory = options["id"], directory.absolute()
        if settings.mode == "disabled":
            return
        self._start(settings, {**options, "name": self._name})
        for metrics, axis in axes.items():
            self._do(lambda run, _, axis=axis: run.define_metric(axis))
            self._do(lambda run, _, metrics=metrics, axis=axis: run.define_metric(metrics, step_metric=axis))

    def _start(self, settings: LoggerSettings, options: Options) -> None:
        import wandb

        ignore_local_settings()
        quiet = wandb.Settings(
            silent=True,
            console="off",
            x_disable_stats=True,
            init_timeout=settings.init_timeout_s,
            login_timeout=settings.init_timeout_s,
            finish_timeout=settings.finish_timeout_s,
        )
        options |= {"project": settings.project, "entity": settings.entity, "settings": quiet, "resume": "allow"}
        options["dir"] = self._directory  # W&B's service may have started in another folder
        options["reinit"] = "finish_previous"  # the default returns the previous run of a sweep
        modes: Sequence[Literal["online", "offline"]] = ("online", "offline")
        for mode in modes if settings.mode == "online" else modes[1:]:
            try:
                self._wandb_run = wandb.init(mode=mode, **options)
                return
            except Exception as error:  # errors of W&B, the network and the file system
                instead = "is logged offline" if mode == "online" else "is not logged"
                log.warning("W&B cannot be started (%s): this run %s", _reason(error), instead)
                wandb.teardown()  # otherwise the service keeps the run's id

    def log(self, metrics: Mapping[str, float]) -> None:
        """Log one point; the metrics include its x axis."""
        self._do(lambda run, _: run.log(dict(metrics)))

    def summarise(self, values: Mapping[str, float]) -> None:
        self._do(lambda run, _: run.summary.update(dict(values)))

    def image(self, name: str, pixels: Callable[[], Tensor], caption: str) -> None:
        """Log an image, uint8 [H, W, C], computed only if needed; skip vectors, where C is not 1 or 3."""

        def send(run: Any, wandb: Any) -> None:
            if (made := pixels()).shape[-1] in (1, 3):
                run.log({name: wandb.Image(made.numpy(), caption=caption)})

        self._do(send)

    def figure(self, name: str, path: Path) -> None:
        """Log a figure from disk."""
        self._do(lambda run, wandb: run.log({name: wandb.Image(str(path))}))

    def _do(self, work: Callable[[Any, Any], object]) -> None:
        """Call a function with the W&B run and the library, unless W&B is disabled or has failed."""
        if self._wandb_run is None:
            return
        import wandb

        try:
            work(self._wandb_run, wandb)
        except Exception as error:  # e.g. W&B's service was killed
            log.warning("W&B failed (%s): this run continues without it", _reason(error))
            self._wandb_run = None
            with contextlib.suppress(Exception):
                wandb.teardown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # stopped from outside: another process will continue
            self._do(lambda run, _: run.mark_preempting())
        self._do(lambda run, _: run.finish(exit_code=0 if kind is None else 1))


def ignore_local_settings() -> None:
    """Keep W&B from reading `wandb/settings` in the current folder.

    The file may be untrusted, and names the server that W&B sends the user's key to.
    """
    import wandb

    wandb.Settings.settings_workspace = property(lambda _: os.devnull)  # pyright: ignore[reportAttributeAccessIssue]


def log_loss_curves(logger: Logger, rows: Sequence[CurveRow]) -> None:
    """Log the losses of a training, means over all seeds until the first of them stops.

    Args:
        logger: logger that receives metrics "loss/*" over "loss/epoch".
        rows: rows of curves.csv of one training size.
    """
    by_seed: dict[int, list[CurveRow]] = {}
    for row in rows:
        by_seed.setdefault(row.seed, []).append(row)
    for group in zip(*by_seed.values(), strict=False):  # all seeds are evaluated after the same epochs
        epoch, validation = group[0].epoch, mean(row.validation_loss_bits for row in group)
        losses = {"loss/epoch": float(epoch), "loss/validation_bits": validation}
        known = [row.train_loss_bits for row in group if row.train_loss_bits is not None]
        if len(known) == len(group):  # epoch 0 has no training loss
            losses["loss/train_bits"] = mean(known)
        logger.log(losses)


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def example_row(dataset: ErasedDataset) -> Tensor:
    """Draw the first test image of each class after erasure, side by side, uint8 [H, W, C], clipped."""
    images, labels = dataset.splits["test"].images, dataset.splits["test"].labels
    firsts = [int((labels == label).nonzero()[0]) for label in labels.unique()]
    pixels = dataset.pixels(images[firsts].float()).clamp(0, 1).cpu()
    scale = max(1, -(-_LEAST_SIDE // pixels.shape[-1]))
    pixels = pixels.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    return (255 * torch.cat([*pixels], dim=2)).round().to(torch.uint8).permute(1, 2, 0)
