"""python -m mdl model=kernel: the rows of every model, resumed to the bit, refused where memory does not hold it."""

import json
from pathlib import Path
from statistics import mean

import pytest
import torch

from conf.compose import composed
from harness.example_bits import read_coded_bits, read_test_bits
from harness.job import Job
from harness.run_directory import leftover
from mdl import kernel
from mdl.__main__ import COMMAND as MDL
from mdl.kernel_code import KernelCode
from mdl.settings import MdlConfig
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from train.__main__ import COMMAND as TRAIN
from train.randomness import permutation

OWN = ["model=kernel", "eraser=control", "mdl=quick", "seeds=[0,1]", "logger.mode=disabled", "cache_dir=cache"]
FEWER = "dataset.test_fraction=0.8"  # 324 training images
NTK = [*OWN, "model=empirical_ntk", "model.network.width=16"]


def only_result(runs: str) -> tuple[Path, dict]:
    (path,) = Path(runs).glob("mdl-*/result.json")
    return path.parent, json.loads(path.read_text())


def test_kernel_and_network_end_in_one_table(command) -> None:
    quick = ["train=quick", "train.max_epochs=2", "mdl=quick", "seeds=[0,1]", "logger.mode=disabled", FEWER]
    outcome = command(MDL, "-m", "model=linear,kernel", "eraser=control,leace", *quick)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("dataset · model") == 1
    assert "digits · linear" in outcome.out
    assert "digits · kernel" in outcome.out
    assert len([*Path("runs/sweeps").glob("*/comparison.png")]) == 1


def test_a_run_says_what_its_labels_cost(command) -> None:
    assert command(MDL, *OWN).code == 0
    directory, result = only_result("runs")
    coded, sizes = read_coded_bits([directory], pytest.fail), [point["n"] for point in result["curve"]]
    assert coded is not None
    assert (result["train_size"], result["parameters"]) == (sizes[-1], 10 * sizes[-1])
    for s in range(2):
        ordered = coded.bits[s][permutation(s, sizes[-1])].double()
        assert result["mdl"]["total_bits"][s] == pytest.approx(float(ordered.sum()), rel=1e-5)
        for point, following in zip(result["curve"][:-1], sizes[1:], strict=True):
            assert point["ce_next_bits"][s] == pytest.approx(float(ordered[point["n"] : following].mean()), rel=1e-5)
        assert torch.equal(coded.trained_on[s][permutation(s, sizes[-1])], torch.arange(sizes[-1], dtype=torch.int32))
        test_bits = read_test_bits([directory], pytest.fail)[s].tolist()
        assert mean(test_bits) == pytest.approx(result["final"]["loss_bits"][s], rel=1e-5)
    assert max(result["mdl"]["bits_per_sample"]) < 0.3
    assert min(result["final"]["accuracy"]) > 0.98
    assert {epochs for point in result["curve"] for epochs in point["epochs"]} == {0}


def test_a_run_that_was_cut_off_codes_no_order_twice(command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(MDL, *OWN, FEWER, "runs_dir=undisturbed").code == 0
    code, asked = KernelCode.code, []

    def cut_off(self: KernelCode, *rest):
        asked.append(rest)
        if len(asked) == 2:
            raise OSError("the machine is gone")
        return code(self, *rest)

    monkeypatch.setattr(KernelCode, "code", cut_off)
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
    assert Job.from_config(MDL.name, deeper).identity() != mlp["run_id"]


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
    monkeypatch.setattr(kernel, "free_bytes", lambda device: 3e8)
    monkeypatch.setattr(kernel, "of_seed", lambda *_: pytest.fail("something was coded"))
    outcome = command(MDL, *OWN)
    assert outcome.code == 2
    assert "kernels of 1,295 training and 359 test examples take 0.3 GB, but 0.3 GB are free" in outcome.err
    assert "training examples would fit" in outcome.err
    cuda = torch.device("cuda")
    with pytest.raises(ValueError, match=r"100,000 training .* take 16\d\.\d GB, .* try device=cpu; about 1,4\d\d"):
        kernel.require_memory("kernel", 100_000, 1000, 2**28, cuda)
    assert command(MDL, *NTK).code == 2  # a Jacobian takes more than the kernel


@pytest.mark.parametrize("chosen", [TRAIN, SAMPLE_INFO], ids=lambda chosen: chosen.name)
def test_commands_that_train_weights_refuse_it_in_one_line(command, chosen) -> None:
    outcome = command(chosen, "model=kernel", "eraser=control")
    assert outcome.code == 2
    assert "model=kernel: has no weights" in outcome.err
    assert outcome.err.strip().count("\n") == 0
    assert not Path("runs").exists()
