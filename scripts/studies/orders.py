"""Orders that erasers leave, and losses of networks trained on the erased data, of finished runs.

uv run python -m mdl -m +experiment=orders
uv run python -m scripts.studies.orders runs/ --out orders
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from erasure.store.atomic_files import write_text
from harness.figure_helpers import chance_line, figure_at
from harness.result import MdlResult
from harness.result_fields import stuck
from harness.results.arrange import label_order
from harness.results.read import read_runs
from harness.results.run_labels import Label, display_name, eraser_colours
from harness.results.table import Table
from harness.statistics import Spread
from scripts.command_line import argument_parser

_ORDER = ("linear", "quadratic", "cubic", "mlp", "lenet")  # polynomials by their degree first
_CAPTION = (
    "Orders left: percent of each order's energy between classes on the training split, in 30 directions of data "
    "whitened after each eraser, so that rows are not on one scale; – if below zero, as after an eraser has made it "
    "equal. Then the loss of each network trained on all examples, on the training split | on the test split, bits per "
    "label, mean ± standard deviation over seeds."
)
Runs = Mapping[tuple[Label, str], MdlResult]  # by eraser and model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.orders", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs on one dataset")
    parser.add_argument("--out", type=Path, default=Path("orders"), help="OUT.png and OUT.md")
    options = parser.parse_args(arguments)
    results = [run.result for run in read_runs(options.runs)]
    blocks = [r for r in results if isinstance(r, MdlResult) and r.config["mdl"].get("code", "blocks") == "blocks"]
    runs = {(_label(r), r.named("model")): r for r in blocks if r.final.train_loss_bits}  # not for kernels
    if not runs:
        parser.error(f"{options.runs[0]}: no finished run of python -m mdl; launch +experiment=orders first")
    table = tabulated(runs)
    table.show()
    write_text(options.out.with_suffix(".md"), f"{table.markdown()}\n\n{table.caption()}\n")
    draw(runs, options.out.with_suffix(".png"))
    print(f"figure: {options.out.with_suffix('.png')}\ntable: {options.out.with_suffix('.md')}")
    return 0


def _label(result: MdlResult) -> Label:
    label, order = Label((result.named("eraser"),)), result.config["eraser"].get("order")
    return label.with_option("order", order) if order else label


def _axes(runs: Runs) -> tuple[list[Label], list[str]]:
    """Return erasers and models."""
    erasers = sorted({eraser for eraser, _ in runs}, key=label_order)
    return erasers, sorted({model for _, model in runs}, key=lambda m: (_ORDER.index(m) if m in _ORDER else 9, m))


def tabulated(runs: Runs) -> Table:
    """Tabulate a row per eraser, a column per model."""
    erasers, models = _axes(runs)
    rows = []
    for eraser in erasers:
        shares = _shares(runs, eraser)
        left = ", ".join(f"{100 * share:.2g}" if share > 0 else "–" for share in shares)
        rows.append([eraser.display, left, *(_cell(runs[eraser, m]) if (eraser, m) in runs else "" for m in models)])
    remarks = [
        f"{display_name(model)}, {eraser.display}: {of} seeds never left the plateau."
        for eraser in erasers
        for model in models
        if (eraser, model) in runs and (of := _on_plateau(runs[eraser, model]))
    ]
    headings = ["eraser", "orders left, %", *map(display_name, models)]
    return Table("orders", [_CAPTION], headings, rows, remarks=remarks)


def _shares(runs: Runs, eraser: Label) -> Sequence[float]:
    of_any = next(result for (name, _), result in runs.items() if name == eraser)
    return of_any.certificate["train"].order_shares or ()


def _cell(result: MdlResult) -> str:
    training, test = (Spread.of(bits or []) for bits in (result.final.train_loss_bits, result.final.loss_bits))
    return f"{training:.2f} | {test:.2f}"


def _on_plateau(result: MdlResult) -> str:
    return stuck([(result.trainings[-1], s) for s in range(len(result.seeds))])


def draw(runs: Runs, path: Path) -> None:
    """Draw each order's share by eraser; below, the losses on the training (hollow) and test split."""
    erasers, models = _axes(runs)
    colours = eraser_colours(models)
    with figure_at(path, 1.1 * len(erasers) + 2.5, 6.4) as figure:
        above, below = figure.subplots(2, 1, sharex=True)
        for p in range(4):
            shares = [100 * max(0.0, energy_shares[p]) if (energy_shares := _shares(runs, e)) else 0.0 for e in erasers]
            bars = [i + 0.2 * (p - 1.5) for i in range(len(erasers))]
            above.bar(bars, shares, 0.18, label=f"order {p + 1}", color=f"C{p}")
        above.set(yscale="log", ylim=(1e-3, 100), ylabel="between classes\n(% of the order's energy)")
        for m, model in enumerate(models):
            shown = [
                (i + 0.12 * (m - len(models) / 2), runs[e, model]) for i, e in enumerate(erasers) if (e, model) in runs
            ]
            look = {"color": colours[model], "markersize": 5, "capsize": 2}
            for field, face, label in (("loss_bits", None, display_name(model)), ("train_loss_bits", "none", None)):
                spreads = [Spread.of(list(getattr(run.final, field) or [])) for _, run in shown]
                means, errors = [s.mean for s in spreads], [s.std or 0 for s in spreads]
                marker = "s" if face else "o"
                below.errorbar(
                    [x for x, _ in shown], means, errors, fmt=marker, markerfacecolor=face, label=label, **look
                )
        below.set(ylabel="loss (bits per label)\n● test, □ training", ylim=(0, None))
        chance_line(below, math.log2(next(iter(runs.values())).num_classes), "uniform code")
        below.set_xticks(range(len(erasers)), [eraser.display.replace(" (", "\n(") for eraser in erasers])
        above.legend(loc="upper right", ncols=4)
        below.legend(loc="lower right", ncols=len(models))


if __name__ == "__main__":
    raise SystemExit(main())
