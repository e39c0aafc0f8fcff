"""What a finished run has stored of its examples' scores, to be compared with other runs'."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from erasure.store.storage import DamagedFileError, load_tensors
from harness.compare import Result


@dataclass(frozen=True)
class RunScores:
    """A run's examples and their F-SI.

    Attributes:
        index: of the examples, in the training split, [n].
        given_label: the labels that the network was given, [n].
        f_si_nats: a row per seed, [S, n].
    """

    index: Tensor
    given_label: Tensor
    f_si_nats: Tensor


ScoresOf = Callable[[Result], RunScores | None]  # None for a run that cannot be compared


def read_scores(directory: Path) -> RunScores | None:
    """What the run in a directory has stored; None where it has stored none.

    Raises:
        DamagedFileError: it is not what was stored.
    """
    path = directory / "scores.safetensors"
    if not path.exists():
        return None
    stored, _ = load_tensors(path)
    return RunScores(*(stored[name] for name in ("index", "given_label", "f_si_nats")))


def read_scores_or_note(directory: Path, problems: list[str]) -> RunScores | None:
    """As `read_scores`; None, and a line more in `problems`, where they are damaged."""
    try:
        return read_scores(directory)
    except DamagedFileError as error:
        problems.append(f"{error}: left out of how scores move and agree")
        return None
