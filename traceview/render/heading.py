"""What was captured, what is the answer, and how far can it be trusted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.steps.compute import Steps
from traceview.document.page import Page
from traceview.render import numbers
from traceview.report.model import Report

METHOD_WORDS: Final = {
    "marker": "by explicit markers",
    "keras": "by the markers of Keras",
    "group": "by the step groups in the trace",
    "function": "by a function call that repeats",
    "iterator": "by an input iterator that repeats",
    "period": "by a kernel sequence that repeats",
    "mixed": "by several methods",
}
WINDOW_WORDS: Final = {
    "steps": "first to last step",
    "devices": "first to last device event",
    "trace": "the whole profile",
}
_SHORT: Final = {"trace": "profile"}
_LISTED_WINDOWS: Final = 3
"""Of more hosts the shortest and the longest window are shown."""

QUALITY_WORDS: Final = {
    "ok": ("ok, with remarks", "green"),
    "degraded": ("degraded: some numbers are incomplete", "yellow"),
    "unusable": ("unusable: it says nothing about the devices", "red"),
}
_SHOWN_PROBLEMS: Final = 10


def add_heading(page: Page, report: Report) -> None:
    """One line on what was captured, and the other runs there are."""
    page.facts(_captured(report))
    others = report.source.other_runs
    if others:
        names = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        page.prose(
            page.styled(
                f"One of {len(others) + 1} runs; --run NAME chooses another: {names}", "dim"
            )
        )


def _captured(report: Report) -> Iterator[Text | str]:
    yield (
        Text.assemble("run ", (report.source.run, "bold"))
        if report.source.run.isprintable()
        else (f"run {report.source.run}")
    )
    hosts, files = report.capture.hosts, report.source.files
    if hosts:
        yield f"host {hosts[0].host}" if len(hosts) == 1 else numbers.plural(len(hosts), "host")
    yield f"{numbers.plural(len(files), 'file')}, {numbers.size(sum(one.bytes for one in files))}"
    yield numbers.plural(sum(one.event_count for one in files), "event")
    steps = report.results.steps
    if steps is None:
        yield "no steps found"
    else:
        yield found_steps(steps)
    if report.windows:
        yield window_words(report)
    starts = [one.profile_start_ns for one in hosts if one.profile_start_ns is not None]
    date = numbers.date(min(starts, default=None))
    yield f"profiled {date}" if date else "date not recorded"
    recorded = report.results.environment.hosts if report.results.environment else ()
    overheads = [
        (one.overhead.ratio, one.overhead.spread_ratio)
        for one in recorded
        if one.overhead.ratio is not None
    ]
    if overheads:
        yield f"profiler overhead {_overhead(overheads)}"


def _overhead(ratios: Sequence[tuple[float, float | None]]) -> str:
    """The largest one that exceeds how far steps vary; the profiler cannot make them shorter."""
    measured = [ratio for ratio, spread in ratios if ratio > (spread or 0)]
    if measured:
        return f"{numbers.share(max(measured))} of a step"
    spreads = [spread for _, spread in ratios if spread is not None]
    if not spreads:
        return "too small to measure"
    return f"too small to measure: steps vary by ±{max(spreads):.0%}"


def found_steps(steps: Steps) -> str:
    """How many steps there are, on how many hosts, and how they were found."""
    by_host = Counter(row.host for row in steps.steps)
    counted = numbers.plural(steps.count, "step")
    if len(by_host) > 1 and len(set(by_host.values())) == 1:
        counted = (
            numbers.plural(max(by_host.values()), "step") + f" on each of {len(by_host)} hosts"
        )
    elif len(by_host) > 1:
        counted += f" on {len(by_host)} hosts"
    return f"{counted} found {METHOD_WORDS.get(steps.method, steps.method)}"


def window_words(report: Report) -> str:
    """How long the windows are, and what they are."""
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    shortest, longest = numbers.time(lengths[0]), numbers.time(lengths[-1])
    length = shortest if shortest == longest else f"{shortest} to {longest}"
    kinds = dict.fromkeys(window.kind for window in report.windows)
    if 1 < len(report.windows) <= _LISTED_WINDOWS and (shortest != longest or len(kinds) > 1):
        told = (
            f"{one.host} {numbers.time(one.end_ps - one.start_ps)} ({_SHORT.get(one.kind, one.kind)})"
            for one in report.windows
        )
        return f"windows: {', '.join(told)}"
    return f"window {length} ({' or '.join(WINDOW_WORDS.get(kind, kind) for kind in kinds)})"


def add_verdict(page: Page, report: Report) -> None:
    """The headline and the numbers to remember, aligned."""
    page.gap()
    page.prose(page.styled(report.verdict.headline, "bold"))
    if report.verdict.largest_cost is not None:
        page.prose(f"Largest cost: {report.verdict.largest_cost}.")
    values = [numbers.measured(one.key, one.value) for one in report.verdict.numbers]
    width = max(map(len, values), default=0) + 2
    for one, value in zip(report.verdict.numbers, values, strict=True):
        why = report.skipped.get("steps", "") if one.value is None and "_step_" in one.key else ""
        page.prose(
            one.label + (f": {why}" if why else ""),
            indent=width + 2,
            label=page.styled(value.rjust(width), "bold"),
        )


def add_capture(page: Page, report: Report) -> None:
    """What limits the capture; nothing where nothing does."""
    capture = report.capture
    if not capture.problems and capture.quality == "ok":
        return
    page.gap()
    word, style = QUALITY_WORDS.get(capture.quality, (capture.quality, ""))
    page.prose(Text.assemble(("Capture", "bold"), "  ", (word, style)))
    several = len(capture.hosts) > 1
    for problem in capture.problems[:_SHOWN_PROBLEMS]:
        where = f" ({problem.host})" if several and problem.host else ""
        page.prose(f"{problem.text}{where}", indent=4, label=Text("  - "))
    left = len(capture.problems) - _SHOWN_PROBLEMS
    if left > 0:
        page.prose(f"… and {left} more, in --format json", indent=4)
