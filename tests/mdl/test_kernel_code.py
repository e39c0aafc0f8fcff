"""The kernel code against refitting, as a code that sees nothing to come, and through `python -m mdl model=kernel`."""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conf.compose import composed
from erasure.store.checked_files import load_tensors
from harness.example_bits import read_test_bits
from harness.experiment import Experiment
from harness.run_directory import leftover
from mdl import kernel_code
from mdl.__main__ import COMMAND as MDL
from mdl.kernel_code import POWERS, RIDGES, SHARPNESS, code_in_order, factors, members, mixture_bits
from mdl.settings import MdlConfig
from models.kernel import Kernel
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from train.__main__ import COMMAND as TRAIN
from train.randomness import permutation

N, K = 300, 10
KERNEL = Kernel((1, 8, 8), K, kernel="ntk", depth=2, bandwidth=0.5)
ORDER = torch.arange(N)
OWN = ["model=kernel", "eraser=control", "mdl=quick", "seeds=[0,1]", "logger.mode=disabled", "cache_dir=cache"]
FEWER = "dataset.test_fraction=0.8"  # 324 training images
NTK = [*OWN, "model=empirical_ntk", "model.network.width=16"]


@pytest.fixture(scope="module")
def some(digits: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """350 digits, standardised, in an order."""
    x, z = digits
    drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:350]
    return ((x - x.mean()) / x.std())[drawn], z[drawn]


def refitted(kernel: Tensor, z: Tensor, ridge: float, n: int, i: int) -> tuple[Tensor, float]:
    """Prediction of example i by kernel ridge regression on the first n, and its standard deviation."""
    system = kernel[:n, :n] + ridge * torch.eye(n, dtype=kernel.dtype)
    solved = torch.linalg.solve(system, torch.stack([kernel[:n, i]], 1)).squeeze(1)
    mean = solved @ (F.one_hot(z[:n], K).double() - 1 / K)
    return mean, math.sqrt(kernel[i, i] + ridge - kernel[:n, i] @ solved)


@pytest.mark.parametrize("ridge", [1e-4, 1.0])
def test_one_step_ahead_predictions_are_those_of_refitting_at_every_n(
    some: tuple[Tensor, Tensor], ridge: float
) -> None:
    x, z = some[0][:N], some[1][:N]
    kernel = KERNEL(x, x)
    ((_, factor),) = factors(kernel, z[ORDER], K, ORDER, [ridge])
    mean, deviation = factor.ahead()
    for i in range(N):
        expected, spread = refitted(kernel, z, ridge, i, i)
        assert (mean[i] - expected).abs().max() < 1e-10
        assert abs(float(deviation[i]) - spread) < 1e-10
    residual = F.one_hot(z, K).double() - 1 / K - mean
    torch.testing.assert_close(residual, deviation[:, None] * factor.targets, rtol=0, atol=1e-12)  # the formula


def test_test_predictions_are_those_of_refitting_at_every_size(some: tuple[Tensor, Tensor]) -> None:
    x, z = some
    everything = KERNEL(x, x)
    ((_, factor),) = factors(everything[:N, :N], z[:N][ORDER], K, ORDER, [0.01])
    sizes = [1, 57, N]
    predicted = factor.predict(everything[:N, N:].contiguous(), KERNEL.diagonal(x[N:]) + 0.01, sizes)
    for n, (mean, deviation) in zip(sizes, predicted, strict=True):
        for j in range(0, 50, 7):
            expected, spread = refitted(everything, z, 0.01, n, N + j)
            assert (mean[j] - expected).abs().max() < 1e-10
            assert abs(float(deviation[j]) - spread) < 1e-10


def test_a_test_example_is_told_what_the_next_label_would_be(some: tuple[Tensor, Tensor]) -> None:
    x, z = some
    everything, n = KERNEL(x, x), 120
    tested = everything[n:, :n], KERNEL.diagonal(x[n:])
    _, said = code_in_order(everything[:n, :n], z[:n], K, ORDER[:n], tested, [40, n])
    assert (said.exp().sum(2) - 1).abs().max() < 1e-12
    for size, log_p in zip([40, n], said, strict=True):
        for j in (n, n + 9):
            order = torch.cat([torch.arange(size), torch.tensor([j])])
            bits, _ = code_in_order(everything, z, K, order)
            assert float(bits[-1]) == pytest.approx(-float(log_p[j - n, z[j]]) / math.log(2), abs=1e-9)


def test_it_is_a_code_probabilities_sum_to_one_before_the_label_is_seen(some: tuple[Tensor, Tensor]) -> None:
    x, z = some[0][:60], some[1][:60]
    kernel = KERNEL(x, x)
    for i in (0, 1, 17, 59):
        shares = []
        for label in range(K):
            other = z.clone()
            other[i] = label
            bits, _ = code_in_order(kernel, other, K, torch.arange(60))
            shares.append(2 ** -float(bits[i]))
        assert sum(shares) == pytest.approx(1, abs=1e-12)


def test_what_comes_later_changes_no_bit_of_what_was_paid(some: tuple[Tensor, Tensor]) -> None:
    x, z = some[0][:N], some[1][:N]
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    paid, _ = code_in_order(KERNEL(x, x), z, K, order)
    for i in (0, 1, 99, 250):
        poisoned_x, poisoned_z, later = x.clone(), z.clone(), order[i + 1 :]
        poisoned_x[later], poisoned_z[later] = 1e3 * x[later].flip(0) + 7, (z[later] + 1) % K
        again, _ = code_in_order(KERNEL(poisoned_x, poisoned_x), poisoned_z, K, order)
        assert torch.equal(again[: i + 1], paid[: i + 1])
        assert not torch.equal(again[i + 1 :], paid[i + 1 :])


def test_a_constant_predictor_costs_log2_k(some: tuple[Tensor, Tensor]) -> None:
    z = some[1][:N] % 9  # no example has the last class
    nothing = torch.zeros(N, N, dtype=torch.float64)
    bits, said = code_in_order(nothing, z, K, ORDER, (nothing[:5], torch.zeros(5, dtype=torch.float64)), [7, N])
    assert (bits - math.log2(K)).abs().max() < 1e-12
    assert float(bits.sum()) == pytest.approx(N * math.log2(K), abs=1e-9)
    assert (said + math.log(K)).abs().max() < 1e-12


def test_the_mixture_costs_what_the_mean_of_its_members_probabilities_says(some: tuple[Tensor, Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    log_p = torch.rand(40, 12, dtype=torch.float64, generator=generator).log()
    bits = float(mixture_bits(log_p).sum())
    members = -log_p.sum(0) / math.log(2)
    assert bits == pytest.approx(-math.log2(float((2**-members).mean())), rel=1e-12)
    assert float(members.min()) <= bits <= float(members.min()) + math.log2(12)


def test_more_examples_than_are_brought_into_order_at_once_cost_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    n = 2100  # 4.4 million entries
    x = torch.randn(n, 1, 8, 8, generator=generator)
    z, order = x.flatten(1)[:, :K].argmax(1), torch.randperm(n, generator=generator)
    kernel = KERNEL(x, x)
    bits, _ = code_in_order(kernel, z, K, order, ridges=[1.0])
    ordered, _ = code_in_order(kernel[order][:, order], z[order], K, torch.arange(n), ridges=[1.0])
    torch.testing.assert_close(bits, ordered, rtol=0, atol=1e-8)
    ((_, factor),) = factors(kernel, z[order], K, order, [1.0])
    lower, expected = factor.lower.tril(), kernel[order][:, order] + torch.eye(n, dtype=torch.float64)
    torch.testing.assert_close(lower @ lower.T, expected, rtol=0, atol=1e-10)


def test_labels_that_say_nothing_cost_little_more_than_the_uniform_code(some: tuple[Tensor, Tensor]) -> None:
    x = some[0][:N]
    z = torch.randint(K, (N,), generator=torch.Generator().manual_seed(1))
    bits, _ = code_in_order(KERNEL(x, x), z, K, ORDER)
    members = len(RIDGES) * 75
    assert float(bits.sum()) < N * math.log2(K) + math.log2(members)


def test_members_are_those_of_the_documented_formula_to_float64s_last_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(6, K, generator=generator, dtype=torch.float64)
    deviation = 0.1 + torch.rand(6, generator=generator, dtype=torch.float64)
    expected = [(b * mean / deviation[:, None] ** p).log_softmax(1) for p in POWERS for b in SHARPNESS]
    torch.testing.assert_close(members(mean, deviation), torch.stack(expected), rtol=1e-13, atol=1e-13)


def only_result(runs: str) -> tuple[Path, dict]:
    (path,) = Path(runs).glob("mdl-*/result.json")
    return path.parent, json.loads(path.read_text())


def test_a_run_says_what_its_labels_cost(command) -> None:
    assert command(MDL, *OWN).code == 0
    directory, result = only_result("runs")
    (coded, _), sizes = load_tensors(directory / "bits.safetensors"), [point["n"] for point in result["curve"]]
    assert (result["train_size"], result["parameters"]) == (sizes[-1], 10 * sizes[-1])
    for s in range(2):
        ordered = coded["bits"][s][permutation(s, sizes[-1])].double()
        assert result["mdl"]["total_bits"][s] == pytest.approx(float(ordered.sum()), rel=1e-5)
        for point, following in zip(result["curve"][:-1], sizes[1:], strict=True):
            assert point["ce_next_bits"][s] == pytest.approx(float(ordered[point["n"] : following].mean()), rel=1e-5)
        trained_on = coded["trained_on"][s][permutation(s, sizes[-1])]
        assert torch.equal(trained_on, torch.arange(sizes[-1], dtype=torch.int32))
        test_bits = read_test_bits([directory], pytest.fail)[s].tolist()
        assert fmean(test_bits) == pytest.approx(result["final"]["loss_bits"][s], rel=1e-5)
    assert max(result["mdl"]["bits_per_sample"]) < 0.3
    assert min(result["final"]["accuracy"]) > 0.98
    assert {epochs for point in result["curve"] for epochs in point["epochs"]} == {0}


def test_a_run_that_was_cut_off_codes_no_order_twice(command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(MDL, *OWN, FEWER, "runs_dir=undisturbed").code == 0
    asked = []

    def cut_off(*arguments):
        asked.append(arguments)
        if len(asked) == 2:
            raise OSError("the machine is gone")
        return code_in_order(*arguments)

    monkeypatch.setattr("mdl.kernel_code.code_in_order", cut_off)
    assert command(MDL, *OWN, FEWER, "runs_dir=cut").code == 1
    assert command(MDL, *OWN, FEWER, "runs_dir=cut").code == 0
    assert len(asked) == 3
    (directory, result), (_, expected) = only_result("cut"), only_result("undisturbed")
    assert [result[key] for key in ("run_id", "mdl", "curve", "final")] == [
        expected[key] for key in ("run_id", "mdl", "curve", "final")
    ]
    assert not [path for path in directory.iterdir() if leftover(path.name)]


def test_a_networks_tangent_kernel_is_drawn_with_each_seed_and_known_by_its_network(command) -> None:
    assert command(MDL, *OWN, "model=empirical_ntk", "model@model.network=linear", "runs_dir=linear").code == 0
    assert command(MDL, *NTK).code == 0
    assert command(MDL, *NTK, "seeds=[1]", "runs_dir=alone").code == 0
    (_, linear), (_, mlp), (_, alone) = only_result("linear"), only_result("runs"), only_result("alone")
    assert mlp["mdl"]["bits_per_sample"][1] == alone["mdl"]["bits_per_sample"][0]
    assert (linear["config"]["model"]["name"], mlp["config"]["model"]["name"]) == ("linear_ntk", "mlp_ntk")
    assert "models.mlp.MLP" in mlp["code"]
    assert max(mlp["mdl"]["bits_per_sample"]) < min(linear["mdl"]["bits_per_sample"])
    deeper = composed(MDL.name, [*NTK, "model.network.depth=3"], MdlConfig)
    assert Experiment.from_config(MDL.name, deeper).identity() != mlp["run_id"]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "model@model.network=kernel",
            "model.network=Kernel: has no weights, and no gradients: choose another network",
        ),
        ("model.network=lenet", "model.network: has options of its own: choose it with model@model.network=NAME"),
        ("model.network.widht=3", "option network.widht: did you mean network.width?"),
    ],
)
def test_what_has_no_tangent_kernel_is_refused_in_one_line(command, override: str, line: str) -> None:
    outcome = command(MDL, *OWN, "model=empirical_ntk", override)
    assert outcome.code == 2
    assert line in outcome.err.strip().splitlines()[-1]
    assert not [*Path("runs").glob("*/result.json")]


def test_what_memory_does_not_hold_is_refused_before_anything_is_coded(command, monkeypatch) -> None:
    monkeypatch.setattr(kernel_code, "free_bytes", lambda device: 3e8)
    monkeypatch.setattr(kernel_code, "of_seed", lambda *_: pytest.fail("something was coded"))
    outcome = command(MDL, *OWN)
    assert outcome.code == 2
    assert "kernels of 1,295 training and 359 test examples take 0.3 GB, but 0.3 GB are free" in outcome.err
    assert "training examples would fit" in outcome.err
    cuda = torch.device("cuda")
    with pytest.raises(ValueError, match=r"100,000 training .* take 16\d\.\d GB, .* try device=cpu; about 1,4\d\d"):
        kernel_code.require_memory("kernel", 100_000, 1000, 2**28, cuda)
    assert command(MDL, *NTK).code == 2  # a Jacobian takes more than the kernel


@pytest.mark.parametrize("chosen", [TRAIN, SAMPLE_INFO], ids=lambda chosen: chosen.name)
def test_commands_that_train_weights_refuse_it_in_one_line(command, chosen) -> None:
    outcome = command(chosen, "model=kernel", "eraser=control")
    assert outcome.code == 2
    assert "model=kernel: has no weights" in outcome.err
    assert outcome.err.strip().count("\n") == 0
    assert not Path("runs").exists()
