"""The paper's Table 16, and how far what it says allows a run of ours beside it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from conf import Options
from conf.groups import preset
from harness.result import MdlResult, Result
from harness.results.arrange import comparable
from harness.results.entry import Entry
from harness.results.excess import sizes_of
from harness.results.table import Column
from harness.trained import published_units

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
CHANCE = 11.41  # in its unit, which its only entry without a spread is at: QLEACE, MLP
_CHANCE_TOLERANCE = 0.01  # relative; one training size more or less moves it by 8 %

Mark = Literal["same", "differs", "the paper does not say"]


@dataclass(frozen=True)
class Compared:
    """An option of ours beside what the paper says of it; of which model or eraser, if not of all."""

    option: str
    of: str
    ours: str
    paper: str
    mark: Mark


@dataclass(frozen=True)
class PaperNumber:
    """An entry of Table 16, and all that determines the numbers of the run beside it, compared."""

    mean: float
    std: float
    compared: tuple[Compared, ...]

    @property
    def note(self) -> str:
        """Options that differ, and how many the paper does not say."""
        unlike = [f"{c.option.partition('.')[2] or c.option}={c.ours}" for c in self.compared if c.mark == "differs"]
        unsaid = sum(c.mark == "the paper does not say" for c in self.compared)
        return "; ".join([*([f"differs: {', '.join(unlike)}"] if unlike else []), f"{unsaid} options unsaid"])

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


def paper_number(config: Options, result: Result | None = None) -> PaperNumber | None:
    """The entry for a run's configuration; None where Table 16 has none for its dataset, model or eraser.

    Args:
        config: of the run, or of one of several of different seeds.
        result: of all its seeds; without it, training sizes and seeds are not compared.
    """
    entry = ENTRIES.get(config["model"]["name"], {}).get(config["eraser"]["name"])
    if entry is None or not _is_cifar10(config["dataset"]) or "mdl" not in config:
        return None
    return PaperNumber(*entry, compared=(*_options(config), *(_sizes(result) if isinstance(result, MdlResult) else ())))


def _is_cifar10(dataset: Options) -> bool:
    """Also as a folder of images that is called so; the note then names what differs."""
    return dataset["name"] == "cifar10" or Path(str(dataset.get("root") or "")).name == "cifar10"


def paper_number_of(entry: Entry) -> PaperNumber | None:
    """Return the paper's number for an entry, finished or not."""
    return paper_number(entry.config, entry.result) if entry.all_runs else None


def _record(entry: Entry) -> dict[str, float | str | None]:
    number = paper_number_of(entry)
    mean, std, note = (number.mean, number.std, number.note) if number else (None, None, None)
    return {"table_16": mean, "table_16_std": std, "table_16_note": note}


TABLE_16 = Column[Entry]("paper's Table 16", lambda entry: f"{paper_number_of(entry) or ''}", _record)


def chance(result: MdlResult) -> float:
    """Return what a model that knows nothing has in the paper's unit at a run's training sizes."""
    sizes = sizes_of(result)
    return published_units(sizes, [math.log2(result.num_classes)] * (len(sizes) - 1))


def _options(config: Options) -> Iterator[Compared]:
    """All that enters a run's identity."""
    says = _says(config)
    for section, own in comparable(config).items():
        if section == "seeds":
            continue
        of = own["name"] if section in ("model", "eraser") else ""
        for key, value in own.items() if isinstance(own, Mapping) else [("", own)]:
            option = f"{section}.{key}" if key else section
            yield _compared(option, of, value, says.get(option))


def _says(config: Options) -> Options:
    """Return the paper's options: sections 3 and 4, the captions of figures 4 and 16."""
    says: dict[str, Any] = {"dataset.normalize": "zscore", "dataset.flip": True}
    for part, name in (("dataset", "cifar10"), *((part, config[part]["name"]) for part in ("model", "eraser"))):
        shipped = preset(part, name)
        says |= {f"{part}.{key}": shipped[key] for key in ("name", "_target_")}
    base = preset("model", config["model"]["name"])
    says |= {f"model.{key}": base[key] for key in ("width", "depth", "activation", "parametrization") if key in base}
    if not config["train"].get("crop_padding"):
        says["train.crop_padding"] = "random crops"  # of which size it does not say
    return says


def _sizes(result: MdlResult) -> Iterator[Compared]:
    """The paper states no training sizes, but chance in its unit follows from them."""
    yield _compared("seeds", "", len(result.seeds), 5)
    ours = chance(result)
    mark: Mark = "same" if math.isclose(ours, CHANCE, rel_tol=_CHANCE_TOLERANCE) else "differs"
    yield Compared("chance", "", f"{ours:.3f} at N = {result.train_size:,}", f"{CHANCE}", mark)


def _compared(option: str, of: str, ours: Any, paper: Any) -> Compared:
    mark: Mark = "the paper does not say" if paper is None else "same" if ours == paper else "differs"
    return Compared(option, of, f"{ours}", "" if paper is None else f"{paper}", mark)
