"""The ledger accounts for every picosecond once: of recorded traces, of scenarios, and of random ones."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scripts.cuda_trace import NCCL_NAME, US, CudaTrace
from scripts.scenarios import SCENARIOS
from tests.ledger.ledgers import FIXTURES, Run, folder_of, run_of
from tests.oracle.intervals import Interval, clip, length, subtract
from traceview.analysis.facts.selection import recorded_devices
from traceview.ledger.columns import ACTIVITIES, IDLE, WAITS, By
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.windows import WindowKind
from traceview.xplane.planes import ActivityClass


@pytest.fixture(scope="module", params=[*FIXTURES, *sorted(SCENARIOS)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(folder_of(request.param, tmp_path_factory.mktemp("logs")))


@pytest.fixture(scope="module", params=[*FIXTURES[:2], "two_hosts", "late_batch", "small_steps"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With time before, between and after the steps."""
    return run_of(folder_of(request.param, tmp_path_factory.mktemp("logs")), "trace")


# What holds of every ledger


def check_rows(run: Run, ledger: Ledger) -> None:
    """They fill the window of each device, and lie each in the step of its host that began last."""
    columns = ledger.columns
    assert ledger.first[0] == 0
    assert ledger.first[-1] == columns.count
    assert list(ledger.devices) == sorted(run.context.idle.gaps)
    for device in ledger.devices:
        own = ledger.rows_of(device)
        window = run.selection.windows[run.trace.device_list[device].host]
        start, end = columns.start_ps[own], columns.end_ps[own]
        assert (columns.duration_ps[own] > 0).all()
        assert (start[1:] == end[:-1]).all()
        if window.length_ps:
            assert (start[0], end[-1]) == (window.start_ps, window.end_ps)
        host = run.trace.device_list[device].host
        held = [(n, step) for n, step in enumerate(ledger.steps) if step.host == host]
        for number, step in held:
            later = [
                (s.start_ps, s.end_ps) for n, s in held if (s.start_ps, n) > (step.start_ps, number)
            ]
            alone = subtract([(step.start_ps, step.end_ps)], later)
            expected = length(clip(alone, (window.start_ps, window.end_ps)))
            inside = columns.step[own] == number
            assert columns.duration_ps[own][inside].sum() == expected
            assert (start[inside] >= step.start_ps).all()
            assert (end[inside] <= step.end_ps).all()
        assert not (set(columns.step[own].tolist()) - {NONE, *(number for number, _ in held)})


def check_causers(run: Run, ledger: Ledger) -> None:
    """Each is a number of what its kind says; a busy row has the event that it is a part of."""
    columns, events = ledger.columns, run.trace.device_columns
    sizes = {
        By.DEVICE: len(run.trace.device_list),
        By.THREAD: len(run.trace.lines),
        By.OP: len(run.trace.names),
        By.PYTHON: len(ledger.python),
    }
    for kind, size in sizes.items():
        by = columns.by[columns.by_kind == kind]
        assert ((by >= 0) & (by < size)).all()
    assert (columns.by[columns.by_kind == By.NONE] == NONE).all()
    waits = columns.by_kind == By.DEVICE
    assert (columns.by[waits] != ledger.device[waits]).all()
    busy = np.flatnonzero(columns.activity != IDLE)
    event = columns.event[busy]
    assert (events.device[event] == ledger.device[busy]).all()
    assert (events.class_[event] == columns.activity[busy]).all()
    assert (events.start_ps[event] <= columns.start_ps[busy]).all()
    assert (events.end_ps[event] >= columns.end_ps[busy]).all()


def unions(run: Run, device: int, span: Interval) -> list[int]:
    """The time of each activity in a span, of several the first, and of none, with the intervals of the oracle."""
    events = run.trace.device_columns
    own = events.rows_of(device)
    start, end, class_ = events.start_ps[own], events.end_ps[own], events.class_[own]
    inside = (start < span[1]) & (end > span[0])
    result: list[int] = []
    above: list[Interval] = []
    for activity in ActivityClass:
        chosen = inside & (class_ == activity)
        spans = clip(zip(start[chosen].tolist(), end[chosen].tolist(), strict=True), span)
        result.append(length(subtract(spans, above)))
        above += spans
    return [*result, span[1] - span[0] - length(above)]


def by_activity(ledger: Ledger, device: int) -> list[int]:
    """The time of a device by what it does, and idle."""
    own, columns = ledger.rows_of(device), ledger.columns
    durations, activity = columns.duration_ps[own], columns.activity[own]
    return [int(durations[activity == number].sum()) for number in range(len(ACTIVITIES))]


def check_unions(run: Run, ledger: Ledger) -> None:
    columns = ledger.columns
    assert ledger.devices == recorded_devices(run.trace, run.selection)
    for device in ledger.devices:
        window = run.selection.windows[run.trace.device_list[device].host]
        whole = unions(run, device, (window.start_ps, window.end_ps))
        assert by_activity(ledger, device) == whole
        assert run.context.activities[device].exposed_ps(window) == whole[:-1]
        own = ledger.rows_of(device)
        for number in sorted(set(columns.step[own].tolist()) - {NONE})[:3]:
            step = ledger.steps[number]
            alone = [
                s for s in ledger.steps if s.start_ps < step.end_ps and s.end_ps > step.start_ps
            ]
            if len([s for s in alone if s.host == step.host]) > 1:
                continue
            span = max(step.start_ps, window.start_ps), min(step.end_ps, window.end_ps)
            inside = columns.step[own] == number
            found = [
                int(columns.duration_ps[own][inside & (columns.activity[own] == activity)].sum())
                for activity in range(len(ACTIVITIES))
            ]
            assert found == unions(run, device, span)


def check_states(ledger: Ledger) -> None:
    """Sums by state and step are the same whichever way they are made."""
    every = ledger.rows()
    for device in ledger.devices:
        grid, own = ledger.states_of_steps(device), ledger.rows_of(device)
        assert grid.sum() == ledger.columns.duration_ps[own][ledger.columns.step[own] != NONE].sum()
        of_step = ledger.by_step(every, device)
        by_state = ledger.by_state(device)
        assert of_step.sum() == sum(by_state.values()) == ledger.gpu_ps_by_device[device]
        if ledger.has_steps:
            steps = ledger.steps[ledger.steps_of(device)]
            assert {step.host for step in steps} <= {ledger.trace.device_list[device].host}
            used = np.array([step.excluded is None for step in steps])
            assert grid[:, used].sum(axis=0).tolist() == of_step.tolist()
            total = grid[:, used].sum(axis=1).tolist()
            assert {state: ps for state, ps in zip(State, total, strict=True) if ps} == by_state


def check_losses(ledger: Ledger) -> None:
    """The losses of all states are all GPU time; shares and means are those of the sums."""
    whole = sum(ledger.gpu_ps_by_device.values())
    everything = ledger.loss(ledger.rows())
    assert everything.ps == everything.gpu_ps == whole
    masks = [ledger.rows(states=[state]) for state in State]
    assert (np.sum(masks, axis=0) == ledger.counts).all()
    losses = [ledger.loss(mask) for mask in masks]
    assert sum(loss.ps for loss in losses) == whole
    assert sum(loss.share for loss in losses) == pytest.approx(1 if whole else 0)
    assert (ledger.rows(states=[State.COMPUTE, State.INPUT]) == masks[0] | masks[State.INPUT]).all()
    path_ps = int(ledger.path.duration_ps.sum()) // (int(ledger.is_used.sum()) or 1)
    for state, mask, loss in zip(State, masks, losses, strict=True):
        sums = {device: int(ledger.by_step(mask, device).sum()) for device in ledger.devices}
        assert loss.ps == sum(sums.values())
        assert sums == {device: ledger.by_state(device).get(state, 0) for device in ledger.devices}
        most = max(sums.values(), default=0)
        named = [device for device, ps in sums.items() if ps and 2 * ps >= most]
        assert loss.devices == ledger.keys(named)
        assert loss.named_ps == sum(sums[device] for device in named)
        assert loss.named_gpu_ps == sum(ledger.gpu_ps_by_device[device] for device in named)
        assert 0 <= loss.mean_ps <= loss.of_ps
        assert 0 <= loss.share <= 1
        for device in named:
            alone = ledger.rows(states=[state], devices=[device])
            assert ledger.loss(alone).ps == sums[device]
        bound = ledger.bound_ps(mask)
        assert 0 <= bound <= (loss.of_ps if state in WAITS else path_ps)


def check_path(run: Run, ledger: Ledger) -> None:
    """Its pieces lie in their rows, touch, and fill each step that a device of the host was active in the window of."""
    path, columns = ledger.path, ledger.columns
    end = path.start_ps + path.duration_ps
    assert (path.duration_ps > 0).all()
    assert (path.start_ps >= columns.start_ps[path.row]).all()
    assert (end <= columns.end_ps[path.row]).all()
    active = {
        run.trace.device_list[device].host
        for device in ledger.devices
        if (columns.activity[ledger.rows_of(device)] != IDLE).any()
    }
    walks = [(NONE, host, run.selection.windows[host]) for host in sorted(active)]
    spans = [(number, window.start_ps, window.end_ps) for number, _, window in walks]
    if ledger.has_steps:
        windows = run.selection.windows
        spans = [
            (
                number,
                max(step.start_ps, windows[step.host].start_ps),
                min(step.end_ps, windows[step.host].end_ps),
            )
            for number, step in enumerate(ledger.steps)
            if step.excluded is None and step.host in active
        ]
    place = 0
    for number, low, high in spans:
        while low < high:
            assert (int(path.step[place]), int(path.start_ps[place])) == (number, low)
            low = int(end[place])
            assert low <= high
            place += 1
    assert place == path.row.size


# Recorded traces and scenarios


def test_rows_fill_the_window_of_each_device(run: Run) -> None:
    for ledger in run.ledgers:
        check_rows(run, ledger)
        check_causers(run, ledger)


def test_sums_by_activity_are_unions_of_events(run: Run) -> None:
    for ledger in run.ledgers:
        check_unions(run, ledger)


def test_sums_by_state_and_step_agree(run: Run) -> None:
    for ledger in run.ledgers:
        check_states(ledger)


def test_losses_are_shares_of_the_gpu_time(run: Run) -> None:
    check_losses(run.ledger)


def test_the_path_fills_each_step(run: Run) -> None:
    for ledger in run.ledgers:
        check_path(run, ledger)


def test_the_ledger_of_the_whole_recording_holds_too(whole: Run) -> None:
    check_all(whole)


# Random traces


def check_all(run: Run) -> None:
    for ledger in run.ledgers:
        check_rows(run, ledger)
        check_causers(run, ledger)
        check_unions(run, ledger)
        check_states(ledger)
        check_path(run, ledger)
        check_losses(ledger)


TICK_PS = 10 * US
_times = st.tuples(st.integers(0, 40), st.integers(0, 9))
_kinds = st.sampled_from(["kernel", "nccl", "H2D", "D2H", "D2D", "fill"])
_events = st.lists(st.tuples(_kinds, st.integers(0, 2), _times, st.integers(0, 3)), max_size=14)
_steps = st.lists(_times, max_size=3)


def random_trace(
    events: list[tuple[str, int, tuple[int, int], int]], steps: list[tuple[int, int]]
) -> CudaTrace:
    """Events with kind, device, start and length, and how long before that they were launched; steps that may overlap."""
    trace = CudaTrace("host0")
    for number, (start, ticks) in enumerate(steps):
        trace.marker(number, start * TICK_PS, (start + ticks + 1) * TICK_PS)
    for kind, device, (start, ticks), before in events:
        begin, end = start * TICK_PS, (start + ticks) * TICK_PS
        launch = begin - before * TICK_PS if before and start >= before else None
        if kind in ("kernel", "nccl"):
            name = NCCL_NAME if kind == "nccl" else "gemm"
            # Streams of their own, so that events of a device may overlap.
            stream = 30 if kind == "nccl" else 20 + ticks
            trace.kernel(device, begin, end, name=name, stream=stream, launch_ps=launch)
        elif kind == "fill":
            trace.device_event(device, "Memset", begin, end, stream=40, type_="Memset", stats={})
        else:
            trace.copy(device, kind, begin, end, size=8, stream=50 + before, launch_ps=launch)
    return trace


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(_events, _steps, st.sampled_from(["auto", "trace", "devices"]))
@example(
    # A collective with compute in its middle, over the bound of two steps.
    [
        ("nccl", 0, (2, 9), 0),
        ("kernel", 0, (4, 2), 1),
        ("nccl", 1, (6, 5), 0),
        ("H2D", 1, (0, 9), 0),
    ],
    [(0, 4), (3, 9)],
    "auto",
)
def test_random_traces_are_accounted_for(
    events: list[tuple[str, int, tuple[int, int], int]],
    steps: list[tuple[int, int]],
    window: WindowKind,
) -> None:
    if not events:
        return
    with TemporaryDirectory() as folder:
        random_trace(events, steps).write(Path(folder))
        check_all(run_of(Path(folder), window))
