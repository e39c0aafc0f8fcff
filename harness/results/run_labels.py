"""Labels of compared runs: names, the fewest options that distinguish them, and a colour per eraser."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from conf import Options, flatten
from conf.display_names import display
from conf.target_class import TARGETS
from harness.results.run_settings import whole

SPARE_COLOURS = ("#8C564B", "#7F7F00", "#17BECF", "#6A3D9A", "#1B4332", "#FB9A99", "#F0C800", "#8DD3A7")
_IN_FULL = (*TARGETS, "setting")  # sections whose values labels contain even if most runs have the same


def usual_colours() -> Mapping[str, str]:
    """Return the colours of erasers by name, in the order of tables."""
    return display()["eraser_colours"]


def palette() -> list[str]:
    """Return every colour but the control's grey, for groups other than erasers."""
    return [*usual_colours().values(), *SPARE_COLOURS][1:]


def display_name(name: "str | Label") -> str:
    """Return the display name of a label or of a name on the command line: "QLEACE" for "qleace"."""
    return name.display if isinstance(name, Label) else display()["names"].get(name, name)


@dataclass(frozen=True, order=True)
class Label:
    """Names of parts of a configuration, and the options that distinguish them from others.

    `str(label)` uses the names of the command line, "mnist · mlp (width=64)"; `display` uses display names,
    "MNIST · MLP (width=64)".

    Attributes:
        names: names of the parts.
        options: pairs of key and value; values are numbers or text.
    """

    names: tuple[str, ...]
    options: tuple[tuple[str, str | float], ...] = ()

    @property
    def name(self) -> str:
        """Name of the first part."""
        return self.names[0]

    @property
    def display(self) -> str:
        return self._with_options(map(display_name, self.names))

    def __str__(self) -> str:
        return self._with_options(self.names)

    def _with_options(self, names: Iterable[str]) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options)
        return " · ".join(names) + (f" ({options})" if options else "")


C = TypeVar("C", Label, str)


def eraser_colours(columns: Sequence[C]) -> dict[C, str]:
    """Return the eraser's colour of each column (a label or a name); later variants of an eraser get spare colours."""
    names = [column.name if isinstance(column, Label) else column for column in columns]
    usual, spare = usual_colours(), itertools.cycle(SPARE_COLOURS)
    return {
        column: usual[name] if name in usual and name not in names[:i] else next(spare)
        for i, (column, name) in enumerate(zip(columns, names, strict=True))
    }


def labels(descriptions: Sequence[Options], named: Sequence[str], *, of_rows: bool = False) -> list[Label]:
    """Label each description with its parts' names and the fewest options that distinguish equal names.

    Args:
        descriptions: options of each run or part by section, whose name labels omit: "width", not "model.width".
        named: the parts whose names a label contains.
        of_rows: whether other names also need the options by which runs in one table may train or code differently.
    """
    flat = [flatten(description) for description in descriptions]
    names = [tuple(str(options[f"{part}.name"]) for part in named) for options in flat]
    namesakes: dict[tuple[str, ...], list[Options]] = {}
    for name, options in zip(names, flat, strict=True):
        namesakes.setdefault(name, []).append(options)
    between = _between_names(namesakes, flat) if of_rows else {}
    telling = {name: _telling(members) | between.get(name, {}) for name, members in namesakes.items()}

    return [
        Label(
            name,
            tuple(
                (key.partition(".")[2], value if isinstance(value := whole(options[key]), int | float) else str(value))
                for key, usual in telling[name].items()
                if options.get(key) is not None and repr(options[key]) != usual
            ),
        )
        for name, options in zip(names, flat, strict=True)
    ]


def _telling(members: Sequence[Options]) -> dict[str, str | None]:
    """Return the fewest options that distinguish all members, earlier ones if there is a choice, with values to omit.

    Labels omit the value that most members have, except in the sections `_IN_FULL`.
    """
    values = _values(members)
    telling = [key for key in values if len({*values[key]}) > 1]

    def apart(keys: Sequence[str]) -> int:
        return len({*zip(*(values[key] for key in keys), strict=True)})

    members_apart = apart(telling)
    for key in telling[::-1]:
        if apart(others := [other for other in telling if other != key]) == members_apart:
            telling = others
    return {key: _usual(key, values[key]) for key in telling}


def _between_names(
    namesakes: Mapping[tuple[str, ...], Sequence[Options]], everyone: Sequence[Options]
) -> dict[tuple[str, ...], dict[str, str | None]]:
    """Return, for each name, options but of its parts that its members share and others do not, as `_telling`."""
    values = {key: of for key, of in _values(everyone).items() if key.partition(".")[0] not in TARGETS}
    return {
        name: {
            key: _usual(key, of)
            for key, of in values.items()
            if len({*of}) > 1 and len({repr(member.get(key)) for member in members}) == 1
        }
        for name, members in namesakes.items()
    }


def _values(members: Sequence[Options]) -> dict[str, list[str]]:
    """Return the members' values of each option that any of them has."""
    keys = dict.fromkeys(key for member in members for key in member)
    return {key: [repr(member.get(key)) for member in members] for key in keys}


def _usual(key: str, values: Sequence[str]) -> str | None:
    """Return the value that most members have, which labels omit; None if there is none, or in `_IN_FULL`."""
    value, count = Counter(values).most_common(1)[0]
    return value if key.partition(".")[0] not in _IN_FULL and 2 * count > len(values) else None
