"""Files of moments that no examples have are refused in one line."""

from pathlib import Path

import pytest
import torch

from erasure import ClassMoments, ConceptMoments
from erasure.store.checked_files import load_tensors, save_tensors
from tests.erasure.test_moments import random_data


@pytest.mark.parametrize("kind", [ClassMoments, ConceptMoments])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"offsets": t["offsets"] * torch.nan}, "offsets has values that are not finite"),
        (lambda t: t | {"scatters": t["scatters"] + torch.inf}, "scatters has values that are not finite"),
        (lambda t: t | {"scatters": -t["scatters"]}, "scatters has negative variances"),
        (lambda t: t | {"sizes": -t["sizes"]}, "a class has -"),
        (lambda t: t | {"sizes": t["sizes"].double()}, "sizes is of torch.float64"),
        (lambda t: t | {"scatters": t["scatters"].long()}, "scatters is of torch.int64"),
        (lambda t: {k: v for k, v in t.items() if k != "scatters"}, r"scatters is missing"),
        (lambda t: t | {"scatters": t["scatters"][:, :2]}, r"scatters is \[., 2, .\], expected"),
    ],
)
def test_files_of_moments_that_no_examples_have_are_refused(kind, change, message: str, tmp_path) -> None:
    x, z = random_data(9)
    x[:, 1] += 0.8 * x[:, 0]
    moments = kind.fit(x, z)
    moments.save(tmp_path / "moments")
    tensors, metadata = load_tensors(tmp_path / "moments")
    save_tensors(tmp_path / "moments", change(tensors), metadata)
    with pytest.raises(ValueError, match=message) as caught:
        kind.load(tmp_path / "moments")
    assert str(caught.value).startswith(f"{tmp_path / 'moments'} holds no moments of examples (")


def test_a_small_file_that_says_it_is_huge_takes_no_memory(tmp_path) -> None:
    x, z = random_data(9)
    resource = pytest.importorskip("resource")
    ClassMoments.fit(x, z).save(tmp_path / "classes")
    ConceptMoments.fit(x, {"z": z}).save(tmp_path / "concepts")
    tensors, metadata = load_tensors(tmp_path / "classes")
    wide = {
        "offsets": torch.zeros(2, 30_000, dtype=torch.float64),
        "origins": torch.zeros(2, 30_000, dtype=torch.float64),
    }
    save_tensors(tmp_path / "classes", tensors | wide, metadata)
    tensors, metadata = load_tensors(tmp_path / "concepts")
    save_tensors(tmp_path / "concepts", tensors, {"concept_moments": metadata["concept_moments"] | {"dim": 10**5}})
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int((Path("/proc/self/statm")).read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    try:
        for kind, name in ((ClassMoments, "classes"), (ConceptMoments, "concepts")):
            with pytest.raises(ValueError, match="holds no moments of examples .*expected"):
                kind.load(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    "about",
    [{"dim": "5"}, {"dim": -3}, {"concepts": {"z": 1.5}}, {"concepts": 3}, {"dim": None}],
)
def test_files_whose_description_makes_no_sense_are_refused(about, tmp_path) -> None:
    ConceptMoments.fit(*random_data(9)).save(tmp_path / "moments")
    tensors, metadata = load_tensors(tmp_path / "moments")
    save_tensors(tmp_path / "moments", tensors, {"concept_moments": metadata["concept_moments"] | about})
    with pytest.raises(ValueError, match="holds no moments of examples"):
        ConceptMoments.load(tmp_path / "moments")
