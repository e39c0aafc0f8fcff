"""Code on the pages does what they say, and their numbers are those of runs that are kept."""

import csv
import inspect
import re
import textwrap
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch

import erasure
from harness.result import TrainedResult, read_result
from harness.results.read import read_runs
from harness.statistics import Spread
from scripts.report import main as report
from train.counterpart_losses import DATA
from train.learning_order_report import past_means_step
from train.result import TrainResult

ROOT = Path(__file__).parent.parent
ALL = "train_size-48976"  # the study's photographs


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return [textwrap.dedent(block) for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


def test_the_library_snippet_runs() -> None:
    snippet = next(block for block in blocks("docs/guide/library.md", "python") if "LeaceEraser.from_moments" in block)
    names: dict[str, Any] = {"x": torch.randn(60, 3, 2), "z": torch.arange(60) % 3}
    exec(snippet, names)
    means = torch.stack([names["x_erased"][names["z"] == j].mean(0) for j in range(3)])
    assert (means - means.mean(0)).abs().max() < 1e-6


def test_the_snippet_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """With one seed in place of five, which takes a fifth of the time."""
    (snippet,) = blocks("README.md", "python")
    exec(snippet.replace('settings="quick"', 'settings="quick", seeds=1'), {})
    before, difference = capsys.readouterr().out.splitlines()
    assert re.match(r"0\.\d{3} bits per label \(uniform 3.322, label entropy 3.321, compression \d", before)
    assert re.match(r"\+1\.\d{3} bits per label, one seed", difference)


def test_runs_that_are_kept_say_nothing_of_the_machine() -> None:
    for path in (ROOT / "docs").glob("study*/*/*"):
        assert not re.search(r"[\"' ]/\w", path.read_text()), f"{path}: an absolute path"


def test_the_study_is_rebuilt_from_the_runs_that_are_kept(tmp_path: Path) -> None:
    assert report([str(ROOT / "docs/study"), "--out", str(tmp_path)]) == 0
    page, tables = (ROOT / "docs/study_details.md").read_text(), tmp_path / "tables"
    for name, precision in (("size-16-train_size-9976", 32), ("train_size-9976", 32), (ALL, 32), (ALL, 16)):
        kind = "bfloat16" if precision == 16 else "float32"  # LeNet's row of Table 16, one seed; the other rows
        folder = "cifar10" if name == ALL else "cifar10-small"
        table = f"mdl-image_folder-{name}-train.precision-{kind}-root-{folder}-normalize-zscore.csv"
        rows = csv.DictReader((tables / table).open())
        shown = [row for row in rows if row["bits_per_label_mean"]]  # not every eraser was run at every depth
        if folder == "cifar10-small":  # erased by an earlier version of gradient erasure
            shown = [row for row in shown if row["eraser"] != "gradient"]
        assert len(shown) >= (4 if precision == 32 else 1)
        for row in shown:
            numbers = [f"{float(row[f'bits_per_label_{part}'] or 'nan'):.3f}" for part in ("mean", "std")]
            assert f"| {' ± '.join(numbers)} |".replace(" ± nan", "") in page, (name, row["eraser"])
    assert list((tmp_path / "figures").glob("*learning-curves.svg"))
    small, whole = (
        f"image_folder-size-16-train_size-{n}-train.precision-float32-root-{folder}-normalize-zscore"
        for n, folder in ((9976, "cifar10-small"), (48976, "cifar10"))
    )
    for block in (small, "shuffled_image_folder-normalize-zscore"):
        rows = csv.DictReader((tables / f"train-{block}.csv").open())
        current = (row for row in rows if not (block == small and row["eraser"] == "gradient"))
        losses = [float(row["test_loss_bits_mean"]) for row in current if row["test_loss_bits_mean"]]
        assert len(losses) >= 4
        assert [bits for bits in losses if f"| {bits:.3f}" not in page] == []
    rows = csv.DictReader((tables / f"train-{whole}.csv").open())
    (qleace,) = (row for row in rows if (row["model"], row["eraser"]) == ("lenet", "qleace"))
    assert f"LeNet, 48,976 images, one seed: {float(qleace['test_loss_bits_difference']):+.3f} ± " in page
    for name in (small, whole):
        assert (tmp_path / f"figures/train-{name}-loss-curves.svg").exists()


def test_the_page_on_the_learning_order_has_the_numbers_of_the_runs_that_are_kept() -> None:
    page = (ROOT / "docs/orders.md").read_text()
    results = [run.result for run in read_runs([ROOT / "docs/study_learning_order"])]
    assert len(results) == 18
    for result in results:
        assert isinstance(result, TrainResult)
        samples, seeds = result.counterparts or {}, range(len(result.seeds))
        for name in (DATA, "order2"):
            of_seeds = [
                (samples[name].step[s], samples[name].loss_bits[s], samples["order1"].loss_bits[s]) for s in seeds
            ]
            known = [step for curve in of_seeds if (step := past_means_step(*curve)) is not None]
            shown = f"{Spread.of(known):,.0f}" if known else "–"
            if 0 < len(known) < len(seeds):
                shown += f", {('one seed', 'two seeds', 'three seeds', 'four seeds')[len(known) - 1]}"
            end = mean(losses[-1] for _, losses, _ in of_seeds)
            assert re.search(rf"\| {shown} \({end:.2f}\) \|", page), (result.run_id, name)


def test_the_page_on_truncated_qleace_has_the_losses_of_the_runs_that_are_kept() -> None:
    page, losses = (ROOT / "docs/study_details.md").read_text(), defaultdict(list)
    for path in (ROOT / "docs/study_truncation").glob("*/result.json"):
        result = read_result(path)
        assert isinstance(result, TrainedResult)
        if result.config["train"]["max_epochs"] == 18:
            losses[result.config["dataset"]["channels"], str(result.config["eraser"])] += result.final.loss_bits
        else:
            validation = [
                float(row["validation_loss_bits"]) for row in csv.DictReader(path.with_name("curves.csv").open())
            ]
            assert f"{validation[60]:.3f} (truncation alone)" in page
    assert len(losses) >= 11
    assert [bits for bits in losses.values() if f"| {Spread.of(bits):.3f} | {len(bits)} |" not in page] == []


@pytest.mark.parametrize("name", erasure.__all__)
def test_every_public_name_has_docstrings_and_is_in_the_api(name: str) -> None:
    public = getattr(erasure, name)
    methods = [member for key, member in inspect.getmembers(public, inspect.isroutine) if not key.startswith("_")]
    documented = [public, *(method for method in methods if method.__module__.startswith("erasure"))]
    assert [each.__qualname__ for each in documented if not inspect.getdoc(each)] == []
    assert any(f":: erasure.{name}\n" in page.read_text() for page in (ROOT / "docs").rglob("*.md"))


def test_the_hidden_states_snippet_runs() -> None:
    snippet = next(block for block in blocks("docs/guide/library.md", "python") if "fit_layers" in block)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model.blocks = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    names: dict[str, Any] = {"model": model, "x": torch.randn(30, 4), "z": torch.arange(30) % 3}
    exec(snippet, names)
    with erasure.erase(model, names["erasers"]):
        for part in (model.blocks[:1], model.blocks):
            states = part(model[0](names["x"]))
            means = torch.stack([states[names["z"] == j].mean(0) for j in range(3)])
            assert (means - means.mean(0)).abs().max() < 1e-5


def test_the_snippet_that_erases_a_label_from_a_transformer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    snippet = next(block for block in blocks("docs/guide/library.md", "python") if "from_pretrained" in block)
    assert len([line for line in snippet.splitlines() if line]) <= 10
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=16, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda name: model)
    ids, mask = torch.randint(1, 50, (24, 6)), (torch.arange(6) < torch.randint(2, 7, (24, 1))).long()
    batch = {"input_ids": ids, "attention_mask": mask, "gender": ids % 2}
    names: dict[str, Any] = {"loader": iter([batch]), "input_ids": ids}
    exec(snippet, names)
    known = mask == 1
    for states in names["states"]:
        of_each = [states[known & (ids % 2 == j)].mean(0) for j in range(2)]
        assert (of_each[0] - of_each[1]).abs().max() < 1e-6 * states.std()


def test_the_scikit_learn_snippet_runs() -> None:
    snippet = next(block for block in blocks("docs/guide/library.md", "python") if "ConceptEraser" in block)
    labels = ["a", "b"] * 50
    x = torch.randn(100, 4) + torch.tensor([[0.0], [3.0]]).repeat(50, 1)
    names: dict[str, Any] = {"X": x.numpy(), "y": labels}
    exec(snippet, names)
    assert names["chance"] == pytest.approx(0.5, abs=0.02)
