"""The benchmark of kernel codes runs in miniature; predictions are compared with refitting in tests/mdl."""

import pytest

from scripts.benchmarks import kernel_code


def test_it_runs() -> None:
    assert kernel_code.main(["--examples", "60", "--test", "20", "--product", "50"]) == 0


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        kernel_code.main(["--examples", "5"])
    assert "--examples must be at least 10" in capsys.readouterr().err
