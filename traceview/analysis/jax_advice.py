"""Gives findings about a trace that JAX wrote the advice for JAX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from traceview.analysis.base import Finding, Rule
from traceview.ids import unique_ids
from traceview.trace.model import Trace

_JITTED_CALL: Final = b"PjitFunction("
"""How JAX records a call of a function that it compiled; TensorFlow records no such call."""


def is_of_jax(trace: Trace) -> bool:
    """Whether the host called functions that JAX compiled."""
    names = unique_ids(trace.host_columns.name).tolist()
    return any(trace.names[name].startswith(_JITTED_CALL) for name in names)


def with_jax_advice(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings with the advice for JAX where their rule has one; `rules`: by code."""
    return [
        replace(finding, advice=rules[finding.code].jax_advice)
        if finding.code in rules and rules[finding.code].jax_advice
        else finding
        for finding in findings
    ]
