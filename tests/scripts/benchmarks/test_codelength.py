"""The benchmark runs in miniature; function and command have to give equal bits for it to end."""

import pytest

from scripts.benchmarks import codelength


def test_function_and_command_give_equal_bits() -> None:
    small = ["--seeds", "1", "--sizes", "2", "--rounds", "1", "--train", "quick", "--model", "linear"]
    assert codelength.main(small) == 0


def test_numbers_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        codelength.main(["--sizes", "1"])
    assert "--sizes at least 2" in capsys.readouterr().err
