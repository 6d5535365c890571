"""Counts the steps of a run, decides when the profile starts and stops, and compares step times with the profiler and without.

A marker opens when the input of its step is first asked for and closes when the call returns. The profile itself
starts at a call: that of the edge step, whose wait for input nobody asked about. Buffers of input fill while the first step is traced
or the profile starts, so what is compared is without the wait for input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median, quantiles
from threading import RLock
from time import monotonic, perf_counter_ns
from typing import Any, Final, Literal

from traceview.base.errors import TraceviewError
from traceview.capture.process.own_threads import Ticker
from traceview.capture.window.ranges import StepRange


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock.

    `input_ns`: from asking for the input to the call, 0 where the call itself asks. `is_edge`: it is no requested step, or
    no step followed it in time. `is_traced`: a `tf.function` was traced in it. `error`: the class of the exception by which it
    ended.
    """

    number: int
    count: int
    function: str
    begun_ns: int
    input_ns: int
    ended_ns: int
    is_edge: bool = False
    is_traced: bool = False
    error: str | None = None


@dataclass
class Evaluation:
    """What was evaluated in the profile after step `after`: calls by function, and when, by the monotonic clock."""

    after: int
    functions: dict[str, int]
    begun_ns: int
    ended_ns: int


@dataclass(frozen=True)
class StepTimes:
    """Nanoseconds per step without and with the profiler, waits for input left out. `step_ns`: median of a whole step without it."""

    step_ns: float | None
    unprofiled: Sequence[float]
    profiled: Sequence[float]

    @classmethod
    def of(cls, before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> StepTimes:
        """Those of calls without the profile, and of those in it but the first, in which it starts; without those that traced."""
        unprofiled, profiled = _followed([*before, *calls[:1]]), _followed(calls[1:])
        whole = [ns / call.count for call, ns in unprofiled]
        each = (
            [(ns - call.input_ns) / call.count for call, ns in s] for s in (unprofiled, profiled)
        )
        return cls(median(whole) if whole else None, *each)

    @property
    def ratios(self) -> tuple[float, float] | None:
        """What profiling adds to a step, and the mean of both interquartile ranges, as shares of the unprofiled step.

        A difference within these ranges may be chance. None with fewer than three steps of either kind.
        """
        if not self.step_ns or min(len(self.unprofiled), len(self.profiled)) < 3:
            return None
        low, middle, high = _quartiles(self.unprofiled)
        own_low, own_middle, own_high = _quartiles(self.profiled)
        spread = (high - low + own_high - own_low) / 2
        return (own_middle - middle) / self.step_ns, spread / self.step_ns

    def as_json(self) -> dict[str, Any]:
        """The group `overhead` of the sidecar."""
        ratio, spread_ratio = self.ratios or (None, None)
        counts = {"unprofiled_count": len(self.unprofiled), "profiled_count": len(self.profiled)}
        return {"step_ns": self.step_ns, **counts, "ratio": ratio, "spread_ratio": spread_ratio}

    def __str__(self) -> str:
        if self.ratios is None:
            return "note: too few steps to measure the overhead of the profiler"
        ratio, spread = self.ratios
        start = f"{ratio:+.0%} per step"
        if ratio <= spread:
            start = (
                f"less than the spread of step times with and without it (mean IQR {spread:.0%})"
            )
        without, profiled = map(_words, (self.unprofiled, self.profiled))
        medians = f"{without} without the profiler, {profiled} with it"
        return f"overhead: {start}. Median step without its wait for input: {medians}"


def longest_ns(before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> int:
    """The longest of the same steps, with the Python up to the next one."""
    followed = [*_followed([*before, *calls[:1]]), *_followed(calls[1:])]
    return max([ns for _, ns in followed] + [call.ended_ns - call.begun_ns for call in calls])


def _followed(calls: Sequence[RecordedCall]) -> list[tuple[RecordedCall, int]]:
    """The calls that another one follows, without those that traced, and the nanoseconds between their beginnings."""
    pairs = pairwise(calls)
    return [(call, after.begun_ns - call.begun_ns) for call, after in pairs if not call.is_traced]


def _quartiles(times: Sequence[float]) -> list[float]:
    return quantiles(times, n=4, method="inclusive")


def _words(times: Sequence[float]) -> str:
    low, middle, high = (ns / 1e6 for ns in _quartiles(times))
    return f"{middle:.2f} ms (quartiles {low:.2f} to {high:.2f}, {len(times)} calls)"


State = Literal["waiting", "recording", "closed"]
_EDGE_TIMEOUT_NS: Final = 1_000_000_000
_EDGE_TIMEOUT_STEPS: Final = 2
"""The profile stays open for the edge step at the end for a second, or twice the longest time between two steps."""
_TICK_S: Final = 0.1
"""How exactly that time is known: few looks in a window of seconds."""
_TIMED_STEPS: Final = 51
"""Unprofiled calls that are kept: the median of 50 is steady, and older ones are warm-up."""


def is_end_of_data(error: BaseException) -> bool:
    """Whether this is how Python or TensorFlow says that there is no more input."""
    return isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"


class StepWindow:
    """The part of a run in which `recording` records `steps`.

    `recording` does what the window decides: it can `open` the profile, `synchronise` the devices, `close`, which keeps the
    profile, and open a `marker`, which ends by `finish(number)`, None for no step. All of them may raise.
    """

    def __init__(
        self, steps: StepRange, recording: Any, clock_ns: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.steps = steps
        self.state: State = "waiting"
        self.calls: list[RecordedCall] = []
        self.evaluations: list[Evaluation] = []
        self.failures: list[str] = []
        self.next_number = 0
        self.failed_steps = 0
        self.unfollowed: RecordedCall | None = None
        """The last call, if it is left out because no step followed it in time."""
        self.on_look: Callable[[], None] = lambda: None
        """Called every tenth of a second while the window is open, in a thread of its own."""
        self._recording = recording
        self._clock_ns = clock_ns
        self._begun_ns = 0
        self._input_ns: int | None = None
        """From the request for input to the call of the step that has begun; None before the call."""
        self._is_traced = False
        self._marker: Any = None
        self._edge_s: float | None = None
        # Starting a thread takes 0.2 ms, and tens of milliseconds when all cores are busy. So it starts before the first
        # recorded step, which does not pay for it.
        self._ticker = Ticker("edge-timeout", self._look_for_edge)
        self._lock = RLock()
        self._before: deque[RecordedCall] = deque(maxlen=_TIMED_STEPS)
        self._is_late = False
        self._largest_count = 1

    # Called by the hooks

    def input_begins(self) -> None:
        """The script asks for input: the step of that input begins here."""
        if self._begun_ns:
            return
        self._begun_ns = self._clock_ns()
        if self.next_number < self.steps.first or self.state == "closed":
            return
        self._edge_s = None
        if self.state == "waiting" and self.steps.overlaps(self.next_number, 1):
            # No step before it could be an edge.
            self._open()
        self._mark()

    def begin(self, count: int = 1) -> None:
        """The call of a step function begins, or the first call of several that make a step; it runs `count` steps."""
        if self._input_ns is not None:
            return
        now_ns = self._clock_ns()
        self._begun_ns = self._begun_ns or now_ns
        self._input_ns = now_ns - self._begun_ns
        number = self.next_number
        # The last call of an epoch may be a short one, but the next one is not.
        ahead = self._largest_count = max(count, self._largest_count)
        if number + 2 * ahead <= self.steps.first or self.state == "closed":
            return
        self._edge_s = None
        if self.state == "waiting" and number >= self.steps.last:
            self.state = "closed"
        elif self.state == "waiting" and self.steps.opens_at(number, ahead):
            self._open()
        self._mark()

    def end(self, function: str, count: int = 1) -> None:
        """The call has returned."""
        call = self._ended(function, count)
        if self.state == "waiting":
            call.is_traced |= call.number == 0
            self._before.append(call)
        elif self.state == "recording":
            call.ended_ns = self._clock_ns()
            self._record(call)

    def fail(self, function: str, error: BaseException, count: int = 1) -> None:
        """The call has ended by an exception, and keeps its number; at the end of the data none has begun."""
        if is_end_of_data(error):
            self.abandon()
            return
        self.failed_steps += count
        call = self._ended(function, count)
        if self.state == "recording" and self._marker is not None:
            call.ended_ns = self._clock_ns()
            call.is_traced, call.error = False, type(error).__name__
            self._record(call)

    def abandon(self) -> None:
        """What has begun was no step: evaluation, or the end of the data."""
        self._is_over()
        self._finish_marker(None)
        if self.state == "recording" and self.calls and self.next_number >= self.steps.last:
            # Evaluation, a checkpoint or the next epoch may take long, and nobody asked for it.
            self._wait_for_edge()

    def evaluated(self, function: str, begun_ns: int, ended_ns: int) -> None:
        """Before the step that has begun, a call evaluated."""
        if self.state != "recording" or not self.calls:
            return
        after = self.next_number - 1
        if not self.evaluations or self.evaluations[-1].after != after:
            self.evaluations.append(Evaluation(after, {}, begun_ns, begun_ns))
        last = self.evaluations[-1]
        last.functions[function] = last.functions.get(function, 0) + 1
        last.ended_ns = ended_ns

    def traced(self) -> None:
        """A `tf.function` is being traced in the call that has begun."""
        self._is_traced = True

    # Called where only the return of a call is seen

    def count_from(self, number: int) -> None:
        """The steps are other calls than those so far, and `number` of them have ended."""
        self.next_number = number
        self._before.clear()
        self._is_over()

    def begins_after(self) -> None:
        """A call has returned, and the next step begins."""
        if self.state == "recording" and self.next_number >= self.steps.last:
            # It need not come: the time to wait for it goes on.
            self._begun_ns = self._clock_ns()
            self._mark()
        else:
            self.begin()

    def begins_again(self) -> None:
        """What has run since belongs to the step before, and the next one begins now."""
        if self.state == "recording" and self._marker is not None:
            self._finish_marker(None)
            self._begun_ns = self._clock_ns()
            self._mark()

    def finish(self, *, is_synchronised: bool = True) -> None:
        """The script has ended: close what is open."""
        # Another thread may be closing it.
        with self._lock:
            if self.state == "recording":
                self.abandon()
                self._close(is_synchronised=is_synchronised)
            self.state = "closed"

    # Results

    @property
    def got(self) -> tuple[int, int] | None:
        """The recorded range: first step and first step left out, without edges and calls that were cut."""
        whole = [call for call in self.calls if not (call.is_edge or call.error)]
        return (whole[0].number, whole[-1].number + whole[-1].count) if whole else None

    def times(self) -> StepTimes:
        """Step times before and in the window, each from the beginning of one call to that of the next."""
        return StepTimes.of(self._before, self.calls)

    def as_json(self) -> dict[str, Any]:
        """The group `window` of the sidecar."""
        edges = [call for call in self.calls if call.is_edge]
        return {
            "asked": [self.steps.first, self.steps.last],
            "got": self.got,
            "edge_steps": [n for c in edges for n in range(c.number, c.number + c.count)],
            "traced_steps": [call.number for call in self.calls if call.is_traced],
            "cut_steps": [call.number for call in self.calls if call.error],
            "steps_per_call": sorted({call.count for call in self.calls}),
            "calls": [asdict(call) for call in self.calls],
            "evaluations": [asdict(evaluation) for evaluation in self.evaluations],
        }

    def _ended(self, function: str, count: int) -> RecordedCall:
        number, self.next_number = self.next_number, self.next_number + count
        begun_ns, input_ns = self._begun_ns, self._input_ns or 0
        call = RecordedCall(number, count, function, begun_ns, input_ns, begun_ns)
        call.is_traced, self._is_traced = self._is_traced, False
        self._is_over()
        return call

    def _is_over(self) -> None:
        self._begun_ns, self._input_ns = 0, None

    def _open(self) -> None:
        with self._lock:
            if self.state != "waiting":
                return
            if self._attempt(self._recording.open):
                self.state = "recording"
                self._ticker.start()
            else:
                # Another profile was running: when ours starts at last, its first step is the edge.
                self._is_late = True

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action() or True
        except Exception as error:
            message = error.message if isinstance(error, TraceviewError) else repr(error)
            if message not in self.failures:
                self.failures.append(message)
            return None

    def _mark(self) -> None:
        if self.state == "recording" and self._marker is None:
            self._marker = self._attempt(self._recording.marker)

    def _finish_marker(self, number: int | None) -> None:
        marker, self._marker = self._marker, None
        if marker is not None:
            marker.finish(number)

    def _record(self, call: RecordedCall) -> None:
        self._finish_marker(call.number)
        is_late = not self.calls and self._is_late
        call.is_edge = is_late or not self.steps.overlaps(call.number, call.count)
        self.calls.append(call)
        if call.number >= self.steps.last:
            self._close()
        elif call.number + call.count >= self.steps.last:
            self._wait_for_edge()

    def _wait_for_edge(self) -> None:
        steps_ns = _EDGE_TIMEOUT_STEPS * longest_ns(self._before, self.calls)
        self._edge_s = monotonic() + max(_EDGE_TIMEOUT_NS, steps_ns) / 1e9

    def _look_for_edge(self) -> float:
        # In a thread of its own: the script may be busy with anything but steps.
        self.on_look()
        edge_s = self._edge_s
        if edge_s is not None and monotonic() >= edge_s:
            with self._lock:
                # It may have come meanwhile.
                if self._edge_s == edge_s and self.state == "recording":
                    *others, last = self.calls
                    if any(not (call.is_edge or call.error) for call in others):
                        # Nothing shows where the last call ends; if it is the only one, it is better than nothing.
                        self.unfollowed, last.is_edge = last, True
                    self._close(is_synchronised=False)
        return _TICK_S

    def _close(self, *, is_synchronised: bool = True) -> None:
        self._edge_s = None
        if is_synchronised and self.state == "recording":
            # Not under the lock: if the devices never come, the profile can still be stopped from another thread.
            self._attempt(self._recording.synchronise)
        with self._lock:
            if self.state != "recording":
                return
            self.state = "closed"
            self._ticker.stop()
            self._attempt(self._recording.close)
