"""What came of a capture, in words: what is short, what is missing, and what to pass next time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from traceview.capture.observer import Observer
from traceview.capture.profiler import SCRIPT_PROFILES
from traceview.capture.recorder import Recorder
from traceview.capture.script import ScriptEnd
from traceview.capture.sidecar import Sidecar
from traceview.errors import CaptureError

_LINES_OF_SEEN: Final = 8
_NO_FUNCTION: Final = (
    "mark the steps yourself: with traceview.capture_steps(...) as session, and session.step(n)"
)


def shortcomings(recorder: Recorder, observer: Observer | None = None) -> Iterator[str]:
    """What the user should know about a capture that was kept, one line each."""
    window, got = recorder.window, recorder.got
    if got is None:
        yield f"no whole step of {window} was recorded, only its edge"
    elif not recorder.is_whole:
        yield f"steps {got[0]}:{got[1]} were recorded of the {window} asked for"
    elif (got[0], got[1]) != (window.first, window.last):
        count = max(call.count for call in recorder.calls)
        yield (
            f"steps {got[0]}:{got[1]} were recorded for the {window} asked for: one call of "
            f"{recorder.calls[0].function} makes {count} steps"
        )
    traced = [call.number for call in recorder.calls if call.is_traced and not call.is_edge]
    if traced:
        yield f"the step function was traced again in {_listed(traced)}: its time is no step time"
    yield from recorder.failures
    if observer is None:
        return
    names = [callee.name for callee in observer.step_functions]
    if len(names) > 1:
        counts = ", ".join(f"{c.name} × {c.step_count}" for c in observer.step_functions)
        yield (
            f"each call of {len(names)} step functions counted as a step ({counts}); "
            "--step-function NAME counts one"
        )


def coarse_steps(sidecar: Sidecar) -> Sequence[str]:
    """Which calls count as one step and make several, one line each."""
    lines: Sequence[str] = sidecar.groups.get("notes", {}).get("steps", ())
    return lines


def nothing_captured(recorder: Recorder, observer: Observer, end: ScriptEnd) -> CaptureError:
    """Why there is no trace, with what was seen and what to pass; nothing is advised where the script failed."""
    if recorder.failures:
        return CaptureError(
            f"nothing was captured: {'; '.join(recorder.failures)}",
            hint="choose steps at which the script does not profile itself"
            if recorder.failures == [SCRIPT_PROFILES]
            else None,
        )
    if (end.is_failure or end.is_interrupted) and (
        recorder.next_number or not _is_repeated(observer)
    ):
        return CaptureError(f"nothing was captured: {_failed(recorder, end)}")
    seen = observer.seen()
    if "tensorflow" not in sys.modules:
        return CaptureError(
            "nothing was captured: the script did not import TensorFlow",
            hint="a script that starts another Python process is not followed into it",
        )
    steps = recorder.next_number
    if steps:
        return CaptureError(
            f"nothing was captured: the script made {steps} steps, and the window {recorder.window} "
            f"opens at step {recorder.window.first}",
            hint=_earlier(steps, recorder),
        )
    what = "; ".join(seen[:_LINES_OF_SEEN]) if seen else "no tf.function was called"
    if len(seen) > _LINES_OF_SEEN:
        what += f"; and {len(seen) - _LINES_OF_SEEN} more"
    if observer.names:
        asked = ", ".join(sorted(observer.names))
        return CaptureError(
            f"nothing was captured: {asked} was not called from the main thread. Seen: {what}",
            hint=_candidates(observer),
        )
    return CaptureError(
        f"nothing was captured: no function that trains was seen. Seen: {what}",
        hint=_candidates(observer),
    )


def _is_repeated(observer: Observer) -> bool:
    """Whether something was called again that could be the unseen step."""
    calls = [callee.calls for callee in observer.callees]
    return max([*calls, observer.eager_gradients, *observer.elsewhere.values()], default=0) > 1


def _failed(recorder: Recorder, end: ScriptEnd) -> str:
    how = "was interrupted" if end.is_interrupted else "itself failed"
    steps = recorder.next_number
    if not steps:
        return f"the script {how} before its first step was over"
    return (
        f"the script {how} after {steps} steps, and the window {recorder.window} opens at step "
        f"{recorder.window.first}"
    )


def _earlier(steps: int, recorder: Recorder) -> str:
    length = recorder.window.last - recorder.window.first
    if steps < 2:
        return "the first step traces and compiles: let the script make more of them"
    last = steps if steps <= length + 1 else steps - 1
    return f"--steps {max(1, last - length)}:{last}, or let the script make more steps"


def _candidates(observer: Observer) -> str:
    often = max(observer.callees, key=lambda callee: callee.calls, default=None)
    if often is None or often.calls < 2 or observer.eager_gradients >= often.calls:
        return _NO_FUNCTION
    return f"if it is {often.name}: --step-function {often.name}; else {_NO_FUNCTION}"


def _listed(numbers: Sequence[int]) -> str:
    word = "step" if len(numbers) == 1 else "steps"
    return f"{word} {', '.join(map(str, numbers))}"
