"""What a device did up to a class, and within it, as an array with one entry per picosecond shows it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis.facts.activity import DeviceActivity, added_by_class
from traceview.xplane.planes import ActivityClass

END = 60

Event = tuple[int, int, int]
_EVENTS = st.lists(
    st.tuples(
        st.integers(0, len(ActivityClass) - 1), st.integers(0, END - 1), st.integers(0, END // 4)
    ),
    max_size=25,
)


def _activity(events: list[Event]) -> DeviceActivity:
    rows = np.array(sorted(events, key=lambda event: event[1]), dtype=np.int64).reshape(-1, 3)
    return added_by_class(rows[:, 1], rows[:, 1] + rows[:, 2], rows[:, 0].astype(np.uint8))


@given(_EVENTS, st.integers(0, END), st.integers(0, END))
def test_activity_counts_cells(events: list[Event], begin: int, length: int) -> None:
    activity = _activity(events)
    done = np.zeros((len(ActivityClass), END * 2), dtype=np.bool_)
    for class_, start, lasted in events:
        done[class_, start : start + lasted] = True
    span = slice(begin, begin + length)
    so_far = np.zeros(END * 2, dtype=np.bool_)
    parts = []
    for class_ in ActivityClass:
        parts.append(int((done[class_] & ~so_far)[span].sum()))
        so_far |= done[class_]
        union = activity.up_to(class_)
        assert [
            place
            for start, end in zip(union.start.tolist(), union.end.tolist(), strict=True)
            for place in range(start, end)
        ] == np.flatnonzero(so_far).tolist()
    idle = length - sum(parts)
    assert activity.parts([begin], [begin + length])[:, 0].tolist() == [*parts, idle]
