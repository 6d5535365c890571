"""Recomputes the table of ops, what each op takes of the used steps, and kinds of ops in them (docs/method.md, "Ops", "Step ops")."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.oracle.classes import Activity
from tests.oracle.intervals import clip, length, overlaps
from tests.oracle.model import HostAnswer, Row, device_name
from tests.oracle.segments import Ledger, Segment


def op_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per device, class, op and kernel; durations are cut at the window, like all times."""
    rows = []
    for answer in answers:
        for device in answer.devices:
            groups: dict[tuple[str, str, str, str], list[Activity]] = {}
            inside = [a for a in device.activities if overlaps(a.span, answer.window)]
            for a in inside:
                groups.setdefault((a.cls, a.op, a.op_type, a.kernel), []).append(a)
            for key, own in sorted(groups.items()):
                times = sorted(length(clip([a.span], answer.window)) for a in own)
                total = sum(times)
                rows.append(
                    {
                        **device_name(device, several),
                        **dict(zip(("class", "op", "op_type", "kernel"), key, strict=True)),
                        "count": len(own),
                        "total_ps": total,
                        "mean_ps": total // len(own),
                        # The nearest rank.
                        "p95_ps": times[-(-95 * len(times) // 100) - 1],
                        "bytes": _op_bytes(own),
                    }
                )
    return rows


def _op_bytes(own: list[Activity]) -> int | None:
    """None for kernels: a trace does not record the bytes that they move."""
    known = [a.bytes for a in own if a.bytes is not None]
    return sum(known) if known else None


def stem_of(kernel: str) -> str:
    short = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.sub(r"[<(].*", "", short, flags=re.DOTALL).strip() or kernel


def error_of(series: list[int]) -> float:
    """The standard error of the mean, as many neighbours as are alike counting as one."""
    count = len(series)
    mean = sum(series) / count
    squares = sum((value - mean) ** 2 for value in series)
    if not squares:
        return 0.0
    together = sum((one - mean) * (other - mean) for one, other in pairwise(series)) / squares
    alike = together + (1 + 4 * max(0, together)) / count
    alike = min(0.9, max(0, alike))
    independent = max(2, count * (1 - alike) / (1 + alike))
    return float((squares / count / (independent - 1)) ** 0.5)


def _key_of(activity: Activity) -> tuple[str, str, str, str]:
    kernel = stem_of(activity.kernel) if activity.kernel else ""
    return activity.cls, activity.op, activity.op_type, kernel


def op_step_rows(ledger: Ledger, answers: list[HostAnswer], paths: list[Row]) -> list[Row]:
    """One row per class, op and kernel, over all devices; each instant is of the event that began first."""
    numbers = sorted({step.number for answer in answers for step in answer.steps if step.used})
    groups: dict[tuple[str, str, str, str], list[tuple[int, int, Segment]]] = {}
    for place, device in enumerate(ledger.devices):
        for segment in ledger.segments[id(device)]:
            if segment.activity is not None and segment.step is not None and segment.step.used:
                row = (segment.step.number, place, segment)
                groups.setdefault(_key_of(segment.activity), []).append(row)
    on_path: dict[tuple[str, str, str, str], int] = {}
    for path in paths:
        for segment, low, high in path["spans"]:
            if segment.activity is not None:
                key = _key_of(segment.activity)
                on_path[key] = on_path.get(key, 0) + high - low
    rows = []
    for key in groups.keys() | (on_path.keys() if numbers else set()):
        parts = groups.get(key, [])
        by_step = dict.fromkeys(numbers, 0)
        for number, _, segment in parts:
            by_step[number] += segment.end - segment.start
        series = list(by_step.values())
        events = {id(segment.activity) for _, _, segment in parts}
        rows.append(
            {
                **dict(zip(("class", "op", "op_type", "kernel"), key, strict=True)),
                "device_count": len({place for _, place, _ in parts}),
                "count": len(events),
                "ps_per_step": sum(series) // len(numbers),
                "error_ps": error_of(series) if len(numbers) > 1 else None,
                "path_ps": on_path.get(key, 0),
            }
        )
    return rows
