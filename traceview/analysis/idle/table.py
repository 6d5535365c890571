"""Every gap of every device as one row: what `traceview gaps` lists."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from traceview.analysis.idle.result import gap_rows
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

STACK_SEPARATOR = " > "
_FIELD_OF_CAUSE = {cause.key: f"{cause.key}_ps" for cause in Cause}


@dataclass(frozen=True)
class GapRow:
    """One gap; times in picoseconds. The times by cause sum to `duration_ps`; the rest as in the report.

    `host_stack`: the names of the host events open at the one that shows the cause, outermost first.
    """

    device: str
    start_ps: int
    duration_ps: int
    step: int | None
    cause: str
    before: str | None
    after: str | None
    thread: str | None
    host_event: str | None
    host_stack: str | None
    input_ps: int
    h2d_ps: int
    compile_ps: int
    sync_ps: int
    checkpoint_ps: int
    launch_ps: int
    callback_ps: int
    host_compute_ps: int
    peer_ps: int
    dependency_ps: int
    latency_ps: int
    unattributed_ps: int
    unused_ps: int


def gap_table(
    trace: Trace,
    selection: Selection,
    found: IdleAttribution,
    *,
    devices: Collection[str],
    causes: Collection[str] = (),
    least_ps: int = 0,
    top: int | None = None,
) -> tuple[list[GapRow], int]:
    """The longest gaps of the devices, longest first, those of unused devices last, and how many fit the filter but not the `top`.

    `devices`: keys as in the report. `causes`: only gaps of which one of these is the largest part.
    `least_ps`: only gaps from this length on.
    """
    wanted = {Cause[name.upper()] for name in causes} or set(Cause)
    picked: list[tuple[bool, int, int, int]] = []
    for device, gaps in found.gaps.items():
        if trace.device_key(device) not in devices:
            continue
        start, end = gaps.spans
        parts = gaps.causes_of(np.arange(gaps.count))
        is_wanted = np.isin(parts.argmax(axis=0), list(wanted)) if parts.size else start == end
        chosen = np.flatnonzero(is_wanted & (end - start >= least_ps))
        longest = chosen[np.lexsort((start[chosen], start[chosen] - end[chosen]))]
        # A device that was not used waited for nothing: its one gap comes last.
        unused = parts[Cause.UNUSED] > 0
        picked += [
            (bool(unused[i]), int(start[i] - end[i]), device, int(i)) for i in longest.tolist()
        ]
    picked.sort()
    shown = picked[:top]
    rows = {
        (device, number): row
        for device in {device for _, _, device, _ in shown}
        for numbers in [[n for _, _, d, n in shown if d == device]]
        for number, row in zip(
            numbers, _rows(trace, selection, found, device, numbers), strict=True
        )
    }
    return [rows[device, number] for _, _, device, number in shown], len(picked) - len(shown)


def _rows(
    trace: Trace, selection: Selection, found: IdleAttribution, device: int, numbers: list[int]
) -> list[GapRow]:
    states = found.states[trace.device_list[device].host]
    chosen = np.array(numbers, dtype=np.int64)
    return [
        GapRow(
            device=trace.device_key(device),
            start_ps=gap.start_ps,
            duration_ps=gap.duration_ps,
            step=gap.step,
            cause=gap.cause,
            before=gap.before,
            after=gap.after,
            thread=gap.thread,
            host_event=gap.host_event,
            host_stack=STACK_SEPARATOR.join(gap.host_stack) or None,
            **{field: gap.causes.get(cause, 0) for cause, field in _FIELD_OF_CAUSE.items()},
        )
        for gap in gap_rows(trace, selection, found.gaps[device], states, chosen)
    ]
