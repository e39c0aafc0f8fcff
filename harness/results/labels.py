"""Labels of runs that are compared: names, and the fewest options that tell them apart; the setting of a run."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conf import Options
from conf.groups import choices, preset
from conf.schema import identifying

NAMES = {  # of what is usually written otherwise than its file is called
    "leace": "LEACE", "oracle_leace": "oracle LEACE", "qleace": "QLEACE",
    "qleace_truncated": "QLEACE, truncated", "lenet_published": "LeNet (published)", "alf_qleace": "ALF-QLEACE",
    "alf_cubic": "ALF-cubic", "gradient_orders": "gradient, orders", "random_edit": "random, equal edit",
    "mlp": "MLP", "wide_mlp": "wide MLP", "lenet": "LeNet", "cnn": "CNN", "convnextv2": "ConvNeXt V2",
    "swinv2": "Swin V2", "empirical_ntk": "empirical NTK", "resnet": "ResNet", "cifar10": "CIFAR-10",
    "cifarnet": "CIFARNet", "mnist": "MNIST", "svhn": "SVHN", "mnist_svhn": "MNIST + SVHN",
    "digits_cifar10": "digits + CIFAR-10",
    "image_folder": "image folder", "icassava": "iCassava", "cats_vs_dogs": "cats and dogs", "imdb": "IMDB",
}  # fmt: skip
_SECTIONS = ("model", "eraser", "sample_info", "setting")


def display_name(name: str) -> str:
    """Return the usual spelling of a name of the command line: "qleace" is "QLEACE"."""
    return NAMES.get(name, name)


@dataclass(frozen=True, order=True)
class Label:
    """Names of parts of a configuration, and the options that tell them from others.

    `str(label)` is as the command line has it, "mnist · mlp (width=64)"; `display` as people write it,
    "MNIST · MLP (width=64)".

    Attributes:
        names: of the parts.
        options: keys and values, numbers as they are and others as text; a remark has an empty key.
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

    def with_option(self, key: str, value: str | float) -> "Label":
        return replace(self, options=(*self.options, (key, value)))

    def _with_options(self, names: Iterable[str]) -> str:
        options = ", ".join(f"{key}={value}" if key else str(value) for key, value in self.options)
        return " · ".join(names) + (f" ({options})" if options else "")


def labels(descriptions: Sequence[Options], named: Sequence[str], unsaid: Sequence[str] = _SECTIONS) -> list[Label]:
    """Label each description by its parts' names and the fewest options that tell it from its namesakes.

    Args:
        descriptions: nested options of what is labelled.
        named: the parts whose names a label has.
        unsaid: sections that keys of a label's options leave out: "width", not "model.width".
    """
    flat = [_flatten(description) for description in descriptions]
    names = [tuple(str(f[f"{part}.name"]) for part in named) for f in flat]
    namesakes: dict[tuple[str, ...], list[Options]] = {}
    for name, options in zip(names, flat, strict=True):
        namesakes.setdefault(name, []).append(options)
    telling = {name: _telling(members) for name, members in namesakes.items()}
    return [
        Label(
            name,
            tuple(
                (_without_section(key, unsaid), _number_or_text(_whole(options[key])))
                for key, usual in telling[name].items()
                if options.get(key) is not None and repr(options[key]) != usual
            ),
        )
        for name, options in zip(names, flat, strict=True)
    ]


def _without_section(key: str, unsaid: Sequence[str]) -> str:
    section, _, option = key.partition(".")
    return option if option and section in unsaid else key


def _telling(members: Sequence[Options]) -> dict[str, str | None]:
    """Return the fewest options, of the first if there is a choice, that tell all members apart, and values unsaid.

    Of sample_info's many options, the value that most members have goes unsaid.
    """
    keys = dict.fromkeys(key for member in members for key in member)
    values = {key: [repr(member.get(key)) for member in members] for key in keys}
    seen = {key: Counter(each) for key, each in values.items()}
    code = {(key, value): _code(key, value) for key in keys if len(seen[key]) > 1 for value in seen[key]}
    codes = {key: [code[key, value] for value in values[key]] for key in keys if len(seen[key]) > 1}
    sums = [sum(each) for each in zip(*codes.values(), strict=True)]  # differ where members do
    for key in reversed(list(codes)):
        without = [one - code for one, code in zip(sums, codes[key], strict=True)]
        if len({*without}) == len({*sums}):
            sums = without
            del codes[key]
    usual = {key: seen[key].most_common(1)[0] for key in codes if key.startswith("sample_info.")}
    return {key: usual[key][0] if key in usual and 2 * usual[key][1] > len(members) else None for key in codes}


def _code(key: str, value: str) -> int:
    """Return a number whose sums differ where options do; those of Python's hashes often do not."""
    return int.from_bytes(hashlib.blake2b(repr((key, value)).encode(), digest_size=8).digest(), "big")


def setting(config: Options) -> Options:
    """Return how a run trains and codes: the nearest preset of each section, and options that differ from it.

    Where several presets are equally near, as `quick` and `default` once `mdl.num_chunks` is neither's, none is named:
    the options are those that differ from `default`. Numbers of different settings do not belong into one column.
    """
    described, counted = {}, identifying(config)
    for group in ("train", "mdl"):
        if group in counted:
            unlike = {choice: _unlike(counted[group], preset(group, choice)) for choice in choices(group)}
            fewest = min(map(len, unlike.values()))
            nearest = [choice for choice, options in unlike.items() if len(options) == fewest]
            if fewest and len(nearest) > 1:
                nearest = ["default"]
            else:
                described[group] = nearest[0]
            described |= {f"{group}.{key}": value for key, value in unlike[nearest[0]].items()}
    return described | ({"dtype": config["dtype"]} if config.get("dtype", "float32") != "float32" else {})


def setting_text(config: Options, without: Sequence[str] = ()) -> str:
    """Return `setting`, but for some keys, as on a command line: "train=paper, train.lr=0.003"."""
    shown = {key: value for key, value in setting(config).items() if key not in without}
    return ", ".join(f"{key}={_whole(value)}" for key, value in shown.items())


def _unlike(options: Options, preset: Options) -> Options:
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}  # as in YAML
    return {key: value for key, value in plain.items() if key not in preset or preset[key] != value}


def _whole(value: Any) -> Any:
    """Return 10 for 10.0, where an option may be a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number_or_text(value: Any) -> str | float:
    return value if isinstance(value, int | float) else str(value)


def _flatten(value: Any, prefix: str = "") -> Options:
    if not isinstance(value, Mapping):
        return {prefix: value}
    inner = (_flatten(each, f"{prefix}.{key}" if prefix else str(key)) for key, each in value.items())
    return dict(item for flat in inner for item in flat.items())
