"""Finds out whether two sides do different work: other devices, another batch or framework, or few ops in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from traceview.comparison.model import Condition, OpDifference
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.report.model import Report

_LEAST_COMMON_TIME: Final = 0.5
"""Of the time of the ops: runs of one program have more of it in ops of the same name."""
_LEAST_COMMON_OPS: Final = 0.2
"""Of the ops: a model that was built again has other numbers in the names of its ops, but as many ops of each kind."""
_NAMES: Final = 2
"""Of an op, from the end: those before them depend on the function that runs the model."""
_COMPILER: Final = "XLA"
"""What this decides makes other ops of the same work."""
_FRAMEWORKS: Final = ("tensorflow", "jax")
_LONGEST_VALUE: Final = 40
_NUMBERS: Final = re.compile(r"[\d_.]+")


def different_work(
    before: Sequence[Report],
    after: Sequence[Report],
    conditions: Sequence[Condition],
    ops: Sequence[OpDifference],
) -> list[str]:
    """In what the steps of both sides are not the same work, in words; empty where nothing shows that."""
    words = [
        f"{row.name} {shortened(row.before, _LONGEST_VALUE)} → {shortened(row.after, _LONGEST_VALUE)}"
        for row in conditions
        if row.is_blocking
    ]
    old, new = _frameworks(before), _frameworks(after)
    if old and new and old != new:
        words.append(f"{numbers.listed(sorted(old))} → {numbers.listed(sorted(new))}")
    elif not any(row.name == _COMPILER for row in conditions):
        words += _few_common(ops)
    return words


def _frameworks(side: Sequence[Report]) -> set[str]:
    """The frameworks whose versions a side recorded."""
    environments = [report.results.environment for report in side]
    return {
        name
        for environment in environments
        for host in (environment.hosts if environment else ())
        for name in _FRAMEWORKS
        if getattr(host.versions, name, None)
    }


def _few_common(ops: Sequence[OpDifference]) -> list[str]:
    computing = [row for row in ops if row.class_ == "compute"]
    old = Counter(_kind(row) for row in computing if row.before_ps)
    new = Counter(_kind(row) for row in computing if row.after_ps)
    whole_ps = sum(row.before_ps + row.after_ps for row in computing)
    common = [row for row in computing if row.before_ps and row.after_ps]
    common_ps = sum(row.before_ps + row.after_ps for row in common)
    if not old or not new or common_ps >= _LEAST_COMMON_TIME * whole_ps:
        return []
    if (old & new).total() >= _LEAST_COMMON_OPS * (old | new).total():
        return []
    return [f"{len(common)} of {numbers.plural(len(computing), 'op')} in common"]


def _kind(row: OpDifference) -> str:
    """The end of the name of an op, without numbers: `dense/MatMul`."""
    return _NUMBERS.sub("", "/".join((row.op or row.kernel or "").split("/")[-_NAMES:]))
