"""A run on disk: its identity, its directory, its result. The files are the truth; the rest is display."""

import contextlib
import csv
import io
import logging
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from erasure.storage import fingerprint, read_json, write_json, write_text

RESULTS_VERSION = 1  # raise it when the same configuration gives other numbers: runs then get new identities


def run_id(verb: str, described: Mapping[str, Any]) -> str:
    """Identity of a run: readable names, and a digest of everything that determines its numbers.

    Args:
        verb: "mdl", "train", ...
        described: JSON-like sections; "dataset", "eraser" and "model" each with a "name". Nothing about
            where or how it runs (device, logger, paths, launcher) belongs here.
    """
    names = [re.sub(r"[^A-Za-z0-9.]+", "_", described[part]["name"]) for part in ("dataset", "eraser", "model")]
    digest = fingerprint({"verb": verb, "version": RESULTS_VERSION, **described}, length=10)
    return "-".join([verb, *names, digest])


class Run:
    """The directory `root/run_id`: config.yaml, result.json once finished, curves.csv, log.txt, state.json."""

    def __init__(self, root: Path | str, identity: str) -> None:
        self.id = identity
        self.directory = Path(root) / identity

    @property
    def result(self) -> dict[str, Any] | None:
        """The finished run's result, or None while it is unfinished."""
        path = self.directory / "result.json"
        return read_json(path) if path.exists() else None

    def start(self, config_yaml: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.directory / "config.yaml", config_yaml)
        write_json(self.directory / "state.json", {"state": "running"})

    def finish(self, result: Mapping[str, Any]) -> None:
        write_json(self.directory / "result.json", result)
        write_json(self.directory / "state.json", {"state": "finished"})
        # a killed process leaves half-written temporary files behind
        for pattern in ("part-*.json", "checkpoint-*.safetensors", ".*.tmp"):
            for path in self.directory.glob(pattern):
                path.unlink()

    def fail(self, error: BaseException) -> None:
        """Note why the run ended early: failed, or interrupted and ready to be continued."""
        state = "failed" if isinstance(error, Exception) else "interrupted"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        write_json(self.directory / "state.json", {"state": state, "error": reason})

    def part(self, name: str) -> Any:
        """A finished part of an unfinished run, or None."""
        path = self.directory / f"part-{name}.json"
        return read_json(path) if path.exists() else None

    def save_part(self, name: str, value: Any) -> None:
        """Keep a finished part, so that a killed run does not compute it again."""
        write_json(self.directory / f"part-{name}.json", value)

    def save_curves(self, rows: Iterable[Sequence[Any]]) -> None:
        """Loss curves as curves.csv: one row per training size, seed and evaluation."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["n", "seed", "epoch", "train_loss_bits", "validation_loss_bits"])
        writer.writerows(rows)
        write_text(self.directory / "curves.csv", text.getvalue())

    @contextlib.contextmanager
    def logging(self) -> Iterator[None]:
        """Copy log records into log.txt; a failure's traceback goes there, and the failure says so."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "log.txt"
        handler = logging.FileHandler(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        except BaseException as error:
            handler.flush()
            with path.open("a", encoding="utf-8") as file:
                file.write(traceback.format_exc())
            error.add_note(f"traceback in {path}")
            raise
        finally:
            root.removeHandler(handler)
            handler.close()
