"""Every kind of file that is read, damaged: what becomes of it?

    uv run pytest tests/test_damaged_files.py -n 0 --hypothesis-profile=thorough --hypothesis-show-statistics

Each case damages one file of a small, whole set of files: flips a bit or a digit, cuts, deletes, repeats, zeroes or
inserts bytes, replaces it by a hostile or another whole file; then reads it as the commands do. Good outcomes:

    unaffected   what comes back is the same
    recovered    the same, or computed again, and a warning says so
    one line     refused by a ValueError of one line that names the file
    other data   the user's own data without checksums: other values, under another identity

Bad are another number under the same name, code that ran, a hang, another exception.
"""

import contextlib
import io
import logging
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from erasure.store.checked_files import sealed
from tests.files_to_damage import FORMATS, Format, encoded_image
from tests.time_limit import HangError, limited

GOOD = ("unaffected", "recovered", "one line", "other data")
DAMAGES = ("flipped", "digit", "cut", "deleted", "repeated", "zeroed", "inserted", "replaced")
LIMIT_S = 30  # a case takes less than one
LONGEST_LINE = 600
CANARY = Path(tempfile.gettempdir()) / f"erasure-fuzz-{os.getpid()}"  # other tests run at the same time


class _Payload:
    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (CANARY,)


def _huge_array() -> bytes:
    """An .npz whose header says 8 TB."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 1000)})
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, header.getvalue())
    return file.getvalue()


_PNG = encoded_image(np.zeros((5, 9, 3), dtype=np.uint8))
PAYLOAD = pickle.dumps(_Payload())
HOSTILE: Sequence[bytes] = (
    b"", b"{}", b"[]", b"null", b'{"digest": "0"}', b'{"a": NaN}', b"[" * 100_000, b"\xff\xfe\x00", b"a: &a [*a]",
    PAYLOAD, _huge_array(), _PNG, _PNG[:16] + b"\x00\x0f\xff\xff" * 2 + _PNG[24:],
    f"!!python/object/apply:os.system ['touch {CANARY}']".encode(),
    f"dataset: {{name: digits}}\neraser: {{name: leace}}\nmodel: {{name: mlp}}\nseeds: [0]\n"
    f"+hydra.callbacks.x: {{_target_: os.system, command: touch {CANARY}}}\n".encode(),
    b"\xff" * 8 + b"{}", sealed({"state": "finished"}).encode(),
)  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_no_damage_becomes_a_wrong_number_code_a_hang_or_a_traceback(tmp_path: Path, kind: Format) -> None:
    with kind.context():
        whole = tmp_path / "whole"
        whole.mkdir()
        kind.write(whole)
        with copied(whole, tmp_path / "case") as copy:
            expected = kind.read(copy)

        @settings(max_examples=settings().max_examples // 8)
        @given(st.sampled_from(DAMAGES), st.randoms())
        def damage_is_noticed(how: str, chance: random.Random) -> None:
            with copied(whole, tmp_path / "case") as copy:
                path = chance.choice(sorted(copy.glob(kind.damaged)))
                path.write_bytes(damaged(path.read_bytes(), how, chance))
                outcome, detail = judged(kind, copy, expected)
            event(outcome)
            assert outcome in GOOD, f"{path.name} {how}: {outcome}: {detail}"

        damage_is_noticed()


@contextlib.contextmanager
def copied(folder: Path, to: Path) -> Iterator[Path]:
    try:
        yield shutil.copytree(folder, to)
    finally:
        shutil.rmtree(to)


def damaged(content: bytes, how: str, chance: random.Random) -> bytes:
    """A file's content, one of `DAMAGES` done to it."""
    start, length = chance.randrange(len(content)), chance.randrange(1, 40)
    if how == "digit":
        start = chance.choice([i for i, byte in enumerate(content) if chr(byte).isdigit()] or [0])
    before, hit, after = content[:start], content[start : start + length], content[start + length :]
    return {
        "flipped": lambda: before + bytes([hit[0] ^ 1 << chance.randrange(8)]) + hit[1:] + after,
        "digit": lambda: before + bytes([chance.choice(b"0123456789")]) + hit[1:] + after,
        "cut": lambda: before,
        "deleted": lambda: before + after,
        "repeated": lambda: before + hit + hit + after,
        "zeroed": lambda: before + bytes(len(hit)) + after,
        "inserted": lambda: before + bytes(chance.choices(range(256), k=length)) + hit + after,
        "replaced": lambda: chance.choice(HOSTILE),
    }[how]()


def judged(kind: Format, place: Path, whole: tuple[str, Any]) -> tuple[str, str]:
    """Outcome of reading damaged files, and a word on it."""
    outcome, detail = read_and_judged(kind, place, whole)
    if CANARY.exists():
        CANARY.unlink()
        outcome = "code run"
    return outcome, detail


def read_and_judged(kind: Format, place: Path, whole: tuple[str, Any]) -> tuple[str, str]:
    heard = BufferingHandler(10**6)
    heard.setLevel(logging.WARNING)
    logging.getLogger().addHandler(heard)
    try:
        with limited(LIMIT_S), warnings.catch_warnings(record=True):
            warnings.simplefilter("ignore")
            identity, values = kind.read(place)
    except HangError:
        return "hang", f"more than {LIMIT_S} s"
    except ValueError as error:
        line = str(error)
        named = "\n" not in line and len(line) < LONGEST_LINE and str(place) in line
        return "one line" if named else "unclear line", f"{type(error).__name__}: {line}"
    except Exception as error:  # the question
        return "traceback", f"{type(error).__name__}: {error}"
    finally:
        logging.getLogger().removeHandler(heard)
    if heard.buffer:  # a step that is computed again is not there
        return ("recovered" if values in (whole[1], None) else "wrong number"), heard.buffer[0].getMessage()
    if values == whole[1]:
        return "unaffected", ""
    return ("other data" if kind.own_data and identity != whole[0] else "wrong number"), f"{values} not {whole[1]}"


def run(content: bytes) -> object:
    """Do as a pickle that is opened: carry out what it holds."""
    CANARY.touch()
    raise ValueError("a.txt is damaged")


def mumble(content: bytes) -> object:
    raise ValueError("something is wrong")


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda content: content, "wrong number"),
        (run, "code run"),
        (lambda content: time.sleep(60), "hang"),
        (lambda content: {}["loss"], "traceback"),
        (mumble, "unclear line"),
    ],
)
def test_a_careless_reader_is_found(tmp_path: Path, monkeypatch, read: Callable, outcome: str) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LIMIT_S", 1)
    (tmp_path / "a.txt").write_bytes(
        next(content for content in HOSTILE if b"_touch" in content or b"touch" in content)
    )
    careless = Format("careless", lambda _: None, "a.txt", lambda place: ("", read((place / "a.txt").read_bytes())))
    assert judged(careless, tmp_path, ("", None))[0] == outcome


@pytest.mark.parametrize("how", DAMAGES)
def test_every_damage_changes_a_file(how: str) -> None:
    content = bytes(range(1, 100))
    changed = [damaged(content, how, random.Random(seed)) for seed in range(20)]
    assert sum(each != content for each in changed) >= 10
