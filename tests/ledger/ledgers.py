"""Ledgers of recorded and written traces, and such that are made of a few rows by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from traceview.analysis.facts.selection import Selection, select
from traceview.analysis.measures.context import Context
from traceview.ledger.build import Segments, build_segments
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.model import Step, Trace, WindowKind
from traceview.trace.reading.load import load
from traceview.xplane.planes import ActivityClass

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))

_BUSY = {
    State.COMPUTE: ActivityClass.COMPUTE,
    State.COMMUNICATION: ActivityClass.COLLECTIVE,
    State.H2D: ActivityClass.H2D,
    State.D2H: ActivityClass.D2H,
    State.D2D: ActivityClass.D2D,
}


class Run(NamedTuple):
    """A trace, the context that its ledger is made in, and the ledger before more is found out of it."""

    trace: Trace
    context: Context
    base: Ledger

    @property
    def ledger(self) -> Ledger:
        return self.context.ledger

    @property
    def ledgers(self) -> tuple[Ledger, Ledger]:
        return self.base, self.ledger

    @property
    def selection(self) -> Selection:
        return self.context.selection


def run_of(folder: Path, window: WindowKind = "auto") -> Run:
    """The run of a folder of traces."""
    trace = load(folder)
    context = Context(trace, select(trace, window))
    return Run(trace, context, base_of(context))


def base_of(context: Context) -> Ledger:
    """The ledger of what devices and hosts do."""
    selection, idle = context.selection, context.idle
    segments = build_segments(
        context.trace,
        selection.windows,
        selection.steps,
        idle.gaps,
        idle.states,
        context.collectives,
    )
    return segments.ledger(context.trace)


def folder_of(name: str, scratch: Path) -> Path:
    """The folder of a fixture, or of a scenario, which is written into `scratch`."""
    if name in FIXTURES:
        return Path("fixtures") / name
    SCENARIOS[name]().write(scratch)
    return scratch


# A few rows by hand


class Row(NamedTuple):
    """A row of a hand-made ledger. `by`: the number of the device that it waits for. Idle, unless the state is an activity."""

    state: State
    duration: int
    by: int = NONE
    idle: bool = True


def busy_wait(duration: int, by: int = NONE) -> Row:
    """A wait inside of a collective."""
    return Row(State.DEVICE_WAIT, duration, by, idle=False)


def columns_of(rows: Sequence[Row], start: int = 0) -> Columns:
    """Rows that follow each other."""
    duration = np.array([row.duration for row in rows], dtype=np.int64)
    activity = [
        _BUSY.get(row.state, IDLE if row.idle else ActivityClass.COLLECTIVE) for row in rows
    ]
    return Columns(
        start_ps=start + np.cumsum(duration) - duration,
        duration_ps=duration,
        step=np.full(len(rows), NONE, dtype=np.int32),
        state=np.array([row.state for row in rows], dtype=np.uint8),
        activity=np.array(activity, dtype=np.uint8),
        by_kind=np.array(
            [By.NONE if row.by == NONE else By.DEVICE for row in rows], dtype=np.uint8
        ),
        by=np.array([row.by for row in rows], dtype=np.int32),
        event=np.full(len(rows), NONE, dtype=np.int32),
    )


def ledger_of(
    *devices: Sequence[Row],
    hosts: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
    steps: Sequence[Step] = (),
    residuals: Sequence[int | None] = (),
) -> Ledger:
    """A ledger of these rows by device. `residuals`: how well the clock of each host is known, None where it is not."""
    of_host = list(hosts or [0] * len(devices))
    begin = list(starts or [0] * len(devices))
    clocks: list[Any] = [SimpleNamespace(residual_ps=known) for known in residuals]
    trace: Any = SimpleNamespace(
        device_list=[SimpleNamespace(host=host, kind="gpu") for host in of_host],
        hosts=[
            SimpleNamespace(name=f"host{number}", clock=clock)
            for number, clock in enumerate(clocks or (None, None))
        ],
        problems=(),
        device_key=lambda device: f"GPU:{device}",
    )
    parts = [columns_of(rows, at) for rows, at in zip(devices, begin, strict=True)]
    ledger = Segments(dict(enumerate(parts)), tuple(steps)).ledger(cast("Trace", trace))
    columns = ledger.columns
    number = np.full(columns.count, NONE, dtype=np.int32)
    owner = np.repeat(of_host, np.diff(ledger.first))
    for index, step in enumerate(steps):
        inside = (columns.start_ps >= step.start_ps) & (columns.start_ps < step.end_ps)
        number[inside & (owner == step.host)] = index
    return replace(ledger, columns=replace(columns, step=number))


def step_of(start: int, end: int, *, host: int = 0, number: int = 0) -> Step:
    """A used step."""
    return Step(host=host, number=number, recorded_number=number, start_ps=start, end_ps=end)


def path_rows(ledger: Ledger) -> list[tuple[int, str, int, int]]:
    """The critical path: number of the device, state, start and length; what goes on in the same is one."""
    path = ledger.path
    result: list[list[Any]] = []
    device, state = ledger.device[path.row].tolist(), ledger.columns.state[path.row].tolist()
    for place, (at, length) in enumerate(
        zip(path.start_ps.tolist(), path.duration_ps.tolist(), strict=True)
    ):
        key = State(state[place]).key
        step = int(path.step[place])
        if result and result[-1][0] == (device[place], key, step):
            result[-1][2] += length
        else:
            result.append([(device[place], key, step), at, length])
    return [(device, key, at, length) for (device, key, _), at, length in result]


def states_of_path(ledger: Ledger) -> dict[tuple[str, int | None], dict[str, int]]:
    """The critical path of each step by host and number, without steps of each host: picoseconds by state."""
    path, trace = ledger.path, ledger.trace
    found: dict[tuple[str, int | None], dict[str, int]] = {}
    for row, step, ps in zip(
        path.row.tolist(), path.step.tolist(), path.duration_ps.tolist(), strict=True
    ):
        of_step = ledger.steps[step] if ledger.has_steps else None
        host = of_step.host if of_step else trace.device_list[int(ledger.device[row])].host
        key = (trace.hosts[host].name, of_step.number if of_step else None)
        states = found.setdefault(key, {})
        state = State(ledger.columns.state[row]).key
        states[state] = states.get(state, 0) + ps
    return found
