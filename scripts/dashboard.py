"""A saved W&B workspace that compares the runs of a sweep.

    python -m scripts.dashboard runs/ --entity TEAM                      # saves it in project erasure-mdl
    python -m scripts.dashboard runs/ --dry-run dashboard.json           # writes what would be sent; no account

It shows codelength by eraser and architecture, learning and loss curves, differences to the control and backfiring.
Curves come from W&B; the differences, which need two runs each, are computed from the results on disk and put in as a
table: run it again when more runs have finished.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2.interface as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from erasure.store.atomic_files import write_text
from harness.logger import ignore_local_settings
from harness.results.arrange import arrange
from harness.results.columns import table_of
from harness.results.read import StoredRun, read_runs
from harness.untrusted_runs import one_line
from scripts.command_line import argument_parser

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
COLUMNS = ("bits_per_label", "bits_per_label_difference", "test_loss_bits", "test_loss_bits_difference", "crossing")
_GROUPED: Any = {"groupby": wr.Config(ERASER), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("dashboard", __doc__)
    parser.add_argument("runs", type=Path, help="folder with finished runs, for the tables")
    parser.add_argument("--entity", default=os.environ.get("WANDB_ENTITY", ""), help="W&B user or team")
    parser.add_argument("--project", default="erasure-mdl", help="default: %(default)s")
    parser.add_argument("--dry-run", type=Path, metavar="FILE", help="write JSON here and send nothing")
    options = parser.parse_args(arguments)
    if not options.entity and not options.dry_run:
        parser.error("--entity is missing: the W&B user or team that the project belongs to")
    reading = read_runs([options.runs])
    for problem in map(one_line, reading.problems):
        print(problem, file=sys.stderr)
    runs = [run for run in reading.finished if run.command == "mdl"]
    if not runs:
        print(f"{options.runs}: no finished run of python -m mdl", file=sys.stderr)
        return 2
    workspace = build(runs, options.entity or "ENTITY", options.project)
    if options.dry_run:
        sent = workspace._to_model().model_dump_json(indent=2, by_alias=True, exclude_none=True)
        write_text(options.dry_run, f"{sent}\n")
        print(f"{options.dry_run}: a workspace of {len(workspace.sections)} sections; nothing was sent")
        return 0
    ignore_local_settings()
    print(f"workspace: {workspace.save().url}")
    return 0


def build(runs: Sequence[StoredRun], entity: str, project: str) -> ws.Workspace:
    """Return a workspace about finished runs of `python -m mdl`."""
    sections = {name: [_panel(*panel) for panel in panels] for name, panels in PANELS.items()}
    sections["Erasure"].append(wr.MediaBrowser(title="erased test images", media_keys=["examples/test"]))
    for comparison in arrange(runs):
        table = table_of(comparison, COLUMNS)
        sections[f"Differences to control, {table.title}"] = [wr.MarkdownPanel(table.markdown())]
    return ws.Workspace(
        entity=entity,
        project=project,
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


if __name__ == "__main__":
    raise SystemExit(main())
