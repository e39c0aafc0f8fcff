"""Tables say in words where erasure holds for the training images alone, and where codelengths are of few labels."""

from dataclasses import replace
from pathlib import Path

from harness.result import Result
from harness.results.arrange import arrange
from harness.results.read import read_runs
from mdl.codelength_report import table_of
from mdl.result import MdlResult
from tests.made_up_runs import stored, write_run


def made(root: Path, eraser: str, train: dict, test: dict, **changes: object) -> MdlResult:
    result = write_run(root, dataset="digits", eraser=eraser, seeds=(0, 1), preset="paper").result
    assert isinstance(result, MdlResult)
    parts = {
        split: replace(result.certificate[split], **values) for split, values in (("train", train), ("test", test))
    }
    return replace(result, certificate={**result.certificate, **parts}, **changes)


def caption(*results: Result) -> str:
    (comparison,) = arrange(stored(results))
    return table_of(comparison).caption()


UNERASED = {"mean_gap": 0.4, "covariance_gap": 0.7}
MEANS = {"mean_gap": 1e-8, "covariance_gap": 0.7}
BOTH = {"mean_gap": 1e-8, "covariance_gap": 1e-8}


def orders(share: float, z_score: float) -> dict:
    return {"order_shares": [share, 0.1, 0.0, 0.0], "order_z_scores": [z_score, 9.0, 0.0, 0.0]}


def test_class_means_that_differ_on_test_images_are_said_in_words(tmp_path: Path) -> None:
    control = made(tmp_path, "control", UNERASED, orders(0.2, 50.0))
    leace = made(tmp_path, "leace", MEANS, orders(0.06, 2.3))
    qleace = made(tmp_path, "qleace", BOTH, orders(0.01, 1.9))
    text = "Erased class means still differ on test examples (z > 2"
    relative = "; in brackets their share of the variance, relative to the control's"
    assert f"{text}{relative}): LEACE (30 %)." in caption(control, leace, qleace)
    assert f"{text}): LEACE." in caption(leace, qleace)
    assert text not in caption(control, qleace)
    unknown = made(tmp_path, "leace", MEANS, {"order_shares": None, "order_z_scores": None})
    assert text not in caption(control, unknown)
    untouched = made(tmp_path, "leace", UNERASED, orders(0.2, 50.0))  # such an eraser promises nothing
    assert text not in caption(control, untouched)


def test_too_few_training_images_are_said_once(tmp_path: Path) -> None:
    few = {"dim": 192, "smallest_class": 43}
    control = made(tmp_path, "control", UNERASED | {"n": 130}, {}, **few)
    leace = made(tmp_path, "leace", MEANS | {"n": 130}, {}, **few)
    qleace = made(tmp_path, "qleace", BOTH | {"n": 130}, {}, **few)
    said = "Few examples: class moments cannot be estimated from 130 examples (43 in the smallest class) of 192 values"
    assert caption(control, leace, qleace).count(said) == 1
    assert "Few examples" not in caption(control)
    enough = [replace(one, dim=100) for one in (control, leace)]
    assert "Few examples" not in caption(*enough)
    of_a_class = replace(qleace, dim=100)
    assert "class covariances cannot be estimated from the 43 examples of a class" in caption(control, of_a_class)
    older = [replace(one, dim=None, smallest_class=None) for one in (control, leace)]
    assert "Few examples" not in caption(*older)


def test_codelengths_of_few_labels_are_said(tmp_path: Path) -> None:
    control = made(tmp_path, "control", UNERASED, {})
    assert "Few labels" not in caption(control)
    first, *others = control.curve
    small = replace(control, curve=[replace(first, n=2), *others])
    assert "Few labels: the first network learns from 2 examples of 10 classes and codes the next 4,094 of" in caption(
        small
    )
    coded = {**small.config, "mdl": {**small.config["mdl"], "code": "replay"}}
    assert "Few labels" not in caption(replace(small, config=coded))  # which codes every label


def test_what_a_run_stores_is_read_again(tmp_path: Path) -> None:
    run = write_run(tmp_path, dataset="digits", eraser="leace", seeds=(0,), preset="paper", dim=64, smallest_class=3)
    (stored,) = read_runs([tmp_path])
    assert stored.result == run.result
    assert stored.result is not None
    assert (stored.result.dim, stored.result.smallest_class) == (64, 3)
