"""When does the profile start and stop, and which step is which?

The recorder is told where a step's input is fetched, where its call begins and where it returns. Outside the
window it only counts and reads a clock; around the window it starts, marks and stops the profile.

A marker opens when the input of its step is first asked for and closes when the call returns. The profile
itself starts at a call: that of the edge step, whose wait for input nobody asked about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from threading import RLock
from time import perf_counter_ns
from typing import Final, Literal, Protocol

from traceview.capture.patience import Patience
from traceview.capture.step_times import StepTimes
from traceview.capture.window import StepWindow
from traceview.errors import TraceviewError

State = Literal["waiting", "recording", "closed"]

_REMEMBERED_STEPS: Final = 51
"""Unprofiled steps whose time is kept: the median of 50 is steady, and older ones are warm-up."""
_PATIENCE_NS: Final = 1_000_000_000
_PATIENCE_STEPS: Final = 3
"""How long the profile stays open for the edge step that follows: a second, or three times the longest step."""


class OpenMarker(Protocol):
    """A marker that was opened."""

    def finish(self, number: int) -> None:
        """End it as the marker of step `number`."""

    def abandon(self) -> None:
        """End it as nobody's marker."""


class Recording(Protocol):
    """What the recorder lets happen; all of it may raise."""

    def open(self) -> None:
        """Start the profile."""

    def close(self, *, is_synchronised: bool) -> None:
        """Stop the profile and keep it."""

    def probe(self) -> None:
        """Start a profile of one call, to see how many events it has."""

    def end_probe(self, count: int) -> int | None:
        """Stop it; how many calls fit under the limit of events, None without one."""

    def estimate(self, count: int) -> int | None:
        """The same for calls of `count` steps where none was probed."""

    def marker(self) -> OpenMarker:
        """Open a marker now."""


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock.

    `is_traced`: a `tf.function` was traced in it. `is_cut`: it ended by an exception.
    """

    number: int
    count: int
    function: str
    begun_ns: int
    ended_ns: int
    is_edge: bool
    is_traced: bool = False
    is_cut: bool = False


@dataclass
class Recorder:
    """Counts the steps of a run and opens the window among them."""

    window: StepWindow
    recording: Recording
    clock_ns: Callable[[], int] = perf_counter_ns
    state: State = "waiting"
    calls: list[RecordedCall] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    next_number: int = 0
    limit_calls: int | None = None
    """How many calls the limit of events allows."""

    def __post_init__(self) -> None:
        self._begun_ns = 0
        self._is_traced = False
        self._marker: OpenMarker | None = None
        self._patience = Patience(self._end_of_patience)
        self._lock = RLock()
        self._is_probing = False
        self._has_probed = False
        self._has_limit = False
        self._largest_count = 1
        self._starts: deque[tuple[int, int, bool]] = deque(maxlen=_REMEMBERED_STEPS)

    # What the hooks call

    def input_begins(self) -> None:
        """The script asks for input: the step that it belongs to begins here."""
        if self._begun_ns:
            return
        self._begun_ns = self.clock_ns()
        if self.next_number < self.window.first or self.state == "closed":
            return
        self._stay_open()
        if self.state == "waiting" and self.window.is_asked(self.next_number, 1):
            # No step before it could be an edge.
            self._open()
        self._mark()

    def input_ended(self) -> None:
        """There is no input any more: what began with it is no step."""
        self.abandon()

    def begin(self, count: int = 1) -> None:
        """The call of a step function begins; it makes `count` steps."""
        if not self._begun_ns:
            self._begun_ns = self.clock_ns()
        number = self.next_number
        # The last call of an epoch may be a short one, and the next is none.
        ahead = self._largest_count = max(count, self._largest_count)
        if number + 3 * ahead <= self.window.first or self.state == "closed":
            return
        self._stay_open()
        if self.state == "waiting":
            self._prepare(number, count, ahead)
        self._mark()

    def end(self, function: str, count: int = 1) -> None:
        """The call has returned."""
        number, begun = self.next_number, self._begun_ns
        self.next_number = number + count
        self._begun_ns = 0
        traced, self._is_traced = self._is_traced, False
        if self.state == "waiting":
            disturbed = traced or number == 0 or self._is_probing
            self._starts.append((begun, count, disturbed))
            if self._is_probing:
                self._end_probe(count)
            return
        if self.state == "recording":
            self._recorded(number, count, function, begun, is_traced=traced)

    def fail(self, function: str, count: int = 1) -> None:
        """The call has ended by an exception: it is no whole step, but its marker gets its number."""
        number, begun = self.next_number, self._begun_ns
        self._begun_ns = 0
        if self.state == "recording" and self._marker is not None:
            self._finish_marker(number)
            now = self.clock_ns()
            edge = not self.window.is_asked(number, count)
            self.calls.append(RecordedCall(number, count, function, begun, now, edge, is_cut=True))

    def abandon(self) -> None:
        """What has begun was no step: evaluation, or the end of the data."""
        self._begun_ns = 0
        if self._marker is not None:
            marker, self._marker = self._marker, None
            marker.abandon()
        if self.state == "recording" and self.calls and self.next_number >= self.window.last:
            # Evaluation, a checkpoint or the next epoch may take its time, and nobody asked for it.
            self._wait_for_edge()

    def traced(self) -> None:
        """A `tf.function` is being traced in the call that has begun."""
        self._is_traced = True

    def finish(self, *, is_synchronised: bool = True) -> None:
        """The script has ended: close what is open."""
        if self._is_probing:
            self._end_probe(1)
        if self.state == "recording":
            self.abandon()
            self._close(is_synchronised=is_synchronised)
        self.state = "closed"

    # What came of it

    @property
    def got(self) -> tuple[int, int] | None:
        """First step, and first step left out, of the whole calls that hold what was asked for."""
        whole = [call for call in self.calls if not call.is_edge and not call.is_cut]
        if not whole:
            return None
        return whole[0].number, whole[-1].number + whole[-1].count

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked for was recorded."""
        got = self.got
        return got is not None and got[0] <= self.window.first and got[1] >= self.window.last

    def times(self) -> StepTimes:
        """Step times before and in the window: from one call's beginning to the next one's.

        Calls that traced take no part, nor does the first recorded one, which holds the start.
        """
        starts = list(self._starts)
        first = (self.calls[0].begun_ns, 1, False) if self.calls else None
        recorded = [(call.begun_ns, call.count, call.is_traced) for call in self.calls[1:]]
        return StepTimes.of(_periods([*starts, first] if first else starts), _periods(recorded))

    # Inside

    def _prepare(self, number: int, count: int, ahead: int) -> None:
        if number >= self.window.last:
            self.state = "closed"
        elif self.window.opens_at(number, ahead):
            self._open()
        elif (
            not self._has_probed
            and self.window.opens_at(number + count, ahead)
            and number > 0
            and count == ahead
        ):
            self._has_probed = True
            self._is_probing = self._attempt(self.recording.probe)

    def _end_probe(self, count: int) -> None:
        self._is_probing = False
        self._limit(lambda: self.recording.end_probe(count))

    def _limit(self, find: Callable[[], int | None]) -> None:
        try:
            self.limit_calls = find()
            self._has_limit = True
        except Exception as error:
            self._failed(error)

    def _estimate(self) -> None:
        if not self._has_limit:
            self._limit(lambda: self.recording.estimate(self._largest_count))
            # What cannot be estimated now is not asked for again in the window.
            self._has_limit = True

    def _open(self) -> None:
        if self.next_number > 0:
            # Before the profile starts: to count the ops of a large graph takes a while.
            self._estimate()
        if self._attempt(self.recording.open):
            self.state = "recording"
            self._patience.prepare()

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Do it; a failure must not end the script that is being recorded."""
        try:
            action()
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        message = error.message if isinstance(error, TraceviewError) else repr(error)
        if message not in self.failures:
            self.failures.append(message)

    def _mark(self) -> None:
        if self.state == "recording" and self._marker is None:
            try:
                self._marker = self.recording.marker()
            except Exception as error:
                self._failed(error)

    def _finish_marker(self, number: int) -> None:
        marker, self._marker = self._marker, None
        if marker is not None:
            marker.finish(number)

    def _recorded(
        self, number: int, count: int, function: str, begun: int, *, is_traced: bool
    ) -> None:
        self._finish_marker(number)
        asked = self.window.is_asked(number, count)
        now = self.clock_ns()
        self.calls.append(RecordedCall(number, count, function, begun, now, not asked, is_traced))
        # The very first call has no graph before it has returned.
        self._estimate()
        is_full = self.limit_calls is not None and len(self.calls) >= self.limit_calls
        if is_full or number >= self.window.last:
            self._close()
        elif number + count >= self.window.last:
            self._wait_for_edge()

    def _wait_for_edge(self) -> None:
        longest = max(call.ended_ns - call.begun_ns for call in self.calls)
        patience_ns = max(_PATIENCE_NS, _PATIENCE_STEPS * longest)
        self._patience.wait(patience_ns / 1e9)

    def _stay_open(self) -> None:
        self._patience.rest()

    def _end_of_patience(self) -> None:
        # In a thread of its own: the script may be busy with anything but steps.
        with self._lock:
            if self._patience.is_waiting and self.state == "recording":
                self._close(is_synchronised=False)

    def _close(self, *, is_synchronised: bool = True) -> None:
        with self._lock:
            self._stay_open()
            if self.state != "recording":
                return
            self.state = "closed"
            self._patience.dismiss()
            self._attempt(lambda: self.recording.close(is_synchronised=is_synchronised))


def _periods(starts: list[tuple[int, int, bool]]) -> list[float]:
    """Nanoseconds per step between starts (begin, steps, traced) that follow each other."""
    return [
        (after[0] - begin) / count
        for (begin, count, traced), after in pairwise(starts)
        if not traced
    ]
