"""The output of `python -m mdl` about one run: its learning curve, codelength and certificate."""

import math

from harness.result import MdlResult
from harness.results.statistics import Spread, seeds_text
from harness.results.table import Table


def print_run(result: MdlResult) -> None:
    """Print a run's learning curve, codelength and certificate."""
    headings = ("training examples", "next chunk (bits)", "test (bits)", "test accuracy", "epochs")
    rows = [
        [
            f"{point.n:,}",
            f"{Spread.of(point.ce_next_bits)}" if point.ce_next_bits else "",
            f"{Spread.of(point.ce_test_bits)}",
            f"{100 * Spread.of(point.test_accuracy).mean:.1f} %" if point.test_accuracy else "",
            f"{min(point.epochs)}–{max(point.epochs)}",
        ]
        for point in result.curve
    ]
    code, total, published = map(Spread.of, (result.mdl.bits_per_sample, result.mdl.total_bits, result.mdl.published))
    lines = [
        f"codelength    {code} bits per label, {total:,.0f} bits for {result.train_size:,} "
        f"labels (uniform code: {math.log2(result.num_classes):.3f} bits per label)",
        f"paper's unit  {published} (Table 16: Σ n_{{i+1}} CE_i / N, not a codelength)",
    ]
    for split, c in result.certificate.items():
        orders = ", ".join(f"{share:.2%}" for share in c.order_shares or ())
        lines.append(
            f"certificate   {split}: mean gap {c.mean_gap:.1e}, covariance gap {c.covariance_gap:.1e}, "
            f"edit {c.edit_size:.1%} of the variance, {c.out_of_range:.1%} of values out of range"
            + (f"; between classes at orders 1 to {len(c.order_shares or ())}: {orders}" if orders else "")
        )
    Table("", "\n".join(lines), headings, rows).show(f"{result.run_id}, {seeds_text(len(result.seeds))}")
