"""Completes the findings of a run: consequences stand inside their cause, and traces of JAX get advice for JAX."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.rules.finding import EXPLAINS, Evidence, Finding
from traceview.analysis.rules.rule import Rule, rendered
from traceview.base.ids import unique_ids
from traceview.trace.model import Recording, Trace


def with_explained_inside(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings without those that another about the same device explains by its rule, and names in its evidence.

    `rules`: by code. A finding that is explained itself explains nothing: its cause does.
    """
    causes = [_first_cause(place, findings, rules) for place in range(len(findings))]
    explained = [
        [
            Evidence(EXPLAINS, findings[other].code, None, "", value_is="words")
            for other, cause in enumerate(causes)
            if cause == place != other
        ]
        for place in range(len(findings))
    ]
    return [
        replace(finding, evidence=(*finding.evidence, *explained[place]))
        for place, finding in enumerate(findings)
        if causes[place] == place
    ]


def _first_cause(place: int, findings: Sequence[Finding], rules: Mapping[str, Rule]) -> int:
    """The place of the finding that explains the one at `place`, and is not explained itself; `place` without any."""
    for other, cause in enumerate(findings):
        if _is_named(findings[place], rules[cause.code].explains) and _share_a_device(
            cause, findings[place]
        ):
            return _first_cause(other, findings, rules)
    return place


def _is_named(finding: Finding, explained: Collection[str]) -> bool:
    """Whether a finding is among these codes, of which some have the key of a title: `straggler-gpu/input`."""
    title = finding.sentences[0] if finding.sentences else ""
    return finding.code in explained or f"{finding.code}/{title}" in explained


def _share_a_device(cause: Finding, consequence: Finding) -> bool:
    """Whether both are about one device; a finding that names none is about all."""
    return (
        not cause.devices
        or not consequence.devices
        or not set(cause.devices).isdisjoint(consequence.devices)
    )


# JAX

JITTED_CALL: Final = b"PjitFunction("
"""How JAX records a call of a function that it compiled; TensorFlow records no such call."""

_JAX: Final = "jax"
"""The key of the action and the advice for JAX in a rule; `jax-again` instead of `again` where there is one."""


def is_of_jax(trace: Trace) -> bool:
    """Whether the host called functions that JAX compiled."""
    return trace.once(_has_jitted_calls)


def _has_jitted_calls(recording: Recording) -> bool:
    names = unique_ids(recording.host_columns.name)
    return any(recording.names.read(names, lambda name: name.startswith(JITTED_CALL)))


def with_jax_advice(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings with the action and the advice for JAX where their rule has them; `rules`: by code."""
    return [_with_advice(finding, rules[finding.code]) for finding in findings]


def _with_advice(finding: Finding, rule: Rule) -> Finding:
    title, action, *others = finding.sentences
    own = f"{_JAX}-{action}"
    key = own if own in rule.actions else _JAX
    if key not in rule.actions:
        return finding
    return rendered(replace(finding, sentences=(title, key, *others)), rule)
