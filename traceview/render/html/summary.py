"""What has to be known in ten seconds? The job, the answer, three numbers, what to change, and how to get this page."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.balance import WHAT_IF_WORDS
from traceview.render.environment import job_facts
from traceview.render.heading import QUALITY_WORDS, found_steps, window_words
from traceview.render.html.blocks import View
from traceview.render.html.findings import FindingCard, cards
from traceview.render.idle import LOOKS
from traceview.report.model import Report, VerdictNumber
from traceview.report.recoverable import recoverable

SHOWN: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_MOSTLY_IDLE: Final = 0.5
"""Devices that are busy for less of the time have a problem, whether or not its cost is known."""

_KIND_WORDS: Final = {"gpu": "GPU", "tpu": "TPU"}
_WIDE: Final = 200
_FIRST_WORD: Final = re.compile(r"^[a-z](?=[a-z]* )")


@dataclass(frozen=True)
class Tile:
    """A number to remember.

    `note`: what it is of. `more`: the number beside it, with its note. `source`: what it comes from, and where
    on the page that is, if it is.
    """

    label: str
    value: str
    note: str
    more: tuple[str, str] | None = None
    source: tuple[str, str] | None = None


@dataclass(frozen=True)
class Summary:
    """The first screen.

    `answer`: what is wrong. `headline`: of the verdict, empty where it is the answer. `quality`: what limits the
    capture, empty where nothing does.
    """

    run: str
    job: tuple[str, ...]
    answer: str
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
    answer = _answer(report)
    return Summary(
        run=report.source.run,
        job=tuple(_job(report)),
        answer=answer,
        headline="" if answer == report.verdict.headline else report.verdict.headline,
        quality="" if quality == "ok" else f"The capture is {words}",
        tiles=tuple(_tiles(view)),
        findings=tuple(cards(view, SHOWN)),
        left_count=max(len(report.findings) - SHOWN, 0),
        command=shlex.join(report.command),
    )


def _answer(report: Report) -> str:
    """What costs most; without a known cost how idle the devices are if all work; else how many do."""
    verdict, found = report.verdict, report.results.device_time
    if verdict.largest_cost is not None:
        # A word begins with a large letter here, a name as it is.
        return _FIRST_WORD.sub(lambda found: found[0].upper(), verdict.largest_cost)
    mean = next((one for one in verdict.numbers if one.key == "mean_busy_ratio"), None)
    if mean is None or mean.value is None or mean.value >= _MOSTLY_IDLE:
        return verdict.headline
    rows = found.devices if found else ()
    if any(row.status != "active" for row in rows):
        return verdict.headline
    busy = f"busy {_value(mean)} of the time"
    if len(rows) == 1:
        return f"{rows[0].device} is {busy}{_mostly(report)}."
    return f"The {len(rows)} devices are {busy} on average{_mostly(report)}."


def _mostly(report: Report) -> str:
    idle = report.results.idle
    waited = Counter[str]()
    for row in idle.devices if idle else ():
        waited.update(row.causes)
    (cause, length), *_ = waited.most_common(1) or [("", 0)]
    if not length or cause not in LOOKS:
        return ""
    return f"; most of the rest: {LOOKS[cause].words}"


def _job(report: Report) -> Iterator[str]:
    hosts = [host.host for host in report.capture.hosts]
    if hosts:
        yield hosts[0] if len(hosts) == 1 else numbers.plural(len(hosts), "host")
    found = report.results.device_time
    rows = found.devices if found else ()
    replicas = [row for row in rows if row.kind == "replica" and not row.model]
    models = Counter(
        row.model or _KIND_WORDS.get(row.kind, "device") for row in rows if row not in replicas
    )
    yield from (f"{count} × {model}" for model, count in models.items())
    if len(rows) == 1 and replicas:
        # One alone is no replica of anything.
        yield "1 × CPU"
    elif replicas:
        yield f"{numbers.plural(len(replicas), 'replica')} on the host"
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


def _tiles(view: View) -> Iterator[Tile]:
    report = view.report
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
    yield _recoverable(view)


def _value(number: VerdictNumber) -> str:
    return numbers.measured(number.key, number.value)


def _recoverable(view: View) -> Tile:
    report = view.report
    most = recoverable(report)
    if most is None:
        return Tile("Recoverable", numbers.ABSENT, "nothing is known to cost time")
    whole = "the step" if report.results.steps else "the window"
    share = f"{numbers.share(most.ratio)} of {whole}"
    source = (WHAT_IF_WORDS.get(most.source, most.source), _target(view, most.source))
    if most.ps_per_step is None:
        return Tile("Recoverable", share, "at most, by one change", source=source)
    of = f", {share}" if most.ratio is not None else ""
    time = numbers.time(most.ps_per_step)
    return Tile("Recoverable", time, f"per step at most{of}, by one change", source=source)


def _target(view: View, source: str) -> str:
    """Where the page tells of a finding or of a bound of the step time; empty if it does not."""
    if source in WHAT_IF_WORDS:
        return "#balance"
    shown = view.report.findings[: view.most_rows]
    numbers_of = [number for number, one in enumerate(shown, start=1) if one.code == source]
    return f"#finding-{numbers_of[0]}" if numbers_of else ""
