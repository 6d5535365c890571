"""Puts findings that are a consequence of another finding inside that one, so that one cause is reported once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.base import Evidence, Finding, Rule

EXPLAINS: Final = "explains"
"""The metric of evidence whose value is the title of an explained finding."""

EXPLAINS_PART: Final = "explains_part"
"""The same of a finding that costs more than the one that explains it."""

_SHARE_A_DEVICE: Final = frozenset(
    (
        ("replica-starved", "straggler-gpu"),
        ("single-gpu-gradients", "straggler-gpu"),
        ("host-op-in-step", "straggler-gpu"),
    )
)
"""Cause and consequence that belong together only where both are about one device; others need not share one."""

_COSTS_AS_MUCH: Final = frozenset(
    (
        ("host-op-in-step", "straggler-gpu"),
        ("host-op-in-step", "collective-wait"),
        ("layer-collectives", "collective-exposed"),
        ("layer-collectives", "collective-wait"),
    )
)
"""Cause and consequence that belong together only where the cause costs `_LEAST_PART` of the consequence."""

_LEAST_PART: Final = 0.5
"""With less than half of it, something else is the main reason; a choice of ours."""

_SHOWS_AS: Final = frozenset(
    (cause, code)
    for cause in ("input-bound", "python-thread")
    for code in ("host-bound", "python-stall")
)
"""Cause and consequence that belong together only where the cause shows as all that the consequence is about."""


def with_explained_inside(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings without those that another explains by its rule; its evidence names what it explains.

    `rules`: by code.
    """
    kept: list[int] = []
    explained: dict[int, list[Evidence]] = {}
    for place, finding in enumerate(findings):
        cause = _cause_of(finding, findings, rules)
        if cause is None:
            kept.append(place)
        else:
            costs_more = (finding.cost_ratio or 0.0) > (findings[cause].cost_ratio or 1.0)
            metric = EXPLAINS_PART if costs_more else EXPLAINS
            evidence = Evidence(metric, finding.title, None, finding.code)
            explained.setdefault(cause, []).append(evidence)
    return [
        replace(findings[place], evidence=(*findings[place].evidence, *explained.get(place, ())))
        for place in kept
    ]


def _cause_of(
    explained: Finding, findings: Sequence[Finding], rules: Mapping[str, Rule]
) -> int | None:
    """The place of the finding that explains another one and is not itself explained; None without any."""
    for place, cause in enumerate(findings):
        if cause.code not in rules or explained.code not in rules[cause.code].explains:
            continue
        share_none = set(cause.devices).isdisjoint(explained.devices)
        if share_none and (cause.code, explained.code) in _SHARE_A_DEVICE:
            continue
        part = (cause.cost_ratio or 0.0) / (explained.cost_ratio or 1.0)
        if part < _LEAST_PART and (cause.code, explained.code) in _COSTS_AS_MUCH:
            continue
        shows = set(explained.path_causes) <= set(cause.path_causes)
        if not shows and (cause.code, explained.code) in _SHOWS_AS:
            continue
        first_cause = _cause_of(cause, findings, rules)
        return place if first_cause is None else first_cause
    return None
