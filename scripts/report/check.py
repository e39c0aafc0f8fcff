"""Telling results that a report can show from those that lack something, or contradict themselves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mdl.codelength import online_code_bits, paper_units

KEYS = {
    "run_id", "verb", "config", "seeds", "num_classes", "train_size", "parameters", "certificate", "timing",
    "versions", "code", "curves_checksum",
}  # fmt: skip
INFORMATION = "sample_info"  # the verb that scores examples, and whose runs have tables of their own
ENDINGS = {"epochs", "best_epoch", "ended", "untrained", "plateau_epochs", "left_plateau"}  # a list each, of the seeds
VERB_KEYS = {
    "mdl": {"final", "sharp_drop", "mdl", "curve", "power_law"},
    "train": {"final", "sharp_drop", "label_entropy_bits", *ENDINGS},
    INFORMATION: {
        "held_out_size",
        "eraser_fit",
        "information",
        "network",
        "references",
        "how",
        "between_seeds",
        "groups",
        "summaries",
    },
}
_OPTIONAL = {"sharp_drop", "eraser_fit", "code", "curves_checksum", *ENDINGS} - {"epochs"}  # came later
_TOLERANCE = 1e-6  # relative; results are stored in full, sums may be ordered differently


class UnusableError(ValueError):
    """A run that cannot be part of a report; the message says why."""


def check(result: Mapping[str, Any]) -> None:
    """Whether a result holds all that a report needs, in bits.

    Raises:
        UnusableError: a key is missing, a list has not an entry per seed, a number is not finite, or the
            codelengths are not those of the learning curve in bits.
    """
    verb = result.get("verb")
    if verb not in VERB_KEYS:
        raise UnusableError(f"verb is {verb!r}, not one of {', '.join(VERB_KEYS)}")
    missing = (KEYS | VERB_KEYS[verb]) - _OPTIONAL - set(result)
    missing |= {
        f"config.{part}.name" for part in ("dataset", "eraser", "model") if "name" not in result["config"][part]
    }
    if missing:
        raise UnusableError(f"result.json lacks {', '.join(sorted(missing))}")
    for name, values in _lists(result).items():
        if len(values) != len(result["seeds"]):
            raise UnusableError(f"{name} has {len(values)} numbers for {len(result['seeds'])} seeds")
        if not all(math.isfinite(value) for value in values):
            raise UnusableError(f"{name} holds {values}: not finite")
    for name in ("mean_gap", "covariance_gap", "edit_size", "out_of_range"):
        float(result["certificate"]["train"][name])
    if verb == "mdl":
        _check_units(result)


def _lists(result: Mapping[str, Any]) -> Mapping[str, Sequence[float]]:
    """Everything that has a number per seed, by name."""
    if result["verb"] == INFORMATION:
        kept = ("mean_nats", "median_nats")
        found = {
            f"information.{name}.{key}": [one[key] for one in scores]
            for name, scores in result["information"].items()
            for key in kept
        }
        found |= {f"network.{key}": values for key, values in result["network"].items()}
        return found | {f"groups.{name}.mean_nats": g["mean_nats"] for name, g in result["groups"].items()}
    lists = {f"final.{key}": values for key, values in result["final"].items()}
    if result["verb"] == "mdl":
        lists |= {f"mdl.{key}": result["mdl"][key] for key in ("bits_per_sample", "total_bits", "paper")}
        lists |= {f"curve.{p['n']}.ce_test_bits": p["ce_test_bits"] for p in result["curve"]}
    return lists


def _check_units(result: Mapping[str, Any]) -> None:
    """Recompute every codelength from its curve: nats, or another unit's numbers, do not pass."""
    curve, total = result["curve"], result["train_size"]
    sizes = [point["n"] for point in curve]
    for s, seed in enumerate(result["seeds"]):
        bits = online_code_bits(sizes, [p["ce_next_bits"][s] for p in curve[:-1]], result["num_classes"])
        expected = {
            "total_bits": bits,
            "bits_per_sample": bits / total,
            "paper": paper_units(sizes, [p["ce_test_bits"][s] for p in curve], total),
        }
        for key, value in expected.items():
            if not math.isclose(result["mdl"][key][s], value, rel_tol=_TOLERANCE):
                raise UnusableError(
                    f"mdl.{key} of seed {seed} is {result['mdl'][key][s]:.6g}, but its curve in bits gives "
                    f"{value:.6g}: mixed units?"
                )
