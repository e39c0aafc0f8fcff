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

import argparse
import contextlib
import logging
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from erasure.progress import Display, console
from scripts.studies.formats import CANARY, FORMATS, HOSTILE, Format

GOOD = ("unaffected", "recovered", "one line", "other data")
_LIMIT_S = 30  # a case takes less than one
_LONGEST_LINE = 600


class _HangError(BaseException):
    """A case took too long; no reader's `except Exception` may take it for damage."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case; `detail` reproduces a bad one."""

    format: str
    kind: str
    detail: str = ""


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m scripts.studies.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, Display("fuzz") as display:

        def show(i: int) -> None:
            display.update(i / options.cases, f"case {i} of {options.cases}")

        outcomes = list(fuzz(Path(folder), options.cases, options.seed, show))
    print_table(outcomes)
    bad = [outcome for outcome in outcomes if outcome.kind not in GOOD]
    for outcome in bad:
        print(f"{outcome.format}: {outcome.kind}: {outcome.detail}", file=sys.stderr)
    return 1 if bad else 0


def fuzz(
    folder: Path, cases: int, seed: int, show: Callable[[int], None] = lambda _: None, formats: Sequence[Format] = ()
) -> Iterator[Outcome]:
    """Outcomes of `cases` cases, the formats in turn; the same for the same seed.

    Args:
        folder: for the files; empty.
        cases: how many.
        seed: of the damage.
        show: called with each case's number.
        formats: which; all by default.
    """
    formats = formats or FORMATS
    with contextlib.ExitStack() as stack:
        whole = {}
        for each in formats:
            stack.enter_context(each.context())
            place = folder / "whole" / each.name
            place.mkdir(parents=True)
            each.write(place)
            shutil.copytree(place, folder / "case")
            whole[each.name] = each.read(folder / "case")
            shutil.rmtree(folder / "case")
        for i in range(cases):
            show(i)
            each = formats[i % len(formats)]
            shutil.copytree(folder / "whole" / each.name, folder / "case")
            yield _case(each, folder / "case", whole[each.name], random.Random(f"{seed} {i}"))
            shutil.rmtree(folder / "case")


def _case(each: Format, place: Path, whole: tuple[str, Any], chance: random.Random) -> Outcome:
    path = chance.choice(sorted(place.glob(each.damaged)))
    how = chance.choice(DAMAGES)
    path.write_bytes(how(path.read_bytes(), chance))
    kind, detail = _judged(each, place, whole)
    if CANARY.exists():
        CANARY.unlink()
        kind = "code run"
    return Outcome(each.name, kind, f"{how.__name__[1:]} of {path.name}: {detail}")


def _judged(each: Format, place: Path, whole: tuple[str, Any]) -> tuple[str, str]:
    """What reading damaged files comes to, and a word on it."""
    heard = _Warnings()
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
    if heard.lines:  # a part that is computed again is not there
        return ("recovered" if values in (whole[1], None) else "wrong number"), heard.lines[0]
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


def _bit(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _digit(content: bytes, chance: random.Random) -> bytes:
    digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    changed = bytearray(content)
    changed[chance.choice(digits or [0])] = chance.choice(b"0123456789")
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _deleted(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randrange(1, 40) :]


def _repeated(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    end = start + chance.randrange(1, 40)
    return content[:end] + content[start:]


def _zeroed(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + bytes(len(content[start : start + 20])) + content[start + 20 :]


def _inserted(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + chance.randbytes(chance.randrange(1, 20)) + content[start:]


def _replaced(content: bytes, chance: random.Random) -> bytes:  # noqa: ARG001
    return chance.choice(HOSTILE)


DAMAGES = (_bit, _digit, _cut, _deleted, _repeated, _zeroed, _inserted, _replaced)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Counts, a row per format."""
    kinds = [*GOOD, *sorted({outcome.kind for outcome in outcomes} - set(GOOD))]
    counts = Counter((outcome.format, outcome.kind) for outcome in outcomes)
    table = Table("file", *kinds, box=box.SIMPLE_HEAD)
    for name in dict.fromkeys(outcome.format for outcome in outcomes):
        table.add_row(name, *(str(counts[name, kind] or "") for kind in kinds))
    total = Counter(outcome.kind for outcome in outcomes)
    table.add_row(f"all {len(outcomes)}", *(str(total[kind]) for kind in kinds))
    console(min_width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
