"""The causes of idle time, found by sweeping every gap instant by instant (docs/method.md, "Idle causes")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.classes import Activity
from tests.oracle.host_causes import HostCauses, launch_of
from tests.oracle.intervals import Cover, Interval, clip, overlaps, subtract
from tests.oracle.model import Device, HostAnswer, Row, device_name

LATENCY_PS = 20_000_000
CAUSES = (
    *("device_wait", "h2d", "input", "host_ops", "launch", "python", "between", "checkpoint"),
    *("compile", "sync", "dependency", "latency", "no_work", "unknown"),
)
KERNELS = ("compute", "collective")
# A stretch of time with one cause.
Part = tuple[int, int, str]


@dataclass(eq=False)
class Gap:
    """`turn`: until when the thread that calls graphs was late; its start where the host was not, or another thread.

    `is_read`: a copy to the host ends it.
    """

    start: int
    end: int
    parts: list[Part]
    turn: int
    is_read: bool = False


def idle_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per device of hosts that recorded a device event."""
    rows = []
    for answer in answers:
        if not answer.activities():
            continue
        host = HostCauses(answer)
        for device in answer.devices:
            gaps = find_gaps(answers, answer, host, device)
            rows.append({**device_name(device, several), **_row(answer, gaps)})
    return rows


def _row(answer: HostAnswer, gaps: list[Gap]) -> Row:
    low, high = answer.window
    longest_first = sorted(gaps, key=lambda gap: (gap.start - gap.end, gap.start))
    return {
        "idle_ps": sum(gap.end - gap.start for gap in gaps),
        "gap_count": len(gaps),
        "longest_gap_ps": max((gap.end - gap.start for gap in gaps), default=0),
        "gaps": [
            {
                "start_ps": gap.start,
                "duration_ps": gap.end - gap.start,
                "causes": _total(gap.parts),
                "step": _step_of(answer, gap),
            }
            for gap in longest_first
        ],
        "steps": [
            {
                "number": step.number,
                "causes": _total(
                    [
                        (*span, cause)
                        for gap in gaps
                        for start, end, cause in gap.parts
                        for span in clip([(start, end)], (step.start, step.end))
                    ]
                ),
            }
            for step in answer.steps
            if step.start < high and step.end > low
        ],
    }


def _total(parts: list[Part]) -> dict[str, int]:
    times = {cause: sum(b - a for a, b, c in parts if c == cause) for cause in CAUSES}
    return {cause: time for cause, time in times.items() if time}


def _largest(causes: dict[str, int]) -> str:
    return max(causes, key=lambda cause: (causes[cause], -CAUSES.index(cause)))


def _step_of(answer: HostAnswer, gap: Gap) -> int | None:
    """The step of the longest piece between bounds of steps, of equally long pieces the first.

    Of overlapping steps the one that began last counts.
    """
    edges = [edge for step in answer.steps for edge in (step.start, step.end)]
    bounds = sorted({gap.start, gap.end, *(e for e in edges if gap.start < e < gap.end)})
    start, _ = min(pairwise(bounds), key=lambda piece: (piece[0] - piece[1], piece[0]))
    around = [step for step in answer.steps if step.start <= start < step.end]
    return max(around, key=lambda step: (step.start, -step.end)).number if around else None


def find_gaps(
    answers: list[HostAnswer], answer: HostAnswer, host: HostCauses, device: Device
) -> list[Gap]:
    busy = [activity.span for activity in device.activities]
    spans = subtract([answer.window], busy)
    if not any(overlaps(a.span, answer.window) for a in device.of_class(*KERNELS)):
        return [Gap(start, end, [(start, end, "no_work")], start) for start, end in spans]
    peers = Cover(
        activity.span
        for other in answers
        for peer in other.devices
        if peer is not device
        for activity in peer.of_class("collective")
    )
    starting: dict[int, list[Activity]] = {}
    copied = set()
    for activity in device.activities:
        start, end = activity.span
        if start < end:
            starting.setdefault(start, []).append(activity)
            copied.update([end] if activity.cls == "h2d" else [])
    result = []
    for start, end in spans:
        last = end == answer.window[1]
        parts, turn, is_read = (
            (causes_in(host, host.caller, start, end), end, False)
            if last
            else _parts(answer, host, starting[end], start in copied, peers, (start, end))
        )
        result.append(Gap(start, end, parts, turn, is_read))
    return result


def _parts(
    answer: HostAnswer,
    host: HostCauses,
    starting: list[Activity],
    after_copy: bool,
    peers: Cover,
    gap: Interval,
) -> tuple[list[Part], int, bool]:
    """The causes of a gap that the events `starting` end, its turn, and whether it `is_read`; `after_copy`: a copy to the device ended at its start."""
    start, end = gap
    launches = [(launch_of(answer, activity), activity) for activity in starting]
    known = [(launch, activity) for launch, activity in launches if launch is not None]
    if not known:
        return [(start, end, "unknown")], start, False
    # Of several events that begin together, the one launched first counts, then the first.
    launch, after = min(known, key=lambda pair: (pair[0].start, pair[1].order))
    is_read = after.cls == "d2h"
    late_end = launch.start
    if host.has_queue and launch.end - launch.start >= LATENCY_PS:
        late_end = launch.end
    late_end = min(max(late_end, start), end)

    thread = host.thread(launch)
    turn = late_end
    if thread != host.caller:
        handed, thread = host.handed_over(launch)
        turn = start if handed is None else min(max(handed, start), late_end)
    late = causes_in(host, host.caller, start, turn) + causes_in(host, thread, turn, late_end)
    if late_end == end:
        return late, turn, is_read

    if after_copy and after.cls in KERNELS:
        return [*late, (late_end, end, "h2d")], turn, False
    causes = _total(late)
    rest = "dependency"
    if end - late_end < LATENCY_PS:
        rest = "launch" if causes and _largest(causes) == "launch" else "latency"
    bounds = [late_end, *peers.edges(late_end, end), end]
    queued = [(a, b, "device_wait" if peers.holds(a) else rest) for a, b in pairwise(bounds)]
    return late + queued, turn, is_read


def causes_in(host: HostCauses, thread: int | None, start: int, end: int) -> list[Part]:
    """The causes that a thread shows in a span."""
    if start >= end:
        return []
    if thread is None:
        return [(start, end, "unknown")]
    layers = host.layers(thread)
    edges = {edge for _, covers in layers for cover in covers for edge in cover.edges(start, end)}
    return [
        (
            a,
            b,
            next(
                (cause for cause, covers in layers if all(cover.holds(a) for cover in covers)),
                "unknown",
            ),
        )
        for a, b in pairwise(sorted({start, end, *edges}))
    ]
