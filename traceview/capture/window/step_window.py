"""Reads the range of steps that a user asks for, counts the steps of a run, and decides when the profile starts and stops.

Only whole calls can be recorded, plus one edge call on each side: work of the step before may still be on the devices when the
profile starts, and work of the last step when it stops. A marker opens when the input of its step is first asked for and closes
when the call returns. The profile itself starts at a call: that of the edge step, whose wait for input nobody asked about.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median, quantiles
from threading import RLock
from time import monotonic, perf_counter_ns
from typing import Any, Final, Literal

from traceview.base.errors import TraceviewError, UsageError
from traceview.capture.process.own_threads import Ticker

DEFAULT_STEPS: Final = "10:15"
_NOISY: Final = 0.5
"""Of a step: where steps vary by more, noise hides what recording costs; a choice of ours."""

_RANGE: Final = re.compile(r"(\d{0,18})(?:\s*:\s*(\d{1,18}))?", re.ASCII)
_EXAMPLE: Final = "10:15 records steps 10 to 14"


@dataclass(frozen=True)
class StepRange:
    """Steps `first` up to but not including `last`; the first step of a run is 0."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Read `10:15`; raises `UsageError` with the reason for anything else."""
        match = _RANGE.fullmatch(text.strip())
        if match is None or match[2] is None:
            step = int(match[1] or 0) if match else 0
            hint = f"for step {step} alone: --steps {step}:{step + 1}" if step else _EXAMPLE
            raise UsageError(f"--steps {text}: not a range A:B", hint=hint)
        first, last = int(match[1] or 0), int(match[2])
        return cls._checked(first, last, f"--steps {text}", f"--steps 1:{max(last, 2)}")

    @classmethod
    def of(cls, steps: range) -> StepRange:
        """Read `range(10, 15)`; raises `UsageError` for a range that cannot be captured."""
        hint = "range(10, 15) records steps 10 to 14"
        wrong = UsageError(f"steps={steps!r} is not a range of steps", hint=hint)
        if not isinstance(steps, range):
            raise wrong
        if steps.step != 1 or steps.start < 0:
            raise wrong
        return cls._checked(steps.start, steps.stop, str(steps), f"range(1, {max(steps.stop, 2)})")

    @classmethod
    def _checked(cls, first: int, last: int, shown: str, without_0: str) -> StepRange:
        if first >= last:
            raise UsageError(f"{shown}: an empty range", hint=f"the end is excluded: {_EXAMPLE}")
        if first == 0:
            reason = "it traces and compiles, and until it ends no step function is known"
            raise UsageError(f"{shown}: step 0 cannot be captured: {reason}", hint=without_0)
        return cls(first, last)

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"

    def overlaps(self, number: int, count: int) -> bool:
        """Whether a call of `count` steps from `number` on holds a requested step."""
        return number < self.last and number + count > self.first

    def opens_at(self, number: int, count: int) -> bool:
        """Whether the profile must run when this call begins: it or the next one holds a requested step; step 0 is no edge."""
        if self.overlaps(number, count):
            return True
        return 0 < number < self.first and number + 2 * count > self.first


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock, 0 where that was not seen.

    `input_ns`: from asking for the input to the call, 0 where the call itself asks. `is_edge`: it is no requested step, or
    no step followed it in time. `error`: the class of the exception by which it ended.
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


class StepTimes:
    """Nanoseconds per step without and with the profiler, waits for input left out. `step_ns`: median of a whole step without it.

    With it are the `calls` but the first, in which it starts; those that traced are left out.
    """

    def __init__(self, before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> None:
        both = _followed([*before, *calls[:1]]), _followed(calls[1:])
        whole = [ns / call.count for call, ns in both[0]]
        self.step_ns = median(whole) if whole else None
        self.unprofiled, self.profiled = (
            [(ns - call.input_ns) / call.count for call, ns in followed] for followed in both
        )

    @property
    def ratios(self) -> tuple[float, float] | None:
        """What profiling adds to a step, and how far quartiles reach towards each other, as shares of the unprofiled step.

        A difference within that may be chance, as of steps that are slow and fast in turns; it is at least the mean of both
        interquartile ranges. None with fewer than three steps of either kind.
        """
        if not self.step_ns or min(len(self.unprofiled), len(self.profiled)) < 3:
            return None
        low, middle, high = _quartiles(self.unprofiled)
        own_low, own_middle, own_high = _quartiles(self.profiled)
        spread = max((high - low + own_high - own_low) / 2, high - middle + own_middle - own_low)
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
        without, profiled = (
            _quartiles(times)[1] / 1e6 for times in (self.unprofiled, self.profiled)
        )
        start = f"{'within noise' if spread < _NOISY else 'not known'}, as times vary by {spread:.0%} of a step"
        if ratio > spread:
            start = f"{profiled - without:.2f} ms per step, {ratio:.0%} of it"
        return f"cost of recording: {start} (median from call to call of the step on the host, without waits for input: {without:.2f} → {profiled:.2f} ms)"


def _followed(calls: Sequence[RecordedCall]) -> list[tuple[RecordedCall, int]]:
    """The calls that another one follows, without those that traced, and the nanoseconds between their beginnings, if both are known."""
    pairs = ((one, after) for one, after in pairwise(calls) if one.begun_ns and after.begun_ns)
    return [(call, after.begun_ns - call.begun_ns) for call, after in pairs if not call.is_traced]


def _quartiles(times: Sequence[float]) -> list[float]:
    """The quartiles; of fewer than five steps the median with the shortest and the longest."""
    if len(times) < 5:
        return [min(times), median(times), max(times)]
    return quantiles(times, n=4, method="inclusive")


State = Literal["waiting", "recording", "closed"]
_EDGE_TIMEOUT_NS: Final = 1_000_000_000
"""The profile stays open for the edge step at the end for a second, or twice the longest time between two steps."""


def is_end_of_data(error: BaseException) -> bool:
    """Whether this is how Python or TensorFlow says that there is no more input."""
    return isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"


class StepWindow:
    """The part of a run in which `recording` records `steps`: it can `open`, `synchronise`, `close`, and open a `marker`."""

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
        self._before: deque[RecordedCall] = deque(maxlen=51)
        self._is_late = False
        self._largest_count = 1

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

    @property
    def got(self) -> tuple[int, int] | None:
        """The recorded range: first step and first step left out, without edges and calls that were cut."""
        whole = [call for call in self.calls if not (call.is_edge or call.error)]
        return (whole[0].number, whole[-1].number + whole[-1].count) if whole else None

    def times(self) -> StepTimes:
        """Step times before and in the window, each from the beginning of one call to that of the next."""
        return StepTimes(self._before, self.calls)

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
            "calls": [asdict(call) | {"begun_ns": call.begun_ns or None} for call in self.calls],
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
        # With the Python up to the next one.
        followed = [*_followed([*self._before, *self.calls[:1]]), *_followed(self.calls[1:])]
        own_ns = [call.ended_ns - call.begun_ns for call in self.calls]
        longest_ns = max([ns for _, ns in followed] + own_ns)
        self._edge_s = monotonic() + max(_EDGE_TIMEOUT_NS, 2 * longest_ns) / 1e9

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
        return 0.1

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
