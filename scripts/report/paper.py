"""The paper's Table 16 beside runs on CIFAR-10."""

from pathlib import Path

from conf.groups import preset
from harness.results.entry import Entry
from harness.results.statistics import Spread
from harness.results.table import Column

UNIT = "Σ n_{i+1}·CE_i / N, the unit of the paper's Table 16 (not a codelength)"

# Quirke & Belrose 2025, Table 16 (bottom): z-scored CIFAR-10, base sizes, mean and standard deviation of five seeds
ENTRIES = {
    "mlp": {"control": (7.14, 0.05), "leace": (8.49, 0.10), "alf_qleace": (8.94, 0.14), "gradient": (10.02, 0.08),
            "qleace": (11.41, 0.00)},
    "lenet": {"control": (5.62, 0.02), "leace": (6.59, 0.28), "alf_qleace": (6.83, 0.11), "gradient": (8.71, 0.09),
              "qleace": (8.68, 0.24)},
    "convnextv2": {"control": (5.09, 0.09), "leace": (5.20, 0.15), "alf_qleace": (4.92, 0.05), "gradient": (5.37, 0.02),
                   "qleace": (1.67, 0.20)},
    "swinv2": {"control": (8.18, 0.03), "leace": (9.00, 0.13), "alf_qleace": (8.67, 1.20), "gradient": (9.29, 0.06),
               "qleace": (9.08, 0.13)},
}  # fmt: skip


def paper_number(entry: Entry) -> Spread | None:
    """Return Table 16's mean and standard deviation; None where it has none for an entry's data, model or eraser.

    The data is CIFAR-10, z-scored, or a folder of images called "cifar10"; the model has its base size.
    """
    if not entry.all_runs or "mdl" not in entry.config:
        return None
    dataset, eraser, model = (entry.config[part] for part in ("dataset", "eraser", "model"))
    number = ENTRIES.get(model["name"], {}).get(eraser["name"])
    is_cifar10 = "cifar10" in (dataset["name"], Path(str(dataset.get("root") or "")).name)
    if number is None or not is_cifar10 or dataset.get("normalize") != "zscore":
        return None
    base = preset("model", model["name"])
    is_base = all(model.get(key) == base[key] for key in ("width", "depth", "activation") if key in base)
    return Spread(*number) if is_base else None


def _text(entry: Entry) -> str:
    return "" if (number := paper_number(entry)) is None else f"{number:.2f}"


def _record(entry: Entry) -> dict[str, float | None]:
    number = paper_number(entry)
    return {"table_16": number and number.mean, "table_16_std": number and number.std}


TABLE_16 = Column[Entry]("paper's Table 16", _text, _record, "docs/published.md says what differs")
