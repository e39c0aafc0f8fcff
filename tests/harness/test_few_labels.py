"""Codelengths of few labels say so."""

import pytest

from harness.few_labels import few_labels


@pytest.mark.parametrize(
    ("sizes", "num_classes", "few"),
    [
        ([27, 100, 1295], 10, False),  # the digits
        ([1024, 5000, 48_976], 10, False),
        ([10, 40, 470], 3, False),
        ([10, 40, 469], 3, True),
        ([9, 40, 1295], 3, True),
        ([27, 100, 1295], 28, True),
        ([50, 100, 2000], 50, True),
    ],
)
def test_a_first_network_of_few_examples_and_few_labels_are_named(
    sizes: list[int], num_classes: int, few: bool
) -> None:
    said = few_labels(sizes, num_classes)
    assert (said is not None) is few
    if said:
        assert f"learns from {sizes[0]} examples of {num_classes} classes" in said
        assert f"codes the next {sizes[1] - sizes[0]} of {sizes[2]:,} labels" in said
