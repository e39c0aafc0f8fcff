"""Hidden states are erased where they arise: every later layer sees what is left, and the certificate holds at each."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from erasure import (
    ClassMoments,
    ConceptMoments,
    LeaceEraser,
    erase,
    fit_layers,
    on_progress,
)

BLOCKS = [f"blocks.{i}" for i in range(4)]


def states_of(model: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]) -> dict[str, Tensor]:
    """Return the outputs of the named modules for all batches."""
    outputs: dict[str, list[Tensor]] = {name: [] for name in names}

    def recorded(name: str) -> RemovableHandle:
        return model.get_submodule(name).register_forward_hook(lambda *given: outputs[name].append(given[-1]))

    handles = [recorded(name) for name in names]
    with torch.no_grad():
        for x, _ in batches:
            model(x)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(parts) for name, parts in outputs.items()}


def worst_gap(states: Tensor, z: Tensor) -> float:
    moments = ClassMoments.fit(states, z, dim=states.shape[-1])
    return float((moments.means - moments.mean).norm(dim=1).max() / moments.total.trace().sqrt())


class Shared(nn.Module):
    """One layer that runs twice, and one that never does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


@pytest.mark.parametrize(("name", "times"), [("layer", 2), ("idle", 0)])
def test_a_module_that_does_not_run_once_is_refused(name: str, times: int) -> None:
    batches = [(torch.randn(8, 4), torch.arange(8) % 2)]
    with pytest.raises(ValueError, match=f"{name} runs {times} times in a pass: only what runs once"):
        fit_layers(Shared().eval(), batches, [name], num_classes=2)


@pytest.mark.parametrize(("shape", "dim"), [((5,), 5), ((4, 5), 5), ((3, 2, 5), 30)])
def test_three_axes_are_tokens_and_others_whole_examples(shape: tuple[int, ...], dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(90, *shape)
    (eraser,) = fit_layers(nn.Sequential(nn.Identity()), [(x, torch.arange(90) % 3)], ["0"], num_classes=3).values()
    assert eraser.mean.shape == (dim,)
    torch.testing.assert_close(eraser.mean, x.reshape(-1, dim).mean(0), rtol=0, atol=1e-5)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, d: int = 6) -> None:
        super().__init__()
        self.norm1, self.inner, self.norm2, self.outer = (
            nn.LayerNorm(d),
            nn.Linear(d, d),
            nn.LayerNorm(d),
            nn.Linear(d, d),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.inner(self.norm1(x)).tanh()
        x += self.outer(self.norm2(x)).tanh()  # in place, as in some networks
        return x


class Stack(nn.Module):
    """Blocks one after another; with `skip`, the first one's output is read again by each."""

    def __init__(self, depth: int, *, skip: bool = False) -> None:
        super().__init__()
        self.embed, self.skip = nn.Linear(6, 6), skip
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = first = self.embed(x)
        for i, block in enumerate(self.blocks):
            x = block(x + first if self.skip and i else x)
            first = x if i == 0 else first
        return x


def stack(depth: int, *, skip: bool = False) -> Stack:
    torch.manual_seed(0)
    return Stack(depth, skip=skip).double().eval()


def tokens(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    z = [torch.randint(2, (20, 5), generator=generator) for _ in range(count)]
    return [(torch.randn(20, 5, 6, generator=generator).double() + one[..., None], one) for one in z]


def one_pass_for_each_module(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]
) -> dict[str, Any]:
    """Fit as `fit_layers` does, but run the whole network for each module."""
    fitted: dict[str, Any] = {}
    z = torch.cat([one for _, one in batches])
    for name in names:
        with erase(model, fitted):
            fitted[name] = LeaceEraser.fit(states_of(model, batches, [name])[name], z)
    return fitted


PARTS = [f"blocks.{i}.{part}" for i in range(3) for part in ("norm1", "inner", "norm2", "outer")]


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (stack(4), BLOCKS),
        (stack(4, skip=True), ["embed", *BLOCKS]),
        (stack(3), PARTS),
        (stack(3), ["embed", *(f"blocks.{i}{part}" for i in range(3) for part in (".norm1", ".norm2", ""))]),
    ],
)
@pytest.mark.parametrize("kind", [list, iter])
def test_one_sweep_fits_what_one_pass_for_each_module_fits(model: Stack, names: list[str], kind: Any) -> None:
    expected = one_pass_for_each_module(model, tokens(), names)
    erasers = fit_layers(model, kind(tokens()), names[::-1], num_classes=2)
    assert list(erasers) == names
    for name, eraser in erasers.items():
        for field, tensor in eraser.state_dict().items():
            torch.testing.assert_close(tensor, expected[name].state_dict()[field], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("depth", "count", "most"), [(12, 1, 38), (12, 8, 16)])
def test_a_block_runs_about_once_for_each_batch(depth: int, count: int, most: int) -> None:
    model, runs = stack(depth), list[str]()
    for block in model.blocks:
        block.get_submodule("inner").register_forward_hook(lambda *_: runs.append("inner"))
    fit_layers(model, tokens(count), [f"blocks.{i}" for i in range(depth)], num_classes=2)
    assert len(runs) <= most * count


def test_masks_and_labels_to_ignore_leave_the_same_as_data_without_padding() -> None:
    model, (x, z) = stack(2), tokens(1)[0]
    mask = torch.rand(20, 5, generator=torch.Generator().manual_seed(1)) < 0.7
    names = ["embed", "blocks.0", "blocks.1"]
    expected = fit_layers(model, [(x[mask], z[mask])], names, num_classes=2)
    ignored = torch.where(mask, z, -100)
    real = fit_layers(model, [(x[mask], z[mask].double())], names)
    with pytest.raises(ValueError, match=r"num_classes\['a'\]=1: need at least 2 classes"):
        fit_layers(model, [(x[mask], {"a": z[mask]})], names, num_classes={"a": 1})
    several = fit_layers(model, [(x[mask], {"a": z[mask], "b": x[mask][:, :2]})], names, num_classes={"a": 2})
    both = {"a": ignored, "b": torch.where(mask[..., None], x[..., :2], -100)}
    one_hot = torch.where(mask[..., None], torch.nn.functional.one_hot(z), -100).double()
    found: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (expected, fit_layers(model, [(x, z, mask)], names, num_classes=2)),
        (expected, fit_layers(model, [({"x": x, "mask": mask}, z)], names, num_classes=2, mask="mask")),
        (expected, fit_layers(model, [{"x": x, "mask": mask, "z": z}], names, num_classes=2, z="z", mask="mask")),
        (expected, fit_layers(model, [(x, ignored)], names, num_classes=2)),
        (expected, fit_layers(model, [(x, torch.where(mask, z, 7))], names, num_classes=2, ignore_index=7)),
        (real, fit_layers(model, [(x, ignored.double()[..., None], mask)], names)),
        (expected, fit_layers(model, [(x, one_hot, mask)], names, num_classes=2)),
        (several, fit_layers(model, [(x, both)], names, num_classes={"a": 2})),
        (several, fit_layers(model, [{"x": x} | both], names, num_classes={"a": 2}, z=["a", "b"])),
    ]
    for wanted, erasers in found:
        for name in names:
            for field, tensor in erasers[name].state_dict().items():
                torch.testing.assert_close(tensor, wanted[name].state_dict()[field], rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["pair", "triple", "dictionary", "several"])
def test_a_loader_may_reuse_its_memory(form: str) -> None:
    model, batches = stack(2), tokens()
    mask = [torch.rand(20, 5, generator=torch.Generator().manual_seed(i)) < 0.7 for i in range(3)]
    options: dict[str, Any] = {"num_classes": 2}
    if form == "dictionary":
        options |= {"z": "z", "mask": "mask"}
    elif form == "several":
        options = {"num_classes": {"a": 2}}

    def batch(x: Tensor, z: Tensor, kept: Tensor) -> Any:
        if form == "dictionary":
            return {"x": x, "z": z, "mask": kept}
        return ((x, {"a": z, "b": z.numpy()[..., None] * 1.5}) if form == "several" else (x, z, kept))[
            : 2 + (form == "triple")
        ]

    def reused() -> Any:
        memory = [torch.empty_like(tensor) for tensor in (*batches[0], mask[0])]
        for new in zip(*zip(*batches, strict=True), mask, strict=True):
            for old, one in zip(memory, new, strict=True):
                old.copy_(one)
            yield batch(*memory)

    names = ["embed", "blocks.0", "blocks.1"]
    expected = fit_layers(
        model, [batch(x, z, one) for (x, z), one in zip(batches, mask, strict=True)], names, **options
    )
    found = fit_layers(model, reused(), names, **options)
    for name in names:
        for field, tensor in found[name].state_dict().items():
            torch.testing.assert_close(tensor, expected[name].state_dict()[field], rtol=0, atol=1e-12)


def test_small_labels_are_not_taken_for_the_negative_one_to_ignore() -> None:
    z = torch.tensor([0, 1, 156])[torch.arange(90) % 3]
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)).double() + z[:, None] / 50
    (eraser,) = fit_layers(
        nn.Sequential(nn.Identity()).eval(), [(x, z.to(torch.uint8))], ["0"], num_classes=157
    ).values()
    for label in (0, 1, 156):
        torch.testing.assert_close(eraser(x)[z == label].mean(0), x.mean(0), rtol=0, atol=1e-10)


def test_additive_masks_and_masks_of_tokens_that_a_module_has_summed_are_refused() -> None:
    model, (x, z) = stack(2), tokens(1)[0]
    additive = torch.zeros(z.shape).masked_fill(torch.arange(5) > 3, -torch.inf)
    with pytest.raises(ValueError, match="the mask holds other values than 0 and 1: pass 1 for tokens to keep"):
        fit_layers(model, [(x, z, additive)], ["embed"], num_classes=2)
    for shape in ((20, 4), (20, 6), (20, 1), (20, 5, 1), (20, 1, 1, 5)):
        for concept, k in ((z, 2), (z[..., None].double(), None)):
            with pytest.raises(ValueError, match=r"and the states \[20, 5, 6\] need \[20\] or \[20, 5\]: one"):
                fit_layers(model, [(x, concept, torch.ones(shape))], ["embed"], num_classes=k)
    pooled = nn.Sequential(nn.Linear(6, 8), Mean()).eval()
    with pytest.raises(
        ValueError, match=r"mask has shape \[20, 5\], and the states \[20, 8\] need \[20\]: fit modules of single"
    ):
        fit_layers(pooled, [(torch.randn(20, 5, 6), z[:, 0], torch.ones(20, 5))], ["1"], num_classes=2)


def test_training_mode_is_reported(caplog) -> None:
    model, batches = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), [(torch.randn(40, 4), torch.arange(40) % 2)]
    fit_layers(model, batches, ["0"], num_classes=2)
    assert not caplog.messages
    model[1].train()
    fit_layers(model, batches, ["0"], num_classes=2)
    assert "in training mode, which may change states: call model.eval() first" in caplog.text


def test_an_empty_batch_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval()
    x, z = torch.randn(40, 4), torch.arange(40) % 2
    expected = fit_layers(model, [(x, z)], ["0", "1"], num_classes=2)
    erasers = fit_layers(model, [(x[:0], z[:0]), (x, z)], ["0", "1"], num_classes=2)
    for name, eraser in erasers.items():
        torch.testing.assert_close(eraser(x[:, :3]), expected[name](x[:, :3]))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_states_of_padded_texts_are_refused_with_remedies_that_work() -> None:
    def encoder(**options: Any) -> nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, **options).eval()

    padding = torch.arange(5) >= torch.tensor([5, 3, 4, 2] * 10)[:, None]
    x, z = torch.randn(40, 5, 8), torch.where(padding, -100, torch.arange(5) % 2)
    batch = {"src": x, "src_key_padding_mask": padding, "z": z}

    def fitted(model: nn.Module) -> Any:
        return fit_layers(model, [batch], ["layers.0"], num_classes=2, z="z")["layers.0"]

    with pytest.raises(ValueError, match=r"layers.0: its states are a nested tensor: build .* enable_nested_tensor=F"):
        fitted(encoder())
    assert fitted(encoder(enable_nested_tensor=False)).erased_order == 1
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert fitted(encoder()).erased_order == 1
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_modules_whose_states_are_no_vectors_are_refused_and_second_outputs_are_said(caplog) -> None:
    z = torch.arange(20) % 2
    with pytest.raises(ValueError, match=r"0: Conv1d has states \[batch, channels, length\]"):
        fit_layers(nn.Sequential(nn.Conv1d(1, 3, 3)).eval(), [(torch.randn(20, 1, 8), z)], ["0"], num_classes=2)
    fit_layers(
        nn.Sequential(nn.LSTM(4, 5, batch_first=True)).eval(), [(torch.randn(20, 7, 4), z)], ["0"], num_classes=2
    )
    assert "0: its last states (h_n) are a second output, which stays as it is" in caplog.text


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def test_several_and_real_valued_concepts_are_erased() -> None:
    model, (x, z) = stack(2), tokens(1)[0]
    concepts = {"label": z, "first": x[..., :1]}
    erasers = fit_layers(model, [(x, concepts)], ["blocks.0", "blocks.1"], num_classes={"label": 2})
    with erase(model, erasers):
        states = states_of(model, [(x, z)], ["blocks.0", "blocks.1"])
    for each in states.values():
        assert ConceptMoments.fit(each, concepts).cross.abs().max() < 1e-12


def test_class_counts_are_whole_numbers_of_known_concepts() -> None:
    model, (x, z) = stack(1), tokens(1)[0]
    fit_layers(model, [(x, z)], ["embed"], num_classes=np.int64(2))  # pyright: ignore[reportArgumentType]
    batches = [{"x": x, "y": z}]
    named, by_number = (fit_layers(model, batches, ["embed"], z="y", num_classes=k) for k in ({"y": 2}, 2))
    torch.testing.assert_close(named["embed"](model.embed(x)), by_number["embed"](model.embed(x)))
    with pytest.raises(ValueError, match=r"num_classes has the name 'age': the concepts are group"):
        fit_layers(model, [(x, {"group": z})], ["embed"], num_classes={"group": 2, "age": 2})
    with pytest.raises(ValueError, match=r"num_classes=2.0: give a whole number"):
        fit_layers(model, [(x, z)], ["embed"], num_classes=2.0)  # pyright: ignore[reportArgumentType]


def test_progress_is_reported_to_a_function() -> None:
    seen = list[tuple[str, float, str]]()
    with on_progress(lambda *report: seen.append(report)):
        fit_layers(stack(2), tokens(), BLOCKS[:2], num_classes=2)
    assert [report for report in seen if report[0] == "erasers of hidden states"] == [
        ("erasers of hidden states", 0.0, "blocks.0"),
        ("erasers of hidden states", 0.5, "blocks.1"),
    ]


def test_a_network_compiled_with_erasers_is_itself_afterwards() -> None:
    model, (x, z) = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)).double().eval(), tokens(1)[0]
    erasers = fit_layers(model, [(x, z)], ["0", "2"], num_classes=2)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad(), erase(model, erasers):
        assert worst_gap(compiled(x), z) < 1e-12
    assert worst_gap(compiled(x).detach(), z) > 1e-3
