"""Gives findings about a trace that JAX wrote the advice for JAX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.rule import Rule, rendered
from traceview.base.ids import unique_ids
from traceview.trace.model import Trace

_JITTED_CALL: Final = b"PjitFunction("
"""How JAX records a call of a function that it compiled; TensorFlow records no such call."""

_JAX: Final = "jax"
"""The key of the action and the advice for JAX in a rule; `jax-again` instead of `again` where there is one."""


def is_of_jax(trace: Trace) -> bool:
    """Whether the host called functions that JAX compiled."""
    names = unique_ids(trace.host_columns.name).tolist()
    return any(trace.names[name].startswith(_JITTED_CALL) for name in names)


def with_jax_advice(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings with the action and the advice for JAX where their rule has them; `rules`: by code."""
    return [_with_advice(finding, rules.get(finding.code)) for finding in findings]


def _with_advice(finding: Finding, rule: Rule | None) -> Finding:
    if rule is None:
        return finding
    title, action, *others = finding.sentences
    own = f"{_JAX}-{action}"
    key = own if own in rule.actions else _JAX
    if key not in rule.actions:
        return finding
    return rendered(replace(finding, sentences=(title, key, *others)), rule)
