"""Walks the critical path: back from the end of each step along what held it up, from device to device.

On a device the walk stays until the device waits for another one, which the ledger names. It goes on, from the same
instant, on that device.

    GPU:0   ▕ compute ▏▕ waits for GPU:1 ······▕ transfer ▏        ◂ the step ends here
                                               ┆
    GPU:1   ▕ input ······▏▕ compute          ▏▕ transfer ▏
            ◂──────── the path goes on ────────┘

The pieces of a step touch each other and cover it, so they sum to its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.base.ids import is_in
from traceview.base.intervals import Int32Array, Int64Array
from traceview.ledger.columns import IDLE, WAITS, By, LedgerRows, PathRows
from traceview.trace.columns import NONE
from traceview.trace.host.gaps import STATE_SWEEPS
from traceview.trace.model import Trace

_FOR_NOBODY: Final = -2
"""Of a row in which a device waits for no other one."""


def clocks_agree(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether collectives show that a moment on one of the devices is the same on another."""
    clocks = [
        trace.hosts[host].clock for host in {trace.device_list[device].host for device in devices}
    ]
    # The host that the others are aligned to has no residual itself.
    unaligned = sum(clock is None or clock.residual_ps is None for clock in clocks)
    return len(clocks) == 1 or unaligned <= 1


def path_of(ledger: LedgerRows) -> PathRows:
    """The critical path of the used steps; without steps, of the window of each host."""
    columns, first = ledger.columns, np.array(ledger.first, dtype=np.int64)
    is_active = columns.activity != IDLE
    # A device that was given no work holds nobody up.
    places = [
        place
        for place, device in enumerate(ledger.devices)
        if is_active[ledger.rows_of(device)].any()
    ]
    takes_part = np.zeros(len(ledger.devices), dtype=np.uint8)
    takes_part[places] = 1
    of_list = ledger.trace.device_list
    host = np.array([of_list[device].host for device in ledger.devices], dtype=np.int64)
    step, walk_host, start, end = _walks(ledger, host, places)
    row, begin, duration, walk = STATE_SWEEPS.walked(
        columns.start_ps,
        columns.duration_ps,
        is_active.view(np.uint8),
        _waits_for(ledger),
        first,
        host,
        takes_part,
        clocks_agree(ledger.trace, [ledger.devices[place] for place in places]),
        walk_host,
        start,
        end,
    )
    return PathRows(row, begin, duration, step[walk])


def _walks(
    ledger: LedgerRows, host: Int64Array, places: Sequence[int]
) -> tuple[Int32Array, Int64Array, Int64Array, Int64Array]:
    """What to walk back along: used steps in the window of their host, or the windows; step, host, start and end."""
    columns = ledger.columns
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place in places:
        of, end = int(host[place]), ledger.first[place + 1] - 1
        begin = int(columns.start_ps[ledger.first[place]])
        until = int(columns.start_ps[end] + columns.duration_ps[end])
        first[of], last[of] = max(first.get(of, begin), begin), min(last.get(of, until), until)
    walks = [(NONE, of, first[of], last[of]) for of in sorted(first)]
    if ledger.has_steps:
        walks = [
            (
                number,
                step.host,
                max(step.start_ps, first[step.host]),
                min(step.end_ps, last[step.host]),
            )
            for number, step in enumerate(ledger.steps)
            if step.excluded is None and step.host in first
        ]
    kept = np.array([walk for walk in walks if walk[2] < walk[3]], dtype=np.int64).reshape(-1, 4)
    step, of_host, start, end_ps = kept.T.copy()
    return step.astype(np.int32), of_host, start, end_ps


def _waits_for(ledger: LedgerRows) -> Int32Array:
    """The place of the device that each row waits for, `NONE` for one that is not known, `_FOR_NOBODY` where it waits for none."""
    columns = ledger.columns
    place_of = np.full(len(ledger.trace.device_list) + 1, NONE, dtype=np.int32)
    place_of[list(ledger.devices)] = np.arange(len(ledger.devices))
    rows = np.flatnonzero(is_in(columns.state, [int(state) for state in WAITS]))
    result = np.full(columns.count, _FOR_NOBODY, dtype=np.int32)
    by = np.where(columns.by_kind[rows] == By.DEVICE, columns.by[rows], NONE)
    result[rows] = place_of[by]
    return result
