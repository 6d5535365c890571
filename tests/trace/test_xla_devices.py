"""CPU devices of XLA programs: what is none, and loops that are no work."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed
from tests.trace.recordings import lengths_by_name, loaded


def test_numbers_past_what_a_device_can_have_are_none(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.host("dot.1", 1, 2, {"device_ordinal": 3})
        for place, number in enumerate((1 << 15, 1 << 40, -1)):
            step.host("dot.1", 4 + place, 5 + place, {"device_ordinal": number})
    assert [device.name for device in loaded(tmp_path, trace).device_list] == ["CPU:3"]


@pytest.mark.parametrize("name", ["while.1", "conditional", "cond.11", "call.2"])
def test_what_runs_recorded_ops_is_no_work_on_its_device_alone(name: str, tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for number, end in enumerate((20, 30)):
            thread = trace.thread(f"device{number}", 70 + number)
            step.host(name, 1, end, {"device_ordinal": number}, thread=thread)
        step.host("dot.1", 2, 3, {"device_ordinal": 1}, thread=trace.thread("other", 80))
    recording = loaded(tmp_path, trace)
    names = [recording.names.text(name) for name in recording.device_columns.name.tolist()]
    of_device = recording.device_columns.device.tolist()
    assert set(zip(of_device, names, strict=True)) == {(0, name), (1, "dot.1")}


@pytest.mark.parametrize("lag_ms", [0, 120])
@pytest.mark.parametrize("has_id", [True, False])
def test_programs_that_the_host_is_ahead_of_are_the_steps(
    lag_ms: float, has_id: bool, tmp_path: Path
) -> None:
    """Markers come every 50 ms; the programs of the first six ran when recording ended.

    The call of a program for one device has no id of its run.
    """
    trace = new_trace(length_ms=500)
    for number, step in enumerate(marked_steps(trace, count=8)):
        name = "Execute (jit_step)" if has_id else "Client::ExecuteHelperOnSingleDevice"
        step.host(name, 0.1, 0.2, {"run_id": -70 + number} if has_id else {})
        thread = trace.thread("device", 70)
        if number < 6:
            stats = {"run_id": -70 + number, "device_ordinal": 0}
            start = lag_ms + 10 * number * bool(lag_ms) + 1
            step.host("dot.1", start, start + 30, stats, thread=thread)
    (of_host,) = loaded(tmp_path, trace).steps_by_host
    if lag_ms:
        assert of_host.basis == "device"
        assert [step.duration_ps for step in of_host.steps] == [60 * 10**9] * 5
    else:
        assert of_host.basis == "marker"
        assert len(of_host.steps) == 8


def test_programs_that_began_before_their_calls_are_of_other_calls(tmp_path: Path) -> None:
    """The first ran before the first call, so nobody knows which call each is of."""
    trace = new_trace(length_ms=500)
    thread = trace.thread("device", 70)
    for number, step in enumerate(marked_steps(trace, count=8)):
        step.host("Client::ExecuteHelperOnSingleDevice", 0.1, 0.2)
        if number < 6:
            start = 120 + 10 * number if number else 0.05
            step.host("dot.1", start, start + 0.02, {"run_id": number, "device_ordinal": 0}, thread=thread)  # fmt: skip
    (of_host,) = loaded(tmp_path, trace).steps_by_host
    assert of_host.basis == "marker"


def test_until_a_program_is_executed_its_ops_wait_for_the_thread_that_calls_it(
    tmp_path: Path,
) -> None:
    """The call takes 20 ms of each step of 50: it traces and lowers until 15 ms, and is executed at its end."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        step.host("PjitFunction(step)", 0, 20)
        step.host("lower_sharding_computation", 5, 15)
        step.host("Execute (jit_step)", 19, 20, {"run_id": number})
        stats = {"run_id": number, "device_ordinal": 0}
        step.host("dot.1", 20, 49.9, stats, thread=trace.thread("device", 70))
    idle = analyzed(tmp_path, trace).results.idle
    assert idle is not None
    assert idle.devices[0].states["compile"] == 4 * 15 * 10**9


def test_ops_in_which_devices_meet_are_collectives_whatever_they_are_called(tmp_path: Path) -> None:
    """A sum of a program has the name of its line in JAX, and what its thread records inside shows it."""
    trace = new_trace()
    for step in marked_steps(trace):
        for number in range(2):
            thread = trace.thread(f"device{number}", 70 + number)
            stats = {"device_ordinal": number}
            step.host("dot.1", 1, 20, stats, thread=thread)
            step.host("psum.7", 20, 30, stats, thread=thread)
            step.host("Rendezvous", 21, 29, thread=thread)
        # On another thread.
        step.host("InvokeRendezvous", 2, 3, thread=trace.thread("other", 80))
    events = loaded(tmp_path, trace).device_events
    classes = events.groupby("name", observed=True)["class"].unique()
    assert {name: list(found) for name, found in classes.items()} == {
        "dot.1": ["compute"],
        "psum.7": ["collective"],
    }


def test_an_op_is_done_before_the_thread_that_completed_it_runs_the_rest(tmp_path: Path) -> None:
    """The end of the copy is said when all that waited for it has run: the loop, and what follows."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        first, second = trace.thread("first", 70), trace.thread("second", 71)
        produced = {"device_ordinal": 0, "_pt": 15, "_p": number}
        step.host("copy.1", 1, 2, produced, thread=first)
        step.host("ThreadpoolListener::StartRegion", 2, 2, thread=second)
        step.host("ThunkExecutor::Execute", 5, 40, thread=second)
        step.host("dot.1", 6, 39, {"device_ordinal": 0}, thread=second)
        step.host("end: copy.1", 40.01, 40.02, {"_ct": 15, "_c": number}, thread=second)
    lengths = lengths_by_name(loaded(tmp_path, trace))
    assert lengths == {"copy.1": [4 * 10**9] * 4, "dot.1": [33 * 10**9] * 4}


@pytest.mark.parametrize("is_idle", [True, False])
def test_the_last_op_of_a_loop_ends_before_what_follows_the_loop(
    is_idle: bool, tmp_path: Path
) -> None:
    """Its end is said after that of the loop, by the thread that ran the rest; of an op that another task completes, later."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        first, second = trace.thread("first", 70), trace.thread("second", 71)
        linked = {name: 10 * number + place for place, name in enumerate(("while.1", "add.2"))}
        for name, end in (("while.1", 3), ("add.2", 2)):
            stats = {"device_ordinal": 0, "_pt": 15, "_p": linked[name]}
            step.host(name, 1, end, stats, thread=first)
        step.host("ThunkExecutor::Execute", 4, 40, thread=second)
        step.host("dot.1", 5, 39, {"device_ordinal": 0}, thread=second)
        step.host("end: while.1", 40, 40, {"_ct": 15, "_c": linked["while.1"]}, thread=second)
        if not is_idle:
            step.host("ThreadpoolListener::StartRegion", 41, 41, thread=second)
        step.host("end: add.2", 42, 42, {"_ct": 15, "_c": linked["add.2"]}, thread=second)
    lengths = lengths_by_name(loaded(tmp_path, trace))
    assert lengths["add.2"] == [(3 if is_idle else 41) * 10**9] * 4
