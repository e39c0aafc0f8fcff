"""Notes under a table: erasure that holds for the training examples alone, and codelengths of few labels."""

from collections.abc import Sequence

from erasure.certificate import Certificate
from erasure.few_examples import few_examples
from harness.few_labels import few_labels
from harness.result import MdlResult
from harness.results.table import Row

_EQUAL = 0.01  # gap of moments, relative to the data's, up to which an eraser has made them equal
_DETECTED = 2  # z-score above which an order counts as there (docs/orders.md)


def few_examples_notes(entries: Sequence[Row]) -> list[str]:
    """Say that class moments cannot be estimated from the training examples, or codelengths from their labels."""
    notes = dict[str, None]()
    for result in (run.result for entry in entries for run in entry["runs"]):
        train, code = result.certificate["train"], result.config.get("mdl", {}).get("code", "blocks")
        remedy = "smaller images (dataset.size) or more" if "size" in result.config["dataset"] else "more"
        if result.dim is not None:  # older results lack it
            said = few_examples(train.n, result.smallest_class, result.dim, _erased_order(train))
            notes |= {f"Few examples: {said}; take {remedy} of them.": None} if said else {}
        if isinstance(result, MdlResult) and code == "blocks" and any(result.curve[0].epochs):  # kernels have no epochs
            said = few_labels([*(point.n for point in result.curve), result.train_size], result.num_classes)
            notes |= {f"Few labels: {said}.": None} if said else {}
    return [*notes]


def held_out_notes(entries: Sequence[Row]) -> list[str]:
    """Say after which erasers class means are equal on the training examples and still differ on the test examples."""
    shares = {entry["eraser"]: _test_share(entry) for entry in entries}
    whole = next((share for eraser, share in shares.items() if eraser.name == "control"), None)
    apart = [
        f"{entry['eraser'].display}{f' ({100 * share / whole:.0f} %)' if whole else ''}"
        for entry in {one["eraser"]: one for one in entries}.values()  # models have the same data
        if (share := shares[entry["eraser"]]) and _erased_order(entry["runs"][0].result.certificate["train"])
    ]
    if not apart:
        return []
    relative = "; in brackets their share of the variance, relative to the control's" if whole else ""
    return [f"Erased class means still differ on test examples (z > {_DETECTED}{relative}): {', '.join(apart)}."]


def _test_share(entry: Row) -> float | None:
    """Return the share of the test examples' variance that lies between classes; None where it may be chance."""
    test = entry["runs"][0].result.certificate["test"]
    known = test.order_shares and test.order_z_scores and test.order_z_scores[0] > _DETECTED
    return test.order_shares[0] if known else None


def _erased_order(train: Certificate) -> int:
    """Return the order up to which an eraser has made class moments equal on the training split."""
    if not train.mean_gap <= _EQUAL:
        return 0
    return 2 if train.covariance_gap <= _EQUAL else 1
