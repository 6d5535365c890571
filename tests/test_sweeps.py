"""The compiled sweeps say what the reference says."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts import fuzzed_kernels
from traceview.base.intervals import largest_between


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *fuzzed_kernels.SWEEP_CALLS,
            *fuzzed_kernels.STATE_SWEEP_CALLS,
            *fuzzed_kernels.DECODER_CALLS,
        }
    ),
)
def test_compiled_functions_are_those_of_the_reference(name: str) -> None:
    for seed in range(500):
        fuzzed_kernels.compare(name, Random(seed))


@given(
    st.lists(st.integers(-5, 5), max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9),
)
def test_the_largest_between_two_places(values: list[int], spans: list[tuple[int, int]]) -> None:
    spans = [(min(low, len(values)), min(high, len(values))) for low, high in spans]
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    found = largest_between(np.array(values, dtype=np.int64), first, last, -2)
    assert found.tolist() == [max(-2, *values[low:high], -2) for low, high in spans]
