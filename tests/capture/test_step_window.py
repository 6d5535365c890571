from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from traceview.base.errors import CaptureError
from traceview.capture.window.step_window import StepRange, StepWindow


@dataclass
class Clock:
    now: int = 1000

    def __call__(self) -> int:
        return self.now


@dataclass
class Log:
    """A recording that writes down what is asked of it."""

    events: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    is_synchronised: bool = False

    def _do(self, what: str) -> None:
        if what in self.failing:
            raise CaptureError(self.failing[what])
        self.events.append(what)

    def open(self) -> None:
        self._do("open")

    def synchronise(self) -> None:
        self.is_synchronised = True

    def close(self) -> None:
        self._do("close" if self.is_synchronised else "close unsynchronised")

    def marker(self) -> LogMarker:
        self.events.append("[")
        return LogMarker(self.events)


@dataclass
class LogMarker:
    events: list[str]

    def finish(self, number: int | None) -> None:
        self.events.append("x]" if number is None else f"{number}]")


@dataclass
class Loop:
    window: StepWindow
    log: Log
    clock: Clock

    def steps(self, number: int, *, count: int = 1, input_too: bool = True, cost: int = 10) -> None:
        for _ in range(number):
            if input_too:
                self.window.input_begins()
            self.clock.now += cost
            self.window.begin(count)
            self.clock.now += cost * count
            self.window.end("train_step", count)

    def closes_by_itself(self) -> None:
        deadline = time.monotonic() + 10
        while self.window.state != "closed" and time.monotonic() < deadline:
            time.sleep(0.005)
        assert self.log.events[-1] == "close unsynchronised"


@pytest.fixture
def loop() -> Callable[[int, int], Loop]:
    def make(first: int, last: int) -> Loop:
        log, clock = Log(), Clock()
        return Loop(StepWindow(StepRange(first, last), log, clock), log, clock)

    return make


Make = Callable[[int, int], Loop]


def test_the_end_of_the_data_is_no_step(loop: Make) -> None:
    run = loop(2, 9)
    run.steps(4)
    run.window.input_begins()
    run.window.abandon()
    run.steps(1)
    assert run.log.events[-4:] == ["[", "x]", "[", "4]"]


def test_a_last_step_that_fails_is_followed_by_an_edge(loop: Make) -> None:
    run = loop(2, 4)
    run.steps(3)
    run.window.begin()
    run.window.fail("train_step", ValueError("wrong"))
    run.steps(2)
    assert run.log.events[-2:] == ["4]", "close"]
    assert run.window.got == (2, 3)


def test_a_short_call_has_an_edge_like_any_other(loop: Make) -> None:
    run = loop(35, 40)
    run.steps(6, count=5)
    run.steps(1, count=2)
    run.steps(6, count=5)
    assert [(call.number, call.count) for call in run.window.calls] == [
        *((30, 2), (32, 5), (37, 5), (42, 5))
    ]
    assert run.window.got == (32, 42)


def test_step_times_leave_out_tracing_and_the_start(loop: Make) -> None:
    run = loop(6, 8)
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


def test_without_a_following_step_the_profile_ends_soon(
    loop: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceview.capture.window.step_window._EDGE_TIMEOUT_NS", 10_000_000)
    run = loop(2, 4)
    run.steps(4)
    run.closes_by_itself()
    # Nothing shows where step 3 ends.
    assert run.window.got == (2, 3)
    assert run.window.unfollowed is run.window.calls[-1]
    assert run.window.as_json()["edge_steps"] == [1, 3]


def test_the_only_step_of_a_window_is_kept_without_a_following_step(
    loop: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceview.capture.window.step_window._EDGE_TIMEOUT_NS", 10_000_000)
    run = loop(2, 3)
    run.steps(3)
    run.closes_by_itself()
    assert (run.window.got, run.window.unfollowed) == ((2, 3), None)


def test_the_wait_for_a_following_step_is_as_long_as_the_python_between_steps(
    loop: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceview.capture.window.step_window._EDGE_TIMEOUT_NS", 1_000_000)
    run = loop(6, 8)
    run.steps(3)
    run.clock.now += 150_000_000  # Python that writes a checkpoint every few steps, say
    run.steps(5)
    time.sleep(0.15)
    assert run.window.state == "recording"
    run.steps(1)
    assert run.window.got == (6, 8)


def test_no_thread_is_started_between_recorded_steps(loop: Make) -> None:
    others = threading.enumerate()
    run = loop(2, 4)
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
