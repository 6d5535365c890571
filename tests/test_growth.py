"""What makes time grow with what was recorded gives the same as looking at all of it: rows of a host, peers of a device.

`python -m scripts.bench` measures the time.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.intervals import union
from traceview.trace.host.gaps import peers_of

_spans = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 8)), max_size=24)


@given(_spans)
def test_the_peers_of_each_device(spans: list[tuple[int, int, int]]) -> None:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    device, start, end = columns[:, 0], columns[:, 1], columns[:, 1] + columns[:, 2]
    peers = peers_of(device.astype(np.int16), start, end)
    for number in range(6):
        found, expected = peers.of(number), union(start[device != number], end[device != number])
        assert found.start.tolist() == expected.start.tolist()
        assert found.end.tolist() == expected.end.tolist()
