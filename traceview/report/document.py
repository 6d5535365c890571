"""Makes the document of a report: the first screen, the findings, and the sections of the topics."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import asdict, replace

from traceview.analysis import capture, device_time, steps
from traceview.analysis.anatomy.groups import WITH_WAITS, anatomy_rows, waits_in_collectives
from traceview.analysis.base import Evidence
from traceview.analysis.base import Finding as FindingRecord
from traceview.analysis.context import View
from traceview.analysis.cost import cost_words
from traceview.analysis.environment.section import job_facts
from traceview.analysis.explained_findings import EXPLAINS, EXPLAINS_PART
from traceview.analysis.idle.section import NumberedGap, numbered_gaps
from traceview.analysis.outlier_devices import named_devices, outlier_devices
from traceview.analysis.path.findings import UNEXPLAINED_IDLE
from traceview.analysis.python_lock import lock_wait_sentence
from traceview.analysis.registry import RULES, TOPICS
from traceview.analysis.shown_steps import median_step, worst_step
from traceview.analysis.steps.chart import step_times
from traceview.analysis.steps.findings import FEW_STEPS, NO_STEP_MARKER
from traceview.analysis.steps.result import StepRow
from traceview.analysis.steps.section import found_steps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.evidence import metric_words, threshold_words, value_words
from traceview.document.vocabulary import (
    BOUNDS,
    CAUSES,
    DEVICE_KINDS,
    PATH_PARTS,
    QUALITIES,
    SEVERITIES,
    STEP_PARTS,
    TERMS,
    WINDOWS,
    look_of,
)
from traceview.report.model import Report, VerdictNumber
from traceview.report.recoverable import Recoverable, mean_step_ps, recoverable
from traceview.trace.cause import Cause

FIRST_FINDINGS: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_LINKED_DEVICES: Final = 8
_LINKED_GAPS: Final = 3
_SHOWN_EVIDENCE: Final = 6
_PEER: Final = Cause.PEER.key
_OF_ALL: Final = "steps"
"""Evidence about all steps names no place."""

_LEAST_GAP: Final = 0.1
"""Of the cost of a finding: a shorter gap shows nothing of it, and its step is shown instead."""
_OPENED_DEVICES: Final = 8
"""Devices of a finding that are opened on the timeline."""
_CAPTURE_CODES: Final = frozenset(
    rule.code for rule in (*capture.ANALYSIS.rules, FEW_STEPS, NO_STEP_MARKER)
)
_SHOWN_RUNS: Final = 3
_LISTED_WINDOWS: Final = 3
"""Of more hosts the shortest and the longest window are shown."""


def document_of(report: Report, *, most_rows: int = 64, is_brief: bool = False) -> doc.Document:
    """The whole document. `most_rows`: of one table. `is_brief`: for a terminal, where nobody scrolls far."""
    view = view_of(report, most_rows=most_rows, is_brief=is_brief)
    gaps = {
        number: _gaps_of(finding, numbered_gaps(view))
        for number, finding in enumerate(report.findings, start=1)
    }
    findings = tuple(_findings(report, view, gaps))
    view = replace(view, findings_of_gaps=_by_gap(gaps))
    return doc.Document(
        traceview_version=report.traceview_version,
        summary=_summary(report, view, findings),
        sections=tuple(_sections(report, view, findings)),
        definitions=(
            ("", TERMS),
            (
                "What a device waited for",
                tuple((look.words, look.meaning) for look in CAUSES.values()),
            ),
        ),
    )


def view_of(report: Report, *, most_rows: int = 64, is_brief: bool = False) -> View:
    """The report as the section of a topic sees it."""
    devices = report.results.device_time.devices if report.results.device_time else ()
    outliers = outlier_devices(devices, named_devices(report.findings))
    return View(
        results={
            **{
                name: result
                for name, result in asdict(report.results).items()
                if result is not None
            },
            "capture": report.capture,
        },
        skipped=report.skipped,
        findings=report.findings,
        window_start_ps={window.host: window.start_ps for window in report.windows},
        outliers=outliers.shown,
        others=outliers.others,
        most_rows=most_rows,
        is_brief=is_brief,
        logdir=report.source.logdir,
        run=report.source.run,
        other_runs=report.source.other_runs,
        first_code=report.verdict.finding or "",
    )


def _sections(
    report: Report, view: View, findings: tuple[doc.Finding, ...]
) -> Iterator[doc.Section]:
    """The timeline first, then the findings, then what an expert checks them with."""
    sections = list(_topic_sections(view))
    yield from (section for section in sections if section.id == "timeline")
    yield _findings_section(report, view, findings)
    yield from (section for section in sections if section.id != "timeline")
    if not view.is_brief:
        yield from _files_section(report, view)


def _files_section(report: Report, view: View) -> Iterator[doc.Section]:
    """The files of the run with their checksums."""
    files = report.source.files[: view.most_rows]
    if files:
        columns = (
            doc.names("file", [file.name for file in files]),
            doc.sizes("size", [file.bytes for file in files]),
            doc.counts("events", [file.event_count for file in files]),
            doc.names("SHA-256", [file.sha256 for file in files]),
            doc.names("same as", [file.duplicate_of for file in files]),
        )
        row_count = len(report.source.files)
        blocks = doc.table("Files", columns, row_count=row_count, rest="the JSON report")
        yield doc.Section("files", "Files", blocks)


def _topic_sections(view: View) -> Iterator[doc.Section]:
    for topic in (*TOPICS[1:], TOPICS[0]):  # how far to trust the capture comes last
        result = view.result(topic)
        if result is None:
            if topic.title_if_absent:
                reason = view.reason(topic)
                yield doc.Section(
                    topic.name, topic.title_if_absent, (), lead=numbers.sentence(reason)
                )
            continue
        for section_of in topic.sections:
            section = section_of(view, result)
            if section is not None:
                yield section


# The first screen


def _summary(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Summary:
    quality = report.capture.quality
    answer = answer_of(report)
    environment_record = report.results.environment
    return doc.Summary(
        run=report.source.run,
        captured=tuple(_captured(report)),
        job=tuple(job_facts(environment_record)) if environment_record else (),
        answer=answer,
        headline=devices_at_work(report, answer),
        quality=None if quality == "ok" else look_of(QUALITIES, quality),
        tiles=tuple(_tiles(report)),
        findings=findings[:FIRST_FINDINGS],
        hidden_count=max(len(report.findings) - FIRST_FINDINGS, 0),
        command=shlex.join(report.command),
        remarks=tuple(_remarks(report)),
        anatomy=anatomy_rows(report.results.anatomy) if report.results.anatomy else (),
        anatomy_remark=anatomy_remark(report),
        step_times=step_times(view, report.results.steps) if report.results.steps else None,
        capture_lead=_capture_lead(quality, findings),
    )


def _remarks(report: Report) -> Iterator[str]:
    others = report.source.other_runs
    if others:
        shown = ", ".join(others[:_SHOWN_RUNS]) + (", …" if len(others) > _SHOWN_RUNS else "")
        yield f"One of {len(others) + 1} runs; --run NAME chooses another: {shown}"
    if report.reduced:
        yield f"A reduced report, as baselines are, without {', '.join(report.reduced)}"


def anatomy_remark(report: Report) -> str:
    """What is in the parts of the mean step under another name."""
    parts: Counter[str] = Counter()
    for row in report.results.anatomy.devices if report.results.anatomy else ():
        parts.update(row.idle)
    return lock_wait_sentence(report.findings, parts) or ""


def _capture_lead(quality: str, findings: tuple[doc.Finding, ...]) -> str:
    """How far the capture can be trusted, and how many remarks say why."""
    count = sum(finding.is_about_capture for finding in findings)
    if quality != "ok":
        return f"The capture is {look_of(QUALITIES, quality).words}."
    if not count:
        return "Yes: no event was lost, and nothing limits the numbers."
    return f"Yes, with {numbers.plural(count, 'remark')}."


def _captured(report: Report) -> Iterator[str]:
    hosts, files = report.capture.hosts, report.source.files
    if hosts:
        yield f"host {hosts[0].host}" if len(hosts) == 1 else numbers.plural(len(hosts), "host")
    yield from devices_of(report)
    size = numbers.size(sum(file.bytes for file in files))
    events = numbers.plural(sum(file.event_count for file in files), "event")
    yield f"{numbers.plural(len(files), 'file')}, {size}, {events}"
    yield found_steps(report.results.steps) if report.results.steps else "no steps found"
    if report.windows:
        yield _window_words(report)
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    date = numbers.date(min(starts, default=None))
    yield f"profiled {date}" if date else "date not recorded"


def devices_of(report: Report) -> Iterator[str]:
    """How many devices there are of each model."""
    rows = report.results.device_time.devices if report.results.device_time else ()
    if len(rows) == 1 and rows[0].kind == "replica":
        # One alone is no replica of anything.
        yield "1 × CPU"
        return
    models = Counter(row.model or look_of(DEVICE_KINDS, row.kind).words for row in rows)
    yield from (f"{count} × {model}" for model, count in models.items())


def _window_words(report: Report) -> str:
    """How long the windows are, and what they are."""
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    kinds = dict.fromkeys(window.kind for window in report.windows)
    if 1 < len(report.windows) <= _LISTED_WINDOWS and (lengths[0] < lengths[-1] or len(kinds) > 1):
        each = (
            f"{window.host} {numbers.time(window.end_ps - window.start_ps)} ({window.kind})"
            for window in report.windows
        )
        return f"windows: {', '.join(each)}"
    words = " or ".join(look_of(WINDOWS, kind).words for kind in kinds)
    return f"window {numbers.time_range(lengths)} ({words})"


def answer_of(report: Report) -> str:
    """What costs most, or that nothing does; of a report of an earlier version the title of the finding."""
    verdict = report.verdict
    if verdict.devices is None and verdict.largest_cost is not None:
        return numbers.sentence(verdict.largest_cost)
    return verdict.headline


def devices_at_work(report: Report, answer: str) -> str:
    """Which devices worked, where not all did; empty if the answer says it."""
    verdict, times = report.verdict, report.results.device_time
    sentence = verdict.headline if verdict.devices is None else verdict.devices
    statuses = {row.status for row in times.devices} if times else set()
    all_work = bool(statuses) and statuses <= {"active", "marginal"}
    is_known = verdict.devices is not None and all_work and ";" not in sentence
    return "" if sentence == answer or is_known else sentence


def _tiles(report: Report) -> Iterator[doc.Tile]:
    by_key = {number.key: number for number in report.verdict.numbers}
    step = by_key.get("median_step_ps")
    if step is not None:
        why = report.skipped.get("steps", "") if step.value is None else ""
        yield doc.Tile("Step time", _value(step), why or _of_steps(report, step))
    least, mean = by_key.get("least_busy_ratio"), by_key.get("mean_busy_ratio")
    waits = f", {WITH_WAITS}" if waits_in_collectives(report.results.anatomy) else ""
    if least is not None and least.value is not None:
        yield doc.Tile("Busy", _value(least), f"{least.label.partition(', ')[2]}{waits}")
    if mean is not None and mean.label.partition(", ")[2] != "mean":
        yield doc.Tile("Busy", _value(mean), f"{mean.label.partition(', ')[2]}{waits}")
    yield _recoverable(report)


def _of_steps(report: Report, step: VerdictNumber) -> str:
    """`median of 5 steps; mean 22.6 ms`: costs are shares of the one or the other."""
    steps = report.results.steps
    mean_ps = mean_step_ps(steps) if steps and steps.used_count > 1 else None
    median = step.label.partition(", ")[2]
    return f"{median}; mean {numbers.time(mean_ps)}" if mean_ps is not None else median


def _value(number: VerdictNumber) -> str:
    return numbers.measured(number.key, number.value)


def _recoverable(report: Report) -> doc.Tile:
    """The most that one change can save: of which step, what it is about, and what is unexplained on top."""
    most = recoverable(report)
    if most is None:
        return doc.Tile("Recoverable", numbers.ABSENT, "no finding has a cost")
    whole = "the step" if report.results.steps else "the window"
    if most.statistic is not None:
        whole = f"the {most.statistic} step"
    bound = BOUNDS.get(most.source) or PATH_PARTS.get(most.source)
    number = next(
        (place for place, row in enumerate(report.findings, 1) if row.code == most.source), 0
    )
    anchor = doc.finding_anchor(number)
    if bound:
        anchor = "balance" if most.source in BOUNDS else "path"
    words = bound.words if bound else most.source
    if most.device:
        words = f"{most.device} waiting for other devices"
    label, source = "Recoverable by one change at most", doc.Link(words, anchor)
    rest = _waits(most) + _with_unexplained(most)
    if most.ps_per_step is None:
        return doc.Tile(label, numbers.share(most.ratio), f"of {whole}", source, rest)
    note = "" if most.ratio is None else f"{numbers.share(most.ratio)} of {whole}"
    return doc.Tile(label, numbers.time(most.ps_per_step), note, source, rest)


def _waits(most: Recoverable) -> str:
    """`: waiting in collectives 5.85 ms, another device still busy 1.08 ms`, if both occur."""
    if most.ps_per_step is None or not all(most.waits_ps):
        return ""
    names = (STEP_PARTS[key].words for key in ("collective_wait", _PEER))
    parts = zip(names, map(numbers.time, most.waits_ps), strict=True)
    return f": {', '.join(f'{words} {time}' for words, time in parts)}"


def _with_unexplained(most: Recoverable) -> str:
    """` 596 ms, and 46.0 ms with no recorded cause if that belongs to it`: its two parts; empty if it has one."""
    if most.source == UNEXPLAINED_IDLE.code or not most.unexplained_ratio:
        return ""
    if most.ps_per_step and numbers.time(most.known_ps) == numbers.time(most.ps_per_step):
        return ""
    words = CAUSES["unattributed"].words
    if most.known_ps is None:
        return f", with {numbers.share(most.unexplained_ratio)} {words}"
    is_cut = most.known_ps + most.unexplained_ps > (most.ps_per_step or 0)
    cut = "; both together at most the step" if is_cut else ""
    unexplained = f"{numbers.time(most.unexplained_ps)} with {words} if that belongs to it"
    return f" {numbers.time(most.known_ps)}, and {unexplained}{cut}"


# Findings


def _findings_section(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Section:
    left_out = list(dict.fromkeys(report.left_out_findings))
    counts = [
        numbers.plural(count, severity) if severity == "warning" else f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    lead = f"{', '.join(counts)}." if counts else "No problem found."
    if _is_unexplained_early(report.findings):
        lead += " unexplained-idle is listed early: its time may belong to any other finding."
    shown = findings[: view.most_rows]
    return doc.Section(
        "findings",
        "Findings",
        (
            *((doc.Findings(shown, len(findings) - len(shown)),) if shown else ()),
            *doc.facts(f"left out on request: {', '.join(left_out)}" if left_out else None),
        ),
        lead=lead,
    )


def _is_unexplained_early(findings: Sequence[FindingRecord]) -> bool:
    """Whether a finding stands after idle time without a cause that is more severe."""
    order = list(SEVERITIES)
    place = next((n for n, row in enumerate(findings) if row.code == UNEXPLAINED_IDLE.code), None)
    if place is None:
        return False
    severity = order.index(findings[place].severity)
    return any(order.index(row.severity) < severity for row in findings[place + 1 :])


def _by_gap(gaps: Mapping[int, list[NumberedGap]]) -> dict[int, tuple[int, ...]]:
    """By the number of a gap the numbers of the findings about it."""
    findings: dict[int, tuple[int, ...]] = {}
    for number, of_finding in gaps.items():
        for numbered in of_finding:
            findings[numbered.number] = (*findings.get(numbered.number, ()), number)
    return findings


def _findings(
    report: Report, view: View, gaps: Mapping[int, list[NumberedGap]]
) -> Iterator[doc.Finding]:
    # Reports of earlier versions do not say; their costs were shares of the median step.
    without_statistic = "the median step" if report.results.steps else "the window"
    for number, finding in enumerate(report.findings, start=1):
        yield doc.Finding(
            number=number,
            code=finding.code,
            severity=look_of(SEVERITIES, finding.severity),
            title=finding.title,
            cost=_cost(finding, without_statistic),
            is_cost_in_title=_is_cost_in_title(finding),
            explanation=finding.explanation,
            evidence=evidence_words(finding.evidence),
            confidence=finding.confidence,
            confidence_reason=finding.confidence_reason,
            advice=finding.advice,
            links=tuple(_links(finding, gaps[number])),
            span=_span(finding, view, gaps[number]),
            is_about_capture=finding.code in _CAPTURE_CODES and finding.severity != "critical",
        )


_EXPLAINS: Final = {EXPLAINS: "explains", EXPLAINS_PART: "explains part of"}


def _is_cost_in_title(finding: FindingRecord) -> bool:
    """Whether the title has the time, the share and the step that it is a share of."""
    ps, ratio, statistic = finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic
    if ps is None or not ratio or statistic is None:
        return False
    of_step = f"of the {statistic} {numbers.time(ps / ratio)} step"
    stated = (numbers.time(ps), numbers.share(ratio), of_step)
    return all(words in finding.title for words in stated)


def _cost(finding: FindingRecord, without_statistic: str) -> str:
    """`16.0 ms of the mean 24.0 ms step (66.7%)`; empty if the cost is not known."""
    share = "" if finding.cost_ratio is None else numbers.share(finding.cost_ratio)
    words = cost_words(finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic)
    if not words:
        return share and f"{share} of {without_statistic}"
    if finding.cost_statistic is None and share:
        return f"{words}, {share} of {without_statistic}"
    return f"{words} ({share})" if share else words


def evidence_words(evidence: tuple[Evidence, ...]) -> str:
    """`On GPU:0: status: no event; memory held: 537 MB, reported from 256 MB`: values of one metric together.

    A place that all values share is named once.
    """
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    stated = [item for item in evidence if item.metric not in _EXPLAINS]
    shared = {item.where for item in stated if _has_place(item)}
    is_shared = len(shared) == 1 and all(map(_has_place, stated))
    for item in evidence:
        value = value_words(item.metric, numbers.measured(item.metric, item.value))
        limit = (
            ""
            if item.threshold is None
            else threshold_words(item.metric, numbers.measured(item.metric, item.threshold))
        )
        explains = _EXPLAINS.get(item.metric)
        metric = f"{explains} {item.where}" if explains else metric_words(item.metric)
        where = item.where if _has_place(item) and not is_shared else ""
        places.setdefault((metric, limit), {}).setdefault(value, []).append(where)
    sentences = []
    for (metric, limit), values in places.items():
        shown = [
            f"{value} ({_places(wheres)})" if any(wheres) else value
            for value, wheres in values.items()
        ]
        threshold = f", {limit}" if limit else ""
        sentences.append(f"{metric}: {numbers.listed(shown)}{threshold}")
    hidden_count = len(sentences) - _SHOWN_EVIDENCE
    more = f"; and {hidden_count} more" if hidden_count > 0 else ""
    before = f"{shared.pop()}: " if is_shared else ""
    return before + "; ".join(sentences[:_SHOWN_EVIDENCE]) + more


def _has_place(item: Evidence) -> bool:
    return item.metric not in _EXPLAINS and item.where not in ("", _OF_ALL)


def _places(wheres: list[str]) -> str:
    names = [place for place in dict.fromkeys(wheres) if place]
    return "; ".join(names) if any("," in name for name in names) else numbers.listed(names)


def _gaps_of(finding: FindingRecord, gaps: tuple[NumberedGap, ...]) -> list[NumberedGap]:
    """The longest of the gaps that a finding is about."""
    rule = RULES.get(finding.code)
    causes = rule.idle_causes if rule else ()
    return [
        numbered
        for numbered in gaps
        if numbered.gap.cause in causes
        and (not finding.devices or numbered.span.device in finding.devices)
        and (not finding.steps or numbered.gap.step in finding.steps)
    ][:_LINKED_GAPS]


def _links(finding: FindingRecord, gaps: list[NumberedGap]) -> Iterator[doc.Link]:
    for device in finding.devices[:_LINKED_DEVICES]:
        yield doc.Link(device, doc.device_anchor(device))
    if len(finding.devices) > _LINKED_DEVICES:
        yield doc.Link(f"{len(finding.devices) - _LINKED_DEVICES} more devices", "devices")
    for numbered in gaps:
        length = numbers.time(numbered.gap.duration_ps)
        yield doc.Link(f"gap {numbered.number} ({length})", doc.gap_anchor(numbered.number))


def _span(finding: FindingRecord, view: View, gaps: list[NumberedGap]) -> doc.Span | None:
    """What to look at: a gap that shows its cost, else its worst step, else the median step, else the window.

    The first device that it names is framed, and others that it is about or that work beside it are opened; None without
    a device.
    """
    times = view.result(device_time.ANALYSIS)
    rows = [row for row in (times.devices if times else ()) if row.host in view.window_start_ps]
    named = [row for row in rows if row.device in finding.devices]
    row = min(named, key=lambda row: finding.devices.index(row.device), default=None)
    row = row or next((row for row in rows if finding.steps or finding.cost_ps_per_step), None)
    if row is None or (finding.devices and not named):
        return None
    # Who waits for a device is concerned as well.
    in_use = [each for each in rows if each.is_in_use and each.host == row.host]
    concerned = [each.device for each in (*named, *in_use) if each.host == row.host]
    others = [device for device in dict.fromkeys(concerned) if device != row.device]
    opened = tuple(others[: _OPENED_DEVICES - 1])
    least_ps = _LEAST_GAP * (finding.cost_ps_per_step or 0)
    for numbered in gaps:
        if numbered.span.device == row.device and numbered.gap.duration_ps >= least_ps:
            return replace(numbered.span, devices=opened)
    step = _shown_step(finding, view, row.host)
    if step is not None:
        begin_ps = step.start_ps - view.window_start_ps[row.host]
        return doc.Span(row.device, begin_ps, begin_ps + step.duration_ps, opened)
    return doc.Span(row.device, 0, row.window_ps, opened) if row.window_ps else None


def _shown_step(finding: FindingRecord, view: View, host: str) -> StepRow | None:
    """The worst of the steps of a finding; of one about all steps the median step."""
    result = view.result(steps.ANALYSIS)
    of_host = [row for row in (result.steps if result else ()) if row.host == host]
    if finding.steps:
        return worst_step(of_host, finding.steps)
    return median_step(of_host) if finding.cost_ps_per_step else None
