"""What is a finding? One cause, what it costs, what to change, and the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from traceview.units import PS_PER_MS, PS_PER_S, PS_PER_US

Severity: TypeAlias = Literal["critical", "warning", "info"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")


@dataclass(frozen=True)
class Evidence:
    """One measured value and the threshold that it passed.

    `metric`: a name of the report; `value` and `threshold` in the unit that the name ends with; `threshold`
    None where mere presence counts. `where`: device, host, file, step or time.
    """

    metric: str
    value: int | float | str
    threshold: int | float | None
    where: str


@dataclass(frozen=True)
class Finding:
    """A conclusion of one analysis.

    `title`: one sentence with the number in it. `cost_ps_per_step`: what it costs each step, a bound where
    the explanation says so; None if it cannot be told. `cost_ratio`: the same over the median step, or over
    the window without steps. `devices`: keys as in `device_time`. `steps`: numbers, empty for all.
    """

    code: str
    severity: Severity
    title: str
    explanation: str
    advice: str
    confidence: Confidence
    confidence_reason: str
    evidence: tuple[Evidence, ...]
    devices: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    cost_ps_per_step: int | None = None
    cost_ratio: float | None = None


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """By what they cost, the dearest first.

    Before them what is critical and has no price, such as GPUs that were not recorded; after them other warnings,
    and information last.
    """

    def place(finding: Finding) -> tuple[int, float, int, str, tuple[str, ...]]:
        severity = SEVERITIES.index(finding.severity)
        if finding.severity == "info":
            group = 3
        elif finding.cost_ratio:
            group = 1
        else:
            group = 0 if finding.severity == "critical" else 2
        return group, -(finding.cost_ratio or 0.0), severity, finding.code, finding.devices

    return tuple(sorted(findings, key=place))


@dataclass(frozen=True)
class Skipped:
    """An analysis that could not be made, and why."""

    reason: str


def counted(count: int, noun: str) -> str:
    """A number of things in a sentence: `1 step`, `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sized(size_bytes: int) -> str:
    """A number of bytes in a sentence: `536.9 MB`, `4.01 GB`."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def percent(ratio: float) -> str:
    """A ratio with one decimal: `12.5%`; what is not quite nothing or all is not told as such."""
    if 0 < ratio < 0.0005:
        return "<0.1%"
    if 0.9995 <= ratio < 1:
        return ">99.9%"
    return f"{ratio:.0%}" if ratio in (0, 1) else f"{ratio:.1%}"


def timed(picoseconds: int) -> str:
    """A length of time in a sentence: `12.3 ms`, `480 µs`, `1.20 s`."""
    if picoseconds >= PS_PER_S:
        return f"{picoseconds / PS_PER_S:.2f} s"
    if picoseconds >= PS_PER_MS:
        return f"{picoseconds / PS_PER_MS:.1f} ms"
    return f"{picoseconds / PS_PER_US:.0f} µs"


def listed(keys: tuple[str, ...] | list[str], most: int = 8) -> str:
    """Names in a sentence: `a`, `a and b`, `a, b and c`; cut after `most`; empty without any.

    Of more than that, device keys with numbers in a row are one: `a/GPU:0–7, a/GPU:9 and b/GPU:0–7`.
    """
    spans = _spans(keys) if len(keys) > most else [(key, 1) for key in keys]
    shown = [span for span, _ in spans[:most]]
    more = sum(count for _, count in spans[most:])
    if more:
        return f"{', '.join(shown)} and {more} more"
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _spans(keys: tuple[str, ...] | list[str]) -> list[tuple[str, int]]:
    """Device keys whose numbers follow each other as one span, with how many there are; other names alone."""
    runs: list[list[str]] = []
    for key in keys:
        device, _, number = key.rpartition(":")
        before, _, last = runs[-1][-1].rpartition(":") if runs else ("", "", "")
        both = device and device == before and number.isdecimal() and last.isdecimal()
        if both and int(number) == int(last) + 1:
            runs[-1].append(key)
        else:
            runs.append([key])
    spans: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            spans.append((f"{run[0]}–{run[-1].rpartition(':')[2]}", len(run)))
        else:
            spans += [(key, 1) for key in run]
    return spans
