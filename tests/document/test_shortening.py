"""Tests that shortened names can be told apart."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from traceview.document.page import Page
from traceview.document.terminal import shortened_names


@pytest.mark.parametrize("width", [24, 40, 60])
def test_names_that_differ_in_the_middle(width: int) -> None:
    start = "StatefulPartitionedCall/gradient_tape/model/transformer_encoder/layer"
    names = [
        f"{start}_{n}/attention_{letter}/dense/MatMul/MatMul_1/{'x' * 60}"
        for n in range(12)
        for letter in "ab"
    ]
    shown = shortened_names(Page(80), names, width)
    assert len(set(shown.values())) == len(names)
    assert max(map(cell_len, shown.values())) <= width


def test_names_that_fit_stay_as_they_are() -> None:
    assert shortened_names(Page(80), ["a/b", "a/c"], 3) == {"a/b": "a/b", "a/c": "a/c"}


def test_names_without_end_are_told_apart_as_far_as_there_is_room() -> None:
    """Each begins with all that are shorter."""
    names = ["a" * length for length in range(1, 2000)]
    assert max(map(cell_len, shortened_names(Page(80), names, 40).values())) <= 40
