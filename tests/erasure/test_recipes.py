"""Recipes of docs/guide/concept_erasure_users.md for nnsight and TransformerLens; `.ci/run nightly` runs them."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import erasure

PAGE = (Path(__file__).parents[2] / "docs/guide/concept_erasure_users.md").read_text()
IDS = torch.randint(0, 50, (6, 8), generator=torch.Generator().manual_seed(0))


def ran(package: str, folder: Path, **names: Any) -> dict[str, Any]:
    pytest.importorskip(package)
    (code,) = re.findall(rf"```python\n(from {package}.*?)```", PAGE, re.DOTALL)
    names |= {name: getattr(erasure, name) for name in erasure.__all__} | {"ids": IDS, "z": IDS % 2, "k": 2}
    path = folder / "recipe.py"  # nnsight reads the source of a trace
    path.write_text(code)
    with torch.no_grad():
        names = runpy.run_path(str(path), names)
    odd, states = IDS % 2 == 1, names["states"]
    assert (states[odd].mean(0) - states[~odd].mean(0)).abs().max() < 1e-6
    return names


def test_nnsight_erases_every_sequence_of_a_batch(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    plain = model(IDS).logits.detach()
    logits = ran("nnsight", tmp_path, model=model)["logits"]
    assert bool(((logits - plain).abs().amax((1, 2)) > 1e-4).all())


def test_transformer_lens_caches_erased_states(tmp_path: Path) -> None:
    names = ran("transformer_lens", tmp_path)
    bridge = names["bridge"]
    hooks = [(name, lambda states, hook: names["erasers"][hook.name](states)) for name in names["names"]]
    with torch.no_grad():
        logits = bridge.run_with_hooks(IDS, fwd_hooks=hooks)
        assert (bridge(IDS) - logits).abs().max() > 1e-3
    torch.testing.assert_close(names["logits"], logits, rtol=0, atol=1e-5)
