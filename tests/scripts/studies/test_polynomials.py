"""Logistic regression on Hermite polynomials: what it sees, and what it cannot see."""

import torch

from erasure.source import LabelledImages
from scripts.studies import polynomials
from scripts.studies.polynomials import hermite_features, losses
from tests.erasure.test_hermite import hermite_tensor, normal


def test_features_are_the_entries_of_hermite_tensors() -> None:
    x = normal(20, 3)
    tensors = torch.cat([hermite_tensor(x, p) for p in (1, 2, 3)], 1)
    found = hermite_features(x, 3)
    scale = tensors.norm(dim=0) / found.norm(dim=0)  # how often an entry is there
    torch.testing.assert_close(found * scale, tensors)


def test_degree_two_sees_what_degree_one_cannot() -> None:
    x, z = normal(400, 2), torch.arange(400) % 2
    x[z == 1] *= 3
    for j in range(2):
        x[z == j] -= x[z == j].mean(0)
    split = LabelledImages(x[:, None, None], z)
    linear, quadratic = (losses(split, split, 2, degree, 1e-4)[0] for degree in (1, 2))
    assert abs(linear - 1) < 1e-6
    assert quadratic < 0.7


def test_a_table_is_printed(tmp_path, capsys) -> None:
    options = ["--erasers", "control", "leace", "--degree", "1", "--directions", "5"]
    assert polynomials.main([f"cache_dir={tmp_path}", *options]) == 0
    printed = capsys.readouterr().out
    assert "leace" in printed
    assert "3.3218" in printed
