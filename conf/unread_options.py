"""Refusal of options that nothing in a run reads, as its id would contain options without effect."""

from collections.abc import Mapping

from conf import Options, flatten
from conf.check import ConfigError, written
from conf.groups import CONF, preset
from conf.schema import Config
from conf.target_class import TARGETS, target_of


def require_read(config: Config, unread: Mapping[str, str]) -> None:
    """Refuse options that nothing reads, unless their values are those of one of this project's choices of the group.

    Such a choice is accepted as a whole: `train=quick model=kernel` gives the same result as `model=kernel`.

    Args:
        config: configuration of the run.
        unread: clauses made by `no_effect`, by option or group of options ("train.lr", "mdl.replay"). Options that
            datasets, erasers and models declare unread are added.

    Raises:
        ConfigError: an option has no effect; the message names it.
    """
    unread = {**_unread_by_parts(config), **unread}
    plain = config.plain
    for group in dict.fromkeys(key.partition(".")[0] for key in unread):
        options = flatten(plain[group], group)
        ignored = {option: why for option in options if (why := _reason(option, unread))}
        differing = [
            [option for option in ignored if options[option] != choice.get(option)]
            for choice in (flatten(one, group) for one in _own_choices(group, plain[group]))
        ]
        if nearest := min(differing, key=len, default=[]):
            option = nearest[0]
            raise ConfigError(f"{option}={written(options[option])}: {ignored[option]}: leave it out")


def no_effect(ignorer: str, *readers: str) -> str:
    """Return the clause of a message about an option that one part ignores and others read."""
    *most, last = readers
    return f"has no effect with {ignorer}, only with {', '.join(most)}{' or ' if most else ''}{last}"


def _unread_by_parts(config: Config) -> dict[str, str]:
    """Return the options that dataset, eraser and model do not read, given their other options."""
    unread = {}
    for group in TARGETS:
        target = target_of(group, getattr(config, group))
        readers: Mapping[str, str] = target.resolve().unread_options(target.options)
        name = f"{group}={target.section['name']}"
        for option, reader in readers.items():  # the reader is an option of the section, or words
            reads = reader if " " in reader else f"{group}.{reader}"
            unread[f"{group}.{option}"] = no_effect(name, reads)
    return unread


def _own_choices(group: str, section: Options) -> list[Options]:
    """Return this project's choices of a group; for a dataset, eraser or model, only those of the same class."""
    own = [preset(group, path.stem) for path in sorted((CONF / group).glob("*.yaml"))]
    return [choice for choice in own if choice.get("_target_") == section.get("_target_")]


def _reason(option: str, unread: Mapping[str, str]) -> str | None:
    return next((why for key, why in unread.items() if f"{option}.".startswith(f"{key}.")), None)
