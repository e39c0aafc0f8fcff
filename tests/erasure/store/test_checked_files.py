"""Tensors and JSON come back as they were written, and a damaged file is named."""

import contextlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from erasure.store import checked_files
from erasure.store.checked_files import DamagedFileError, checksum, load_tensors, read_json, save_tensors, write_json


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.randn(2).bfloat16(), "none": torch.zeros(0, 3)}
    save_tensors(tmp_path / "x.safetensors", tensors, {"names": ["é", "b"], "n": 3})
    loaded, metadata = load_tensors(tmp_path / "x.safetensors")
    assert metadata == {"names": ["é", "b"], "n": 3}
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype


def test_a_checksum_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    def stored(name: str, value: float, **metadata: int) -> str:
        save_tensors(tmp_path / name, {"a": torch.tensor([value]), "b": torch.ones(2)}, metadata)
        return checksum(tmp_path / name)

    same = stored("x", 1.0, seed=0)
    assert stored("y", 1.0, seed=0) == same
    assert stored("x", 1.0 + 1e-6, seed=0) != same
    assert stored("x", 1.0, seed=1) != same
    (tmp_path / "y").write_bytes((tmp_path / "y").read_bytes().replace(b"seed", b"sead"))
    with pytest.raises(DamagedFileError, match="checksum of its metadata"):
        checksum(tmp_path / "y")


def test_no_changed_bit_goes_unnoticed(tmp_path: Path) -> None:
    """Header included: metadata holds certificates and class names."""
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.arange(3)}, {"gap": 1.5, "names": ["b", "c"]})
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError, match=r"x\.safetensors"):
            load_tensors(path)


RESULT = {"name": "digits", "n": 10, "loss_bits": [0.125, 3.0], "best": None, "curve": {3: {"done": True}, 20: (1, 2)}}


def test_json_comes_back_whole_however_its_text_is_laid_out(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, RESULT)
    expected = json.loads(json.dumps(RESULT))
    assert read_json(path) == expected
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items())), indent=7))
    assert read_json(path) == expected


def test_no_altered_byte_of_a_json_file_passes(tmp_path: Path) -> None:
    """Each byte in turn replaced and deleted: refused, or the same content in another layout."""
    path = tmp_path / "result.json"
    write_json(path, RESULT)
    whole = path.read_bytes()
    refused = 0
    for position in range(len(whole)):
        for other in (bytes([whole[position] ^ 1 << position % 7]), b"", b"7"):
            path.write_bytes(whole[:position] + other + whole[position + 1 :])
            with contextlib.suppress(DamagedFileError):
                assert read_json(path) == json.loads(json.dumps(RESULT)), whole[position - 9 : position + 9]
                continue
            refused += 1
    assert refused > 2 * len(whole)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"a": 1', '{"a": 1}', '{"digest": "0"}', '{"a": NaN, "digest": "0"}', "[" * 10**6]
)
def test_json_that_is_not_ours_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"result\.json"):
        read_json(tmp_path / "result.json")


def test_a_nan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "other.json", {"a": float("nan")})
    assert not (tmp_path / "other.json").exists()


def test_fingerprints_ignore_the_order_of_keys_and_nothing_else() -> None:
    assert checked_files.fingerprint({"a": 1, "b": [2]}) == checked_files.fingerprint({"b": [2], "a": 1})
    assert checked_files.fingerprint({"a": 1, "b": [2]}) != checked_files.fingerprint({"a": 1, "b": [3]})


def test_the_same_bytes_in_another_dtype_or_shape_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensor = torch.arange(6, dtype=torch.float32)
    save_tensors(path, {"a": tensor})
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    for changed in (tensor.view(2, 3), tensor.view(torch.int32), tensor.view(3, 2)):
        save_file({"a": changed}, path, metadata=header)
        with pytest.raises(DamagedFileError, match="checksum of 'a' does not match"):
            load_tensors(path)
