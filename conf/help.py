"""--help: what can be set, from which choices, in the words of the YAML files themselves."""

from collections.abc import Sequence
from pathlib import Path

from conf.groups import CONF, choices, chosen, file_of

_UNSAID = {"defaults", "hydra", "name", "_target_"}  # keys that are not for the command line


def help_text(verb: str, purpose: str, overrides: Sequence[str] = ()) -> str:
    """The help page of one verb; keys are those of the choices that `overrides` make."""
    selected = {group: selection[0] for group, selection in chosen(verb, overrides).items()}
    lines = [
        f"python -m {verb}: {purpose}",
        "",
        f"  python -m {verb} GROUP=CHOICE ... KEY=VALUE ...                 one run",
        f"  python -m {verb} -m GROUP=CHOICE,CHOICE KEY=VALUE,VALUE ...     a sweep over all combinations",
        "",
        "Groups and their choices (* chosen here):",
    ]
    for group, choice in selected.items():
        lines.append(f"  {group}=")
        lines += [f"  {'*' if c == choice else ' '} {c:<17} {_title(group, c)}" for c in choices(group)]
    if choices("experiment"):
        lines.append("  +experiment=   whole sweeps, with -m")
        lines += [f"    {name:<17} {_title('experiment', name)}" for name in choices("experiment")]
    lines += ["", "Keys of the choices made, with their values:"]
    for group, choice in selected.items():
        lines += [f"  {group}.{line}" for line in _options(group, choice)]
    lines += [f"  {line}" for line in _own_lines(CONF / "base.yaml", CONF / f"{verb}.yaml")]
    lines += [
        "",
        "Other choices have other keys: put the choice before --help to see them, e.g. "
        f"python -m {verb} dataset=image_folder --help",
        f"Examples:\n  python -m {verb} eraser=control model.width=256",
        f"  python -m {verb} -m eraser=control,leace model=linear,mlp",
        "Results go to runs/; a finished run is not trained again. Exit codes: 0 finished, 1 a run failed,",
        "2 a configuration that cannot be run, 130 interrupted.",
    ]
    return "\n".join(lines)


def _title(group: str, choice: str) -> str:
    """A YAML file's opening comment."""
    lines = file_of(group, choice).read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @")]
    return comments[0] if comments else ""


def _options(group: str, choice: str) -> list[str]:
    """A choice's lines, with those of the choice it builds on."""
    path = file_of(group, choice)
    defaults = [line[4:] for line in path.read_text().splitlines() if line.startswith("  - ") and "_self_" not in line]
    parents = [file_of(group, entry) for entry in defaults if "@" not in entry]
    placed = [entry.partition("@")[2].partition(": ") for entry in defaults if "@" in entry]
    whole = [
        f"{place}.*: keys of {group}={choice}; another: {group}@{group}.{place}=CHOICE" for place, _, choice in placed
    ]
    return whole + _own_lines(*parents, path)


def _own_lines(*paths: Path) -> list[str]:
    """Lines `group.key: value # comment`; a later file's replace an earlier one's, and keep its comment."""
    lines: dict[str, str] = {}
    for path in paths:
        groups: list[str] = []  # in which the line is, by indentation of two
        for line in path.read_text().splitlines():
            key, colon, value = line.strip().partition(":")
            groups = groups[: (len(line) - len(line.lstrip())) // 2]
            if not colon or not key.isidentifier():
                continue
            place = ".".join([*groups, key])
            groups.append(key)  # should it be one
            if _UNSAID & {*groups} or not value.strip():
                continue
            before = lines.get(place, "").partition(" # ")[2]
            said = f"{place}:{value}"
            lines[place] = said if " # " in line or not before else f"{said} # {before}"
    return list(lines.values())
