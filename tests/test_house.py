"""The house's rules: who imports whom, how long functions are, what is installed, where tests stand."""

from pathlib import Path

import numpy as np
import pytest

from scripts.studies.house import FLOORS, House, arrows, draw, main, measures

REPOSITORY = Path(__file__).parents[1]
HOUSE = House(REPOSITORY)
COMMANDS_BENEATH = ("scripts.benchmarks", "scripts.studies")

# where a module's tests stand if not in the file of its name, or of its folder's
ELSEWHERE = {
    "tests/conf/test_yaml.py": "conf/compose conf/groups conf/help conf/verbs",
    "tests/test_main_job.py": (
        "conf/cli conf/sweep harness/device harness/work harness/table harness/columns erasure/erasers/identity"
    ),
    "tests/mdl/test_table.py": "mdl/figure",
    "tests/cluster/test_launcher.py": (
        "hydra_plugins/erasure_mdl/launcher hydra_plugins/erasure_mdl/jobs hydra_plugins/erasure_mdl/sweeper "
        "hydra_plugins/erasure_mdl/slurm"
    ),
    "tests/cluster/test_requeue.py": "hydra_plugins/erasure_mdl/requeue harness/interruption",
    "tests/erasure/test_published.py": ("erasure/datasets/cifar10 erasure/datasets/mnist erasure/datasets/svhn"),
    "tests/erasure/test_hf.py": "erasure/hub",
    "tests/erasure/test_library.py": "erasure/extras",
    "tests/erasure/test_image_folder.py": "erasure/decode",
    "tests/erasure/test_source.py": "erasure/datasets/digits erasure/images",
    "tests/erasure/test_transport.py": "erasure/polar erasure/alignment",
    "tests/erasure/test_eraser.py": "erasure/batches",
    "tests/erasure/test_moments.py": "erasure/accumulator",
    "tests/erasure/store/test_lease.py": "erasure/store/heartbeat",
    "tests/erasure/test_alf_cubic.py": "erasure/third_moments",
    "tests/erasure/test_properties.py": "erasure/projection",
    "tests/harness/test_result.py": "harness/information",
    "tests/harness/test_run.py": "harness/state harness/loss_curves harness/drawn",
    "tests/scripts/test_report.py": "harness/example_bits",
    "tests/models/test_every_model.py": "models/classifier models/layers",
    "tests/models/test_timm_classifiers.py": "models/swinv2 models/timm_classifier models/stochastic_depth",
    "tests/models/test_mup.py": "models/scaled",
    "tests/train/test_engine.py": "train/bench train/ensemble train/randomness",
    "tests/train/test_training.py": "train/learner",
    "tests/conf/test_schema.py": "conf/check conf/target train/settings",
    "tests/models/tangent/test_jacobian.py": "models/tangent/ntk",
    "tests/sample_info/test_verb.py": (
        "sample_info/scoring sample_info/examples "
        "sample_info/report/records sample_info/report/table sample_info/report/figures"
    ),
    "tests/scripts/benchmarks/test_benchmark.py": "scripts/options",
    "tests/scripts/benchmarks/test_baselines.py": "scripts/benchmarks/peers scripts/benchmarks/brittleness",
    "tests/scripts/benchmarks/test_erasers.py": "scripts/benchmarks/data scripts/benchmarks/fits",
    "tests/scripts/benchmarks/test_train_peer.py": "scripts/benchmarks/train",
    "tests/test_startup.py": "scripts/benchmarks/startup",
    "tests/scripts/studies/test_coord_check.py": "scripts/studies/scaling",
    ".ci/run": "scripts/studies/kill_sweep scripts/studies/kill_local scripts/studies/place",
    "tests/test_house.py": "scripts/studies/house",
}


def test_imports_go_downwards_only() -> None:
    below: set[str] = set()
    for floor in FLOORS:
        for package in floor:
            wrong = HOUSE.neighbours(package) - below
            assert not wrong, f"{package} imports {wrong}"
        below |= {*floor}
    assert below >= HOUSE.packages, "a package that FLOORS in scripts/studies/house.py does not know"


def test_no_command_imports_a_benchmark_or_a_study() -> None:
    for path, names in HOUSE.imports.items():
        if not path.startswith(("scripts/benchmarks/", "scripts/studies/")):
            assert not [name for name in names if name.startswith(COMMANDS_BENEATH)], path


def test_only_erasure_is_installed() -> None:
    assert HOUSE.wheel == ["erasure"]


def test_functions_are_short() -> None:
    lines = HOUSE.functions
    assert np.percentile([*lines.values()], 90) <= 20
    assert [name for name in lines if lines[name] > 50] == []


def test_every_module_has_tests_in_the_file_of_its_name() -> None:
    elsewhere = {f"{module}.py" for modules in ELSEWHERE.values() for module in modules.split()}
    found: dict[str, set[str]] = {}
    for test in (REPOSITORY / "tests").rglob("test_*.py"):
        found.setdefault(test.relative_to(REPOSITORY).parts[1], set()).add(test.stem)
    untested = [
        module
        for module, path in ((module, Path(module)) for module in HOUSE.source)
        if not (path.stem.startswith("__") or len(path.parts) == 1 or module in elsewhere)
        if not found.get(path.parts[0], set()) & {f"test_{path.stem}", f"test_{path.parts[1]}"}
    ]
    assert untested == []
    assert [module for module in elsewhere if not (REPOSITORY / module).exists()] == []
    assert [test for test in ELSEWHERE if not (REPOSITORY / test).exists()] == []


def test_the_table_and_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(REPOSITORY)]) == 0
    shown = capsys.readouterr().out
    assert all(value in shown for _, value, _ in measures(HOUSE))
    assert "lines with Mapping[str, Any] or dict[str, Any]" in shown
    draw(HOUSE, tmp_path / "house.png")
    assert (tmp_path / "house.png").read_bytes().startswith(b"\x89PNG")
    assert ("scripts", "mdl") in arrows(HOUSE, sorted(HOUSE.packages))
    assert ("scripts", "train") not in arrows(HOUSE, sorted(HOUSE.packages))  # by mdl
