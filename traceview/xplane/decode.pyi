from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceview.xplane.columns import (
    Buffer,
    Fields,
    LineColumns,
    StatColumns,
    StatsBySlot,
    WantedStats,
)
from traceview.xplane.space import PlaneHeader

def scan_fields(data: Buffer, begin: int, end: int) -> Fields: ...
def decode_line(data: Buffer, begin: int, end: int, wanted: WantedStats) -> LineColumns: ...
def read_plane(data: Buffer) -> PlaneHeader: ...
def intern_contents(
    data: Buffer, offsets: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]: ...
def stats_by_slot(
    lines: Sequence[StatColumns],
    first_event: Sequence[int],
    first_text: Sequence[int],
    slots: int,
) -> StatsBySlot: ...
