"""The paper's Table 16, and whether a run of ours may be put beside it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conf.groups import keys as read_keys

keys = functools.cache(read_keys)

UNIT = "Σ n·CE / N, the unit of the paper's Table 16 (not a codelength)"

# Quirke & Belrose 2025, Table 16 (bottom): z-scored CIFAR-10, base sizes, mean and standard deviation of five seeds
TABLE_16 = {
    "mlp": {"control": (7.14, 0.05), "leace": (8.49, 0.10), "alf_qleace": (8.94, 0.14), "gradient": (10.02, 0.08),
            "qleace": (11.41, 0.00)},
    "lenet": {"control": (5.62, 0.02), "leace": (6.59, 0.28), "alf_qleace": (6.83, 0.11), "gradient": (8.71, 0.09),
              "qleace": (8.68, 0.24)},
    "convnextv2": {"control": (5.09, 0.09), "leace": (5.20, 0.15), "alf_qleace": (4.92, 0.05), "gradient": (5.37, 0.02),
                   "qleace": (1.67, 0.20)},
    "swinv2": {"control": (8.18, 0.03), "leace": (9.00, 0.13), "alf_qleace": (8.67, 1.20), "gradient": (9.29, 0.06),
               "qleace": (9.08, 0.13)},
}  # fmt: skip
_TRAINING = ("lr", "batch_size", "patience_steps")  # of conf/train/paper.yaml, the paper's


@dataclass(frozen=True)
class PaperNumber:
    """An entry of Table 16, and how the run beside it differs from the paper's; comparable if in nothing."""

    mean: float
    std: float
    differences: tuple[str, ...]

    def __str__(self) -> str:
        note = f" (ours differs: {', '.join(self.differences)})" if self.differences else ""
        return f"{self.mean:.2f} ± {self.std:.2f}{note}"


def paper_number(config: Mapping[str, Any]) -> PaperNumber | None:
    """The entry for a run's configuration; None where Table 16 has none for its dataset, model or eraser."""
    entry = TABLE_16.get(config["model"]["name"], {}).get(config["eraser"]["name"])
    if entry is None or config["dataset"]["name"] != "cifar10" or "mdl" not in config:
        return None
    return PaperNumber(*entry, differences=tuple(_differences(config)))


def _differences(config: Mapping[str, Any]) -> list[str]:
    """What is not as in the paper, as key=value of ours."""
    model, train, chunks = config["model"], config["train"], config["mdl"]
    found = []
    if config["dataset"].get("normalize") != "zscore":
        found.append("not z-scored")
    base, paper_train, paper_chunks = keys("model", model["name"]), keys("train", "paper"), keys("mdl", "paper")
    found += [f"{key}={value}" for key, value in model.items() if key in base and value != base[key]]
    found += [f"{key}={train.get(key)}" for key in _TRAINING if train.get(key) != paper_train[key]]
    if chunks.get("num_chunks") != paper_chunks["num_chunks"]:
        found.append(f"num_chunks={chunks.get('num_chunks')}")
    if chunks.get("min_chunk") not in (None, paper_chunks["min_chunk"]):  # null is 1,024 at CIFAR-10's size
        found.append(f"min_chunk={chunks.get('min_chunk')}")
    return found
