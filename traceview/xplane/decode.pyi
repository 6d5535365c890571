import numpy as np
import numpy.typing as npt

from traceview.xplane.columns import Fields, LineColumns, WantedStats

def scan_fields(data: bytes | memoryview, begin: int, end: int) -> Fields: ...
def decode_line(
    data: bytes | memoryview, begin: int, end: int, wanted: WantedStats
) -> LineColumns: ...
def intern_contents(
    data: bytes | memoryview, offsets: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]: ...
