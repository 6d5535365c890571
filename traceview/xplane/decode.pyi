import numpy as np
import numpy.typing as npt

from traceview.xplane.columns import Buffer, Fields, LineColumns, WantedStats

def scan_fields(data: Buffer, begin: int, end: int) -> Fields: ...
def decode_line(data: Buffer, begin: int, end: int, wanted: WantedStats) -> LineColumns: ...
def intern_contents(
    data: Buffer, offsets: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]: ...
