"""A saved W&B workspace and report that compare the runs of a sweep.

    python -m scripts.dashboard runs/ --entity TEAM                      # saves both in project erasure-mdl
    python -m scripts.dashboard runs/ --group mdl-table16-1a2b3c4d       # of one sweep's runs only
    python -m scripts.dashboard runs/ --dry-run dashboard.json           # writes what would be sent; no account

Both show codelength by eraser and architecture, learning and loss curves, differences to the control and backfiring.
Curves come from W&B; the differences, which need two runs each, are computed from the results on disk and put in as a
table: run it again when more runs have finished.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2.interface as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from erasure.store.storage import write_text
from harness.logger import ignore_local_settings
from harness.result import MdlResult
from harness.results.arrange import Comparison, by_setting
from harness.results.columns import ERASER as BY_ERASER
from harness.results.columns import ROW, SEEDS, columns
from harness.results.labels import display_name
from harness.results.read import read_runs
from harness.results.table import Table
from harness.run_files import one_line
from scripts.options import parser

ERASER, MODEL = "eraser.name", "model.name"  # in the configuration
_TITLE = "Erasers compared"
_GROUPED: Any = {"groupby": wr.Config(ERASER), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("dashboard", __doc__)
    own.add_argument("runs", type=Path, help="folder with finished runs, for the tables")
    own.add_argument("--entity", default=os.environ.get("WANDB_ENTITY", ""), help="W&B user or team")
    own.add_argument("--project", default="erasure-mdl", help="default: %(default)s")
    own.add_argument("--group", help="only runs of this W&B group, i.e. sweep")
    own.add_argument("--dry-run", type=Path, metavar="FILE", help="write JSON here and send nothing")
    options = own.parse_args(arguments)
    if not options.entity and not options.dry_run:
        own.error("--entity is missing: the W&B user or team that the project belongs to")
    reading = read_runs([options.runs])
    for problem in map(one_line, reading.problems):
        print(problem, file=sys.stderr)
    results = [
        replace(result, config=result.config | {"runs_dir": str(run.directory.parent)})  # where it is now
        for run in reading.finished
        if isinstance(result := run.result, MdlResult)
    ]
    if not results:
        print(f"{options.runs}: no finished run of python -m mdl", file=sys.stderr)
        return 2
    workspace, report = build(results, options.entity or "ENTITY", options.project, options.group)
    if options.dry_run:
        shown = {"workspace": as_json(workspace), "report": as_json(report)}
        write_text(options.dry_run, json.dumps(shown, indent=2) + "\n")
        print(f"{options.dry_run}: a workspace of {len(workspace.sections)} sections and a report; nothing was sent")
        return 0
    ignore_local_settings()
    print(f"workspace: {workspace.save().url}\nreport: {report.save().url}")
    return 0


def build(results: Sequence[MdlResult], entity: str, project: str, group: str | None) -> tuple[ws.Workspace, wr.Report]:
    """Workspace and report about finished runs of `python -m mdl`."""
    orders = range(1, 1 + max(len(result.certificate["test"].order_shares or ()) for result in results))
    panels = {name: own for name, own in _panels(orders).items() if own}
    models = list(dict.fromkeys(result.named("model") for result in results))
    tables = {title: table for found in by_setting(results).values() for title, table in differences(found)}
    written: dict[str, list[Any]] = {title: [wr.MarkdownPanel(table)] for title, table in tables.items()}
    wanted = [expr.Metric("Group") == _literal(group)] if group else []
    workspace = ws.Workspace(
        entity=entity,
        project=project,
        name=f"{_TITLE}: {group}" if group else _TITLE,
        sections=[ws.Section(name=name, is_open=True, panels=own) for name, own in (panels | written).items()],
        settings=ws.WorkspaceSettings(max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(*wanted) if wanted else "",
            groupby=[expr.Config(MODEL), expr.Config(ERASER)],
            pinned_columns=["summary:result/bits_per_sample", "summary:result/loss_bits"],
        ),
    )
    blocks: list[Any] = [wr.TableOfContents()]
    for model in models:
        of_model = expr.And(*wanted, expr.Config(MODEL) == _literal(model))
        runs = wr.Runset(name=model, filters=of_model, groupby=[f"config.{ERASER}"])
        every = [panel for own in panels.values() for panel in own]
        blocks += [wr.H1(display_name(model)), wr.PanelGrid(runsets=[runs], panels=every)]
    for title, table in tables.items():
        blocks += [wr.H1(title), wr.MarkdownBlock(table)]
    return workspace, wr.Report(entity=entity, project=project, title=workspace.name, width="fluid", blocks=blocks)


def _literal(text: str) -> str:
    """Return text as it may stand in quotes: filters are written as Python, and parsed again."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in " _.-" else f"\\U{ord(c):08x}" for c in text)


def _panels(orders: range) -> dict[str, list[Any]]:
    """Titles of sections, and their panels; `orders` are those that runs have measured."""
    shares = "certificate/test/order_shares"
    return {
        "Codelength by eraser and architecture": [
            _bars("bits per label", "result/bits_per_sample"),
            _bars("their standard deviation over a run's seeds", "result/bits_per_sample_std"),
            _bars("paper's unit", "result/published"),
        ],
        "Curves": [
            _lines("loss on the next chunk (bits) over training size", "mdl/n", "mdl/ce_next_bits", log_x=True),
            _lines("validation loss (bits) over epochs, whole dataset", "loss/epoch", "loss/validation_bits"),
        ],
        "Backfiring: who ends below its control?": [
            _lines("test loss (bits) over training size", "mdl/n", "mdl/ce_test_bits", log_x=True),
            _bars("final loss (bits)", "result/loss_bits"),
        ],
        "Erasure": [
            wr.MediaBrowser(title="erased test images", media_keys=["examples/test"]),
            _bars("gap between class covariances", "certificate/train/covariance_gap"),
        ],
        "What is left of each order, test split": [
            _bars(f"share of order {p} between classes", f"{shares}_{p}") for p in orders
        ],
        "Cost": [_bars("seconds", "result/seconds"), _bars("parameters", "result/parameters")],
    }


def _bars(title: str, metric: str) -> wr.BarPlot:
    return wr.BarPlot(title=title, metrics=[metric], layout=wr.Layout(w=12, h=8), **_GROUPED)


def _lines(title: str, x: str, y: str, *, log_x: bool = False) -> wr.LinePlot:
    return wr.LinePlot(title=title, x=x, y=[y], log_x=log_x, layout=wr.Layout(w=12, h=8), **_GROUPED)


def differences(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield two Markdown tables of one setting by title: differences to the control, and runs that end below it."""
    shown = (ROW, BY_ERASER, *columns("bits difference calibrated excess_bits parameters"), SEEDS)
    entries = comparison.run
    below = [entry for entry in entries if entry.crossing_size is not None]
    yield f"Differences to control, {comparison.setting}", Table.of("", shown, entries).markdown()
    crossed = Table.of("", (ROW, BY_ERASER, *columns("gap below")), below).markdown()
    yield f"Backfiring, {comparison.setting}", crossed if below else "No erased run ends below its control."


def as_json(shown: ws.Workspace | wr.Report) -> Any:
    """Return what saving it would send."""
    return json.loads(shown._to_model().model_dump_json(by_alias=True, exclude_none=True))


if __name__ == "__main__":
    raise SystemExit(main())
