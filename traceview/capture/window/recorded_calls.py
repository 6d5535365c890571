"""Describes the calls that are in the profile: which steps they ran, and what ran between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from traceview.capture.window.ranges import StepRange


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock.

    `input_ns`: from asking for the input to the call, 0 where the call itself asks. `is_edge`: it is no requested step, or
    no step followed it in time. `is_traced`: a `tf.function` was traced in it. `is_cut`: it ended by an exception, of the
    class `error`.
    """

    number: int
    count: int
    function: str
    begun_ns: int
    input_ns: int
    ended_ns: int
    is_edge: bool
    is_traced: bool = False
    is_cut: bool = False
    error: str | None = None


@dataclass
class Evaluation:
    """What was evaluated in the profile after step `after`: calls by function, and when, by the monotonic clock."""

    after: int
    functions: dict[str, int]
    begun_ns: int
    ended_ns: int


def recorded_range(calls: Sequence[RecordedCall]) -> tuple[int, int] | None:
    """First step and first step left out, without edges and calls that were cut."""
    whole = [call for call in calls if not call.is_edge and not call.is_cut]
    if not whole:
        return None
    return whole[0].number, whole[-1].number + whole[-1].count


def cut_calls(calls: Sequence[RecordedCall]) -> list[RecordedCall]:
    """Requested calls that ended by an exception."""
    return [call for call in calls if call.is_cut and not call.is_edge]


def is_whole(calls: Sequence[RecordedCall], steps: StepRange) -> bool:
    """Whether all requested steps were recorded."""
    got = recorded_range(calls)
    is_all = got is not None and got[0] <= steps.first and got[1] >= steps.last
    return is_all and not cut_calls(calls)


def described(
    calls: Sequence[RecordedCall], evaluations: Sequence[Evaluation], asked: StepRange | None
) -> dict[str, Any]:
    """The group `window` of the sidecar. `asked`: None where time decided."""
    got = recorded_range(calls)
    return {
        "asked": None if asked is None else [asked.first, asked.last],
        "got": list(got) if got else None,
        "is_whole": asked is not None and is_whole(calls, asked),
        "edge_steps": [
            number
            for call in calls
            if call.is_edge
            for number in range(call.number, call.number + call.count)
        ],
        "traced_steps": [call.number for call in calls if call.is_traced],
        "cut_steps": [call.number for call in calls if call.is_cut],
        "steps_per_call": sorted({call.count for call in calls}),
        "calls": [asdict(call) for call in calls],
        "evaluations": [asdict(evaluation) for evaluation in evaluations],
    }
