"""Which summaries of a dataset are tried, and on what network: what the options mean and refuse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from conf.schema import Target, check_target, keyword_only

ORDERS = ("bottom", "bottom_iterative", "top", "random")
SummaryNetwork = Literal["linearized", "trained"]


@dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """Orders in which examples are dropped, and how a network does on what is left.

    Args:
        orders: some of `ORDERS`; none for no summaries.
        removed: fractions of the examples that are dropped.
        network: "linearized", in closed form, or "trained" by gradient descent.
        draws: seeded draws of the order "random", per initialisation.

    Raises:
        ValueError: a value outside its range.
    """

    orders: Sequence[str]
    removed: Sequence[float]
    network: SummaryNetwork
    draws: int

    def __post_init__(self) -> None:
        if unknown := [name for name in self.orders if name not in ORDERS]:
            known = ", ".join(ORDERS)
            raise ValueError(
                f"sample_info.summaries={list(self.orders)}: there is no {unknown[0]}; choose from {known}"
            )
        if len(set(self.orders)) < len(self.orders):
            raise ValueError(f"sample_info.summaries={list(self.orders)}: an order is named twice; name it once")
        if not self.removed or not all(0 <= fraction < 1 for fraction in self.removed):
            raise ValueError(
                f"sample_info.removed={list(self.removed)}: need fractions of the examples, from 0 to less than 1"
            )
        if sorted(set(self.removed)) != list(self.removed):
            raise ValueError(f"sample_info.removed={list(self.removed)}: must increase from one to the next")
        if self.draws < 1:
            raise ValueError(f"sample_info.random_draws={self.draws}: must be at least 1")

    def require_examples(self, n: int, num_classes: int) -> None:
        """Refuse fractions that leave fewer than two examples of n, or some class without any, whatever the order.

        Raises:
            ValueError: names the fraction, and the largest that is possible.
        """
        least = max(2, num_classes)
        left = n - round(self.removed[-1] * n)
        if self.orders and left < least:
            raise ValueError(
                f"sample_info.removed={self.removed[-1]:g}: leaves {left} of {n} examples, and {num_classes} classes "
                f"need {least} at least; remove {max(0, n - least) / n:.2g} at most, or raise sample_info.examples"
            )


def summary_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """The section of the network that is trained on summaries: the run's model with `summary_model`'s options.

    Another `_target_` takes those of the run's options that it knows.

    Raises:
        ConfigError: an option that the architecture does not have.
    """
    own = config["sample_info"]["summary_model"] or {}
    base = config["model"]
    if "_target_" in own:
        accepted = {"name", *keyword_only(Target(own).schema)}
        base = {key: value for key, value in base.items() if key in accepted}
    return check_target("sample_info.summary_model", {**base, **own}, "model")
