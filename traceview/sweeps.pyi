"""Sweeps over sorted times in one pass, without the GIL."""

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]

def places(values: _Int64Array, times: _Int64Array, right: bool) -> _Int64Array: ...
def covered_before(
    start: _Int64Array, end: _Int64Array, covered: _Int64Array, times: _Int64Array
) -> _Int64Array: ...
def merged(
    start: _Int64Array, end: _Int64Array
) -> tuple[_Int64Array, _Int64Array, _Int64Array] | None: ...
def clearest(
    start: _Int64Array,
    end: _Int64Array,
    reach: _Int64Array,
    shows: npt.NDArray[np.uint16],
    span_start: _Int64Array,
    span_end: _Int64Array,
    wanted: npt.NDArray[np.uint16],
    nearly: float,
) -> _Int64Array: ...
def release_free_memory() -> None: ...
