"""Examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import erasure

MODULES = [module.name for module in pkgutil.walk_packages(erasure.__path__, "erasure.")]
FINDER = doctest.DocTestFinder()
WITH_EXAMPLES = [one for one in MODULES if any(test.examples for test in FINDER.find(importlib.import_module(one)))]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_run(module: str) -> None:
    torch.manual_seed(0)
    assert doctest.testmod(importlib.import_module(module)).failed == 0
