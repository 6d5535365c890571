"""Says in words what a capture lacks, and what to pass next time; and at once where training goes on without a step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final, Literal

from traceview.base.errors import CaptureError
from traceview.capture.process.own_threads import Ticker
from traceview.capture.process.saying import FRAMEWORKS
from traceview.capture.record.profiler import SCRIPT_PROFILES
from traceview.capture.sidecar.file import Sidecar
from traceview.capture.steps.observer import Recognizer
from traceview.capture.window.step_window import StepWindow

End = Literal["ended", "failed", "interrupted"]
"""How a script ends: by itself, by an error, or by a signal."""
_MOST_CALLEES: Final = 8


def shortcomings(window: StepWindow, sidecar: Sidecar, observer: Recognizer) -> Iterator[str]:
    """What the user should know about a capture that was kept, one line each."""
    steps, got, unfollowed = window.steps, window.got, window.unfollowed
    if got is None:
        yield f"no step of {steps} was recorded completely"
    elif got[0] > steps.first or got[1] < steps.last:
        yield f"only steps {got[0]}:{got[1]} of the requested {steps} were recorded"
    elif got != (steps.first, steps.last):
        runs = f"one call of {window.calls[0].function} runs {max(c.count for c in window.calls)}"
        yield f"steps {got[0]}:{got[1]} were recorded instead of {steps}: {runs} steps"
    if unfollowed is not None:
        last = unfollowed.number + unfollowed.count - 1
        yield f"step {last} is left out: no step followed it in time, so nothing shows where it ends"
    for call in (call for call in window.calls if call.error and not call.is_edge):
        yield f"{_listed(range(call.number, call.number + call.count))} is left out: it ended with {call.error}"
    traced = [call.number for call in window.calls if call.is_traced and not call.is_edge]
    if traced:
        yield f"the step function was retraced in {_listed(traced)}, which includes the tracing"
    yield from window.failures
    functions = [f"{callee.name} × {callee.step_count}" for callee in observer.step_functions]
    if len(functions) > 1:
        counted = f"calls of {len(functions)} functions were counted as steps"
        yield f"{counted} ({', '.join(functions)}); choose one with --step-function NAME"
    yield from sidecar.groups.get("notes", {}).get("steps", ())


def nothing_captured(window: StepWindow, observer: Recognizer, end: End) -> CaptureError:
    """Why there is no trace, and what to pass; a script that failed gets no advice."""
    steps, count = window.steps, window.next_number - window.failed_steps
    ran = f"{count} step{'s'[: count != 1]}"
    most = max([*(callee.calls for callee in observer.callees), observer.eager_gradients])
    hint = None
    if window.failures:
        reason = "; ".join(window.failures)
        if window.failures == [SCRIPT_PROFILES]:
            hint = "choose --steps in which the script does not profile itself"
    elif end != "ended" and (count or most < 2):
        how = "was interrupted" if end == "interrupted" else "failed"
        when = f"after {ran}, before the window {steps} opened"
        reason = f"the script {how} {when if count else 'before its first step ended'}"
    elif not any(name in sys.modules for name in FRAMEWORKS):
        reason = "the script did not import TensorFlow or JAX"
    elif count:
        reason = f"the script ran {ran}, and the window {steps} opens at step {steps.first}"
        # Without the last one, which may be the edge.
        last = max(count - 1, 1)
        earlier = f"--steps {max(1, last - steps.last + steps.first)}:{last}, or "
        hint = f"{earlier if last > 1 else ''}let the script run more steps"
    elif not observer.summary():
        reason, hint = observer.nothing_called, observer.how_to_mark
    else:
        names = ", ".join(sorted(observer.names))
        absent = f"{names} was not" if names else "no function that computes gradients was"
        reason = f"{absent} called. {described_calls(observer)}"
        hint = candidates(observer)
    return CaptureError(f"nothing was captured: {reason}", hint=hint)


def described_calls(observer: Recognizer) -> str:
    """What was called how often, in one sentence; of many the most frequent."""
    lines = observer.summary()
    more = "; …" if len(lines) > _MOST_CALLEES else ""
    return f"Called: {'; '.join(lines[:_MOST_CALLEES])}{more}"


def candidates(observer: Recognizer) -> str:
    """How to capture a script in which no step is recognized."""
    likely = max(observer.callees, key=lambda callee: callee.calls, default=None)
    if likely is None or likely.calls < 2 or observer.eager_gradients >= likely.calls:
        return observer.how_to_mark
    return f"if {likely.name} is the step: --step-function {likely.name}; otherwise {observer.how_to_mark}"


def _listed(numbers: Sequence[int]) -> str:
    word = "step" if len(numbers) == 1 else "steps"
    return f"{word} {', '.join(map(str, numbers))}"


def no_step_watch(
    window: StepWindow, observer: Recognizer, say: Callable[[str], None], no_step_s: float = 60.0
) -> Ticker:
    """A thread that says once that no step is recognized, a minute after the framework first ran something for the script."""

    def tick() -> float | None:
        if window.state == "closed" or window.next_number:
            return None
        waited_s = monotonic() - (observer.began_s or monotonic())
        current = observer.current
        compiles = current is not None and current.calls < 2
        if waited_s < no_step_s * (5 if compiles else 1):
            return no_step_s / 60
        since = f"note: after {no_step_s:g} s of training, no step is recognized"
        say(f"{since}. {described_calls(observer)}")
        say(f"hint: {candidates(observer)}")
        return None

    return Ticker("training-clock", tick)
