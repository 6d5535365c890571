"""Every event as a row in columns of equal length: what devices ran, what threads did, and the names of both.

Times are int64 picoseconds since the origin of the run. Names are indices into `Names`; `NONE` means none. Nothing changes the
columns after loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, wraps
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, places

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

NONE: Final = -1
"""The value of an index column that points to nothing: no name, no launch, no step."""

UNKNOWN_BYTES: Final = -1


def kept(method: Callable[[S, K], T]) -> Callable[[S, K], T]:
    """A method of one argument, of which its object keeps what it gives for each."""

    @wraps(method)
    def keeping(self: S, key: K) -> T:
        known: dict[K, T] = vars(self).setdefault(f"_kept {method.__name__}", {})
        if key not in known:
            known[key] = method(self, key)
        return known[key]

    return keeping


class Names:
    """Every distinct name of a trace, once. Names stay bytes until shown: they need not be valid UTF-8."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._values: list[bytes] = []
        self._every: dict[Callable[[bytes], object], npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __getitem__(self, index: int) -> bytes:
        return self._values[index]

    def __reduce__(self) -> tuple[Callable[[list[bytes]], Names], tuple[list[bytes]]]:
        return Names.of, (self._values,)

    @classmethod
    def of(cls, values: Iterable[bytes]) -> Names:
        """A table of these distinct names."""
        names = cls()
        names.add_all(values)
        return names

    def add_all(self, names: Iterable[bytes]) -> Int32Array:
        """The indices of `names`, int32, in their order."""
        names, index = tuple(names), self._index
        new = [name for name in dict.fromkeys(names) if name not in index]
        first = len(index)
        index.update(zip(new, range(first, first + len(new)), strict=True))
        self._values += new
        return np.fromiter(map(index.__getitem__, names), np.int32, len(names))

    def read(self, indices: npt.NDArray[np.integer], reads: Callable[[bytes], T]) -> list[T]:
        """What a function reads from each of these names."""
        return list(map(reads, map(self._values.__getitem__, indices.tolist())))

    def text(self, index: int) -> str | None:
        """The name as text, with invalid UTF-8 replaced; None for `NONE`."""
        return None if index == NONE else self._values[index].decode("utf-8", "replace")

    def every(self, reads: Callable[[bytes], Any], dtype: Any) -> npt.NDArray[Any]:
        """What a function of a module reads from each name, by index: once, for hosts have the same names."""
        known = self._every.get(reads)
        if known is None or known.size != len(self):
            known = np.fromiter(map(reads, self), dtype, len(self))
            self._every[reads] = known
        return known

    def each(
        self,
        indices: npt.NDArray[np.integer],
        reads: Callable[[bytes], Any],
        dtype: Any,
        without: int,
    ) -> npt.NDArray[Any]:
        """What a function reads from each of these names, from a distinct one once; `without` for `NONE`."""
        known = unique_ids(indices)
        known = known[known != NONE]
        values = np.full(len(self) + 1, without, dtype=dtype)
        values[known] = self.read(known, reads)
        result: npt.NDArray[Any] = values[indices]
        return result

    def where(
        self, indices: npt.NDArray[np.integer], matches: Callable[[bytes], object]
    ) -> BoolArray:
        """Which of `indices` are names that match; each distinct name is asked once, `NONE` never matches."""
        return self.each(indices, lambda name: bool(matches(name)), np.bool_, False)

    def matching(self, indices: npt.NDArray[np.integer], wanted: Iterable[bytes]) -> BoolArray:
        """Which of `indices` are names in `wanted`."""
        ids = [self._index[name] for name in wanted if name in self._index]
        return is_in(indices, ids)


def _rows_with(column: npt.NDArray[np.integer], value: int) -> slice:
    """The rows of a sorted column with a value; none, at the place where they would be, if it does not occur."""
    # Another type of number would convert the whole column.
    wanted = column.dtype.type(value)
    return slice(int(column.searchsorted(wanted)), int(column.searchsorted(wanted, "right")))


class _EventColumns(Struct, frozen=True, eq=False, dict=True):
    """What device and host columns have in common."""

    start_ps: Int64Array
    duration_ps: Int64Array

    @property
    def count(self) -> int:
        """Number of events."""
        return int(self.start_ps.size)

    @cached_property
    def end_ps(self) -> Int64Array:
        """Exclusive end of each event, int64 picoseconds."""
        return self.start_ps + self.duration_ps


class DeviceColumns(_EventColumns, frozen=True, eq=False):
    """Device activity: one row per event that counts as activity, by device and start, of several the longest first.

    int16 `device`; int32 `line`, `name`, `op` (the recorded op text, `scope/name:Type`), `instruction` (the place
    among the instructions of the recording, `NONE` for events that are not of XLA), `details` (the `kernel_details` of a kernel, `NONE`
    where not recorded); int64 `start_ps`, `duration_ps`, `bytes`, `correlation_id` (0 without), `launch` (row in the host columns), `group` (the
    recorded `group_id`, -1 without); uint8 `class_` (`ActivityClass`), `host_memory` (`HostMemory` of a copy's host side); bool
    `p2p`, `unknown_direction`.
    """

    device: npt.NDArray[np.int16]
    line: Int32Array
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    op: Int32Array
    instruction: Int32Array
    details: Int32Array
    class_: npt.NDArray[np.uint8]
    correlation_id: Int64Array
    launch: Int64Array
    bytes: Int64Array
    host_memory: npt.NDArray[np.uint8]
    group: Int64Array
    p2p: BoolArray
    unknown_direction: BoolArray

    @kept
    def rows_of(self, device: int) -> slice:
        """The rows of one device; they are contiguous and sorted by start."""
        return _rows_with(self.device, device)

    def names_at(self, rows: Int32Array) -> tuple[Int32Array, Int32Array]:
        """The op and the name of the events at some rows, `NONE` where a row is `NONE`."""
        known = rows != NONE
        op, name = np.full((2, rows.size), NONE, dtype=np.int32)
        op[known], name[known] = self.op[rows[known]], self.name[rows[known]]
        return op, name


class HostStat(Struct, frozen=True, eq=False):
    """A stat of some host events: `row` (sorted) and `value`, both int64 `[n]`.

    For text stats the values are indices into `Trace.names`.
    """

    row: Int64Array
    value: Int64Array

    def among(self, rows: slice) -> HostStat:
        """The same of a range of rows."""
        first, last = np.searchsorted(self.row, (rows.start, rows.stop)).tolist()
        return HostStat(self.row[first:last], self.value[first:last])

    def has(self, rows: Int64Array) -> BoolArray:
        """Which of `rows` have the stat."""
        if not self.row.size:
            return np.zeros(rows.size, dtype=np.bool_)
        result: BoolArray = self.row[np.minimum(places(self.row, rows), self.row.size - 1)] == rows
        return result

    def at(self, rows: Int64Array, default: int) -> Int64Array:
        """The value at each of `rows` (host rows or `NONE`), `default` where there is none."""
        if not self.row.size:
            return np.full(rows.size, default, dtype=np.int64)
        place = np.minimum(places(self.row, rows), self.row.size - 1)
        return np.where(self.row[place] == rows, self.value[place], default)


_NO_STAT: Final = HostStat(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class HostColumns(_EventColumns, frozen=True, eq=False):
    """Thread activity: one row per host event, in the order of hosts, lines and file.

    int16 `host`; int32 `line`, `name`; int64 `start_ps`, `duration_ps`; `stats` by key.
    """

    host: npt.NDArray[np.int16]
    line: Int32Array
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    stats: dict[str, HostStat]

    @kept
    def rows_of_host(self, host: int) -> slice:
        """The rows of one host; they are contiguous."""
        return _rows_with(self.host, host)

    @kept
    def rows_of(self, line: int) -> slice:
        """The rows of one line; they are contiguous."""
        return _rows_with(self.line, line)

    def stat(self, key: str) -> HostStat:
        """A stat by its key; empty where no event has it."""
        return self.stats.get(key, _NO_STAT)


class CollectiveCalls(Struct, frozen=True, eq=False):
    """The host calls behind the device events of class collective; int64 arrays, one entry per event, in their order.

    `op`: host row of the op that holds the keys, `NONE` without; `group`, `instance`: its keys. `call`: host
    row of the call of NCCL around the launch; `bytes`: size of its buffer. `arrival`: host row at whose start a
    replica handed the op over, `NONE` on GPUs.
    """

    op: Int64Array
    group: Int64Array
    instance: Int64Array
    call: Int64Array
    bytes: Int64Array
    arrival: Int64Array


_NOTHING_RECORDED: Final[dict[str, np.generic]] = {
    "device": np.int16(NONE),
    **dict.fromkeys(("line", "name", "op", "instruction", "details"), np.int32(NONE)),
    **dict.fromkeys(("start_ps", "duration_ps", "correlation_id"), np.int64(0)),
    **dict.fromkeys(("launch", "group"), np.int64(NONE)),
    "bytes": np.int64(UNKNOWN_BYTES),
    **dict.fromkeys(("class_", "host_memory"), np.uint8(0)),
    **dict.fromkeys(("p2p", "unknown_direction"), np.bool_(False)),
}
"""What stands in each column where nothing else is known."""


def device_columns(count: int, **known: npt.NDArray[Any]) -> DeviceColumns:
    """The columns of some events of devices, of which these are known."""
    unknown = _NOTHING_RECORDED.keys() - known
    return DeviceColumns(
        **known,
        **{key: np.full(count, _NOTHING_RECORDED[key]) for key in unknown},
    )


NO_DEVICE_EVENTS: Final = device_columns(0)
NO_HOST_EVENTS: Final = HostColumns(
    host=np.empty(0, dtype=np.int16),
    line=np.empty(0, dtype=np.int32),
    start_ps=np.empty(0, dtype=np.int64),
    duration_ps=np.empty(0, dtype=np.int64),
    name=np.empty(0, dtype=np.int32),
    stats={},
)


_Columns = TypeVar("_Columns", DeviceColumns, HostColumns, HostStat, CollectiveCalls)


def concatenated(parts: list[_Columns]) -> _Columns:
    """The rows of several parts, one after the other; the list is emptied, and a column of a part let go of when it is joined."""
    if len(parts) == 1:
        return parts.pop()
    kind, known = type(parts[0]), [asdict(part) for part in parts]
    parts.clear()
    return kind(**{key: _joined([part.pop(key) for part in known]) for key in tuple(known[0])})


def _joined(columns: list[Any]) -> Any:
    """One column of several parts, or the stats of host events by key."""
    if not isinstance(columns[0], dict):
        return np.concatenate(columns)
    keys = dict.fromkeys(chain.from_iterable(columns))
    return {key: concatenated([part.pop(key) for part in columns if key in part]) for key in keys}
