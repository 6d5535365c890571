"""The longest spans come first, of equal ones the earlier, however many there are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis.measures.idle_report import longest_first


@pytest.mark.parametrize("most", [3, 10**9])
@given(
    st.integers(0, 700), st.sampled_from([None, 0, 1, 2, 5, 10]), st.randoms(use_true_random=False)
)
def test_longest_first_is_a_sort(most: int, count: int, top: int | None, random: Random) -> None:
    draw = np.random.default_rng(random.randrange(2**32))
    lengths = draw.integers(0, most, count)
    expected = sorted(range(count), key=lambda place: -lengths[place])
    assert longest_first(lengths, top).tolist() == expected[:top]
