"""Recomputes what each op takes of the used steps (docs/method.md, "What explains a difference")."""

from __future__ import annotations

import re

from tests.oracle.classes import Activity
from tests.oracle.model import HostAnswer, Row


def stem_of(kernel: str) -> str:
    short = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.sub(r"[<(].*", "", short, flags=re.DOTALL).strip() or kernel


def shape_of(activity: Activity) -> str:
    """The shapes of a kernel's op: types of TensorFlow with numbers in brackets, between parentheses; else nothing."""
    text = activity.event.text("shape")
    inner = re.fullmatch(r"\((.*)\)", text)
    if inner is None or activity.self_ps_children:
        return ""
    tensors = inner[1].split(";") if inner[1] else []
    known = all(re.fullmatch(r"(float|half|int32|int64|bool)\w*\[[\d,]*\]", row) for row in tensors)
    return text if known else ""


def error_of(series: list[int]) -> float:
    """The standard error of the mean by blocks of neighbours, the first value following the last."""
    count = len(series)
    length = max(size for size in range(1, count + 1) if size == 1 or size**3 <= count)
    mean = sum(series) / count
    squares = []
    for start in range(count):
        block = [series[(start + place) % count] for place in range(length)]
        squares.append((sum(block) / length - mean) ** 2)
    return float((sum(squares) / count * length / (count - length)) ** 0.5)


def op_step_rows(answers: list[HostAnswer]) -> list[Row]:
    """One row per class, op and kernel, over all devices; an event counts in the step in which it starts."""
    numbers = sorted({step.number for answer in answers for step in answer.steps if step.used})
    groups: dict[tuple[str, str, str, str], list[tuple[int, str, Activity]]] = {}
    for answer in answers:
        for device in answer.devices:
            for activity in device.activities:
                for step in answer.steps:
                    if step.used and step.start <= activity.span[0] < step.end:
                        kernel = stem_of(activity.kernel) if activity.kernel else ""
                        key = (activity.cls, activity.op, activity.op_type, kernel)
                        where = f"{device.host} {device.short_name}"
                        groups.setdefault(key, []).append((step.number, where, activity))
    rows = []
    for key, events in groups.items():
        by_step = dict.fromkeys(numbers, 0)
        for number, _, activity in events:
            by_step[number] += activity.span[1] - activity.span[0]
        series = list(by_step.values())
        rows.append(
            {
                **dict(zip(("class", "op", "op_type", "kernel"), key, strict=True)),
                "device_count": len({where for _, where, _ in events}),
                "count": len(events),
                "ps_per_step": sum(series) // len(numbers),
                "error_ps": error_of(series) if len(numbers) > 1 else None,
                "shapes": sorted(set(filter(None, (shape_of(event) for _, _, event in events)))),
            }
        )
    return rows
