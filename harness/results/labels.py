"""What runs are called beside each other: names, presets, and the fewest options that tell them apart."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from conf import Options
from conf.groups import choices, preset
from conf.verbs import identifying

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
_FIRST = re.compile(r"(?:^|(?<= · ))\w+")  # word of each part of a label
_PLAIN = re.compile(r"^(model|eraser|sample_info|setting)\.")  # sections that an option's name says


def spelled(label: str) -> str:
    """A label as people write its names: "mnist · mlp (width=64)" is "MNIST · MLP (width=64)"."""
    return _FIRST.sub(lambda found: NAMES.get(found[0], found[0]), label)


def labels(descriptions: Sequence[Options], named: Sequence[str]) -> list[str]:
    """A label for each description: the names of its `named` parts, and the options that tell it from its namesakes."""
    flat = [_flatten(description) for description in descriptions]
    names = [" · ".join(f[f"{part}.name"] for part in named) for f in flat]
    namesakes: dict[str, list[Options]] = {}
    for name, own in zip(names, flat, strict=True):
        namesakes.setdefault(name, []).append(own)
    telling = {name: _telling(members) for name, members in namesakes.items()}
    written = []
    for name, own in zip(names, flat, strict=True):
        options = [
            f"{_PLAIN.sub('', key)}={_written(own[key])}"
            for key, usual in telling[name].items()
            if own.get(key) is not None and repr(own[key]) != usual
        ]
        written.append(f"{name} ({', '.join(options)})" if options else name)
    return written


def _telling(members: Sequence[Options]) -> dict[str, str | None]:
    """The fewest options, of the first if there is a choice, that tell all members apart; and values that go unsaid.

    Unsaid is, of sample_info's many options, what most members have.
    """
    keys = dict.fromkeys(key for member in members for key in member)
    values = {key: [repr(member.get(key)) for member in members] for key in keys}
    seen = {key: Counter(own) for key, own in values.items()}
    codes = {key: [hash((key, value)) for value in values[key]] for key in keys if len(seen[key]) > 1}
    sums = [sum(own) for own in zip(*codes.values(), strict=True)]  # differ where members do
    for key in reversed(list(codes)):
        without = [one - code for one, code in zip(sums, codes[key], strict=True)]
        if len({*without}) == len({*sums}):
            sums = without
            del codes[key]
    usual = {key: seen[key].most_common(1)[0] for key in codes if key.startswith("sample_info.")}
    return {key: usual[key][0] if key in usual and 2 * usual[key][1] > len(members) else None for key in codes}


def setting(config: Options) -> Options:
    """How a run trains and codes: of each section the preset that it is nearest to, and options that are not as there.

    Numbers of different settings do not belong into one column.
    """
    found, counted = {}, identifying(config)
    for group in ("train", "mdl"):
        if group in counted:
            own = counted[group]
            presets = [(_unlike(own, preset(group, choice)), choice) for choice in choices(group)]
            unlike, found[group] = min(presets, key=lambda found: (len(found[0]), found[1]))
            found |= {f"{group}.{key}": value for key, value in unlike.items()}
    return found | ({"dtype": config["dtype"]} if config.get("dtype", "float32") != "float32" else {})


def written_setting(config: Options, without: Sequence[str] = ()) -> str:
    """`setting`, but for the keys `without`, as it is written on a command line: "train=paper, train.lr=0.003"."""
    written = {key: value for key, value in setting(config).items() if key not in without}
    return ", ".join(f"{key}={_written(value)}" for key, value in written.items())


def _unlike(own: Options, preset: Options) -> Options:
    return {key: value for key, value in own.items() if key not in preset or preset[key] != value}


def _written(value: Any) -> Any:
    """10, not 10.0, where an option may be a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flatten(value: Any, prefix: str = "") -> Options:
    if not isinstance(value, Mapping):
        return {prefix: value}
    inner = (_flatten(each, f"{prefix}.{key}" if prefix else str(key)) for key, each in value.items())
    return dict(item for flat in inner for item in flat.items())
