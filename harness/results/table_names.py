"""Runs divided into tables by command, dataset and setting, and the names of each table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from conf import Options
from harness.result import TrainedResult
from harness.results.frames import data_digests
from harness.results.read import StoredRun
from harness.results.run_labels import Label, labels
from harness.results.run_settings import as_text, setting, setting_of_table, without_paths
from harness.results.table import file_name

_PLACES = ("root", "path")  # options that name a dataset's folder or file


def tables_of_runs(runs: Sequence[StoredRun]) -> list[tuple[dict[str, Any], list[StoredRun]]]:
    """Divide runs by command, dataset and setting; return each part, sorted by name, with the names of its table.

    Names are `dataset`, a `Label`;
    `setting`, how the runs train and code, "train=quick, mdl=quick";
    `title`, command, dataset and setting, "mdl: CIFAR-10, train=quick, mdl=quick";
    `table`, the name of the table's files, such as mdl-cifar10-train-quick.
    """
    settings = [setting_of_table(run.config, run.command) for run in runs]
    described = _datasets(runs)
    about = [
        {"command": {"name": run.command}, "dataset": dataset, "setting": of}
        for run, dataset, of in zip(runs, described, settings, strict=True)
    ]
    members: dict[Label, list[int]] = {}
    for i, label in enumerate(labels(about, ("command", "dataset"))):
        members.setdefault(label, []).append(i)
    divided = sorted(members.items(), key=lambda item: str(item[0]))
    groups, firsts = [[runs[i] for i in of] for _, of in divided], [of[0] for _, of in divided]
    of_datasets = labels([{"dataset": dataset} for dataset in described], ("dataset",))
    datasets = [_in_full(of_datasets[first], described[first]) for first in firsts]
    files = [file_name(str(_in_full(label, described[i]))) for (label, _), i in zip(divided, firsts, strict=True)]
    files = [name if files.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(files)]
    named = []
    for group, dataset, name in zip(groups, datasets, files, strict=True):
        command, text = group[0].command, _setting_text(group)
        title = f"{command}: {', '.join(filter(None, [dataset.display, text]))}"
        named.append(({"dataset": dataset, "setting": text, "title": title, "table": name}, group))
    return named


def _setting_text(runs: Sequence[StoredRun]) -> str:
    """Return the setting of a table's runs, without the code if it differs between them."""
    texts = {as_text(setting(run.config, run.command)) for run in runs}
    return texts.pop() if len(texts) == 1 else as_text(setting_of_table(runs[0].config, runs[0].command))


def _in_full(label: Label, dataset: Options) -> Label:
    """Add a dataset's folder and normalisation to its label, even if it is not needed to distinguish datasets."""
    for key, usual in (("root", ""), ("normalize", "none")):
        if (value := dataset.get(key, usual)) != usual and key not in dict(label.options):
            label = Label(label.names, (*label.options, (key, value)))
    return label


def _datasets(runs: Sequence[StoredRun]) -> list[Options]:
    """Return datasets with their sizes; a name may mean several datasets, and a dataset may be in several places."""
    sizes = {str(run.config["dataset"]): run.result.train_size for run in runs if isinstance(run.result, TrainedResult)}
    digests = data_digests(runs)
    of_digest = dict(zip(digests[::-1], runs[::-1], strict=True))
    firsts = [of_digest[digest] if digest else run for run, digest in zip(runs, digests, strict=True)]
    described = [_described(run, sizes.get(str(run.config["dataset"]))) for run in firsts]
    paths = {PurePath(str(options["path"])) for options in described if "path" in options}
    names = Counter(path.name for path in paths if path.suffix)
    for options in described:  # omit the folder of a file if its name is unique
        if names[name := PurePath(str(options.get("path", ""))).name] == 1:
            options["path"] = name
    alike = Counter(text for text, _ in {(str(of), digest) for of, digest in zip(described, digests, strict=True)})
    places = [
        {key: str(PurePath(place)) for key, place in run.config["dataset"].items() if key in _PLACES} for run in firsts
    ]
    return [
        options | (place | {"data": digest[:8]} if digest and alike[str(options)] > 1 else {})
        for options, place, digest in zip(described, places, digests, strict=True)
    ]


def _described(run: StoredRun, train_size: int | None) -> Options:
    """Return a dataset's options, with its size, and its folder last."""
    options = without_paths(run.config["dataset"])
    size = run.result.train_size if isinstance(run.result, TrainedResult) else train_size
    folder = {"root": options.pop("root")} if "root" in options else {}
    return options | ({"train_size": size} if size else {}) | folder
