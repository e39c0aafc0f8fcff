"""The W&B workspace that `python -m scripts.report runs/ --wandb TEAM` saves, to compare the runs of a sweep.

Codelength by eraser and architecture, learning and loss curves come from W&B. Differences to the control need two runs
each: they are in the report's tables, which it shows as they are. Each call saves a new workspace.
"""

import os
from collections.abc import Sequence
from typing import Any

import wandb_workspaces.reports.v2.interface as wr
import wandb_workspaces.workspaces as ws
from wandb.errors import UsageError
from wandb_workspaces import expr

from conf.schema import LoggerSettings
from harness.logger import ignore_local_settings
from harness.results.table import Table

ERASER, MODEL = "eraser.name", "model.name"  # in the configuration
PANELS = {  # by the titles of their sections: titles and metrics
    "Codelength by eraser and architecture": [
        ("bits per label", "result/bits_per_sample"),
        ("paper's unit", "result/published"),
    ],
    "Curves": [
        ("loss on the next chunk (bits) over training size", "mdl/n", "mdl/ce_next_bits"),
        ("validation loss (bits) over epochs, whole dataset", "loss/epoch", "loss/validation_bits"),
    ],
    "Backfiring: who ends below its control?": [
        ("test loss (bits) over training size", "mdl/n", "mdl/ce_test_bits"),
        ("final loss (bits)", "result/loss_bits"),
    ],
    "Erasure": [("gap between class covariances", "certificate/train/covariance_gap")],
}
_GROUPED: Any = {"groupby": wr.Config(ERASER), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


def save_workspace(tables: Sequence[Table], team: str) -> str:
    """Save a workspace with a report's tables; return its address.

    Raises:
        ValueError: W&B does not take it: without a login, for instance, or without a network.
    """
    try:
        return workspace(tables, team).save().url
    except UsageError as error:  # there is no key
        raise ValueError(
            f"no W&B workspace for {team}: not logged in; run wandb login, or set WANDB_API_KEY"
        ) from error
    except Exception as error:  # its own, the server's and the network's alike
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"no W&B workspace for {team}: {reason[0]}; check TEAM, wandb login and the network"
        ) from error


def workspace(tables: Sequence[Table], team: str) -> ws.Workspace:
    """Return a workspace with a report's tables, of a TEAM or TEAM/PROJECT; nothing is sent before it is saved."""
    ignore_local_settings()
    entity, _, project = team.partition("/")
    sections = {name: [_panel(*panel) for panel in panels] for name, panels in PANELS.items()}
    sections["Erasure"].append(wr.MediaBrowser(title="erased test images", media_keys=["examples/test"]))
    sections |= {table.title: [wr.MarkdownPanel(table.markdown())] for table in tables}
    return ws.Workspace(
        entity=entity,
        project=project or os.environ.get("WANDB_PROJECT") or LoggerSettings.project,
        name="Erasers compared",
        sections=[ws.Section(name=name, is_open=True, panels=panels) for name, panels in sections.items()],
        settings=ws.WorkspaceSettings(max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[expr.Config(MODEL), expr.Config(ERASER)],
            pinned_columns=["summary:result/bits_per_sample", "summary:result/loss_bits"],
        ),
    )


def _panel(title: str, *metrics: str) -> Any:
    """Return a panel of a metric: bars, or lines over the metric before it."""
    *x, y = metrics
    layout = wr.Layout(w=12, h=8)
    if not x:
        return wr.BarPlot(title=title, metrics=[y], layout=layout, **_GROUPED)
    return wr.LinePlot(title=title, x=x[0], y=[y], log_x=x[0] == "mdl/n", layout=layout, **_GROUPED)
