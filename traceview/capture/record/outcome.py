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
from traceview.capture.steps.callee import Recognizer
from traceview.capture.window.step_window import StepWindow

End = Literal["ended", "failed", "interrupted"]
"""How a script ends: by itself, by an error, or by a signal."""
_MOST_CALLEES: Final = 8
"""The most frequent ones, of which one is the step; the message stays a few lines long."""


def shortcomings(window: StepWindow, sidecar: Sidecar, observer: Recognizer) -> Iterator[str]:
    """What the user should know about a capture that was kept, one line each."""
    steps, got = window.steps, window.got
    if got is None:
        yield f"no step of {steps} was recorded completely"
    elif got[0] > steps.first or got[1] < steps.last:
        yield f"only steps {got[0]}:{got[1]} of the requested {steps} were recorded"
    elif got != (steps.first, steps.last):
        count = max(call.count for call in window.calls)
        yield (
            f"steps {got[0]}:{got[1]} were recorded instead of {steps}: one call of "
            f"{window.calls[0].function} runs {count} steps"
        )
    unfollowed = window.unfollowed
    if unfollowed is not None:
        yield (
            f"step {unfollowed.number + unfollowed.count - 1} is left out: no step followed it in time, so nothing "
            "shows where it ends"
        )
    for call in window.cut_calls:
        yield f"{_listed(range(call.number, call.number + call.count))} is left out: it ended with {call.error}"
    traced = [call.number for call in window.calls if call.is_traced and not call.is_edge]
    if traced:
        are_included = "its time includes" if len(traced) == 1 else "their times include"
        yield f"the step function was retraced in {_listed(traced)}; {are_included} the tracing"
    yield from window.failures
    functions = observer.step_functions
    if len(functions) > 1:
        counts = ", ".join(f"{callee.name} × {callee.step_count}" for callee in functions)
        yield (
            f"calls of {len(functions)} functions were counted as steps ({counts}); choose one with "
            "--step-function NAME"
        )
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
        length = steps.last - steps.first
        last = count if count <= length + 1 else count - 1
        hint = f"--steps {max(1, last - length)}:{last}, or let the script run more steps"
        if count < 2:
            hint = "let the script run more steps: the first one traces and compiles"
    elif not observer.summary():
        reason = observer.nothing_called
        hint = observer.how_to_mark
    else:
        names = ", ".join(sorted(observer.names))
        absent = f"{names} was not" if names else "no function that computes gradients was"
        reason = f"{absent} called. {described_calls(observer)}"
        hint = candidates(observer)
    return CaptureError(f"nothing was captured: {reason}", hint=hint)


def described_calls(observer: Recognizer) -> str:
    """What was called how often, in one sentence."""
    lines = observer.summary()
    more = len(lines) - _MOST_CALLEES
    shown = [*lines[:_MOST_CALLEES], *([f"and {more} more"] if more > 0 else ())]
    return f"Called: {'; '.join(shown)}"


def candidates(observer: Recognizer) -> str:
    """How to capture a script in which no step is recognized."""
    likely = max(observer.callees, key=lambda callee: callee.calls, default=None)
    if likely is None or likely.calls < 2 or observer.eager_gradients >= likely.calls:
        return observer.how_to_mark
    return f"if {likely.name} is the step: --step-function {likely.name}; otherwise {observer.how_to_mark}"


def _listed(numbers: Sequence[int]) -> str:
    word = "step" if len(numbers) == 1 else "steps"
    return f"{word} {', '.join(map(str, numbers))}"


NO_STEP_S: Final = 60.0
"""After this time without a step the user should know, while the run can still be changed."""
_LONGEST_COMPILATION: Final = 5
"""A first call that takes this many times as long does more than compile."""


def no_step_watch(
    window: StepWindow,
    observer: Recognizer,
    say: Callable[[str], None],
    no_step_s: float = NO_STEP_S,
) -> Ticker:
    """A thread that says once that no step is recognized, a minute after the framework first ran something for the script."""

    def tick() -> float | None:
        if window.state == "closed" or window.next_number:
            return None
        waited_s = monotonic() - (observer.began_s or monotonic())
        current = observer.current
        compiles = current is not None and current.calls < 2
        if waited_s < no_step_s * (_LONGEST_COMPILATION if compiles else 1):
            return no_step_s / 60
        say(
            f"note: after {no_step_s:g} s of training, no step is recognized. {described_calls(observer)}"
        )
        say(f"hint: {candidates(observer)}")
        return None

    return Ticker("training-clock", tick)
