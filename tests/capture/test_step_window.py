"""Which steps a window holds, when it closes, and how long they take with and without the profiler."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from traceview.base.errors import UsageError
from traceview.capture.window.step_window import RecordedCall, StepRange, StepTimes, StepWindow


@dataclass
class Log:
    """A recording that writes down what is asked of it."""

    events: list[str] = field(default_factory=list)
    is_synchronised: bool = False

    def open(self) -> None:
        self.events.append("open")

    def synchronise(self) -> None:
        self.is_synchronised = True

    def close(self) -> None:
        self.events.append("close" if self.is_synchronised else "close unsynchronised")

    def marker(self) -> LogMarker:
        self.events.append("[")
        return LogMarker(self.events)


@dataclass
class LogMarker:
    events: list[str]

    def finish(self, number: int | None) -> None:
        self.events.append("x]" if number is None else f"{number}]")


class Loop:
    """A loop around the window of these steps."""

    def __init__(self, first: int, last: int) -> None:
        self.log, self.now = Log(), 1000
        self.window = StepWindow(StepRange(first, last), self.log, lambda: self.now)

    def steps(self, number: int, *, count: int = 1, cost: int = 10) -> None:
        for _ in range(number):
            self.window.input_begins()
            self.now += cost
            self.window.begin(count)
            self.now += cost * count
            self.window.end("train_step", count)


def test_the_end_of_the_data_is_no_step() -> None:
    run = Loop(2, 9)
    run.steps(4)
    run.window.input_begins()
    run.window.abandon()
    run.steps(1)
    assert run.log.events[-4:] == ["[", "x]", "[", "4]"]


def test_a_last_step_that_fails_is_followed_by_an_edge() -> None:
    run = Loop(2, 4)
    run.steps(3)
    run.window.begin()
    run.window.fail("train_step", ValueError("wrong"))
    run.steps(2)
    assert run.log.events[-2:] == ["4]", "close"]
    assert run.window.got == (2, 3)


def test_step_times_leave_out_tracing_and_the_start() -> None:
    run = Loop(6, 8)
    run.steps(1, cost=1000)  # step 0 traces
    run.steps(4, cost=10)  # 1 to 4
    run.steps(1, cost=700)  # 5 is the edge
    run.steps(1, cost=15)
    run.window.traced()
    run.steps(1, cost=900)  # 7 is traced again
    run.steps(1, cost=15)
    times = run.window.times()
    assert (times.unprofiled, times.profiled, times.step_ns) == ([10] * 4, [15], 20)
    assert times.ratios is None  # one step is no median
    assert [call.number for call in run.window.calls if call.is_traced] == [7]


@pytest.mark.parametrize(("last", "edges"), [(4, [1, 3]), (3, [1])])
def test_without_a_following_step_the_profile_ends_soon(
    last: int, edges: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows where the last step ends; the only one of a window is kept all the same."""
    monkeypatch.setattr("traceview.capture.window.step_window._EDGE_TIMEOUT_NS", 10_000_000)
    run = Loop(2, last)
    run.steps(last)
    deadline = time.monotonic() + 60
    while run.window.state != "closed" and time.monotonic() < deadline:
        time.sleep(0.005)
    assert run.log.events[-1] == "close unsynchronised"
    assert run.window.got == (2, 3)
    assert run.window.unfollowed is (run.window.calls[-1] if last == 4 else None)
    assert run.window.as_json()["edge_steps"] == edges


def test_the_wait_for_a_following_step_is_as_long_as_the_python_between_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("traceview.capture.window.step_window._EDGE_TIMEOUT_NS", 1_000_000)
    run = Loop(6, 8)
    run.steps(3)
    run.now += 150_000_000  # Python that writes a checkpoint every few steps, say
    run.steps(5)
    time.sleep(0.15)
    assert run.window.state == "recording"
    run.steps(1)
    assert run.window.got == (6, 8)


def test_no_thread_is_started_between_recorded_steps() -> None:
    others = threading.enumerate()
    run = Loop(2, 4)
    run.steps(2)
    begun = threading.enumerate()
    run.steps(2)
    assert threading.enumerate() == begun
    run.steps(1)
    (own,) = set(begun).difference(others)
    own.join(10)
    assert not own.is_alive()


def test_the_end_of_the_run_waits_for_a_close_in_another_thread() -> None:
    class Slow(Log):
        def close(self) -> None:
            time.sleep(0.2)
            super().close()

    log = Slow()
    window = StepWindow(StepRange(10, 15), log)
    for _ in range(12):
        window.begin()
        window.end("step")
    closing = threading.Thread(target=window.finish)
    closing.start()
    time.sleep(0.05)
    window.finish()
    assert log.events.count("close") == 1
    closing.join()


def test_a_window_is_half_open() -> None:
    window = StepRange.parse("10:15")
    assert window == StepRange(10, 15) == StepRange.of(range(10, 15))
    assert str(window) == "10:15"
    assert [n for n in range(20) if window.overlaps(n, 1)] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("0:5", "step 0 cannot be captured", "--steps 1:5"),
        ("5:", "not a range", "10:15"),
        ("5", "not a range", "for step 5 alone: --steps 5:6"),
        (" 07 ", "not a range", "--steps 7:8"),
        ("", "not a range", "10:15"),
        ("5:5", "empty", "excluded"),
        ("١:٣", "not a range", "10:15"),
        ("1" * 19 + ":", "not a range", "10:15"),
    ],
)
def test_what_is_no_window_is_refused_with_a_reason(text: str, reason: str, hint: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        StepRange.parse(text)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        (range(5, 5), "excluded"),
        (range(7, 5), "excluded"),
        (range(1, 9, 2), "range(10, 15)"),
        (range(-1, 3), "range(10, 15)"),
        (range(3), "range(1, 3)"),
        ((10, 15), "range(10, 15)"),
    ],
)
def test_a_range_that_is_no_window_is_refused(steps: Any, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        StepRange.of(steps)
    assert hint in (raised.value.hint or "")


MS = 1_000_000


def calls(*steps: tuple[float, float]) -> list[RecordedCall]:
    """Calls whose steps last so many milliseconds, of which they wait so many for input, and one more."""
    begun = [1.0]
    for ms, _ in steps:
        begun.append(begun[-1] + ms)
    rows = zip(pairwise(begun), (wait for _, wait in steps), strict=True)
    made = [RecordedCall(0, 1, "f", int(a * MS), int(w * MS), int(b * MS)) for (a, b), w in rows]
    return [*made, RecordedCall(0, 1, "f", int(begun[-1] * MS), 0, int(begun[-1] * MS))]


def times(unprofiled: list[float], profiled: list[float], wait: float = 0) -> StepTimes:
    """Those of steps that all wait for their input, with the profiler three times as long."""
    before = calls(*((ms + wait, wait) for ms in unprofiled))
    *before, first = before
    after = calls(*((ms + 3 * wait, 3 * wait) for ms in profiled))
    # The first recorded call ends the last one before.
    after = [RecordedCall(0, 1, "f", first.begun_ns, 0, 0, is_traced=True), *after]
    return StepTimes(before, after)


@pytest.mark.parametrize("wait", [0, 10])
def test_an_overhead_beyond_the_spread_is_that_of_all_but_the_wait_for_input(wait: float) -> None:
    step_times = times([9, 10, 10, 11, 10], [12, 13, 13, 13, 14], wait)
    assert step_times.ratios == pytest.approx((3 / (10 + wait), 0))
    assert str(step_times) == (
        f"cost of recording: 3.00 ms per step, {3 / (10 + wait):.0%} of it (median from call to call of the step on the host, without waits for input: 10.00 → 13.00 ms)"
    )


def test_an_overhead_that_may_be_chance() -> None:
    chance = times([8, 8, 10, 12, 12], [10, 10, 11, 60, 60])
    assert str(chance).startswith("cost of recording: not known, as times vary by ")
    chance = times([9, 9, 10, 11, 11], [9, 10, 10, 11, 11])
    assert str(chance).startswith("cost of recording: within noise, as times vary by ")


@pytest.mark.parametrize(("before", "profiled"), [(3, 3), (5, 5), (5, 3), (9, 5), (4, 7)])
def test_steps_that_are_slow_and_fast_by_turns_have_no_overhead(before: int, profiled: int) -> None:
    """By chance the one median is that of fast steps, the other that of slow ones."""
    fast_first = [10.0, 30.0] * 5
    slow_first = [30.2, 10.1] * 5
    assert str(times(fast_first[:before], slow_first[:profiled])).startswith(
        "cost of recording: not known"
    )


@pytest.mark.parametrize(
    ("unprofiled", "profiled"), [([], []), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1])]
)
def test_too_few_steps(unprofiled: list[float], profiled: list[float]) -> None:
    step_times = times(unprofiled, profiled)
    assert step_times.as_json()["ratio"] is None
    assert str(step_times) == "note: too few steps to measure the overhead of the profiler"
    assert step_times.as_json()["unprofiled_count"] == len(unprofiled)
