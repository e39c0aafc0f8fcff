"""Hidden states of transformers with random weights: what users read, cache and train on is erased."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

from erasure import ClassMoments, erase, fit_layers, fold_layers  # noqa: E402

LAYERS = 3
SIZES = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 64}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
TOKENS = torch.randint(5, 50, (40, 8), generator=torch.Generator().manual_seed(0))
PARITY = TOKENS % 2
PICTURES = (
    torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1)) + (torch.arange(40) % 2)[:, None, None, None]
)


def gpt2(**options: Any) -> nn.Module:
    config = transformers.GPT2Config(n_embd=32, n_layer=LAYERS, n_head=2, vocab_size=50, **SPECIAL, **options)
    return transformers.GPT2LMHeadModel(config)


def llama(**options: Any) -> nn.Module:
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=1, vocab_size=50, **SPECIAL, **options)
    return transformers.LlamaForCausalLM(config)


def bert() -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, vocab_size=50))


def t5() -> nn.Module:
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": LAYERS, "num_heads": 2, "vocab_size": 50}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))


def vit() -> nn.Module:
    return transformers.ViTModel(transformers.ViTConfig(**SIZES, image_size=8, patch_size=4))


def blocks(pattern: str) -> list[str]:
    return [pattern.format(i) for i in range(LAYERS)]


GPT2 = ["transformer.drop", *blocks("transformer.h.{}"), "transformer.ln_f"]
LLAMA = ["model.embed_tokens", *blocks("model.layers.{}"), "model.norm"]
T5 = [f"{part}.{name}" for part in ("encoder", "decoder") for name in [*blocks("block.{}"), "final_layer_norm"]]
WORDS, TWO_TEXTS = {"input_ids": TOKENS}, {"input_ids": TOKENS, "decoder_input_ids": TOKENS}
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Sequence[str], dict[str, Tensor]]] = {
    "GPT-2": (gpt2, GPT2, WORDS),
    "Llama": (llama, LLAMA, WORDS),
    "BERT": (bert, ["bert.embeddings", *blocks("bert.encoder.layer.{}")], WORDS),
    "T5": (t5, T5, TWO_TEXTS),
    "ViT": (vit, ["embeddings", *blocks("layers.{}"), "layernorm"], {"pixel_values": PICTURES}),
}
NOT_ERASED = {"T5": [0, LAYERS + 1]}  # positions of embeddings, for which no module stands


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def batch_of(x: dict[str, Tensor]) -> dict[str, Tensor]:
    return x | {"concept": PARITY if "input_ids" in x else torch.arange(40) % 2}


def mean_gap(states: Tensor, z: Tensor) -> float:
    """Return the largest difference of class means from the mean, in standard deviations of the states."""
    moments = ClassMoments.fit(states.detach(), z, num_classes=2, dim=states.shape[-1])
    return float((moments.means - moments.mean).abs().max() / moments.total.diagonal().sqrt().mean())


def recorded(model: nn.Module, x: dict[str, Tensor]) -> list[Tensor]:
    out = model(**x, output_hidden_states=True)
    if "hidden_states" in out:
        return list(out.hidden_states)
    return [*out.encoder_hidden_states, *out.decoder_hidden_states]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_recorded_hidden_states_are_erased(name: str) -> None:
    build, names, x = ARCHITECTURES[name]
    model, z = build().eval(), batch_of(x)["concept"]
    with torch.no_grad():
        before = recorded(model, x)  # from now on the network has hooks that record
    erasers = fit_layers(model, [batch_of(x)], names, num_classes=2, z="concept")
    with torch.no_grad():
        with erase(model, erasers):
            inside = recorded(model, x)
        after = recorded(model, x)
    gaps = [gap for i, gap in enumerate(mean_gap(states, z) for states in inside) if i not in NOT_ERASED.get(name, [])]
    assert len(gaps) >= LAYERS
    assert max(gaps) < 1e-6
    assert max(mean_gap(states, z) for states in before) > 1e-2
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def fitted(model: nn.Module, names: Sequence[str], x: dict[str, Tensor] = WORDS) -> dict[str, Any]:
    return fit_layers(model.eval(), [batch_of(x)], names, num_classes=2, z="concept")


@pytest.mark.parametrize(
    ("build", "names", "values_of"),
    [(gpt2, GPT2, "transformer.h.1.attn.c_attn"), (llama, LLAMA, "model.layers.1.self_attn.v_proj")],
)
def test_caches_hold_erased_states_and_texts_are_continued_from_them(
    build: Callable[[], nn.Module], names: Sequence[str], values_of: str
) -> None:
    model: Any = build()
    erasers = fitted(model, [*names, values_of])
    start, options = TOKENS[:4], {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    plain = model.generate(start, **options)

    def gap_of_cached_values() -> float:
        with torch.no_grad():
            values = model(TOKENS, use_cache=True).past_key_values.layers[1].values
        return mean_gap(values.transpose(1, 2).flatten(2), PARITY)

    assert gap_of_cached_values() > 0.1
    with erase(model, erasers):
        assert gap_of_cached_values() < 1e-6
        cached = model.generate(start, use_cache=True, **options)
        assert torch.equal(cached, model.generate(start, use_cache=False, **options))
    assert torch.equal(model.generate(start, **options), plain)


def test_in_bfloat16_states_are_erased_to_its_precision() -> None:
    model = llama().bfloat16()
    erasers = fitted(model, LLAMA)
    with erase(model, erasers), torch.no_grad():
        states = recorded(model, WORDS)
    assert {one.dtype for one in states} == {torch.bfloat16}
    assert max(mean_gap(one, PARITY) for one in states) < 2**-8


@pytest.mark.parametrize("fitted_inside", [False, True])
def test_autocast_does_not_round_erasers(fitted_inside: bool) -> None:
    model: Any = bert().eval()
    names = ["bert.embeddings", *blocks("bert.encoder.layer.{}")]  # LayerNorms give float32
    erasers = fitted(model, names)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        if fitted_inside:
            erasers = fitted(model, names)
            with erase(model, erasers):
                states = recorded(model, WORDS)
            assert {one.dtype for one in states} == {torch.float32}
            assert max(mean_gap(one, PARITY) for one in states) < 1e-6
        else:
            states = model.bert.embeddings(TOKENS)
            assert mean_gap(erasers["bert.embeddings"](states), PARITY) < 1e-6


def test_gradient_checkpointing_computes_the_same_gradients() -> None:
    model: Any = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    erasers = fitted(model, GPT2)
    gradients = []
    for checkpointed in (False, True):
        model.zero_grad()
        model.train()
        if checkpointed:
            model.gradient_checkpointing_enable()
        with erase(model, erasers):
            model(TOKENS, labels=TOKENS, use_cache=False).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_erasers_that_were_fitted_in_inference_mode_pass_gradients_on() -> None:
    model: Any = gpt2()
    with torch.inference_mode():
        erasers = fitted(model, GPT2)
        with erase(model, erasers):
            states = recorded(model, WORDS)
    assert max(mean_gap(one.clone(), PARITY) for one in states) < 1e-6
    with erase(model, erasers):
        model(TOKENS, labels=TOKENS).loss.backward()
    assert model.transformer.wte.weight.grad.abs().sum() > 0


def test_a_compiled_network_is_erased_and_is_itself_again_afterwards() -> None:
    model: Any = torch.compile(gpt2().eval(), backend="eager")
    with torch.no_grad():
        before = model(TOKENS).logits
        erasers = fitted(model, GPT2)
        with erase(model, erasers):
            compiled = model(TOKENS).logits
        with erase(model._orig_mod, erasers):
            expected = model._orig_mod(TOKENS).logits
        after = model(TOKENS).logits
    torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5)
    assert (expected - before).abs().max() > 1e-2


def test_a_weight_that_is_tied_is_not_folded_into() -> None:
    tied, untied = gpt2(), gpt2(tie_word_embeddings=False)
    erasers = fitted(tied, ["transformer.ln_f"])
    with pytest.raises(ValueError, match="lm_head shares its weight with transformer.wte.weight, and folding would"):
        fold_layers(tied, erasers, WORDS)
    layer = "transformer.h.0"  # whose linear layers are Conv1D
    erasers = fitted(untied, [f"{layer}.ln_1", f"{layer}.attn.c_proj", f"{layer}.mlp.c_fc", "transformer.ln_f"])
    with torch.no_grad(), erase(untied, erasers):
        expected = untied(TOKENS).logits
    torch.testing.assert_close(fold_layers(untied, erasers, WORDS)(TOKENS).logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("build", "names"), [(llama, LLAMA), (bert, ["bert.embeddings", "bert.encoder.layer.1"])])
def test_padding_does_not_count(build: Callable[[], nn.Module], names: Sequence[str]) -> None:
    model = build().double().eval()
    lengths = torch.tensor([8, 5, 3, 8] * 10)
    mask = (torch.arange(8) < lengths[:, None]).long()
    padded = {"input_ids": TOKENS * mask, "attention_mask": mask, "parity": PARITY}
    apart = [{"input_ids": TOKENS[lengths == n, :n], "parity": PARITY[lengths == n, :n]} for n in (8, 5, 3)]
    expected = fit_layers(model, apart, names, num_classes=2, z="parity")
    masked = fit_layers(model, [padded], names, num_classes=2, z="parity", mask="attention_mask")
    ignored = padded | {"parity": torch.where(mask == 1, PARITY, -100)}
    for erasers in (masked, fit_layers(model, [ignored], names, num_classes=2, z="parity")):
        for name, eraser in erasers.items():
            torch.testing.assert_close(eraser.mean, expected[name].mean, rtol=0, atol=1e-12)
            # attention to padded batches is rounded otherwise, and each eraser amplifies it
            torch.testing.assert_close(projection(eraser), projection(expected[name]), rtol=0, atol=1e-10)


def projection(eraser: Any) -> Tensor:
    return eraser.left @ eraser.right
