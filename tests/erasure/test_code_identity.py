"""Identity of the code of a class: what it computes counts, how it is written down does not."""

import sys
from pathlib import Path

import pytest

from erasure import LeaceEraser
from erasure.code_identity import code_identity
from erasure.datasets.digits import Digits
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache
from tests.conftest import ERASER

PLAIN = "class Mine:\n    def two(self):\n        return 1 + 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n" + PLAIN,
        '"""What it is."""\n' + PLAIN,
        PLAIN.replace("    def", '    """Two."""\n\n    def').replace("1 + 1", "(1   +   1)  # two"),
    ],
)
def test_comments_docstrings_and_formatting_do_not_count(written, text: str) -> None:
    assert code_identity(written(PLAIN)) == code_identity(written(text))


def test_code_counts_wherever_it_is_in_the_module(written) -> None:
    texts = [PLAIN, PLAIN.replace("1 + 1", "1 + 2"), PLAIN + "X = 1\n", PLAIN + "X = 'not a docstring'\n"]
    assert len({str(code_identity(written(text))) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "statement",
    [
        "import mine_help", "import mine_help as m", "from mine_help import X", "from mine_pack.inner import Y",
        "from mine_pack import inner", "import mine_pack.inner", "def f():\n    import mine_help",
    ],
)  # fmt: skip
def test_modules_that_it_imports_count_and_what_these_import(written, statement: str) -> None:
    def identity(value: int) -> dict:
        written(f"X = {value}\nMine = 0\n", "mine_help")
        written("Mine = 0\n", "mine_pack.__init__")
        written("from mine_help import X\nMine = Y = X\n", "mine_pack.more")
        written("from . import more\nMine = Y = 0\n", "mine_pack.inner")
        optional = "try:\n    import no_such_thing\nexcept ImportError:\n    pass\n"
        return code_identity(written(f"{statement}\nimport torch, json\n{optional}{PLAIN}"))

    before, after = identity(1), identity(2)
    assert {name for name in before if before[name] != after[name]} == {"mine_help"}
    assert not {name for name in before if name.startswith(("torch", "json"))}


def test_what_has_a_version_of_its_own_stands_by_it(written) -> None:
    versioned = "class Base:\n    version = 3\n    def two(self):\n        return {}\n"
    first, second = (written(versioned.format(value), name="Base") for value in (1, 2))
    assert code_identity(first) == code_identity(second) == {"mine.Base": 3}
    heir = versioned + "\nclass Mine(Base):\n    pass\n"
    assert code_identity(written(heir.format(1))) != code_identity(written(heir.format(2)))  # it is not inherited
    assert code_identity(LeaceEraser) == {"erasure.erasers.leace.LeaceEraser": LeaceEraser.version}


def test_a_class_without_source_is_told_to_have_a_version() -> None:
    space: dict = {"__name__": "no_file"}
    sys.modules["no_file"] = type(sys)("no_file")
    exec("class Typed: pass", space)
    with pytest.raises(ValueError, match=r"no_file.Typed has no source file .* give it a `version: ClassVar\[int\]`"):
        code_identity(space["Typed"])
    del sys.modules["no_file"]


def test_the_cache_tells_an_edited_eraser_from_what_it_was(written, digits_source: Digits, tmp_path: Path) -> None:
    def erased(result: str):
        eraser = written(ERASER.format(name="Mine", result=result))
        dataset = erased_dataset(digits_source, eraser, {}, dtype=digits_source.load().train.images.float().dtype,
                                 cache=Cache(tmp_path / "cache"))  # fmt: skip
        return float(dataset.splits["train"].images.std())

    assert erased("x") > 0.3
    assert erased("x * 0 + self.mean") < 0.3
    assert erased("x  # as before") > 0.3
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2
