"""Makes the slices of what traceview computed: steps, gaps with their causes, collectives and findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from traceview.analysis.base import Finding
from traceview.analysis.idle.result import gap_rows
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.run_commands import RunCommands
from traceview.analysis.selection import Selection, rows_in, step_bounds
from traceview.document.vocabulary import CAUSES, SEVERITIES, STEP_KINDS, STEP_PARTS, look_of
from traceview.export.scene import (
    Argument,
    Counter,
    Labels,
    Slices,
    Track,
    labelled,
    numbered,
    tracks_of,
)
from traceview.intervals import Int32Array, Int64Array, union
from traceview.trace.cause import Cause
from traceview.trace.collectives import CollectiveKind, Collectives
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace

GAPS_WITH_EVIDENCE: Final = 200
"""So many of the longest gaps of a device have the host event that shows their cause; finding it takes a while."""

BUSY_POINTS: Final = 1000
"""Equal spans of the window, for each of which the busy share is counted."""

_QUEUED: Final = (Cause.PEER, Cause.DEPENDENCY, Cause.LATENCY)
"""What a device waits for last: its work has been launched."""


def step_tracks(trace: Trace, selection: Selection, labels: Labels) -> Iterator[Track]:
    """The steps of each host; the name of the track has the host if there are several."""
    for host, info in enumerate(trace.hosts):
        steps = selection.steps.get(host, ())
        start, end = step_bounds(steps)
        slices = Slices(
            start_ps=start,
            end_ps=end,
            name=_ids(labels, [f"step {step.number}" for step in steps]),
            category=_ids(labels, ["step"] * len(steps)),
            arguments=(
                numbered("number", np.array([step.number for step in steps], dtype=np.int64)),
                labelled(
                    "kind", _ids(labels, [look_of(STEP_KINDS, step.kind).words for step in steps])
                ),
                labelled("left out of statistics", _ids(labels, [step.excluded for step in steps])),
            ),
        )
        name = "steps" if len(trace.hosts) == 1 else f"steps of {info.name}"
        yield from tracks_of(name, "analysis", slices, nests=True)


def gap_tracks(
    trace: Trace, selection: Selection, device: int, idle: IdleAttribution, labels: Labels
) -> Iterator[Track]:
    """The idle time of a device: for each cause of a gap a slice as long as its part.

    The lengths are exact. In a gap of several causes those of the host come first, in the order of `Cause`, and the
    queued part comes last, as it does in time. The slice of the largest part has the thread, the host
    event and the line of Python that show its cause.
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
    number = gaps.gap[piece].astype(np.int64)
    first, last = gaps.spans
    words = [CAUSES[cause.key].words for cause in order]
    causes = np.array([labels.add(word) for word in words], dtype=np.int64)
    names = np.array([labels.add(f"idle: {word}") for word in words], dtype=np.int64)
    steps = selection.steps[trace.device_list[device].host]
    step_numbers = np.array([*(step.number for step in steps), NONE], dtype=np.int64)
    step = gaps.step[piece]
    event, thread, python = _evidence(trace, selection, device, idle, labels)
    largest = gaps.causes_of(np.arange(gaps.count)).argmax(axis=0)
    is_shown = np.array(order)[place] == largest[number]
    slices = Slices(
        start_ps=start,
        end_ps=start + length,
        name=names[place],
        category=np.full(piece.size, labels.add("idle"), dtype=np.int64),
        arguments=(
            labelled("cause", causes[place]),
            numbered("cause_ps", length),
            numbered("gap", number),
            numbered("gap_ps", (last - first)[number]),
            Argument("step", step_numbers[step], step != NONE),
            labelled("before", _shown_events(trace, gaps.before)[number]),
            labelled("after", _shown_events(trace, gaps.after)[number]),
            labelled("thread", np.where(is_shown, thread[number], NONE)),
            labelled("host event", np.where(is_shown, event[number], NONE)),
            labelled("python", np.where(is_shown, python[number], NONE)),
        ),
    )
    yield from tracks_of("idle", "analysis", slices, nests=False)


def _evidence(
    trace: Trace, selection: Selection, device: int, idle: IdleAttribution, labels: Labels
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The host event, the thread and the line of Python that show the cause of each of the longest gaps; else `NONE`."""
    gaps = idle.gaps[device]
    event = np.full(gaps.count, NONE, dtype=np.int64)
    thread = np.full(gaps.count, NONE, dtype=np.int64)
    python = np.full(gaps.count, NONE, dtype=np.int64)
    start, end = gaps.spans
    longest = np.argsort(start - end, kind="stable")[:GAPS_WITH_EVIDENCE].astype(np.int64)
    rows = gap_rows(trace, selection, gaps, idle, longest)
    for place, row in zip(longest.tolist(), rows, strict=True):
        if row.host_event is not None:
            event[place] = labels.add(row.host_event)
        if row.thread is not None:
            thread[place] = labels.add(row.thread)
        if row.python is not None:
            python[place] = labels.add(row.python)
    return event, thread, python


def _shown_events(trace: Trace, rows: Int32Array) -> Int64Array:
    """The op of each device row, its name without one."""
    columns = trace.device_columns
    op = np.append(columns.op, NONE)[rows].astype(np.int64)
    return np.where(op == NONE, np.append(columns.name, NONE)[rows], op)


def collective_tracks(
    trace: Trace, selection: Selection, device: int, collectives: Collectives, labels: Labels
) -> Iterator[Track]:
    """The collectives of a device, numbered alike on all devices; inside each its waiting for others, and the transfer.

    A collective of which a device was not recorded has no waiting, no transfer and no last device.
    """
    window = selection.window_of_device(trace, device)
    if window is None:
        return
    rows = np.flatnonzero(collectives.device == device)
    rows = rows[rows_in(collectives.start_ps[rows], collectives.end_ps[rows], window)]
    if not rows.size:
        return
    number = collectives.collective[rows]
    complete = collectives.is_complete[number]
    transfer = collectives.transfer_ps[number]
    kinds = [CollectiveKind(kind).name.lower() for kind in collectives.kind[rows].tolist()]
    size = collectives.bytes_moved[number]
    arguments = (
        numbered("collective", number),
        labelled("op", collectives.op[rows]),
        labelled("kernel", collectives.name[rows]),
        numbered("devices", collectives.device_count[number]),
        Argument("bytes", size, size != UNKNOWN_BYTES),
        Argument("wait_ps", collectives.wait_ps[rows], complete),
        Argument("transfer_ps", transfer, complete),
        Argument("started last", collectives.is_last[rows].astype(np.int64), complete),
    )
    wholes = Slices(
        start_ps=collectives.start_ps[rows],
        end_ps=collectives.end_ps[rows],
        name=_ids(
            labels, [f"{kind} {at}" for kind, at in zip(kinds, number.tolist(), strict=True)]
        ),
        category=np.full(rows.size, labels.add("collective"), dtype=np.int64),
        arguments=arguments,
    )
    for track in tracks_of("collectives", "analysis", wholes, nests=False):
        yield Track(track.name, track.kind, _with_parts(track.slices, labels))


def _with_parts(wholes: Slices, labels: Labels) -> Slices:
    """Collectives, and inside the complete ones their waiting and their transfer."""
    (transfer,) = (item for item in wholes.arguments if item.name == "transfer_ps")
    inside = wholes.at(np.flatnonzero(transfer.known))
    turn = inside.end_ps - transfer.values[transfer.known]
    waits = turn > inside.start_ps
    start = (wholes.start_ps, inside.start_ps[waits], turn)
    end = (wholes.end_ps, turn[waits], inside.end_ps)
    names = [labels.add(STEP_PARTS["collective_wait"].words)] * int(waits.sum()) + [
        labels.add("transfer")
    ] * turn.size
    name = np.concatenate((wholes.name, np.array(names, dtype=np.int64)))
    return Slices(
        start_ps=np.concatenate(start),
        end_ps=np.concatenate(end),
        name=name,
        category=np.full(name.size, labels.add("collective"), dtype=np.int64),
        arguments=tuple(
            Argument(
                item.name,
                np.append(item.values, np.zeros(len(names), dtype=np.int64)),
                np.append(item.known, np.zeros(len(names), dtype=np.bool_)),
                item.is_text,
            )
            for item in wholes.arguments
        ),
    ).in_order()


def finding_tracks(
    trace: Trace, selection: Selection, findings: Sequence[Finding], labels: Labels
) -> Iterator[Track]:
    """The findings over the time that they refer to, in the order of the report: their steps, else the window."""
    spans: list[tuple[int, int]] = []
    shown: list[Finding] = []
    for finding in findings:
        for span in _spans(trace, selection, finding):
            spans.append(span)
            shown.append(finding)
    costs = [finding.cost_ps_per_step for finding in shown]
    commands = RunCommands(str(trace.logdir), trace.run, not trace.other_runs)
    slices = Slices(
        start_ps=np.array([start for start, _ in spans], dtype=np.int64),
        end_ps=np.array([end for _, end in spans], dtype=np.int64),
        name=_ids(labels, [finding.title for finding in shown]),
        category=_ids(labels, [look_of(SEVERITIES, row.severity).words for row in shown]),
        arguments=(
            labelled("code", _ids(labels, [finding.code for finding in shown])),
            labelled(
                "severity",
                _ids(labels, [look_of(SEVERITIES, row.severity).words for row in shown]),
            ),
            Argument(
                "cost_ps_per_step",
                np.array([cost or 0 for cost in costs], dtype=np.int64),
                np.array([cost is not None for cost in costs], dtype=np.bool_),
            ),
            labelled("devices", _ids(labels, [", ".join(row.devices) or None for row in shown])),
            labelled(
                "advice", _ids(labels, [commands.filled(finding.advice) for finding in shown])
            ),
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
        runs = union(*step_bounds(steps))
        yield from zip(runs.start.tolist(), runs.end.tolist(), strict=True)
    elif selection.windows:
        windows = selection.windows.values()
        yield (
            min(window.start_ps for window in windows),
            max(window.end_ps for window in windows),
        )


def _hosts(trace: Trace, finding: Finding) -> set[int]:
    """The hosts of the devices that a finding names, all if it names none."""
    of_devices = {
        entry.host
        for device, entry in enumerate(trace.device_list)
        if trace.device_key(device) in finding.devices
    }
    return of_devices or set(range(len(trace.hosts)))


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
