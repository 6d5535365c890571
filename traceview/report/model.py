"""Defines a report, plain records named as in its JSON Schema, and its verdict: which finding leads, in one sentence.

The finding with the largest share of the GPU time does. Documents get nothing but the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import field
from msgspec.structs import replace

from traceview.analysis.facts.selection import ReportWindow
from traceview.analysis.gpu_time.device_states import DeviceStates, LedgerSums
from traceview.analysis.gpu_time.steps import FEW_STEPS
from traceview.analysis.machine.capture import MISSING_HOST, Capture, why_no_device
from traceview.analysis.measures.device_report import DeviceTime, DeviceTimeRow, time_words
from traceview.analysis.registry import RULES, Results
from traceview.analysis.rules.finding import OF_A_DISTURBANCE, SEVERITIES, Finding, FindingLoss
from traceview.analysis.rules.rule import CRITICAL_LIMIT, LIMIT, TINY_OPS, phrases_of, rendered
from traceview.analysis.rules.sentences import text_phrase
from traceview.analysis.rules.words import line_words, plain_type
from traceview.analysis.workload.compute import Compute
from traceview.analysis.workload.parts import PartOfCompute
from traceview.base.record import (
    Key,
    Message,
    PathName,
    Record,
    RunName,
    Sentence,
    Share,
    VersionText,
    Words,
)
from traceview.document import numbers
from traceview.document.phrase import Phrase, ended, name, phrase, plain
from traceview.document.vocabulary import DEVICE_KINDS, STATES, look_of
from traceview.ledger.states import State
from traceview.trace.model import (
    SourceFile,
    StepRange,
    Trace,
    WindowKind,
    is_damaged_throughout,
)
from traceview.trace.strategy.replicas import CPU

SCHEMA_VERSION: Final = 2


class Source(Record, frozen=True):
    """Where the numbers come from.

    Attributes:
        logdir: Log directory that was read.
        run: Name of the run.
        other_runs: Runs in the same place that were not read.
        files: The files of the run.
    """

    logdir: PathName
    run: RunName
    other_runs: tuple[RunName, ...]
    files: tuple[SourceFile, ...]


VerdictStatus: TypeAlias = Literal["problem", "healthy", "unreliable", "unusable"]


class Verdict(Record, frozen=True):
    """The answer in one sentence.

    Attributes:
        headline: What costs most, or that no problem was found, in one sentence.
        status: problem: a finding leads; healthy: none is a problem; unreliable: the recording says too little about small
            losses; unusable: it holds no time of a device.
        finding: Code of the finding that leads, the first of this code; null without one.
        compute_ratio: Share of the GPU time of all visible devices in which they compute; null without any.
        unknown_ratio: Share of the GPU time without a known cause; null without any.
    """

    headline: Sentence
    status: VerdictStatus
    finding: Key | None = None
    compute_ratio: Share | None = None
    unknown_ratio: Share | None = None


class Report(Record, frozen=True):
    """Everything traceview says about one run.

    Times are picoseconds since the origin of the run, the earliest profile start of its hosts, unless said otherwise. A
    number that the trace does not hold is null.

    Attributes:
        schema_version: Version of this schema; it changes only when a key changes its meaning or goes.
        traceview_version: Version of traceview that wrote the report.
        source: Where the numbers come from.
        capture: How far the capture can be trusted.
        windows: The span of each host that all times and counts refer to.
        verdict: The answer in one sentence.
        results: Results by topic; null where there is none, with the reason in skipped.
        skipped: Name of a topic to the reason why it has no result.
        recorded_reasons: Name of a topic to what the capture says of that.
        findings: What is wrong, costliest and surest first.
        command: The command line that makes this report again, argument by argument; empty where none does.
    """

    schema_version: Literal[2]
    traceview_version: VersionText
    source: Source
    capture: Capture
    windows: tuple[ReportWindow, ...]
    verdict: Verdict
    results: Results
    skipped: dict[Words, Words]
    findings: tuple[Finding, ...]
    recorded_reasons: dict[Words, Message] = field(default_factory=dict)
    command: tuple[Words, ...] = ()

    @property
    def leading(self) -> Finding | None:
        """The finding that the verdict is about."""
        return next((row for row in self.findings if row.code == self.verdict.finding), None)

    @property
    def device_times(self) -> tuple[DeviceTimeRow, ...]:
        """How busy each device was; empty where none was recorded."""
        return self.results.device_time.devices if self.results.device_time else ()

    @property
    def device_states(self) -> tuple[DeviceStates, ...]:
        """The mean step of each device by state; empty without a ledger."""
        return self.results.ledger.devices if self.results.ledger else ()


def started_ns(report: Report) -> int | None:
    """When the run was recorded, Unix nanoseconds; None where that is not known."""
    starts = (host.profile_start_ns for host in report.capture.hosts)
    return min((start for start in starts if start is not None), default=None)


def traces_of(report: Report) -> frozenset[str]:
    """The checksums of the traces of the run, which tell it from every other run; empty where one is not known."""
    sums = [file.sha256 for file in report.source.files]
    return frozenset(known for known in sums if known) if None not in sums else frozenset()


def devices_of(report: Report) -> str:
    """The devices in use: `4 × Tesla V100`; empty without any."""
    models = [row.model or row.kind for row in report.device_times if row.is_in_use]
    return ", ".join(f"{models.count(model)} × {model}" for model in dict.fromkeys(models))


def why_absent(report: Report, topic: str) -> str:
    """The reason why the report has no result of this topic."""
    return report.skipped.get(topic, "not computed")


FOLDER: Final = "report"
"""The folder that the command writes to."""


def reproducing(
    logdir: str, run: str, *, window: WindowKind, steps: StepRange | None
) -> tuple[str, ...]:
    """The arguments of `traceview report`, the program first, with every choice that is not the default one."""
    choices = [] if window == "auto" else ["--window", window]
    if steps is not None:
        bounds = ("" if bound is None else str(bound) for bound in (steps.first, steps.last))
        choices += ["--steps", ":".join(bounds)]
    name = run.rpartition("/")[2]
    return ("traceview", "report", logdir, "--run", name, *choices, "-o", FOLDER)


_UNKNOWN_LEADS: Final = 0.5
"""Share of the GPU time without a known cause from which on that is said first, where nothing else is a problem."""

PROFILER_FACTOR: Final = 1.5
"""Steps that the profiler makes so many times as long say little about small shares."""

_WORTH_SAYING: Final = CRITICAL_LIMIT / 2
"""Of the GPU time: what may be the profiler's is said first from so much on."""

_MISLEADING_FACTOR: Final = 2.0
"""Steps that the profiler makes so many times as long may not say what others wait for. A choice of ours."""

_PROLONGED: Final = frozenset(
    state.key
    for state in (
        State.COMMUNICATION,
        State.DEVICE_WAIT,
        State.LAUNCH,
        State.LATENCY,
        State.PYTHON,
        State.BETWEEN_CALLS,
    )
)
"""States that recording each op and call makes longer. Of dispatch, `host-bound` subtracts what the profiler took."""


def verdict_of(
    trace: Trace, capture: Capture, results: Results, findings: Sequence[Finding]
) -> Verdict:
    """The verdict of findings in their order (`by_rank`): a critical finding without which no number means anything, the largest loss, or that all is well."""
    sums = results.ledger
    status, leading = _leading(trace, capture, results, findings)
    share = sums.share_by_state if sums else {}
    if isinstance(leading, Finding):
        headline = _headline(results, capture, leading, text_phrase(leading.title))
    else:
        headline = _of_hosts(capture, None, text_phrase(leading))
    return Verdict(
        headline=plain(headline),
        status=status,
        finding=leading.code if isinstance(leading, Finding) else None,
        compute_ratio=share.get(State.COMPUTE.key, 0.0) if sums else None,
        unknown_ratio=share.get(State.UNKNOWN.key, 0.0) if sums else None,
    )


def _leading(
    trace: Trace, capture: Capture, results: Results, findings: Sequence[Finding]
) -> tuple[VerdictStatus, Finding | str]:
    """The status, and the finding that the headline is about, or the headline where it is about none."""
    devices = results.device_time.devices if results.device_time else ()
    blocking = [row for row in findings if row.severity == "critical" and row.loss is None]
    if blocking:
        return "problem", blocking[0]
    # What is too uncertain to be a problem leads only where few steps make all uncertain.
    has_few_steps = results.steps is None or results.steps.used_count < 2
    sure = [row for row in findings if row.loss and (has_few_steps or row.severity != "info")]
    largest = next(iter(sure), None)
    if largest is not None:
        return "problem", largest
    if capture.quality == "unusable" or not devices or results.ledger is None:
        return "unusable", _unusable(trace, capture, len(devices))
    others = [row for row in findings if row.severity == "warning" and row.loss is None]
    return ("problem", others[0]) if others else _without_problem(capture, results, findings)


def _without_problem(
    capture: Capture, results: Results, findings: Sequence[Finding]
) -> tuple[VerdictStatus, str]:
    """The status and the headline where no finding leads, of a run with device times."""
    assert results.ledger is not None
    factor = profiler_factor(capture)
    if factor >= PROFILER_FACTOR:
        longer = f"ecorded steps are {numbers.number(factor)}× as long as those before"
        lost = [row for row in findings if row.loss and row.loss.gpu_time_ratio >= _WORTH_SAYING]
        if lost:
            return "unreliable", f"Nothing is certain: r{longer}. Largest: {lost[0].title}."
        return "unreliable", f"No problem found. R{longer}; small shares are unreliable."
    unknown = results.ledger.share_by_state.get(State.UNKNOWN.key, 0.0)
    if unknown >= _UNKNOWN_LEADS:
        return (
            "unreliable",
            f"{numbers.percent(unknown)} of the {time_words(results.device_time)} has no recorded cause.",
        )
    return "healthy", _healthy(results.ledger, results.device_time, results.compute)


def by_rank(finding: Finding) -> tuple[int, float, str, tuple[str, ...]]:
    """How findings are ordered: what makes numbers meaningless, problems, guesses, each by what it costs, and the rest."""
    rank = 3 + SEVERITIES.index(finding.severity)
    if finding.loss:
        rank = 1 if finding.severity != "info" else 2
    elif finding.severity == "critical":
        rank = 0
    return rank, -_rank_of_gain(finding), finding.code, finding.devices


_OF_ANY_STEP: Final = 0.5
"""The same of what a step loses because it is small, or has many ops: so do healthy ones."""


_OF_A_GUESS: Final = 2 / 3
"""What a finding of low confidence counts for; a choice of ours."""


def _rank_of_gain(finding: Finding) -> float:
    gain = finding.loss.gain if finding.loss else 0.0
    gain *= _OF_A_GUESS if finding.confidence == "low" else 1
    gain *= OF_A_DISTURBANCE if finding.is_disturbance else 1
    return gain * (_OF_ANY_STEP if finding.sentences[:1] in (("small",), ("many",)) else 1)


_OF_TINY_OPS: Final = 2
"""Of what recording takes: so much may be that of tiny ops, for steps before the recorded ones may be slower than later ones. A choice of ours."""


def profiler_factor(capture: Capture) -> float:
    """How many times as long recorded steps are as those before, on the host where it is least; 1 where that was not measured.

    The steps of the others hold waits for a host that records more slowly, or has a slow input.
    """
    known = (host.overhead_ratio for host in capture.hosts if host.overhead_ratio is not None)
    return 1 + max(min(known, default=0.0), 0.0)


def without_recording(finding: Finding, capture: Capture) -> Finding:
    """The finding, as information where all that it costs may be time of the profiler.

    It is of states, or ops, that recording prolongs, and a change would save no more than recording takes.
    """
    factor = profiler_factor(capture)
    # What the program shows to be needless is so in any recording.
    is_certain = "program" in finding.sentences
    states = set(finding.loss.states) if finding.loss and not is_certain else set()
    is_tiny = TINY_OPS in finding.sentences
    is_prolonged = is_tiny or (states <= _PROLONGED and factor >= PROFILER_FACTOR)
    if finding.loss is None or not states or not is_prolonged:
        return finding
    is_lost = finding.loss.saved < (_OF_TINY_OPS if is_tiny else 1) * (factor - 1) / factor
    return replace(finding, severity="info") if is_lost else finding


def _headline(results: Results, capture: Capture, leading: Finding, title: Phrase) -> Phrase:
    """The title of the finding that leads, as a headline: of one or two steps only, that comes first."""
    headline = ended(title)
    # A finding without a loss says that something is missing, which holds for one step as for many.
    count = results.steps.used_count if leading.loss and results.steps else 0
    if 0 < count < FEW_STEPS.limits["used_step_count"]:
        used = f"{numbers.plural(count, 'step')} {'is' if count == 1 else 'are'} used"
        headline = phrase(f"Only {used}; capture ten. ", headline)
    factor = profiler_factor(capture)
    if leading.loss and factor >= _MISLEADING_FACTOR:
        headline = phrase(
            f"Recorded steps are {numbers.number(factor)}× as long as those before. ", headline
        )
    return _of_hosts(capture, leading.code, headline)


def _of_hosts(capture: Capture, code: str | None, headline: Phrase) -> Phrase:
    """The headline, which says first how many hosts it is about where the report lacks some."""
    hosts = "" if code == MISSING_HOST.code else capture.hosts_text
    return phrase(f"{hosts}: ", headline) if hosts else headline


def phrases_of_verdict(report: Report) -> tuple[Phrase, Phrase]:
    """The headline, and the one thing to do, in pieces where a finding leads."""
    leading = report.leading
    if leading is None:
        headline = text_phrase(report.verdict.headline)
        if report.verdict.status in ("healthy", "unreliable") and report.results.ledger:
            _, text = _without_problem(report.capture, report.results, report.findings)
            headline = _of_hosts(report.capture, None, text_phrase(text))
        return headline, ()
    phrases = phrases_of(leading, RULES[leading.code])
    headline = _headline(report.results, report.capture, leading, phrases["title"])
    return headline, phrase(phrases["action"], _gained(leading.loss))


_LESS_RATIO: Final = 0.75
"""Of what a headline says is lost: a gain that is less stands beside what to do. A choice of ours."""


def _gained(loss: FindingLoss | None) -> str:
    gain_ps = loss.gain_ps_per_step if loss and loss.has_steps else None
    if loss is None or not gain_ps or gain_ps >= _LESS_RATIO * loss.ps_per_step:
        return ""
    then = ", which then waits for input" if loss.then_input else ""
    return f" That gains about {numbers.time(gain_ps)} a step{then}."


def with_sentences(report: Report) -> Report:
    """The report with the sentences that rules make of the arguments in it.

    Raises `KeyError` with the place of a code that no rule has, or of an argument that a sentence has and the report has not.
    """
    findings = tuple(
        _with_sentences(finding, f"findings[{place}]")
        for place, finding in enumerate(report.findings)
    )
    made = replace(report, findings=findings)
    headline = plain(phrases_of_verdict(made)[0])
    return replace(made, verdict=replace(report.verdict, headline=headline))


def _with_sentences(finding: Finding, place: str) -> Finding:
    if finding.code not in RULES:
        raise KeyError(f"{place}.code")
    try:
        return rendered(finding, RULES[finding.code])
    except KeyError as error:
        raise KeyError(f"{place}.arguments.{error.args[0]}") from None


def _healthy(sums: LedgerSums, times: DeviceTime | None, compute: Compute | None) -> str:
    """`No problem found: 4 GPUs, 98% computing, 61% of that MatMul.` With the largest loss where that is much."""
    devices, count = times.devices if times else (), len(sums.devices)
    kinds = {row.kind for row in devices}
    noun = look_of(DEVICE_KINDS, kinds.pop() if len(kinds) == 1 else "other").words
    # A replica alone is no replica of anything, nor is a device of XLA.
    is_cpu = count == 1 or all(row.model == CPU for row in devices)
    who = numbers.plural(count, "CPU" if noun == "replica" and is_cpu else noun)
    share = dict(sums.share_by_state)
    words = f"{who}, {numbers.percent(share.pop(State.COMPUTE.key, 0.0))} computing"
    for part in compute.parts[:1] if compute else ():
        if part.compute_ratio >= LIMIT:
            ratio = numbers.percent(part.compute_ratio)
            words += f", {ratio} of that {plain(words_of_part(part))}"
    key = max(share, key=lambda key: share[key], default=None)
    if key is not None and share[key] >= LIMIT:
        words += f"; {look_of(STATES, key).words}: {numbers.percent(share[key])}"
    return f"No problem found: {words}."


def words_of_part(part: PartOfCompute) -> Phrase:
    """`in call, train.py:31`, `in layer conv/1`, `in 12 layers block*/dense`, `in layer conv/1, train.py:31` or `MatMul`."""
    layers = f"{part.layer_count} layers " if part.layer_count > 1 else "layer "
    layer = phrase(layers, name(part.layer)) if part.layer else ""
    line = name(line_words(part.source_line)) if part.source_line else ""
    if not layer and not line:
        return (name(plain_type(part.op_type or "")),)
    return phrase("in ", layer, ", " if layer and line else "", line)


def _unusable(trace: Trace, capture: Capture, count: int) -> str:
    if not count:
        known = "is readable" if is_damaged_throughout(trace) else "was recorded"
        return f"No device {known}: {why_no_device(trace)}."
    if capture.quality == "unusable":
        return f"{numbers.plural(count, 'device')} visible, none with a recorded event."
    return "No device ran anything in the window."
