"""Defines the short keys: what conditions are mostly about, with its definition by the keys of the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.analysis.anatomy.result import ACTIVITIES
from traceview.analysis.steps.result import Steps
from traceview.comparison.mean_step import step_time_ps
from traceview.gate.schema_keys import Value
from traceview.gate.units import SHARE, TIMES, Unit
from traceview.report.absent import absence
from traceview.report.model import Report
from traceview.trace.cause import PATH_KEYS, Cause

STEP_TIME: Final = "step_time"
"""The key whose change is tested against noise."""

_Values: TypeAlias = Callable[[Report], Iterator[Value]]
_NO_UNIT: Final = Unit("time", None)
_RATIO: Final = "_ratio"


class ShortKey(Struct, frozen=True):
    """A short key: its name without a unit, what it is measured in, its values in a report, and what it means."""

    name: str
    unit: Unit
    values: _Values
    meaning: str


def _mean_step(report: Report) -> Iterator[Value]:
    yield Value("", step_time_ps(report), _why_no_step(report, report.results.steps))


def _examples(report: Report) -> Iterator[Value]:
    balance = report.results.balance
    if balance is None:
        yield Value("", None, absence(report, "balance"))
        return
    throughput = balance.throughput
    yield Value("", throughput.examples_per_second, throughput.reason or "")


def _busy(report: Report) -> Iterator[Value]:
    times = report.results.device_time
    rows = [row for row in times.devices if row.is_in_use] if times else []
    if not rows:
        yield Value("", None, "no device computed" if times else absence(report, "device_time"))
    for row in rows:
        yield Value(row.device, row.busy_ratio, "its host recorded no device event")


def _why_no_step(report: Report, steps: Steps | None) -> str:
    if steps is None:
        return absence(report, "steps")
    reasons = dict.fromkeys(step.excluded for step in steps.steps if step.excluded)
    return f"no step is used: {', '.join(reasons)}" if reasons else "no step is used"


class _Part(Struct, frozen=True):
    """A part of the mean step: its name, and whether a share of the step is asked for."""

    group: str
    name: str
    is_ratio: bool

    def __call__(self, report: Report) -> Iterator[Value]:
        if self.group == "path":
            yield self._on_path(report)
            return
        anatomy = report.results.anatomy
        if anatomy is None:
            yield Value("", None, absence(report, "anatomy"))
            return
        for row in anatomy.devices:
            parts = row.activity if self.group == "activity" else row.idle
            length_ps = parts.get(self.name, 0) if self.name else sum(parts.values())
            yield Value(row.device, self._of(length_ps, row.step_ps))

    def _on_path(self, report: Report) -> Value:
        path = report.results.path
        if path is None:
            return Value("", None, absence(report, "path"))
        if self.is_ratio:
            return Value("", path.share_by_cause.get(self.name, 0.0))
        return Value("", path.mean_by_cause.get(self.name, 0))

    def _of(self, length_ps: int, step_ps: int) -> float | int:
        if not self.is_ratio:
            return length_ps
        return length_ps / step_ps if step_ps else 0.0


_GROUPS: Final[Mapping[str, tuple[Collection[str], str]]] = {
    "idle": (
        tuple(cause.key for cause in Cause),
        "what a device waits for in its mean step, by cause",
    ),
    "activity": (ACTIVITIES, "what a device does in its mean step, by class; copies where exposed"),
    "path": (PATH_KEYS, "what the critical path consists of in the mean step"),
}
"""Parts of the mean step by the first name of their key, with the second names that there are."""

_WHOLE: Final = (
    ShortKey(STEP_TIME, _NO_UNIT, _mean_step, "mean of the used steps, as compare counts it"),
    ShortKey("examples_per_second", Unit("number"), _examples, "examples of all devices"),
    ShortKey("busy_ratio", SHARE, _busy, "how busy each device in use was"),
    ShortKey("idle_ratio", SHARE, _Part("idle", "", True), "idle share of the mean step"),
    ShortKey("idle_time", _NO_UNIT, _Part("idle", "", False), "idle time of the mean step"),
)
_ENDING: Final = re.compile(r"(?P<name>.+)_(?P<unit>ps|ns|us|ms|s)")


def short_key(text: str) -> ShortKey | None:
    """The short key that a text names, with or without a unit at its end; None where it names none."""
    name, unit = text, _NO_UNIT
    ending = _ENDING.fullmatch(text)
    if ending:
        name, unit = ending["name"], Unit("time", TIMES[ending["unit"]])
    for key in _WHOLE:
        if key.name == text:
            return key
        if key.name == name and key.unit.quantity == "time":
            return ShortKey(name, unit, key.values, key.meaning)
    group, _, part = name.partition(".")
    is_ratio = part.endswith(_RATIO)
    part = part.removesuffix(_RATIO)
    names, meaning = _GROUPS.get(group, ((), ""))
    if part not in names:
        return None
    return ShortKey(text, SHARE if is_ratio else unit, _Part(group, part, is_ratio), meaning)


def short_names() -> Iterator[str]:
    """Every short key, as an error proposes it."""
    for key in _WHOLE:
        yield f"{key.name}_ms" if key.unit.quantity == "time" else key.name
    for group, (parts, _) in _GROUPS.items():
        for part in parts:
            yield f"{group}.{part}_ms"
            yield f"{group}.{part}_ratio"
