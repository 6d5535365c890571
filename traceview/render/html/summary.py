"""What has to be known in ten seconds? The job, the answer, three numbers, what to change, and how to get this page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from traceview.render import numbers
from traceview.render.environment import job_facts
from traceview.render.heading import QUALITY_WORDS, found_steps, window_words
from traceview.render.html.blocks import View
from traceview.render.html.findings import FindingCard, cards
from traceview.render.page import Page
from traceview.report.model import Report, VerdictNumber
from traceview.report.recoverable import recoverable

SHOWN: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_KIND_WORDS: Final = {"gpu": "GPU", "tpu": "TPU", "replica": "replica on the host"}
_WIDE: Final = 200


@dataclass(frozen=True)
class Tile:
    """A number to remember. `note`: what it is of; `more`: the number beside it, with its note."""

    label: str
    value: str
    note: str
    more: tuple[str, str] | None = None


@dataclass(frozen=True)
class Summary:
    """The first screen. `quality`: what limits the capture, empty where nothing does."""

    run: str
    job: tuple[str, ...]
    headline: str
    quality: str
    tiles: tuple[Tile, ...]
    findings: tuple[FindingCard, ...]
    left_count: int
    command: str


def summary(view: View) -> Summary:
    """Everything above the timeline; what it holds is bounded."""
    report = view.report
    quality = report.capture.quality
    words = QUALITY_WORDS.get(quality, (quality, ""))[0]
    return Summary(
        run=report.source.run,
        job=tuple(_job(report)),
        headline=report.verdict.headline,
        quality="" if quality == "ok" else f"The capture is {words}",
        tiles=tuple(_tiles(report)),
        findings=tuple(cards(view, SHOWN)),
        left_count=max(len(report.findings) - SHOWN, 0),
        command=shlex.join(report.command),
    )


def _job(report: Report) -> Iterator[str]:
    hosts = [host.host for host in report.capture.hosts]
    if hosts:
        yield hosts[0] if len(hosts) == 1 else numbers.plural(len(hosts), "host")
    found = report.results.device_time
    models = Counter(
        row.model or _KIND_WORDS.get(row.kind, "device") for row in (found.devices if found else ())
    )
    if found and [row.kind for row in found.devices] == ["replica"]:
        models = Counter(["CPU"])
    yield from (f"{count} × {model}" for model, count in models.items())
    environment = report.results.environment
    if environment is not None:
        yield from job_facts(Page(_WIDE), environment)
    steps = report.results.steps
    yield found_steps(steps) if steps else "no steps found"
    if report.windows:
        yield window_words(report)
    starts = [host.profile_start_ns for host in report.capture.hosts]
    date = numbers.date(min((one for one in starts if one is not None), default=None))
    if date:
        yield f"profiled {date}"


def _tiles(report: Report) -> Iterator[Tile]:
    found = {one.key: one for one in report.verdict.numbers}
    step = found.get("median_step_ps")
    if step is not None:
        why = report.skipped.get("steps", "") if step.value is None else ""
        note = step.label.partition(", ")[2] or step.label
        yield Tile("Step time", _value(step), why or note)
    least, mean = found.get("least_busy_ratio"), found.get("mean_busy_ratio")
    if least is not None:
        beside = None if mean is None else (_value(mean), mean.label.partition(", ")[2])
        yield Tile("Busy", _value(least), least.label.partition(", ")[2], beside)
    yield _recoverable(report)


def _value(number: VerdictNumber) -> str:
    return numbers.measured(number.key, number.value)


def _recoverable(report: Report) -> Tile:
    most = recoverable(report)
    if most is None:
        return Tile("Recoverable", numbers.ABSENT, "nothing is known to cost time")
    whole = "the step" if report.results.steps else "the window"
    share = f"{numbers.share(most.ratio)} of {whole}"
    if most.ps_per_step is None:
        return Tile("Recoverable", share, f"at most, by one change: {most.source}")
    of = f", {share}" if most.ratio is not None else ""
    return Tile(
        "Recoverable",
        numbers.time(most.ps_per_step),
        f"per step at most{of}, by one change: {most.source}",
    )
