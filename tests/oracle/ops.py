"""Recomputes the table of ops (docs/method.md, "Ops")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tests.oracle.classes import Activity
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract
from tests.oracle.model import HostAnswer, Row, device_name
from tests.oracle.steps import median


def _self_ps(activity: Activity, window: Interval, of_line: list[Activity]) -> int:
    """The time that no counted op of the same device and line nested inside covers; kernels have none inside.

    `of_line`: the counted ops of that line, by start.
    """
    own = clip([activity.span], window)
    if not activity.self_ps_children:
        return length(own)
    event = activity.event
    nested = [
        other.span
        for other in of_line[
            bisect_left(of_line, event.start, key=_start) : bisect_right(
                of_line, event.end, key=_start
            )
        ]
        if other is not activity
        and other.event.end <= event.end
        and (other.span != activity.span or other.event.order > event.order)
    ]
    return length(subtract(own, nested))


def _start(activity: Activity) -> int:
    return activity.event.start


def op_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per device, class, op and kernel; durations are cut at the window, like all times."""
    rows = []
    for answer in answers:
        for device in answer.devices:
            groups: dict[tuple[str, str, str, str], list[Activity]] = {}
            inside = [a for a in device.activities if overlaps(a.span, answer.window)]
            for a in inside:
                groups.setdefault((a.cls, a.op, a.op_type, a.kernel), []).append(a)
            of_line: dict[int, list[Activity]] = {}
            for a in sorted(inside, key=_start):
                of_line.setdefault(id(a.event.line), []).append(a)
            spans = [a.span for a in inside if a.cls == "compute"]
            compute_ps = length(clip(spans, answer.window))
            for key, own in sorted(groups.items()):
                times = sorted(length(clip([a.span], answer.window)) for a in own)
                total = sum(times)
                rows.append(
                    {
                        **device_name(device, several),
                        **dict(zip(("class", "op", "op_type", "kernel"), key, strict=True)),
                        "count": len(own),
                        "total_ps": total,
                        "self_ps": sum(
                            _self_ps(a, answer.window, of_line[id(a.event.line)]) for a in own
                        ),
                        "mean_ps": total // len(own),
                        "median_ps": median(times),
                        # The nearest rank.
                        "p95_ps": times[-(-95 * len(times) // 100) - 1],
                        "share_ratio": total / compute_ps if compute_ps else None,
                        "bytes": _op_bytes(own),
                    }
                )
    return rows


def _op_bytes(own: list[Activity]) -> int | None:
    """None for kernels: a trace does not record the bytes that they move."""
    known = [a.bytes for a in own if a.bytes is not None]
    return sum(known) if known else None
