"""Codelengths in Python: the command's numbers, plain loops, any network, refusals (`train.examples_in_memory`)."""

import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm

from conf.check import check
from conf.compose import composed
from conf.groups import preset
from conf.schema import validate
from erasure import LeaceEraser
from harness.experiment import Experiment
from mdl import codelength
from mdl.__main__ import COMMAND
from mdl.result import MdlResult
from mdl.settings import MdlConfig
from models.polynomial import PolynomialClassifier
from sample_info import unique_information
from sample_info.settings import TrainingSettings
from train import fit
from train.randomness import permutation
from train.settings import TrainSettings

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 6))
Y = np.where(X[:, 0] + 0.5 * RNG.standard_normal(240) > 0, "right", "left")  # one bit, told in part by one column
XOR = (X[:, 1] * X[:, 2] > 0).astype(np.int64)  # told by no linear function
FRAME = pd.DataFrame(X, columns=list("abcdef"))
QUICK: dict[str, Any] = {"settings": "quick", "seeds": 2, "sizes": 3}
ONE_EPOCH = TrainSettings(**{**preset("train", "quick"), "max_epochs": 1})
STEPS = TrainingSettings(learning_rate=5e-4, steps=50, readout_gain=1.0)


def in_file(folder: Path) -> list[str]:
    """Overrides that read the vectors from a file."""
    path = folder / "vectors.npz"
    np.savez(path, x=X, y=Y)
    return ["dataset=arrays", f"dataset.path={path}", "logger.mode=disabled", f"cache_dir={folder}/cache"]


@pytest.mark.parametrize(
    ("model", "validation"), [("mlp", "given"), ("mlp", "prefix"), ("kernel", "given"), ("mlp", "none")]
)
def test_python_gives_the_bits_of_the_command(tmp_path: Path, model: str, validation: str) -> None:
    """Without validation examples the code is "replay", whose training nothing stops."""
    words = [*in_file(tmp_path), "eraser=control", f"model={model}", f"runs_dir={tmp_path}/runs", "seeds=[3,5]"]
    trained = ["train=quick", f"mdl.validation={validation}"] if model == "mlp" else []
    options: dict[str, Any] = {"settings": "quick"} if model == "mlp" else {}
    if validation == "none":
        trained, options["code"] = ["train=quick", "mdl.code=replay"], "replay"
    config = composed("mdl", [*words, *trained, "mdl.num_chunks=3"], MdlConfig)
    experiment = COMMAND.experiment(config)
    result = experiment.carry_out(COMMAND.prepare, COMMAND.axes)
    assert isinstance(result, MdlResult)
    where = {name: index.numpy() for name, (index, _) in experiment.split_positions.items()}
    parts: dict[str, Any] = {name: (X[index], Y[index]) for name, index in where.items()}
    x, y = parts.pop("train")
    if validation in ("prefix", "none") or model == "kernel":
        del parts["validation"]
    code = codelength(x, y, model, seeds=[3, 5], sizes=3, **parts, **options)
    assert code.total_bits == result.mdl.total_bits
    tested = [point.ce_test_bits for point in result.curve]
    assert [list(losses) for _, losses in code.curve.groupby("n")["test_loss_bits"]] == tested
    assert code.label_bits.sum(1) == pytest.approx(np.array(code.total_bits), rel=1e-5)


class Own(nn.Module):
    version: ClassVar[int] = 1  # or its source would identify it, and all that this file imports

    def __init__(self, num_classes: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.Linear(width, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_a_network_that_yaml_names_costs_what_it_costs_in_python(tmp_path: Path) -> None:
    words = [*in_file(tmp_path), "eraser=control", f"runs_dir={tmp_path}/runs", "seeds=[3,5]", "train=quick"]
    words += ["train.max_epochs=1"]
    plain = composed("mdl", [*words, "mdl.validation=prefix", "mdl.num_chunks=3"], MdlConfig).plain
    section = {"name": "own", "_target_": f"{__name__}.Own"}
    config, wide = (
        validate({**plain, "model": section | options}, MdlConfig) for options in (dict[str, int](), {"width": 4})
    )
    experiment = COMMAND.experiment(config)
    index = experiment.split_positions["train"][0].numpy()
    result = experiment.carry_out(COMMAND.prepare, COMMAND.axes)
    assert isinstance(result, MdlResult)
    short: dict[str, Any] = {"seeds": [3, 5], "sizes": 3, "settings": ONE_EPOCH}
    code = codelength(X[index], Y[index], lambda: Own(2), **short)
    assert code.total_bits == result.mdl.total_bits
    assert codelength(X[index], Y[index], Own, **short).total_bits == code.total_bits
    assert experiment.identity() != Experiment.from_config("mdl", wide).identity()


def plain_loop(x: NDArray, y: NDArray, probe: LogisticRegression, sizes: list[int], seed: int) -> float:
    """The online code of Voita & Titov, as one writes it down."""
    order = permutation(seed, len(y)).numpy()
    bits = sizes[0] * math.log2(len(np.unique(y)))
    for n, after in itertools.pairwise(sizes):
        known, following = order[:n], order[n:after]
        fitted = probe.fit(x[known], y[known])
        column = np.searchsorted(fitted.classes_, y[following])
        bits -= np.log2(fitted.predict_proba(x[following])[np.arange(len(column)), column]).sum()
    return bits / len(y)


def test_a_classifier_of_scikit_learn_costs_what_a_plain_loop_says() -> None:
    sizes = [20, 60, 120, 240]
    done: list[float] = []
    code = codelength(X, Y, LogisticRegression(), seeds=3, sizes=sizes, on_progress=lambda share, _: done.append(share))
    assert done[-1] == 1
    plain = [plain_loop(X, Y, LogisticRegression(), sizes, seed) for seed in range(3)]
    assert code.bits_per_label == pytest.approx(plain, abs=1e-9)
    frame = codelength(
        pd.DataFrame(X, columns=list("abcdef")), pd.Series(Y), LogisticRegression(), seeds=3, sizes=sizes
    )
    assert frame.bits_per_label == pytest.approx(plain, abs=1e-9)


def test_a_network_costs_what_a_plain_torch_loop_says_within_its_seeds() -> None:
    sizes, seeds = [60, 240], 3
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y == "right").long()
    plain = []
    for seed in range(seeds):
        order, bits = permutation(seed, len(y)), 60.0
        for n, after in itertools.pairwise(sizes):
            fits, stops, following = order[: n - n // 10], order[n - n // 10 : n], order[n:after]
            torch.manual_seed(seed)
            net = nn.Linear(6, 2)
            optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
            best, kept = math.inf, {}
            for _ in range(300):
                loss = nn.functional.cross_entropy(net(x[fits]), y[fits])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    stopping = float(nn.functional.cross_entropy(net(x[stops]), y[stops]))
                if stopping < best:
                    best, kept = stopping, {name: value.clone() for name, value in net.state_dict().items()}
            net.load_state_dict(kept)
            with torch.no_grad():
                bits += float(nn.functional.cross_entropy(net(x[following]), y[following], reduction="sum")) / math.log(
                    2
                )
        plain.append(bits / len(y))
    ours = codelength(X, Y, lambda: nn.Linear(6, 2), seeds=seeds, sizes=sizes)
    spread = max(np.std(plain, ddof=1), np.std(ours.bits_per_label, ddof=1))
    assert np.mean(ours.bits_per_label) == pytest.approx(np.mean(plain), abs=float(2 * spread))
    assert np.mean(plain) < 0.85  # of 1 bit: both have learnt


def test_xor_is_told_by_a_kernel_and_by_no_linear_probe_and_leace_takes_a_linear_label() -> None:
    linear, kernel = codelength(X, XOR, "linear", **QUICK), codelength(X, XOR, "kernel", seeds=2, sizes=3)
    assert min(linear.bits_per_label) > 0.98
    assert max(kernel.bits_per_label) < 0.8
    z = (Y == "right").astype(int)
    erased = LeaceEraser.fit(torch.tensor(X), torch.tensor(z))(torch.tensor(X))
    before, after = (
        codelength(X, Y, LogisticRegression(), seeds=3),
        codelength(erased, Y, LogisticRegression(), seeds=3),
    )
    difference = after - before
    assert difference.mean == pytest.approx(np.mean(after.bits_per_label) - np.mean(before.bits_per_label))
    assert difference.mean > 0.2
    assert difference.standard_error is not None
    assert str(difference).startswith("+")
    assert "standard error over 3 paired seeds" in str(difference)


@pytest.mark.parametrize("model", ["kernel", "empirical_ntk", "linear"])
def test_test_examples_change_no_label_of_the_code(model: str) -> None:
    options: dict[str, Any] = {"seeds": 1, "sizes": [1, 30, 60]}  # nothing stops a kernel
    if model == "linear":
        options |= {"settings": "quick", "sizes": [10, 30, 60]}
    else:  # constant examples say nothing
        assert codelength(np.ones((60, 6)), Y[:60], model, **options).total_bits == pytest.approx([60])
    alone = codelength(X[:60], Y[:60], model, **options)
    tested = codelength(X[:60], Y[:60], model, **options, test=(X[60:90], Y[60:90]))
    np.testing.assert_allclose(alone.label_bits, tested.label_bits, rtol=1e-6)
    assert "test_loss_bits" in tested.curve
    assert "test_loss_bits" not in alone.curve


def test_modes_of_torch_change_no_number() -> None:
    training = replace(check("", preset("train", "quick"), TrainSettings), max_epochs=3)
    quick: dict[str, Any] = {"seeds": 1, "settings": training}
    (x, y), small = (X[:60], Y[:60]), {"name": "mlp", "width": 8}
    fitted = fit(x, y, small, **quick)

    def numbers() -> list[Any]:
        again = fit(x, y, lambda: nn.Linear(6, 2), **quick)
        codes = [codelength(x, y, small, sizes=[12, 60], code=code, **quick) for code in ("blocks", "replay")]
        codes.append(codelength(x, y, "empirical_ntk", sizes=[12, 60], seeds=1))
        scores = unique_information(small, x, y, X[60:65], training=STEPS)
        tables = (fitted.predict_proba(X), again.losses, scores.select_dtypes("number"))
        return [code.total_bits for code in codes] + [np.asarray(table).tolist() for table in tables]

    right = numbers()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
            assert numbers() == right
            assert torch.is_inference_mode_enabled()
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "given",
    [
        [bool(label) for label in XOR],
        torch.tensor(XOR),
        pd.Series(XOR),
        pd.DataFrame({"y": XOR}),
        XOR[:, None],
    ],
)
def test_labels_in_any_container_are_the_same_classes(given: Any) -> None:
    code = codelength(X, given, GaussianNB(), seeds=1, sizes=3, test=(X, given))
    right = codelength(X, XOR, GaussianNB(), seeds=1, sizes=3, test=(X, XOR))
    assert code.num_classes == 2
    assert code.total_bits == right.total_bits
    pd.testing.assert_frame_equal(code.curve, right.curve)


def test_examples_in_bfloat16_are_taken_and_of_another_byte_order_refused() -> None:
    with pytest.raises(ValueError, match="x has dtype >f8: convert it to real numbers"):
        codelength(X.astype(">f8"), Y, GaussianNB(), seeds=1, sizes=3)
    half = torch.tensor(X).bfloat16()
    listed, stacked = (
        codelength(x, Y, nn.Linear(6, 2), seeds=1, sizes=2, settings="quick").total_bits
        for x in ([*half], half.float())
    )
    assert listed == stacked


def test_a_difference_says_how_many_networks_were_not_trained() -> None:
    noise = RNG.integers(0, 2, 240)
    learnt, untrained = (codelength(x, noise, "mlp", **QUICK) for x in (noise[:, None] + 0.1 * X[:, :1], X))
    (of_learnt, of_noise), trainings = (learnt.untrained[0], untrained.untrained[0]), 4
    assert of_noise > of_learnt
    assert untrained.untrained[1] == trainings
    said = f"the untrained network was scored in {of_noise} and {of_learnt} of {trainings} trainings"
    assert str(untrained - learnt).endswith(said)


def test_a_random_classifier_in_a_pipeline_takes_the_seed_and_keeps_its_own() -> None:
    def bits(state: int | None, *seeds: int) -> list[float]:
        tree = DecisionTreeClassifier(splitter="random", max_depth=2, random_state=state)
        model = make_pipeline(StandardScaler(), tree)
        code = codelength(X, Y, model, seeds=seeds, sizes=3)
        assert tree.random_state == state
        return [*code.total_bits]

    assert bits(None, 3, 4) == bits(3, 3) + bits(4, 4)
    assert bits(3, 4) != bits(4, 4)


def test_classes_that_a_classifier_has_not_seen_get_their_share_of_the_uniform_code() -> None:
    y = np.array([0, 1] * 10 + [2] * 10)
    order = permutation(0, 30).numpy()
    labels = np.empty(30, dtype=int)
    labels[order] = y
    x = np.eye(3)[labels]
    code = codelength(x, labels, DecisionTreeClassifier(), seeds=1, sizes=[20, 30])
    assert code.label_bits[0, order[:20]] == pytest.approx(math.log2(3))
    assert code.label_bits[0, order[20:]] == pytest.approx(math.log2(3))  # class 2 after 0 and 1 alone
    one_class = codelength(x, np.where(np.arange(30) == order[-1], 1, 0), LogisticRegression(), seeds=1, sizes=[20, 30])
    assert one_class.bits_per_label == pytest.approx([1.0])


def test_a_search_takes_the_seed_for_its_splits() -> None:
    """Without it each call would shuffle otherwise, and choose another smoothing."""
    noise, folds = RNG.integers(0, 2, 120), KFold(2, shuffle=True)
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [10.0**-i for i in range(9)]}, cv=folds)
    once, again = (codelength(X[:120], noise, search, seeds=3, sizes=4) for _ in range(2))
    assert [*once.total_bits] == [*again.total_bits]
    assert folds.random_state is None


def test_weights_within_one_against_the_rest_are_those_of_the_rest_and_the_class() -> None:
    rare = np.where(np.arange(240) % 30 == 0, 1, 2 * XOR)
    one_against_rest = OneVsRestClassifier(LogisticRegression(class_weight={0: 1, 1: 20}))
    words, numbers = (
        codelength(X, y, one_against_rest, seeds=2, sizes=[10, 20, 240])
        for y in (np.array(["a", "b", "c"])[rare], rare)
    )
    assert words.total_bits == numbers.total_bits


def test_a_prefix_may_lack_a_weighted_class() -> None:
    rare = np.where(np.arange(240) == 0, 2, XOR)
    codes = [
        codelength(X, rare, LogisticRegression(class_weight=weights), seeds=2, sizes=[20, 90, 240])
        for weights in ({2: 9.0}, {0: 1.0, 1: 1.0, 2: 9.0})
    ]
    assert codes[0].total_bits == codes[1].total_bits


def test_weights_of_classes_are_those_of_the_labels() -> None:
    words, numbers = (
        codelength(X, y, make_pipeline(LogisticRegression(class_weight=weights)), seeds=[2**40], sizes=[3, 90, 240])
        for y, weights in ((Y, {"left": 1, "right": 9}), (Y == "right", {False: 1, True: 9}))
    )
    assert words.total_bits == numbers.total_bits
    assert words.total_bits != codelength(X, Y, LogisticRegression(), seeds=[2**40], sizes=[3, 90, 240]).total_bits
    with pytest.raises(ValueError, match="not in class_weight"):
        codelength(X, XOR, LogisticRegression(class_weight={7: 2}), sizes=3)


def test_a_certain_and_wrong_classifier_costs_forty_bits_not_infinity() -> None:
    x, y = np.zeros((30, 1)), np.array([0, 1, 1] * 10)
    x[:15, 0] = 1
    order = permutation(0, 30).numpy()
    x[order, 0] = np.r_[np.zeros(10), np.ones(10), np.zeros(10)]
    y[order] = np.r_[np.zeros(10), np.ones(10), np.ones(10)].astype(int)
    code = codelength(x, y, DecisionTreeClassifier(), seeds=1, sizes=[20, 30])
    assert code.label_bits[0, order[20:]] == pytest.approx(-math.log2(1e-12), rel=1e-6)


def test_any_module_is_trained_for_each_seed_as_alone() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))

    short: dict[str, Any] = {"sizes": 3, "settings": replace(ONE_EPOCH, max_epochs=5)}
    both = codelength(X, Y, net, seeds=2, **short)
    alone = [codelength(X, Y, net, seeds=[seed], **short).total_bits[0] for seed in (0, 1)]
    assert both.total_bits == alone
    assert both.total_bits[0] != both.total_bits[1]
    grid = torch.tensor(X, dtype=torch.float32).view(240, 1, 2, 3)
    images = codelength(
        grid, Y, lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(4, 2)), seeds=2, **short
    )
    assert len(images.total_bits) == 2


def test_networks_are_the_same_in_several_threads() -> None:
    def net() -> nn.Module:
        return nn.Sequential(*(nn.Linear(6, 6) for _ in range(6)), nn.Linear(6, 2))

    def losses(_: int) -> list[float]:
        return fit(X[:20], Y[:20], net, seeds=4, settings=ONE_EPOCH).losses["validation_loss_bits"].tolist()

    expected, before = losses(0), torch.get_rng_state()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert [*threads.map(losses, range(8))] == [expected] * 8
    finally:
        sys.setswitchinterval(interval)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pruned_network_is_trained() -> None:
    def net() -> nn.Module:
        layers = [nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)]
        return nn.Sequential(prune.random_unstructured(layers[0], "weight", 0.5), *layers[1:])

    assert fit(X, Y, net, seeds=1, settings="quick").losses["validation_loss_bits"][0] < 0.9


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.second(self.first(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(6, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.cell(x)[0])


class Unrepeatable(nn.Module):
    drawn = 0

    def __init__(self) -> None:
        super().__init__()
        Unrepeatable.drawn += 1
        self.out = nn.Linear(6, 2)
        nn.init.constant_(self.out.bias, Unrepeatable.drawn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


class Unnamed(ClassifierMixin, BaseEstimator):
    """A classifier that does not say which classes its columns belong to."""

    def fit(self, X: Any, y: Any) -> "Unnamed":
        self.inner_ = GaussianNB().fit(X, y)
        return self

    def predict_proba(self, X: Any) -> NDArray:
        return self.inner_.predict_proba(X)


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Forgets(nn.Module):
    """Its reset_parameters leaves a parameter as it is, perhaps trained."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.scale = nn.Linear(6, 2), nn.Parameter(torch.ones(1))

    def reset_parameters(self) -> None:
        self.out.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x) * self.scale


class Keeps(nn.Linear):
    """Keeps an output, with its gradient."""

    def __init__(self) -> None:
        super().__init__(6, 2)
        self.latest = super().forward(torch.zeros(6))


class Odd(LogisticRegression):
    """A classifier that returns no probabilities."""

    def __init__(self, rows: str = "ones") -> None:
        super().__init__()
        self.rows = rows

    def predict_proba(self, X: Any) -> NDArray:
        p = super().predict_proba(X)
        return {"ones": np.ones_like(p), "negative": 3 * p - 1, "nan": np.nan * p, "one column": p[:, :1]}[self.rows]


FROZEN = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
FROZEN[0].requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5)).eval(), "random in training .*: set the rate to 0"),
        (nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2)).eval(), "buffers change .* use LayerNorm"),
        (lambda: nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5)), "random in training .*: set the rate to 0"),
        (lambda: nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2)), "buffers change .* use LayerNorm"),
        (lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False), r"returns \[3, 6\] for 3 examples"),
        (lambda: nn.Linear(5, 2), r"fails on examples \[3, 6\]"),
        (lambda: nn.Linear(6, 2).double(), r"weights of torch.float64, .*: pass the module's .float\(\)"),
        (Tied, "two of its parts share a parameter"),
        (Recurrent, "copies of its weights"),
        (lambda: FROZEN, "returns the same module again: make a new one in every call"),
        (OwnParameter(), r"no reset_parameters\(\) of its parts draws weight anew: pass a function"),
        (Forgets(), r"no reset_parameters\(\) of its parts draws scale anew: pass a function"),
        (Keeps(), r"cannot be copied \(Only Tensors .*: pass a function"),
        (Unrepeatable, "different weights from equal seeds"),
        (lambda: nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.Linear(6, 2)), "buffers change .*spectral_norm"),
        (lambda: nn.Sequential(nn.Linear(6, 2), nn.Softmax(1)), "returns probabilities: return logits"),
        (FROZEN, "0.weight is frozen .* pass the frozen part's outputs as x"),
        (lambda: 3, "returned a int"),
        (SVC(), "SVC: no network; of classifiers, .* alone takes instances that have predict_proba"),
        (LogisticRegression, "LogisticRegression: no network; of classifiers, .* alone takes instances"),
        (nn.Linear, "cannot be called without arguments"),
        (lambda: nn.LazyLinear(2), "weight has no shape before the first examples"),
        (PolynomialClassifier, r"makes a models.classifier.Classifier: pass that"),
        ("mpl", "choose from .*mlp"),
        ({"name": "mlp", "widht": 3}, "widht: did you mean width"),
    ],
)
def test_a_network_that_would_give_wrong_numbers_is_refused_in_a_line(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        codelength(X, Y, model, **QUICK)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": X[:, 0]}, "labels are integers or strings"),
        ({"y": [None, *Y[1:]]}, "y h.*None"),
        ({"y": torch.tensor(X[:, 0]).bfloat16()}, "labels are integers or strings"),
        ({"y": ["a"] * 240}, "y has 1 class"),
        ({"y": np.eye(2, dtype=int)[XOR]}, r"y has shape \[240, 2\].*y.argmax\(1\)"),
        (
            {"x": FRAME, "y": pd.Series(Y)[::-1]},
            r"x and y have the same row .*: pass y.loc\[x.index\]",
        ),
        ({"x": FRAME, "test": (FRAME[list("fedcba")], Y)}, "test x has other columns than x"),
        ({"x": FRAME, "test": (FRAME.rename(columns={"c": "g"}), Y)}, "test x has other columns than x"),
        ({"x": np.zeros((240, 8, 8, 3), np.uint8)}, r"looks like \[n, H, W, C\]"),
        ({"model": Unnamed()}, "Unnamed: predict_proba must return a probability of each class in classes_"),
        ({"sizes": [10.0, 240.0]}, "sizes=10.0: give a whole number"),
        *(({"model": Odd(rows)}, "Odd: predict_proba must") for rows in ("ones", "negative", "nan", "one column")),
        ({"x": X + 1e8}, r"float32 blurs column 0 of mean 1e\+08 .*standardised"),
        ({"x": X * 1e-50}, "float32 blurs column 0"),
        ({"x": 2**62 + (1000 * X).astype(np.int64)}, "float32 blurs column 0"),
        ({"x": 2**60 + (10 * X).astype(np.int64)}, "float32 blurs column 0"),
        ({"x": X * 1e200}, "x is not finite in float32, in row 0"),
        ({"test": (X * 1e200, Y)}, "test x is not finite in float32, in row 0"),
        (
            {"model": GaussianNB(), "validation": (X, Y)},
            "validation is for networks, and a GaussianNB .*: leave it out",
        ),
        ({"model": GaussianNB(), "code": "replay"}, "code is for networks, and a GaussianNB is fitted"),
        ({"model": GaussianNB(), "flip": True}, "flip is for networks, and a GaussianNB is fitted"),
        ({"model": GaussianNB(), "settings": "quick"}, "settings is for networks, and a GaussianNB is fitted"),
        (
            {"model": "kernel", "validation": (X, Y)},
            "validation is for networks, and model=kernel has an exact code: leave it out",
        ),
        (
            {"model": "empirical_ntk", "settings": "quick"},
            "settings is for networks, and model=empirical_ntk has an exact code",
        ),
        ({"sizes": [1, 240]}, r"sizes=\[1, 240\]: one example cannot stop a training on none"),
        ({"test": X}, r"test: pass a pair \(x, y\)"),
        ({"y": Y[:100]}, r"x has shape \[240, 6\] for 100 labels"),
        ({"x": np.where(np.arange(6) == 2, np.nan, X)}, "x is not finite in float32, in row 0"),
        ({"sizes": [10, 100]}, "the last all 240 examples"),
        ({"sizes": 1}, "sizes=1: need at least two"),
        (
            {"sizes": 241},
            "sizes=241: need 2,410 examples, .* 240: take more .* a list, ascending from 2 to 240",
        ),
        ({"seeds": [1, 1]}, "distinct ones"),
        ({"seeds": 0}, "seeds"),
        ({"settings": "fast"}, "settings='fast': choose from default, paper, quick"),
        ({"test": (X, ["up"] * 240)}, "test: label 'up' is none of y's"),
        ({"test": (X, pd.Series(np.full(240, 7), index=range(7, 247)))}, "test: label 7 is none of y's"),
        ({"test": (X[:, :3], Y)}, "test x has examples"),
        ({"test": (X, Y[:5])}, r"test x has shape \[240, 6\] for 5 labels: need \[5, d\]"),
        ({"validation": (X[:5], Y)}, r"validation x has shape \[5, 6\] for 240 labels: need \[240, d\]"),
        ({"device": "cuda:77"}, "CUDA devices"),
    ],
)
def test_what_cannot_be_coded_is_refused_in_a_line(changes: dict[str, Any], message: str) -> None:
    settings = {} if "model" in changes else {"settings": "quick"}
    options = {"x": X, "y": Y, "model": "linear", "seeds": 2, "sizes": 3, **settings, **changes}
    with pytest.raises(ValueError, match=message) as refusal:
        codelength(options.pop("x"), options.pop("y"), options.pop("model"), **options)
    assert "\n" not in str(refusal.value)


def test_a_module_of_the_users_is_left_as_it_was(caplog) -> None:
    net = nn.Linear(6, 2).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    codelength(X, Y, net, **QUICK)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net.training
    assert "Linear: every training draws its weights anew" in caplog.text


def test_a_column_that_varies_by_rounding_alone_counts_as_constant() -> None:
    rounded = 5 * (1 + np.finfo(float).eps * (np.arange(240) % 7 % 2))
    codes = [codelength(np.c_[X, column], Y, "kernel", seeds=1, sizes=3) for column in (rounded, np.full(240, 5))]
    assert codes[0].total_bits == codes[1].total_bits


def test_half_precision_is_raised_and_the_remedies_that_messages_name_work() -> None:
    half, single = (codelength(X.astype(dtype), Y, GaussianNB(), seeds=1, sizes=3) for dtype in ("f2", "f4"))
    assert half.bits_per_label == pytest.approx(single.bits_per_label, rel=0.01)
    codelength(X, Y, lambda: nn.Linear(6, 2).half().float(), **QUICK)
    classifier = GaussianNB()
    assert [*codelength(X[:15], Y[:15], classifier, sizes=[2, 15]).sizes] == [2, 15]
    renamed = FRAME.rename(columns={"c": "g"})
    codelength(FRAME, Y, classifier, sizes=3, test=(renamed.rename(columns={"g": "c"}), Y))
    codelength(FRAME, Y, "kernel", sizes=3, test=(renamed.to_numpy(), Y))
    far, right = (codelength((x - x.mean(0)) / x.std(0), Y, "linear", **QUICK) for x in (X + 1e8, X))
    assert far.total_bits == pytest.approx(right.total_bits, rel=1e-3)


def test_whole_numbers_of_numpy_and_torch_are_sizes_and_seeds() -> None:
    expected = codelength(X, Y, GaussianNB(), sizes=[10, 240], seeds=2)
    several: list[Any] = [np.array([10, 240]), torch.tensor([10, 240]), [np.int64(10), 240], range(10, 241, 230)]
    seeds: list[Any] = [np.int64(2), np.arange(2), torch.tensor(2), [np.int32(0), 1]]
    for sizes, two in zip(several, seeds, strict=True):
        assert codelength(X, Y, GaussianNB(), sizes=sizes, seeds=two).total_bits == expected.total_bits
    three: Any = np.int64(3)
    assert codelength(X, Y, GaussianNB(), sizes=three).sizes == codelength(X, Y, GaussianNB(), sizes=3).sizes


def test_codelengths_of_other_seeds_or_labels_are_not_subtracted() -> None:
    two, three = (codelength(X, Y, LogisticRegression(), seeds=seeds, sizes=3) for seeds in (2, 3))
    with pytest.raises(ValueError, match="seeds"):
        _ = two - three
    with pytest.raises(ValueError, match=r"sizes .*240\] and .*200\]: only equal ones"):
        _ = two - codelength(X[:200], Y[:200], LogisticRegression(), seeds=2, sizes=3)
    with pytest.raises(ValueError, match="different labels, first at place [0-9]+: pass the same examples in the same"):
        _ = two - codelength(X, Y[::-1], LogisticRegression(), seeds=2, sizes=3)
    one = codelength(X, Y, LogisticRegression(), seeds=1, sizes=3)
    assert str(one - one) == "0.000 bits per label, one seed"


def test_a_codelength_says_and_draws_what_it_is() -> None:
    done: list[float] = []
    code = codelength(X, Y, "linear", **QUICK, on_progress=lambda share, _: done.append(share))
    assert done == sorted(done)
    assert done[-1] == 1
    assert done[-2] > 0.8  # not the two of three sizes that are trained
    mean = np.mean(code.bits_per_label)
    assert str(code).startswith(f"{mean:.3f} ± {np.std(code.bits_per_label, ddof=1):.3f} bits per label (uniform 1.000")
    assert f"compression {1 / mean:.2f}), 2 seeds" in str(code)
    assert code.label_entropy_bits == pytest.approx(
        -sum(p * math.log2(p) for p in ((Y == "left").mean(), (Y == "right").mean()))
    )
    assert [*code.curve["n"]] == [n for n in code.sizes[:-1] for _ in range(2)]  # nothing is left to code after all
    with mpl.rc_context():
        ax = code.plot(Figure().subplots(), label="before")
    assert np.asarray(ax.lines[0].get_xdata()).tolist() == [*code.sizes[:-1]]
    assert ax.lines[0].get_label() == "before"
    losses = code.curve.groupby("n")["loss_bits"].mean()
    assert np.asarray(ax.lines[0].get_ydata()).tolist() == pytest.approx([*losses])
