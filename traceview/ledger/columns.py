"""Defines the columns of the ledger, and those of the critical path through it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.ledger.states import State
from traceview.trace.model import Step, Trace
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


class PathRows(Struct, frozen=True, eq=False):
    """The critical path of the used steps: parts of segments, all arrays `[n]`; per step they sum to its length.

    int64 `row` of the ledger, `start_ps`, `duration_ps`; int32 `step`.
    """

    row: Int64Array
    start_ps: Int64Array
    duration_ps: Int64Array
    step: Int32Array


class LedgerRows(Struct, frozen=True, eq=False, dict=True):
    """The segments of all visible devices, device by device.

    `devices`: the visible devices of hosts that recorded device events, ascending numbers of the device list; `first`
    `[devices + 1]`: where the rows of each begin. `steps`: those of all hosts in their windows, host by host. `python`:
    the lines of Python that caused something.
    """

    trace: Trace
    columns: Columns
    devices: tuple[int, ...]
    first: tuple[int, ...]
    steps: tuple[Step, ...]
    python: tuple[str, ...] = ()

    def rows_of(self, device: int) -> slice:
        """The rows of a device; none if it is not visible."""
        return self._rows_of_device.get(device, slice(0, 0))

    @cached_property
    def _rows_of_device(self) -> dict[int, slice]:
        return dict(zip(self.devices, map(slice, self.first, self.first[1:]), strict=False))

    @cached_property
    def is_used(self) -> BoolArray:
        """By step, whether it takes part in statistics; bool `[steps]`."""
        return np.array([step.excluded is None for step in self.steps], dtype=np.bool_)

    @cached_property
    def has_steps(self) -> bool:
        """Whether times are per step; otherwise of the whole window."""
        return bool(self.is_used.any())
