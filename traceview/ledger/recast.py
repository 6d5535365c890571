"""Changes the state of parts of a ledger, where more than the activity of a device and its host shows who caused them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import accumulate

import numpy as np

from traceview.base.intervals import BoolArray, Int32Array, Int64Array, IntervalSet
from traceview.base.sweeping import SWEEPS
from traceview.ledger.build import with_values
from traceview.ledger.columns import By, Columns
from traceview.ledger.states import State
from traceview.ledger.table import Ledger


def recast(
    columns: Columns,
    spans: IntervalSet,
    among: Collection[State],
    state: State,
    by: tuple[By, int] | None = None,
) -> Columns:
    """The segments of a device, where those of states `among` have another state inside of `spans`.

    `by`: who causes it, if that changes as well. Segments of these states are cut at the bounds of the spans.
    """
    if not spans.start.size or not columns.count:
        return columns
    rows = is_among(columns, among)
    if not rows.any():
        return columns
    # Up to an instant inside of a span lies an odd number of these.
    bounds = np.stack((spans.start, spans.end), axis=1).reshape(-1)
    cut, number, passed = cut_at(columns, bounds, rows)
    return _changed(cut, rows[number] & (passed % 2 == 1), state, by)


def recast_rows(
    columns: Columns, rows: BoolArray, state: State, by: tuple[By, int] | None = None
) -> Columns:
    """The segments of a device with another state for some whole rows."""
    return _changed(columns, rows, state, by)


def recast_ends(
    columns: Columns, length_ps: Int64Array, state: State, by: tuple[By, int] | None = None
) -> Columns:
    """The segments of a device, where the last `length_ps` of each row have another state."""
    length = np.minimum(length_ps, columns.duration_ps)
    from_ps = columns.end_ps - length
    inside = (length > 0) & (length < columns.duration_ps)
    cut, number, _ = cut_at(columns, from_ps[inside], inside)
    return _changed(cut, cut.start_ps >= from_ps[number], state, by)


def cut_at(
    columns: Columns, bounds: Int64Array, rows: BoolArray
) -> tuple[Columns, Int32Array, Int32Array]:
    """The same segments, some of them cut where one of the sorted, distinct `bounds` lies inside.

    Also, of each, the number of the segment that it is a part of, and how many bounds lie before its start or at it.
    """
    start, end, number, passed = SWEEPS.cut(
        columns.start_ps, columns.end_ps, bounds, rows.view(np.uint8)
    )
    if start.size == columns.count:
        return columns, number, passed
    cut = with_values(columns.chosen(number), start_ps=start, duration_ps=end - start)
    return cut, number, passed


def is_among(columns: Columns, states: Collection[State]) -> BoolArray:
    """Which rows are in one of these states."""
    wanted = np.zeros(len(State), dtype=np.bool_)
    wanted[[int(state) for state in states]] = True
    result: BoolArray = wanted[columns.state]
    return result


def _changed(columns: Columns, rows: BoolArray, state: State, by: tuple[By, int] | None) -> Columns:
    if not rows.any():
        return columns
    changed = {"state": np.where(rows, np.uint8(state), columns.state)}
    if by is not None:
        kind, number = by
        changed["by_kind"] = np.where(rows, np.uint8(kind), columns.by_kind)
        changed["by"] = np.where(rows, np.int32(number), columns.by)
    return with_values(columns, **changed)


def each_device(ledger: Ledger, changes: Mapping[int, Callable[[Columns], Columns]]) -> Ledger:
    """The ledger with the segments of some devices changed."""
    old = [ledger.columns.chosen(ledger.rows_of(device)) for device in ledger.devices]
    parts = [
        changes[device](own) if device in changes else own
        for device, own in zip(ledger.devices, old, strict=True)
    ]
    columns = {}
    for name in Columns.__struct_fields__:
        before, after = ([getattr(part, name) for part in of] for of in (old, parts))
        # Most changes concern few columns.
        if any(new is not known for new, known in zip(after, before, strict=True)):
            columns[name] = np.concatenate(after)
    if not columns:
        return ledger
    first = [0, *accumulate(part.count for part in parts)]
    return ledger.with_columns(with_values(ledger.columns, **columns), first)
