"""Makes the document of a report, its summary, the findings and the sections of the topics; and explains findings in general."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from traceview.analysis.facts.python import PYTHON_LINE
from traceview.analysis.gpu_time import device_time, steps
from traceview.analysis.gpu_time.device_states import anatomy_rows
from traceview.analysis.gpu_time.steps import found_steps, step_times
from traceview.analysis.machine.capture import HARMLESS, WITHOUT_DEVICE, measured_overhead
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.device_report import named_devices, time_words, usual_devices
from traceview.analysis.measures.idle_report import NumberedGap, numbered_gaps
from traceview.analysis.measures.step_report import median_step, worst_step
from traceview.analysis.registry import RULES, TOPICS
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.rule import CRITICAL_LIMIT, LIMIT, Rule
from traceview.analysis.rules.sentences import RunCommands, shown_finding
from traceview.analysis.rules.words import outline, plain_type
from traceview.base.text import shell_command, shell_word
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.phrase import Phrase, Sentence, Token, device, name, names, phrase, pieces
from traceview.document.vocabulary import (
    DEVICE_KINDS,
    QUALITIES,
    SEVERITIES,
    STATES,
    VERDICT_STATUSES,
    WINDOWS,
    Look,
    look_of,
)
from traceview.ledger.states import BY_KEY, State
from traceview.report.model import (
    FOLDER,
    PROFILER_FACTOR,
    Report,
    phrases_of_verdict,
    profiler_factor,
    started_ns,
    words_of_part,
)
from traceview.report.tables import TABLE_NAMES


def explain_list(rules: Iterable[Rule], states: Iterable[Look]) -> doc.Section:
    """Every code with an example of what it says, and every state."""
    return doc.Section(
        "findings",
        "Findings",
        (
            *doc.notes(*(phrase(f"{rule.code}: ", pieces(f"{rule.example}.")) for rule in rules)),
            doc.Subheading("States", "what a device does, or what it is idle for"),
            *doc.notes(
                *(f"{_named(look)}: {numbers.capitalized(look.meaning)}." for look in states)
            ),
            *doc.remarks(
                "`traceview explain CODE` says what one means, when it is reported, and what to do."
            ),
        ),
        lead="each with an example of what it says",
    )


def _named(look: Look) -> str:
    """The key of a state, and its name where that is another."""
    is_alike = look.words == look.key.replace("_", " ") or look.words == look.key
    return look.key if is_alike else f"{look.key} ({look.words})"


def explain_section(rule: Rule) -> doc.Section:
    """A finding: its meaning, limits, evidence and advice."""
    facts = (phrase(f"{label}: ", text) for label, text in entry(rule))
    return doc.Section(rule.code, rule.code, doc.notes(*facts), lead=severities(rule))


def explain_state(state: Look) -> doc.Section:
    """A state of a device: its meaning, and the table that shows it."""
    table, option = table_of(BY_KEY[state.key])
    return doc.Section(
        state.key,
        state.key,
        doc.notes(
            f"Meaning: {state.meaning}",
            f"Letter in charts of a terminal: {state.letter}",
            f"Rows: `traceview show {table} LOGDIR{option}`",
        ),
        lead=state.words,
    )


def entry(rule: Rule) -> Iterator[tuple[str, Phrase]]:
    """The facts of a rule, each with its label; `…` stands for what a finding fills in."""
    yield "Example", pieces(rule.example)
    yield "Meaning", _joined([rule.meaning])
    for note in dict.fromkeys(rule.notes.values()):
        yield "May add", outline(note)
    yield "Reported from", pieces(rule.start)
    if rule.metrics:
        yield "Evidence", pieces("; ".join(rule.metrics.values()))
    yield "Advice", _joined((rule.action, rule.advice))
    cases: dict[str, list[Phrase | str]] = {}
    for key in sorted(rule.actions, key=lambda key: key.startswith("jax")):
        case, advice = _case(rule, key), _joined(rule.advised(key))
        if advice not in (texts := cases.setdefault(case, [])):
            texts += (" ", "With JAX: " if case and key.startswith("jax") else "", advice)
    for case, texts in sorted(cases.items(), key=lambda of: of[0] != ""):
        yield case or "Advice with JAX", phrase(*texts[1:])
    if rule.explains:
        yield EXPLAINED, pieces(", ".join(code.partition("/")[0] for code in rule.explains))


def _case(rule: Rule, key: str) -> str:
    """When a rule gives an advice: `Where it says “waits … for the network”` of a title or note, or its key; empty for all of JAX."""
    base = key.removeprefix("jax").removeprefix("-")
    said = rule.titles.get(key) or rule.titles.get(base) or rule.notes.get(base, "")
    words = "".join(token.text for token in outline(said, is_whole=False))
    if not words:
        # One with dots is the name of a function.
        case = base if "." in base else base.replace("_", " ").replace("-", " ")
        return case and f"In case of {case}"
    return f"Where it says “{words.removeprefix('… ').rstrip('.')}”"


EXPLAINED = "May explain these, which are no findings of their own then"


def _joined(templates: Iterable[str]) -> Phrase:
    """Sentences as one paragraph, each once."""
    shown = [outline(template) for template in dict.fromkeys(templates) if template]
    return phrase(
        *(part for place, text in enumerate(shown) for part in ((" " if place else ""), text))
    )


def severities(rule: Rule) -> str:
    """`critical, warning or info, by what a change saves`."""
    by = "" if rule.severity else ", by what a change saves"
    return numbers.listed(rule.severities).replace(" and ", " or ") + by


_EVIDENCE: Final[Mapping[State, str]] = {
    State.COMPUTE: "ops",
    State.COMMUNICATION: "collectives",
    State.DEVICE_WAIT: "collectives",
    State.H2D: "copies",
    State.D2H: "copies",
    State.D2D: "copies",
    State.INPUT: "input",
    State.TURN: "balance",
    State.NO_WORK: "devices",
}
"""By state the table of `traceview show` that has the evidence; all other states are of gaps."""


def table_of(state: State) -> tuple[str, str]:
    """The table that shows a state, and the option that chooses it there."""
    table = _EVIDENCE.get(state)
    return (table, "") if table else ("gaps", f" --state {state.key}")


_OPENED_DEVICES: Final = 8
"""Devices of a finding that are opened on the timeline."""


def findings_section(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Section:
    """The section of all findings, with how many there are of each severity."""
    counts = [
        numbers.plural(count, severity) if severity == "warning" else f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    order = ", costliest and surest first" if len(report.findings) > 1 else ""
    lead = f"{', '.join(counts)}{order}." if counts else "No problem found."
    shown = findings[: view.most_rows]
    return doc.Section(
        "findings",
        "Findings",
        (doc.Findings(shown, len(findings) - len(shown)),) if shown else (),
        lead=lead,
    )


def shown_findings(report: Report, view: View) -> Iterator[doc.Finding]:
    """Each finding as it is shown."""
    gaps = numbered_gaps(view)
    times = time_words(report.results.device_time) if report.results.ledger else "steps"
    for number, finding in enumerate(report.findings, start=1):
        shown = shown_finding(number, finding, RULES[finding.code], view.commands, times)
        yield replace(shown, span=_span(finding, view, gaps_of(finding, gaps)))


def gaps_of(finding: Finding, gaps: tuple[NumberedGap, ...]) -> list[NumberedGap]:
    """The gaps that a finding is about, the longest first."""
    states = finding.loss.states if finding.loss else ()
    return [
        numbered
        for numbered in gaps
        if numbered.gap.state in states
        and (not finding.devices or numbered.span.device in finding.devices)
        and (not finding.steps or numbered.gap.step in finding.steps)
    ]


def _span(finding: Finding, view: View, gaps: list[NumberedGap]) -> doc.Span | None:
    """The span to look at: its longest gap, else its worst step, else the median step, else the window.

    The first device that it names is framed, and others that it is about or that work beside it are opened; None without
    a device.
    """
    times = view.result(device_time.ANALYSIS)
    rows = [row for row in (times.devices if times else ()) if row.host in view.window_start_ps]
    named = [row for row in rows if row.device in finding.devices]
    row = min(named, key=lambda row: finding.devices.index(row.device), default=None)
    row = row or next((row for row in rows if finding.steps or finding.loss), None)
    if row is None or (finding.devices and not named):
        return None
    # Who waits for a device is concerned as well.
    in_use = [each for each in rows if each.is_in_use and each.host == row.host]
    concerned = [each.device for each in (*named, *in_use) if each.host == row.host]
    others = [device for device in dict.fromkeys(concerned) if device != row.device]
    opened = tuple(others[: _OPENED_DEVICES - 1])
    for numbered in gaps:
        if numbered.span.device == row.device:
            return replace(numbered.span, devices=opened)
    result = view.result(steps.ANALYSIS)
    of_host = [step for step in (result.steps if result else ()) if step.host == row.host]
    step = worst_step(of_host, finding.steps) if finding.steps else median_step(of_host)
    if step is not None and (finding.steps or finding.loss):
        begin_ps = step.start_ps - view.window_start_ps[row.host]
        return doc.Span(row.device, begin_ps, begin_ps + step.duration_ps, opened)
    return doc.Span(row.device, 0, row.window_ps, opened) if row.window_ps else None


BRIEF_ROWS: Final = 16
"""Rows of a table on a terminal, where nobody scrolls far."""


def document_of(
    report: Report,
    *,
    most_rows: int = 64,
    is_brief: bool = False,
    invocation: Invocation | None = None,
) -> doc.Document:
    """The whole document. `most_rows`: of one table. `is_brief`: for a terminal, with few rows and columns."""
    asked = invocation or Invocation()
    most_rows = min(most_rows, BRIEF_ROWS) if is_brief else most_rows
    view = view_of(report, asked, most_rows=most_rows, is_brief=is_brief)
    findings = tuple(shown_findings(report, view))
    steps_of = report.results.steps
    summary = replace(
        summary_of(report, view, asked),
        step_times=step_times(view, steps_of) if steps_of else None,
    )
    return doc.Document(
        traceview_version=report.traceview_version,
        summary=summary,
        sections=(*_sections(report, view, findings), *_appendix(report, view)),
    )


def screen_of(report: Report, invocation: Invocation | None = None) -> doc.Summary:
    """The first screen of a terminal."""
    asked = invocation or Invocation()
    return summary_of(report, view_of(report, asked, is_brief=True), asked)


def view_of(
    report: Report, asked: Invocation, *, most_rows: int = 64, is_brief: bool = False
) -> View:
    """The report as the section of a topic sees it."""
    recorded = report.recorded_reasons
    return View(
        results={
            **{
                name: result
                for name, result in asdict(report.results).items()
                if result is not None
            },
            "capture": report.capture,
        },
        skipped={
            name: f"{reason}: {recorded[name]}" if name in recorded else reason
            for name, reason in report.skipped.items()
        },
        findings=report.findings,
        window_start_ps={window.host: window.start_ps for window in report.windows},
        others=usual_devices(report.device_times, named_devices(report.findings)),
        most_rows=most_rows,
        is_brief=is_brief,
        commands=RunCommands(
            logdir=asked.logdir or report.source.logdir,
            run=report.source.run,
            is_only=not report.source.other_runs,
            options=_options(report, asked),
        ),
    )


# Sections

_FIRST: Final = ("timeline", "findings", "devices")
"""On a terminal the findings come before the timeline. The others follow: those of topics with findings in the order of these, then the rest in that of the report."""

_TABLES: Final = {
    **{name: name for name in ("findings", *TABLE_NAMES)},
    "idle": "gaps",
    "transfers": "copies",
}
"""By section the table of `traceview show` that has all of it; a folder of reports has every section."""


def _sections(
    report: Report, view: View, findings: tuple[doc.Finding, ...]
) -> Iterator[doc.Section]:
    """The timeline, the findings and the devices, then what an expert checks them with."""
    first_finding = {row.code: place for place, row in reversed(list(enumerate(findings)))}

    def rank(topic: Analysis[Any]) -> int:
        last = len(findings)
        return min((first_finding.get(rule.code, last) for rule in topic.rules), default=last)

    ranked = sorted(_topic_sections(view), key=lambda pair: rank(pair[0]))
    every = [findings_section(report, view, findings), *(section for _, section in ranked)]
    ids = ("findings", "timeline", "devices") if view.is_brief else _FIRST
    first = [section for id_ in ids for section in every if section.id == id_]
    rest = [section for section in every if section not in first]
    for section in (*first, *rest):
        shown = _TABLES.get(section.id)
        command = view.command(f"show {shown}" if shown else "report")
        yield replace(
            section,
            is_folded=section.id not in _FIRST,
            command=command if shown else f"{command} -o {FOLDER}",
        )


_MEANINGS: Final = (
    Shown("state", "words", kind="words"),
    Shown("meaning", "meaning", kind="words"),
)


def _appendix(report: Report, view: View) -> Iterator[doc.Section]:
    # A terminal has them on its first line.
    captured = () if view.is_brief else _captured(report)
    yield doc.Section("about", "About this run", doc.facts(*captured, *_about(report)))
    ledger = report.results.ledger
    occurring = [STATES[key] for key in (ledger.by_state if ledger else ())]
    if occurring and not view.is_brief:
        yield doc.Section("states", "States", table("States", occurring, _MEANINGS))


def _topic_sections(view: View) -> Iterator[tuple[Analysis[Any], doc.Section]]:
    for topic in (*TOPICS[1:], TOPICS[0]):  # how far to trust the capture comes last
        result = view.result(topic)
        if result is None:
            if topic.title_if_absent:
                reason = numbers.sentence(view.reason(topic))
                yield topic, doc.Section(topic.name, topic.title_if_absent, (), lead=reason)
            continue
        for section_of in topic.sections:
            section = section_of(view, result)
            if section is not None:
                yield topic, section


# What a document begins with: the headline, the one thing to do, a bar per device, and what else is lost


MOST_FINDINGS: Final = 2
"""Findings beside that of the headline."""

_COMPUTE_LEADS: Final = 0.5
"""Share of the GPU time from which on it is said what the compute consists of."""

_OF_TABLE: Final = ("--window", "--steps")
"""Options that choose a part of the run, and that every command about it takes."""

_SHOWN_RUNS: Final = 3


class Invocation(Struct, frozen=True):
    """How a report was asked for, so that the commands in it read the same run.

    `logdir`: the path as it was typed, which may be that of one run or file; empty where nobody typed one. `is_salvaged`:
    `--salvage` was given. `options`: further ones of `analyze`. `full_command`: prints all of the report, if that is not
    `analyze`.
    """

    logdir: str = ""
    is_salvaged: bool = False
    options: str = ""
    full_command: str = ""


def summary_of(report: Report, view: View, asked: Invocation) -> doc.Summary:
    """The summary. `view`: of the report, with the path that was typed."""
    commands = view.commands
    verdict, quality = report.verdict, report.capture.quality
    headline, action = phrases_of_verdict(report)
    named = report.leading
    rest = [pair for pair in enumerate(report.findings, 1) if pair[1] is not named]
    number = 1 + report.findings.index(named) if named else 0
    shown = [pair for pair in rest if is_worth_a_line(pair[1])][:MOST_FINDINGS]
    others = report.source.other_runs
    choice = f"One of {len(others) + 1} runs; `--run NAME` chooses another: "
    return doc.Summary(
        run=report.source.run,
        answer=headline,
        captured=tuple(_captured(report)),
        number=number,
        label=look_of(SEVERITIES, named.severity)
        if named
        else look_of(VERDICT_STATUSES, verdict.status),
        action=commands.filled(action),
        anatomy=anatomy_rows(report.device_states),
        anatomy_reason=report.skipped.get("ledger", ""),
        compute=tuple(_compute(report)),
        findings=tuple(
            shown_finding(number, finding, RULES[finding.code], commands)
            for number, finding in shown
        ),
        hidden_count=len(rest) - len(shown),
        quality=None if quality == "ok" else look_of(QUALITIES, quality),
        trust=tuple(_trust(report, view)),
        remarks=(phrase(choice, names(others, _SHOWN_RUNS)),) if others else (),
        next_command=_evidence_command(report, named, commands) if named else "",
        full_command=asked.full_command or f"{commands.of_part('analyze')}{asked.options} --full",
        command=shell_command(report.command),
    )


def is_worth_a_line(finding: Finding) -> bool:
    """Whether it is a problem: it costs enough of the GPU time, or is none of information. A guess has to cost more."""
    if finding.loss is None:
        return finding.severity != "info"
    is_guess = finding.severity == "info" and finding.confidence == "low"
    return finding.loss.gpu_time_ratio >= (CRITICAL_LIMIT if is_guess else LIMIT)


# What was recorded


def _captured(report: Report) -> Iterator[Sentence]:
    yield phrase("run ", device(report.source.run))
    hosts = report.capture.hosts
    if len(hosts) > 1:
        yield numbers.plural(len(hosts), "host")
    yield from _devices(report)
    if report.windows:
        lengths = (window.end_ps - window.start_ps for window in report.windows)
        yield f"window {numbers.time_range(lengths)}"
    if report.source.other_runs:
        yield f"1 of {len(report.source.other_runs) + 1} runs"


def _devices(report: Report) -> Iterator[Sentence]:
    rows = report.device_times
    if len(rows) == 1 and rows[0].kind == "replica":
        # One alone is no replica of anything, but is called so below.
        yield phrase("1 × CPU (", device(rows[0].device), ")")
        return
    models = Counter(row.model or look_of(DEVICE_KINDS, row.kind).words for row in rows)
    yield from (phrase(f"{count} × ", device(model)) for model, count in models.items())


def _about(report: Report) -> Iterator[Sentence]:
    hosts, files = report.capture.hosts, report.source.files
    if report.windows:
        kinds = dict.fromkeys(look_of(WINDOWS, window.kind).words for window in report.windows)
        yield f"the window is {' or '.join(kinds)}"
    if len(hosts) == 1:
        yield phrase("host ", device(hosts[0].host))
    size = numbers.size(sum(file.bytes for file in files))
    events = numbers.plural(sum(file.event_count for file in files), "event")
    yield f"{numbers.plural(len(files), 'file')}, {size}, {events}"
    yield found_steps(report.results.steps) if report.results.steps else "no steps found"
    date = numbers.date(started_ns(report))
    yield f"profiled {date}" if date else "date not recorded"
    if report.results.environment:
        yield from job_facts(report.results.environment)


def _compute(report: Report) -> Iterator[Sentence]:
    """What devices computed longest, where they compute most of the time."""
    compute = report.results.compute
    if compute is not None and (report.verdict.compute_ratio or 0.0) >= _COMPUTE_LEADS:
        for place, part in enumerate(compute.parts):
            is_made = part.source_line or part.layer
            types = name(plain_type(part.op_type)) if part.op_type and is_made else None
            of_type = phrase(" (mostly ", types, ")") if types else ""
            share = f"{numbers.percent(part.compute_ratio)} "
            yield phrase("" if place else "most compute: ", share, words_of_part(part), of_type)


# How far the capture can be trusted


def _trust(report: Report, view: View) -> Iterator[Sentence]:
    capture, steps = report.capture, report.results.steps
    causes = WITHOUT_DEVICE if capture.quality == "unusable" else ()
    worst_first = sorted(capture.problems, key=lambda p: (p.code not in causes, p.code in HARMLESS))
    problem = None if capture.quality == "ok" else next(iter(worst_first), None)
    rest = [one for one in capture.problems if one is not problem]
    stated = ("no-gpu-plane", "process-stopped")
    texts = {one.code: one.text for one in reversed(rest) if one.code in stated}
    words = "interrupted" if "process-stopped" in texts else "ok"
    if view.is_disturbed or profiler_factor(capture) >= PROFILER_FACTOR:
        words = "disturbed by other processes" if view.is_disturbed else "slowed by the profiler"
    if problem is not None:
        yield phrase(f"Capture: {capture.quality}, ", Token(problem.sentence))
        yield from (words,) if view.is_disturbed else ()
    else:
        yield f"Capture: {words if capture.quality == 'ok' else capture.quality}"
    yield from texts.values()
    remark_count = sum(one.code not in texts for one in rest)
    if steps is None:
        yield "no steps found"
    elif steps.used_count == steps.count:
        yield f"{numbers.plural(steps.count, 'step')} used"
    else:
        yield f"{numbers.plural(steps.used_count, 'step')} used of {numbers.count(steps.count)}"
    unknown = report.verdict.unknown_ratio or 0.0
    if unknown >= LIMIT:
        yield f"{numbers.percent(unknown)} of the {time_words(report.results.device_time)} has no recorded cause"
    overhead = measured_overhead(view)
    if overhead is not None:
        yield f"recording makes steps {numbers.share(overhead)} longer"
    # Frames in the trace may show lines, too.
    is_known = any(of.metric == PYTHON_LINE for row in report.findings for of in row.evidence)
    shares = report.results.ledger.share_by_state if report.results.ledger else {}
    of_lines = (State.BETWEEN, State.PYTHON, State.BETWEEN_CALLS, State.INPUT)
    lost = sum(shares.get(state.key, 0.0) for state in of_lines)
    if lost >= LIMIT and report.results.environment is None and not is_known:
        yield "no traceview.json beside it: lines of Python and waits for cores unknown"
    if remark_count:
        yield numbers.plural(remark_count, "remark")


# Commands


def _options(report: Report, asked: Invocation) -> str:
    """The options of every command about the same part of the same run."""
    arguments = iter(report.command[3:])
    options = [
        f" {option} {shell_word(value)}"
        for option, value in zip(arguments, arguments, strict=False)
        if option in _OF_TABLE
    ]
    return "".join(options) + (" --salvage" if asked.is_salvaged else "")


def _evidence_command(report: Report, finding: Finding, commands: RunCommands) -> str:
    """The command that shows the evidence of a finding."""
    states, ledger = finding.loss.states if finding.loss else (), report.results.ledger
    most = (key for key in (ledger.by_state if ledger else states) if key in states)
    state = BY_KEY.get(next(most, ""))
    # Gaps are of devices, which a run of ops outside of graphs has not.
    if state is None or not finding.devices:
        return f"traceview explain {finding.code}"
    table, option = table_of(state)
    return f"{commands.of_part(f'show {table}')}{option}"
