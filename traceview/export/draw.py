"""Draws a run: findings and steps first, then every device with what it did, then the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.analysis.facts.selection import Selection, rows_in, step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.sentences import RunCommands, shown_finding
from traceview.analysis.workload.ops import device_rows
from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import Int64Array, union
from traceview.document.phrase import plain
from traceview.document.vocabulary import CLASSES, SEVERITIES, STATES, STEP_KINDS, look_of
from traceview.export.scene import (
    Argument,
    Arrows,
    Labels,
    Process,
    Scene,
    Slices,
    Track,
    labelled,
    numbered,
    tracks_of,
)
from traceview.ledger.columns import By
from traceview.ledger.states import KEYS
from traceview.ledger.table import Ledger
from traceview.report.model import Report
from traceview.report.tables import host_rows
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.model import Trace
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.xplane.planes import ActivityClass


def launches(trace: Trace, selection: Selection) -> tuple[Arrows, Int64Array]:
    """The arrows from host events, by host row, and per device row that which ends there; `NONE` without.

    Clocks of host and device differ by microseconds: a launch that seems to follow what it started has no arrow, nor has
    one that is not shown. The events of a replica are host events themselves.
    """
    columns, host = trace.device_columns, trace.host_columns
    is_shown = np.zeros(host.count, dtype=np.bool_)
    for index in range(len(trace.hosts)):
        is_shown[host_rows(trace, selection, index)] = True
    shown = [
        device_rows(trace, selection, device)
        for device, entry in enumerate(trace.device_list)
        if entry.kind != "replica"
    ]
    rows = np.concatenate([np.empty(0, dtype=np.int64), *shown])
    rows = rows[columns.launch[rows] != NONE]
    launch = columns.launch[rows]
    follows = is_shown[launch] & (columns.start_ps[rows] >= host.start_ps[launch])
    rows, launch = rows[follows], launch[follows]
    order = np.argsort(launch, kind="stable")
    number = np.full(columns.count, NONE, dtype=np.int64)
    number[rows[order]] = np.arange(rows.size)
    count = np.bincount(launch, minlength=host.count).astype(np.int64)
    return Arrows(np.cumsum(count) - count, count), number


def device_tracks(
    trace: Trace, selection: Selection, device: int, launched: Int64Array, labels: Labels
) -> Iterator[Track]:
    """One track per stream, more where its events overlap."""
    columns = trace.device_columns
    rows = device_rows(trace, selection, device)
    classes = labels.ids(CLASSES[class_.name.lower()].words for class_ in ActivityClass)
    nests = trace.device_list[device].kind != "gpu"
    for line in unique_ids(columns.line[rows]).tolist():
        of_line = rows[columns.line[rows] == line]
        slices = Slices(
            start_ps=columns.start_ps[of_line],
            end_ps=columns.end_ps[of_line],
            name=columns.name[of_line].astype(np.int64),
            category=classes[columns.class_[of_line]],
            arguments=(
                labelled("op", columns.op[of_line]),
                Argument("bytes", columns.bytes[of_line], columns.bytes[of_line] != UNKNOWN_BYTES),
                Argument(
                    "correlation_id",
                    columns.correlation_id[of_line],
                    columns.has_correlation[of_line],
                ),
            ),
            launched=launched[of_line],
        )
        yield from tracks_of(_line_name(trace, line), "thread", slices, nests=nests)


def host_tracks(
    trace: Trace, selection: Selection, host: int, arrows: Arrows, labels: Labels
) -> Iterator[Track]:
    """One track per thread with events, more where they overlap without nesting."""
    columns = trace.host_columns
    rows = host_rows(trace, selection, host)
    category = labels.add("host")
    correlation = columns.stat("correlation_id")
    bounds = np.searchsorted(columns.line[rows], np.arange(len(trace.lines) + 1))
    for line in np.flatnonzero(np.diff(bounds)).tolist():
        of_line = rows[bounds[line] : bounds[line + 1]]
        slices = Slices(
            start_ps=columns.start_ps[of_line],
            end_ps=columns.end_ps[of_line],
            name=columns.name[of_line].astype(np.int64),
            category=np.full(of_line.size, category, dtype=np.int64),
            arguments=(
                Argument("correlation_id", correlation.at(of_line, 0), correlation.has(of_line)),
            ),
            launches=arrows.at(of_line),
        )
        yield from tracks_of(_line_name(trace, line), "thread", slices, nests=True)


def _line_name(trace: Trace, line: int) -> str:
    info = trace.lines[line]
    return info.name or f"line {info.id}"


def step_tracks(trace: Trace, selection: Selection, labels: Labels) -> Iterator[Track]:
    """The steps of each host; the name of the track has the host if there are several."""
    for host, info in enumerate(trace.hosts):
        steps = selection.steps.get(host, ())
        start, end = step_bounds(steps)
        slices = Slices(
            start_ps=start,
            end_ps=end,
            name=labels.ids(f"step {step.number}" for step in steps),
            category=labels.ids(["step"] * len(steps)),
            arguments=(
                numbered("number", [step.number for step in steps]),
                labels.argument("kind", (look_of(STEP_KINDS, s.kind).words for s in steps)),
                labels.argument("left out of statistics", (step.excluded for step in steps)),
            ),
        )
        name = "steps" if len(trace.hosts) == 1 else f"steps of {info.name}"
        yield from tracks_of(name, "analysis", slices, nests=True)


def state_tracks(ledger: Ledger, device: int, labels: Labels) -> Iterator[Track]:
    """What a device does or waits for: the rows of the ledger, each with what caused it.

    `event`: what runs, or after idle time what runs next.
    """
    trace, columns = ledger.trace, ledger.columns
    own = ledger.rows_of(device)
    rows = np.arange(own.start, own.stop)
    if not rows.size:
        return
    state, step = columns.state[rows].astype(np.int64), columns.step[rows]
    names = labels.ids(look.words for look in STATES.values())
    numbers = np.array([*(step.number for step in ledger.steps), NONE], dtype=np.int64)
    op, name = trace.device_columns.names_at(columns.event[rows])
    slices = Slices(
        start_ps=columns.start_ps[rows],
        end_ps=columns.start_ps[rows] + columns.duration_ps[rows],
        name=names[state],
        category=np.full(rows.size, labels.add("state"), dtype=np.int64),
        arguments=(
            labelled("state", labels.ids(KEYS)[state]),
            Argument("step", numbers[step], step != NONE),
            labelled("by", _causers(ledger, rows, labels)),
            labelled("event", np.where(op == NONE, name, op)),
        ),
    )
    yield from tracks_of("state", "analysis", slices, nests=False)


def _causers(ledger: Ledger, rows: Int64Array, labels: Labels) -> Int64Array:
    """The device, thread, op or line of Python that caused each row; else `NONE`."""
    trace, kind, by = ledger.trace, ledger.columns.by_kind[rows], ledger.columns.by[rows]
    causers = np.full(rows.size, NONE, dtype=np.int64)
    causers[kind == By.OP] = by[kind == By.OP]
    for of, text in (
        (By.DEVICE, trace.device_key),
        (By.THREAD, lambda line: trace.lines[line].name),
        (By.PYTHON, ledger.python.__getitem__),
    ):
        chosen = np.flatnonzero(kind == of)
        distinct, index = unique_inverse(by[chosen])
        causers[chosen] = labels.ids(map(text, distinct.tolist()))[index]
    return causers


def collective_tracks(
    trace: Trace, selection: Selection, device: int, collectives: Collectives, labels: Labels
) -> Iterator[Track]:
    """The collectives of a device, numbered alike on all devices, with its waiting for others and the transfer.

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
        name=labels.ids(f"{kind} {at}" for kind, at in zip(kinds, number.tolist(), strict=True)),
        category=np.full(rows.size, labels.add("collective"), dtype=np.int64),
        arguments=arguments,
    )
    yield from tracks_of("collectives", "analysis", wholes, nests=False)


def finding_tracks(
    trace: Trace, selection: Selection, findings: Sequence[Finding], labels: Labels
) -> Iterator[Track]:
    """The findings over the time that they refer to, in the order of the report: their steps, else the window."""
    placed = [(f, span) for f in findings for span in _spans(trace, selection, f)]
    shown = [finding for finding, _ in placed]
    bounds = np.array([span for _, span in placed], dtype=np.int64).reshape(-1, 2)
    costs = [finding.loss.ps_per_step if finding.loss else None for finding in shown]
    commands = RunCommands(str(trace.logdir), trace.run, not trace.other_runs)
    severities = [look_of(SEVERITIES, finding.severity).words for finding in shown]
    advice = (shown_finding(1, row, RULES[row.code], commands).whole_advice for row in shown)
    slices = Slices(
        start_ps=bounds[:, 0],
        end_ps=bounds[:, 1],
        name=labels.ids(finding.title for finding in shown),
        category=labels.ids(severities),
        arguments=(
            labels.argument("code", (finding.code for finding in shown)),
            labels.argument("severity", severities),
            Argument(
                "ps_per_step",
                np.array([cost or 0 for cost in costs], dtype=np.int64),
                np.array([cost is not None for cost in costs], dtype=np.bool_),
            ),
            labels.argument("devices", (", ".join(row.devices) or None for row in shown)),
            labels.argument("advice", map(plain, advice)),
            labels.argument("explanation", (finding.explanation for finding in shown)),
            labels.argument("confidence", (finding.confidence for finding in shown)),
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


def drawn(context: Context, report: Report) -> Scene:
    """The scene of the window: the events that overlap it, in whole, and the conclusions of `report`."""
    trace, selection = context.trace, context.selection
    labels = Labels(trace.names)
    arrows, launched = launches(trace, selection)
    conclusions = Process(
        "traceview",
        (
            *finding_tracks(trace, selection, report.findings, labels),
            *step_tracks(trace, selection, labels),
        ),
    )
    devices = [
        Process(
            _device_name(trace, device),
            (
                *state_tracks(context.ledger, device, labels),
                *collective_tracks(trace, selection, device, context.collectives, labels),
                *device_tracks(trace, selection, device, launched, labels),
            ),
        )
        for device in range(len(trace.device_list))
    ]
    hosts = [
        Process(f"host {info.name}", tuple(host_tracks(trace, selection, host, arrows, labels)))
        for host, info in enumerate(trace.hosts)
    ]
    return Scene((conclusions, *devices, *hosts), labels)


def _device_name(trace: Trace, device: int) -> str:
    model = trace.device_list[device].model
    key = trace.device_key(device)
    return f"{key} ({model})" if model else key
