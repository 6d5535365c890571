"""What did traceview find out? Steps, gaps with their causes, collectives and findings as slices of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from traceview.analysis.base import Finding
from traceview.analysis.idle.result import IdleTime, gap_rows
from traceview.analysis.selection import Selection, rows_in
from traceview.export.scene import Argument, Counter, Labels, Slices, Track, labelled, said
from traceview.export.tracks import tracks_of
from traceview.intervals import Int64Array, union
from traceview.trace.cause import Cause
from traceview.trace.collectives import CollectiveKind, Collectives
from traceview.trace.model import NONE, UNKNOWN_BYTES, Step, Trace

GAPS_WITH_EVIDENCE: Final = 200
"""The longest gaps of a device name the host event that shows their cause: to look for one takes a while."""

BUSY_POINTS: Final = 1000
"""Spans of equal length that a window is cut into for the busy fraction."""

_QUEUED: Final = (Cause.PEER, Cause.DEPENDENCY, Cause.LATENCY)
"""What a device waits for last, when the work has been launched."""


def step_tracks(trace: Trace, selection: Selection, labels: Labels) -> Iterator[Track]:
    """The steps of each host, which is named where there are several."""
    for host, info in enumerate(trace.hosts):
        steps = selection.steps.get(host, ())
        slices = Slices(
            start_ps=np.array([step.start_ps for step in steps], dtype=np.int64),
            end_ps=np.array([step.end_ps for step in steps], dtype=np.int64),
            name=_ids(labels, [f"step {step.number}" for step in steps]),
            category=_ids(labels, ["step"] * len(steps)),
            arguments=(
                said("number", np.array([step.number for step in steps], dtype=np.int64)),
                labelled("kind", _ids(labels, [step.kind for step in steps])),
                labelled("left out of statistics", _ids(labels, [step.excluded for step in steps])),
            ),
        )
        name = "steps" if len(trace.hosts) == 1 else f"steps of {info.name}"
        yield from tracks_of(name, "analysis", slices, nests=True)


def gap_tracks(
    trace: Trace, selection: Selection, device: int, idle: IdleTime, labels: Labels
) -> Iterator[Track]:
    """The idle time of a device: for each cause of a gap a slice as long as its part.

    The lengths are exact. In a gap of several causes those of the host stand first, in the order of `Cause`, and the
    queued part last, as it does in time. Thread and host event show the cause of the largest part, and stand there.
    """
    gaps = idle.gaps.get(device)
    if gaps is None:
        return
    order = [cause for cause in Cause if cause not in _QUEUED] + list(_QUEUED)
    parts = gaps.cause_ps[order]
    piece, place = np.nonzero(parts.T)
    length = parts[place, piece]
    before = np.cumsum(parts, axis=0) - parts
    start = gaps.start_ps[piece] + before[place, piece]
    number = gaps.gap[piece]
    first, last = gaps.spans
    keys = np.array([labels.add(cause.key) for cause in order], dtype=np.int64)
    names = np.array([labels.add(f"idle: {cause.key}") for cause in order], dtype=np.int64)
    steps = selection.steps[trace.device_list[device].host]
    step_numbers = np.array([*(step.number for step in steps), NONE], dtype=np.int64)
    step = gaps.step[piece]
    event, thread = _evidence(trace, selection, device, idle, labels)
    largest = gaps.causes_of(np.arange(gaps.count)).argmax(axis=0)
    is_shown = np.array(order)[place] == largest[number]
    slices = Slices(
        start_ps=start,
        end_ps=start + length,
        name=names[place],
        category=np.full(piece.size, labels.add("idle"), dtype=np.int64),
        arguments=(
            labelled("cause", keys[place]),
            said("cause_ps", length),
            said("gap", number),
            said("gap_ps", (last - first)[number]),
            Argument("step", step_numbers[step], step != NONE),
            labelled("before", _shown_events(trace, gaps.before)[number]),
            labelled("after", _shown_events(trace, gaps.after)[number]),
            labelled("thread", np.where(is_shown, thread[number], NONE)),
            labelled("host event", np.where(is_shown, event[number], NONE)),
        ),
    )
    yield from tracks_of("idle", "analysis", slices, nests=False)


def _evidence(
    trace: Trace, selection: Selection, device: int, idle: IdleTime, labels: Labels
) -> tuple[Int64Array, Int64Array]:
    """The host event that shows the cause of each of the longest gaps, and its thread; `NONE` for others."""
    gaps = idle.gaps[device]
    event = np.full(gaps.count, NONE, dtype=np.int64)
    thread = np.full(gaps.count, NONE, dtype=np.int64)
    start, end = gaps.spans
    longest = np.argsort(start - end, kind="stable")[:GAPS_WITH_EVIDENCE].astype(np.int64)
    states = idle.states[trace.device_list[device].host]
    rows = gap_rows(trace, selection, gaps, states, longest)
    for place, row in zip(longest.tolist(), rows, strict=True):
        if row.host_event is not None:
            event[place] = labels.add(row.host_event)
        if row.thread is not None:
            thread[place] = labels.add(row.thread)
    return event, thread


def _shown_events(trace: Trace, rows: Int64Array) -> Int64Array:
    """The op of each device row, its name without one."""
    columns = trace.device_columns
    op = np.append(columns.op, NONE)[rows].astype(np.int64)
    return np.where(op == NONE, np.append(columns.name, NONE)[rows], op)


def collective_tracks(
    trace: Trace, selection: Selection, device: int, found: Collectives, labels: Labels
) -> Iterator[Track]:
    """The collectives of a device, numbered alike on all devices; inside each its waiting for peers, and the transfer.

    What a collective waited and transferred, and who started last, is not told where a device that takes part was not
    recorded.
    """
    window = selection.window_of_device(trace, device)
    if window is None:
        return
    rows = np.flatnonzero(found.device == device)
    rows = rows[rows_in(found.start_ps[rows], found.end_ps[rows], window)]
    if not rows.size:
        return
    number = found.collective[rows]
    complete = found.is_complete[number]
    transfer = found.transfer_ps[number]
    kinds = [CollectiveKind(kind).name.lower() for kind in found.kind[rows].tolist()]
    numbered = zip(kinds, number.tolist(), strict=True)
    size = found.bytes_moved[number]
    arguments = (
        said("collective", number),
        labelled("op", found.op[rows]),
        labelled("kernel", found.name[rows]),
        said("devices", found.device_count[number]),
        Argument("bytes", size, size != UNKNOWN_BYTES),
        Argument("wait_ps", found.wait_ps[rows], complete),
        Argument("transfer_ps", transfer, complete),
        Argument("started last", found.is_last[rows].astype(np.int64), complete),
    )
    wholes = Slices(
        start_ps=found.start_ps[rows],
        end_ps=found.end_ps[rows],
        name=_ids(labels, [f"{kind} {one}" for kind, one in numbered]),
        category=np.full(rows.size, labels.add("collective"), dtype=np.int64),
        arguments=arguments,
    )
    for track in tracks_of("collectives", "analysis", wholes, nests=False):
        yield Track(track.name, track.kind, _with_parts(track.slices, labels))


def _with_parts(wholes: Slices, labels: Labels) -> Slices:
    """Collectives, and inside of those that are complete what they waited and transferred."""
    (transfer,) = (one for one in wholes.arguments if one.name == "transfer_ps")
    inside = wholes.at(np.flatnonzero(transfer.known))
    turn = inside.end_ps - transfer.values[transfer.known]
    waits = turn > inside.start_ps
    start = (wholes.start_ps, inside.start_ps[waits], turn)
    end = (wholes.end_ps, turn[waits], inside.end_ps)
    names = [labels.add("wait for peers")] * int(waits.sum()) + [labels.add("transfer")] * turn.size
    name = np.concatenate((wholes.name, np.array(names, dtype=np.int64)))
    return Slices(
        start_ps=np.concatenate(start),
        end_ps=np.concatenate(end),
        name=name,
        category=np.full(name.size, labels.add("collective"), dtype=np.int64),
        arguments=tuple(
            Argument(
                one.name,
                np.append(one.values, np.zeros(len(names), dtype=np.int64)),
                np.append(one.known, np.zeros(len(names), dtype=np.bool_)),
                one.is_text,
            )
            for one in wholes.arguments
        ),
    ).in_order()


def finding_tracks(
    trace: Trace, selection: Selection, findings: Sequence[Finding], labels: Labels
) -> Iterator[Track]:
    """The findings over the time that they speak of, the dearest on top: their steps, else the window."""
    spans: list[tuple[int, int]] = []
    shown: list[Finding] = []
    for finding in findings:
        for span in _spans(trace, selection, finding):
            spans.append(span)
            shown.append(finding)
    costs = [finding.cost_ps_per_step for finding in shown]
    slices = Slices(
        start_ps=np.array([start for start, _ in spans], dtype=np.int64),
        end_ps=np.array([end for _, end in spans], dtype=np.int64),
        name=_ids(labels, [finding.title for finding in shown]),
        category=_ids(labels, [finding.severity for finding in shown]),
        arguments=(
            labelled("code", _ids(labels, [finding.code for finding in shown])),
            labelled("severity", _ids(labels, [finding.severity for finding in shown])),
            Argument(
                "cost_ps_per_step",
                np.array([cost or 0 for cost in costs], dtype=np.int64),
                np.array([cost is not None for cost in costs], dtype=np.bool_),
            ),
            labelled("devices", _ids(labels, [", ".join(one.devices) or None for one in shown])),
            labelled("advice", _ids(labels, [finding.advice for finding in shown])),
            labelled("explanation", _ids(labels, [finding.explanation for finding in shown])),
            labelled("confidence", _ids(labels, [finding.confidence for finding in shown])),
        ),
    )
    yield from tracks_of("findings", "analysis", slices, nests=True)


def _spans(trace: Trace, selection: Selection, finding: Finding) -> Iterator[tuple[int, int]]:
    """Where a finding is shown: runs of its steps, else the whole window."""
    numbers = frozenset(finding.steps)
    steps = [
        step
        for host in _hosts(trace, finding)
        for step in selection.steps.get(host, ())
        if step.number in numbers
    ]
    if steps:
        found = union(*_bounds(steps))
        yield from zip(found.start.tolist(), found.end.tolist(), strict=True)
    elif selection.windows:
        windows = selection.windows.values()
        yield min(one.start_ps for one in windows), max(one.end_ps for one in windows)


def _hosts(trace: Trace, finding: Finding) -> set[int]:
    """The hosts of the devices that a finding names, all if it names none."""
    of_devices = {
        entry.host
        for device, entry in enumerate(trace.device_list)
        if trace.device_key(device) in finding.devices
    }
    return of_devices or set(range(len(trace.hosts)))


def _bounds(steps: Sequence[Step]) -> tuple[Int64Array, Int64Array]:
    return (
        np.array([step.start_ps for step in steps], dtype=np.int64),
        np.array([step.end_ps for step in steps], dtype=np.int64),
    )


def busy_counter(trace: Trace, selection: Selection, device: int) -> Iterator[Counter]:
    """The share of `BUSY_POINTS` spans of the window in which the device did anything, in percent."""
    window = selection.window_of_device(trace, device)
    if window is None or window.length_ps < BUSY_POINTS:
        return
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    busy = union(columns.start_ps[rows], columns.end_ps[rows])
    # The length times the number of points may not fit.
    span, rest = divmod(window.length_ps, BUSY_POINTS)
    points = np.arange(BUSY_POINTS + 1, dtype=np.int64)
    bounds = window.start_ps + span * points + rest * points // BUSY_POINTS
    covered = busy.within(bounds[:-1], bounds[1:])
    percent = np.rint(100 * (covered / np.diff(bounds))).astype(np.int64)
    yield Counter("busy", "%", bounds, np.append(percent, 0))


def _ids(labels: Labels, texts: Sequence[str | None]) -> Int64Array:
    return np.array([NONE if t is None else labels.add(t) for t in texts], dtype=np.int64)
