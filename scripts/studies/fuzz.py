"""Damage every kind of file that is read, a seeded case at a time, and see what a reader is told.

    python -m scripts.studies.fuzz                    # 500 cases, two minutes on two idle cores
    python -m scripts.studies.fuzz --cases 60 --seed 7

Each case damages one file of a small, whole set of files: flips a bit or a digit, cuts, deletes, repeats, zeroes or
inserts bytes, replaces it by a hostile or another whole file; then reads it as the commands do. Outcomes:

    unaffected   what comes back is the same
    recovered    the same, or computed again, and a warning says so
    one line     refused by a ValueError of one line that names the file
    other data   the user's own data without checksums: other values, under another identity
    BAD          another number under the same name, code that ran, a hang, another exception

Exit code 1 if there is a bad one.
"""

import contextlib
import logging
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

from erasure.progress import Display
from harness.table import Table
from scripts.options import parser
from scripts.studies.formats import CANARY, FORMATS, HOSTILE, Format

GOOD = ("unaffected", "recovered", "one line", "other data")
DAMAGES = ("flipped", "digit", "cut", "deleted", "repeated", "zeroed", "inserted", "replaced")
_LIMIT_S = 30  # a case takes less than one
_LONGEST_LINE = 600


class _HangError(BaseException):
    """A case took too long; no reader's `except Exception` may take it for damage."""


class Outcome(NamedTuple):
    """What became of one case; `detail` reproduces a bad one."""

    format: str
    kind: str
    detail: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("studies.fuzz", __doc__, cases=500, seed=0).parse_args(arguments)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, Display("fuzz") as display:
        for outcome in fuzz(Path(folder), options.cases, options.seed, FORMATS):
            outcomes.append(outcome)
            display.update(len(outcomes) / options.cases, f"case {len(outcomes)} of {options.cases}")
    print_table(outcomes)
    bad = [outcome for outcome in outcomes if outcome.kind not in GOOD]
    for outcome in bad:
        print(*outcome, sep=": ", file=sys.stderr)
    return 1 if bad else 0


def fuzz(folder: Path, cases: int, seed: int, formats: Sequence[Format]) -> Iterator[Outcome]:
    """Outcomes of `cases` cases, the formats in turn, in an empty folder; the same for the same seed."""
    with contextlib.ExitStack() as stack:
        whole = {}
        for each in formats:
            stack.enter_context(each.context())
            place = folder / "whole" / each.name
            place.mkdir(parents=True)
            each.write(place)
            with _copied(place, folder / "case") as copy:
                whole[each.name] = each.read(copy)
        for i in range(cases):
            each = formats[i % len(formats)]
            with _copied(folder / "whole" / each.name, folder / "case") as copy:
                yield _case(each, copy, whole[each.name], random.Random(f"{seed} {i}"))


@contextlib.contextmanager
def _copied(folder: Path, to: Path) -> Iterator[Path]:
    yield shutil.copytree(folder, to)
    shutil.rmtree(to)


def _case(each: Format, place: Path, whole: tuple[str, Any], chance: random.Random) -> Outcome:
    path = chance.choice(sorted(place.glob(each.damaged)))
    how = chance.choice(DAMAGES)
    path.write_bytes(damaged(path.read_bytes(), how, chance))
    kind, detail = _judged(each, place, whole)
    if CANARY.exists():
        CANARY.unlink()
        kind = "code run"
    return Outcome(each.name, kind, f"{path.name} {how}: {detail}")


def damaged(content: bytes, how: str, chance: random.Random) -> bytes:
    """A file's content, one of `DAMAGES` done to it."""
    start, length = chance.randrange(len(content)), chance.randrange(1, 40)
    if how == "digit":
        start = chance.choice([i for i, byte in enumerate(content) if chr(byte).isdigit()] or [0])
    before, hit, after = content[:start], content[start : start + length], content[start + length :]
    return {
        "flipped": before + bytes([hit[0] ^ 1 << chance.randrange(8)]) + hit[1:] + after,
        "digit": before + bytes([chance.choice(b"0123456789")]) + hit[1:] + after,
        "cut": before,
        "deleted": before + after,
        "repeated": before + hit + hit + after,
        "zeroed": before + bytes(len(hit)) + after,
        "inserted": before + chance.randbytes(length) + hit + after,
        "replaced": chance.choice(HOSTILE),
    }[how]


def _judged(each: Format, place: Path, whole: tuple[str, Any]) -> tuple[str, str]:
    """What reading damaged files comes to, and a word on it."""
    heard = BufferingHandler(10**6)
    heard.setLevel(logging.WARNING)
    logging.getLogger().addHandler(heard)
    try:
        with _limited(), warnings.catch_warnings(record=True):
            warnings.simplefilter("ignore")
            identity, values = each.read(place)
    except _HangError:
        return "hang", f"more than {_LIMIT_S} s"
    except ValueError as error:
        line = str(error)
        named = "\n" not in line and len(line) < _LONGEST_LINE and str(place) in line
        return "one line" if named else "unclear line", f"{type(error).__name__}: {line}"
    except Exception as error:  # the study's question
        return "traceback", f"{type(error).__name__}: {error}"
    finally:
        logging.getLogger().removeHandler(heard)
    if heard.buffer:  # a part that is computed again is not there
        return ("recovered" if values in (whole[1], None) else "wrong number"), heard.buffer[0].getMessage()
    if values == whole[1]:
        return "unaffected", ""
    return ("other data" if each.own_data and identity != whole[0] else "wrong number"), f"{values} not {whole[1]}"


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Counts, a row per format."""
    kinds = [*GOOD, *sorted({outcome.kind for outcome in outcomes} - set(GOOD))]
    counts = Counter((outcome.format, outcome.kind) for outcome in outcomes)
    names = dict.fromkeys(outcome.format for outcome in outcomes)
    rows = [[name, *(str(counts[name, kind] or "") for kind in kinds)] for name in names]
    rows.append([f"all {len(outcomes)}", *(str(sum(counts[name, kind] for name in names)) for kind in kinds)])
    Table("fuzz", "", ["file", *kinds], rows).show()


if __name__ == "__main__":
    raise SystemExit(main())
