"""Sweeps over columns in one pass, without the GIL."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_Ids = npt.NDArray[np.integer]

def places(values: _Int64Array, times: _Int64Array, right: bool) -> _Int64Array: ...
def covered_before(start: _Int64Array, covered: _Int64Array, times: _Int64Array) -> _Int64Array: ...
def merged(start: _Int64Array, end: _Int64Array) -> tuple[_Int64Array, _Int64Array] | None: ...
def reaches(end: _Int64Array) -> _Int64Array: ...
def touching(
    start: _Int64Array,
    end: _Int64Array,
    latest: _Int64Array,
    span_start: _Int64Array,
    span_end: _Int64Array,
) -> _Int64Array: ...
def clearest(
    start: _Int64Array,
    end: _Int64Array,
    latest: _Int64Array,
    shows: npt.NDArray[np.uint16],
    span_start: _Int64Array,
    span_end: _Int64Array,
    wanted: npt.NDArray[np.uint16],
    nearly: float,
) -> _Int64Array: ...
def last_open(end: _Int64Array, limit: _Int64Array, time: _Int64Array) -> _Int64Array | None: ...
def overlapping(start: _Int64Array, end: _Int64Array, first: int, last: int) -> _Int64Array: ...
def marked(ids: _Ids, least: int, length: int) -> _BoolArray: ...
def are_marked(marks: npt.NDArray[np.uint8], ids: _Ids, least: int) -> _BoolArray: ...
def looked_up(table: _Int64Array, ids: _Ids, least: int, absent: int) -> _Int64Array: ...
def earliest(ids: _Int64Array, time: _Int64Array, least: int, length: int) -> _Int64Array: ...
def totals(
    places: _Ids, values: _Int64Array, length: int, chosen: npt.NDArray[np.uint8] | None = None
) -> _Int64Array: ...
def totals_between(
    values: _Int64Array, chosen: npt.NDArray[np.uint8], first: _Int64Array
) -> _Int64Array: ...
def in_both(
    first: npt.NDArray[np.uint8],
    of_first: npt.NDArray[np.uint8],
    second: npt.NDArray[np.int32],
    of_second: npt.NDArray[np.uint8],
) -> _BoolArray: ...
def cut(
    start: _Int64Array,
    end: _Int64Array,
    bounds: _Int64Array,
    chosen: npt.NDArray[np.uint8] | None = None,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
def exclusive(
    start: _Int64Array, duration: _Int64Array, class_: npt.NDArray[np.uint8], classes: int
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], _Int64Array]: ...
def layered(
    start: _Int64Array,
    end: _Int64Array,
    begin: _Int64Array,
    bounds: _Int64Array,
    first: int,
    last: int,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
def walked(
    start: _Int64Array,
    duration: _Int64Array,
    is_active: npt.NDArray[np.uint8],
    waits_for: npt.NDArray[np.int32],
    first: _Int64Array,
    host: _Int64Array,
    takes_part: npt.NDArray[np.uint8],
    one_clock: bool,
    walk_host: _Int64Array,
    walk_start: _Int64Array,
    walk_end: _Int64Array,
) -> tuple[_Int64Array, _Int64Array, _Int64Array, npt.NDArray[np.int32], _BoolArray]: ...
def attributed_spans(
    start: _Int64Array,
    end: _Int64Array,
    gap: npt.NDArray[np.int32],
    late_end: _Int64Array,
    handed_over: _Int64Array,
    line: _Int64Array,
    state_start: _Int64Array,
    state: npt.NDArray[np.uint8],
    state_begin: _Int64Array,
    queued: npt.NDArray[np.uint8],
    peer_start: _Int64Array,
    peer_covered: _Int64Array,
    yields: npt.NDArray[np.uint8],
    peer: int,
    short: int,
    launching: int,
) -> tuple[_Int64Array, npt.NDArray[np.uint8], npt.NDArray[np.int32]]: ...
def summed_spans(
    start: _Int64Array,
    cause: npt.NDArray[np.uint8],
    piece: npt.NDArray[np.int32],
    piece_end: _Int64Array,
    causes: int,
) -> dict[int, tuple[npt.NDArray[np.int32], _Int64Array]]: ...
def codes_of(values: npt.NDArray[np.object_], known: dict[Any, int]) -> npt.NDArray[np.int32]: ...
def lines_of(
    codes: npt.NDArray[np.int32],
    numbers: _Int64Array,
    cells: npt.NDArray[np.uint8],
    begin: _Int64Array,
) -> bytes: ...
def release_free_memory() -> None: ...
def share_one_heap() -> None: ...
