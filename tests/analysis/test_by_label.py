"""Numbers by label are the same with and without the labels that a device did not run."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis.measures.op_work import ByLabel


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_what_is_not_kept_is_zero(labels: list[tuple[int, bool]]) -> None:
    every = np.array([value for value, _ in labels], dtype=np.int64)
    wanted = np.array([is_wanted for _, is_wanted in labels], dtype=np.bool_)
    kept = ByLabel.of(every)
    assert (kept.value > 0).all()
    assert kept.every.tolist() == every.tolist()
    assert kept.where(wanted).every.tolist() == np.where(wanted, every, 0).tolist()
    assert kept.where(wanted).total == every[wanted].sum()
