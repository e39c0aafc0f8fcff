"""Orders that erasers leave, and losses of networks trained on the erased data, of finished runs.

uv run python -m mdl -m +experiment=orders
uv run python -m scripts.studies.orders runs/ --out orders
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from erasure.store.atomic_files import write_text
from harness.result_fields import count_of, on_plateau
from harness.results.arrange import label_order
from harness.results.read import read_runs
from harness.results.run_labels import Label, display_name
from harness.results.table import Table
from harness.statistics import Spread
from mdl.result import MdlResult
from scripts.command_line import argument_parser, runs_folder

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
    parser.add_argument("runs", nargs="+", type=runs_folder, help="folders of finished runs on one dataset")
    parser.add_argument("--out", type=Path, default=Path("orders"), help="OUT.md")
    options = parser.parse_args(arguments)
    results = [run.result for run in read_runs(options.runs)]
    blocks = [r for r in results if isinstance(r, MdlResult) and r.config["mdl"].get("code", "blocks") == "blocks"]
    runs = {(_label(r), r.named("model")): r for r in blocks if r.final.train_loss_bits}  # not for kernels
    if not runs:
        parser.error(f"{options.runs[0]}: no finished run of python -m mdl; launch +experiment=orders first")
    table = tabulated(runs)
    table.show()
    write_text(options.out.with_suffix(".md"), f"{table.markdown()}\n\n{table.caption()}\n")
    print(f"table: {options.out.with_suffix('.md')}")
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
        f"{display_name(model)}, {eraser.display}: {count} seeds never left the plateau."
        for eraser in erasers
        for model in models
        if (eraser, model) in runs and (count := _on_plateau(runs[eraser, model]))
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
    return count_of(on_plateau([(result.trainings[-1], s) for s in range(len(result.seeds))]))


if __name__ == "__main__":
    raise SystemExit(main())
