"""Renders the sentences of a finding as phrases: by its rule from its arguments, its evidence in words, its commands for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis.rules.finding import EXPLAINS, Evidence, Finding, FindingLoss
from traceview.analysis.rules.rule import Rule, phrases_of
from traceview.base.text import lazy_pattern, shell_path, shell_word
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Phrase, Token, phrase
from traceview.document.vocabulary import SEVERITIES, look_of, thread_words
from traceview.ledger.states import State

_SHOWN_EVIDENCE: Final = 6
_OF_LOGDIR: Final = lazy_pattern(r"traceview ((?:show )?[a-z]+) LOGDIR\b")
_UNIT: Final = lazy_pattern(r"_(?:ps|ns|bytes|ratio|count)$")
_METRICS: Final = {
    "compute_ratio": "share of the compute",
    "cores": "cores busy",
    "host_event": "host event in it",
    "library_line": "called there",
    "op_type": "type of op",
    "python_line": "line of Python",
    "waited_for_ratio": "share of the waiting for devices",
}
"""Words for evidence of several rules."""


class RunCommands(Struct, frozen=True):
    """The commands about `run` in `logdir`. `is_only`: the log directory has no other run, so that none is chosen.

    `options`: of those about a part of the run.
    """

    logdir: str
    run: str
    is_only: bool
    options: str = ""

    def command(self, name: str) -> str:
        """`traceview show gaps logs --run 2026_11_22_07_10_02`."""
        return f"traceview {name} {shell_path(self.logdir)}{self._choice}"

    def of_part(self, name: str) -> str:
        """A command with the options that choose the part of the run."""
        return f"{self.command(name)}{self.options}"

    def filled(self, advice: Phrase) -> Phrase:
        """Advice whose commands read this run."""
        rest = f" {shell_path(self.logdir)}{self._choice}"
        return tuple(
            token
            if token.kind == "name"
            else Token(
                _OF_LOGDIR.sub(lambda match: f"traceview {match[1]}{rest}", token.text), token.kind
            )
            for token in advice
        )

    @property
    def _choice(self) -> str:
        return "" if self.is_only else f" --run {shell_word(self.run.rpartition('/')[2])}"


def shown_finding(
    number: int,
    finding: Finding,
    rule: Rule,
    commands: RunCommands | None = None,
    time: str = "GPU time",
) -> doc.Finding:
    """A finding as documents show it.

    `commands`: those of its run, which take the place of those of any run. `time`: what its cost is a share of.
    """
    sentences = phrases_of(finding, rule)
    if commands is not None:
        for field in ("action", "advice"):
            sentences[field] = commands.filled(sentences[field])
    return doc.Finding(
        number=number,
        code=finding.code,
        severity=look_of(SEVERITIES, finding.severity),
        title=sentences["title"],
        cost=_cost(finding, rule, time),
        explanation=sentences["explanation"],
        evidence=evidence_phrase(finding.evidence, rule),
        confidence=finding.confidence,
        confidence_reason=sentences["confidence_reason"],
        action=sentences["action"],
        advice=sentences["advice"],
    )


def text_phrase(text: str) -> Phrase:
    """A text that no rule made, as it is."""
    return (Token(text),) if text else ()


_MORE_RATIO: Final = 1.1
"""Of a loss: a gain so far above it is explained; a choice of ours."""


def _cost(finding: Finding, rule: Rule, time: str) -> str:
    """`18.8% of the GPU time; without it a step is about 9.30 ms shorter`; empty where it costs no time.

    A bound may be above the loss: it is of a path that goes from device to device.
    """
    loss = finding.loss
    if loss is None:
        return ""
    share = f"{numbers.percent(loss.gpu_time_ratio)} of the {time}"
    bound_ps = loss.gain_ps_per_step
    if not loss.has_steps:
        return share
    if bound_ps is None:
        return f"{share}; gain per step unknown: {_why_no_gain(finding, loss, rule)}"
    # The path also holds what runs elsewhere for it.
    more = ", including what waits for it" if bound_ps > _MORE_RATIO * loss.ps_per_step else ""
    if loss.then_input:
        more = ", and then waits for input"
    return f"{share}; without it a step is about {numbers.time(bound_ps)} shorter{more}"


def _why_no_gain(finding: Finding, loss: FindingLoss, rule: Rule) -> str:
    if State.NO_WORK.key in loss.states:
        return "it depends on the work that the idle devices get"
    if finding.sentences[:1] and finding.sentences[0] in rule.at_least:
        return "it may be more than the loss"
    if not finding.devices:
        return "no device was recorded"
    if not rule.states:
        return "only the difference between steps is known"
    return "other threads of the step wait for the same cores"


def evidence_phrase(evidence: Sequence[Evidence], rule: Rule) -> Phrase:
    """`GPU:0: status: no event; memory held: 537 MB, threshold 256 MB`: values of one metric together.

    A place that all values share is named once.
    """
    places = {_place(row) for row in evidence}
    shared = places.pop() if len(places) == 1 and evidence[0].where else ""
    metrics: dict[tuple[str, str], dict[Phrase, list[str]]] = {}
    for row in evidence:
        limit = (
            ""
            if row.threshold is None
            else f", threshold {numbers.measured(row.metric, row.threshold)}"
        )
        wheres = metrics.setdefault((_metric(row.metric, rule), limit), {})
        wheres.setdefault(_value(row), []).append("" if shared else _place(row))
    sentences = [_of_metric(*key, values) for key, values in metrics.items()]
    hidden_count = len(sentences) - _SHOWN_EVIDENCE
    parts: list[Phrase | str] = [(Token(shared, "device"),), ": "] if shared else []
    for place, sentence in enumerate(sentences[:_SHOWN_EVIDENCE]):
        parts += ["; ", sentence] if place else [sentence]
    return phrase(*parts, f"; and {hidden_count} more" if hidden_count > 0 else None)


def _of_metric(words: str, limit: str, values: Mapping[Phrase, Sequence[str]]) -> Phrase:
    parts: list[Token] = [Token(f"{words}: ")]
    for place, (value, wheres) in enumerate(values.items()):
        if place:
            parts.append(Token(" and " if place == len(values) - 1 else ", "))
        parts += value
        names = [where for where in dict.fromkeys(wheres) if where]
        if names:
            listed = "; ".join(names) if any("," in name for name in names) else ""
            parts += [
                Token(" ("),
                Token(listed or numbers.listed(names), "device"),
                Token(")"),
            ]
    return (*parts, Token(limit)) if limit else tuple(parts)


def _place(row: Evidence) -> str:
    """`GPU:0, step 3`; empty for what holds everywhere."""
    is_thread = row.where_is == "thread" and row.where
    where = thread_words(row.where) if is_thread else row.where
    return ", ".join(filter(None, (where, row.detail)))


def _metric(metric: str, rule: Rule) -> str:
    """The words of the rule, or of all, for a metric; without them its key without the unit."""
    words = rule.metrics.get(metric) or _METRICS.get(metric)
    return words or _UNIT.sub("", metric).replace("_", " ")


def _value(row: Evidence) -> Phrase:
    if not isinstance(row.value, str):
        return (Token(numbers.measured(row.metric, row.value), "number"),)
    if row.metric == EXPLAINS:
        return (Token(row.value, "code"),)
    return (Token(row.value, "name"),)
