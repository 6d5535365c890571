"""Defines the columns of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.ledger.states import State
from traceview.xplane.planes import ActivityClass

IDLE: Final = len(ActivityClass)
"""The activity of a device that does nothing."""

ACTIVITIES: Final = (*(class_.name.lower() for class_ in ActivityClass), "idle")

WAITS: Final = (State.DEVICE_WAIT, State.TURN)
"""Waits for another device."""


class By(IntEnum):
    """What kind of thing caused a segment: what `by` is a number of."""

    NONE = 0
    DEVICE = 1
    THREAD = 2
    OP = 3
    PYTHON = 4


class Columns(Struct, frozen=True, eq=False):
    """Segments in time order; all arrays `[n]`.

    int64 `start_ps`, `duration_ps`, none of length 0; int32 `step`, an index into the steps of the ledger, `NONE`
    outside of steps; uint8 `state` (`State`), `activity` (a class of activity, or `IDLE`), `by_kind` (`By`); int32
    `by`: a device of the device list, a line of the trace, a name, or a line of Python among those of the ledger, `NONE`
    without; int32 `event`: the device row of a busy
    segment, and of an idle one the row that ends it, `NONE` without.
    """

    start_ps: Int64Array
    duration_ps: Int64Array
    step: Int32Array
    state: npt.NDArray[np.uint8]
    activity: npt.NDArray[np.uint8]
    by_kind: npt.NDArray[np.uint8]
    by: Int32Array
    event: Int32Array

    @property
    def count(self) -> int:
        """Number of segments."""
        return int(self.start_ps.size)

    @property
    def end_ps(self) -> Int64Array:
        """Exclusive end of each segment; made anew each time."""
        return self.start_ps + self.duration_ps

    def chosen(self, rows: npt.NDArray[np.integer] | BoolArray | slice) -> Columns:
        """These rows."""
        return Columns(*(getattr(self, name)[rows] for name in self.__struct_fields__))


DTYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("start_ps", "duration_ps"), np.int64),
    **dict.fromkeys(("state", "activity", "by_kind"), np.uint8),
    **dict.fromkeys(("step", "by", "event"), np.int32),
}
"""Of the columns."""
