"""How do the events of one line become tracks? As many as it takes that no viewer drops one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.export.partition import rows_beside, rows_nested
from traceview.export.scene import Slices, Track


def tracks_of(name: str, kind: str, slices: Slices, *, nests: bool) -> Iterator[Track]:
    """`stream 14`, and `stream 14 (2)` for what overlaps there; slices in any order.

    `nests`: on this line what lies inside another event belongs to it.
    """
    split = rows_nested if nests else rows_beside
    row = split(slices.start_ps, slices.end_ps)
    for number in range(int(row.max(initial=-1)) + 1):
        mine = slices if not row.any() else slices.at(np.flatnonzero(row == number))
        yield Track(name if number == 0 else f"{name} ({number + 1})", kind, mine.in_order())
