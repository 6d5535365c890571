"""Makes the tiles of the first screen: step time, how busy the devices are, what one change can save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from traceview.analysis.anatomy.groups import WITH_WAITS, waits_in_collectives
from traceview.analysis.balance.rules import STRAGGLER
from traceview.analysis.base import Finding
from traceview.analysis.path.findings import UNEXPLAINED_IDLE
from traceview.analysis.python_lock import holds_lock_waits
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import (
    BOUNDS,
    CAUSES,
    PATH_PARTS,
    STEP_PARTS,
)
from traceview.report.model import Report, VerdictNumber
from traceview.report.recoverable import Recoverable, is_partly_seen, mean_step_ps, recoverable
from traceview.trace.cause import Cause

_PEER: Final = Cause.PEER.key

_LEAST_ADDED_RATIO: Final = 0.005
"""Less unexplained time than this share of what is recoverable is no part worth naming."""


def tiles(report: Report) -> Iterator[doc.Tile]:
    """The tiles whose numbers are known, and always what can be recovered."""
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
    if most.known_ps and most.unexplained_ps < _LEAST_ADDED_RATIO * most.known_ps:
        ratio = None if most.ratio is None else most.ratio - most.unexplained_ratio
        most = replace(most, ps_per_step=most.known_ps, ratio=ratio, unexplained_ratio=0.0)
    whole = "the step" if report.results.steps else "the window"
    if most.statistic is not None:
        whole = f"the {most.statistic} step"
    if most.unprofiled_step_ps is not None:
        whole = f"the mean {numbers.time(most.unprofiled_step_ps)} step without the profiler"
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
    known = report.findings[number - 1] if number else None
    if known is not None and (known.cost_bound == "lower" or is_partly_seen(known)):
        return _of_lower_bound(known, doc.Link(words, anchor))
    label, source = "Recoverable by one change at most", doc.Link(words, anchor)
    rest = _parts(most)
    if most.source == _PEER and any(row.code == STRAGGLER.code for row in report.findings):
        rest += f"; {STRAGGLER.code} says what an even share saves"
    if holds_lock_waits(report.findings, most.source):
        rest += ", which holds waiting for Python's lock"
    if most.ps_per_step is None:
        return doc.Tile(label, numbers.share(most.ratio), f"of {whole}", source, rest)
    note = "" if most.ratio is None else f"{numbers.share(most.ratio)} of {whole}"
    return doc.Tile(label, numbers.time(most.ps_per_step), note, source, rest)


def _of_lower_bound(finding: Finding, source: doc.Link) -> doc.Tile:
    """What a finding is known to cost, where the trace does not show what it costs at most."""
    if finding.cost_bound == "lower":
        label, rest = "Recoverable by one change, at least", ", whose cost is a lower bound"
    else:
        label = "Recoverable if input cost nothing, about"
        rest = "; more where its pipeline slows ops all the time, which the trace does not show"
    whole = f"the {finding.cost_statistic} step" if finding.cost_statistic else "the window"
    share = f"{numbers.share(finding.cost_ratio)} of {whole}"
    return doc.Tile(label, numbers.time(finding.cost_ps_per_step), share, source, rest)


def _parts(most: Recoverable) -> str:
    """What follows the source: its time where something is added to it, the waits it consists of, and what is added."""
    waits, unexplained = _waits(most), _with_unexplained(most)
    if not unexplained or most.known_ps is None:
        return waits + unexplained
    return f" {numbers.time(most.known_ps)}{waits}{'; and' if waits else ', and'}{unexplained}"


def _waits(most: Recoverable) -> str:
    """`: 5.85 ms waiting in collectives, 1.08 ms another device still busy`, if both occur."""
    if most.ps_per_step is None or not all(most.waits_ps):
        return ""
    names = (STEP_PARTS[key].words for key in ("collective_wait", _PEER))
    parts = zip(names, map(numbers.time, most.waits_ps), strict=True)
    return f": {', '.join(f'{time} {words}' for words, time in parts)}"


def _with_unexplained(most: Recoverable) -> str:
    """` 46.0 ms with no recorded cause if that belongs to it`: what is added to the source; empty if nothing is."""
    if most.source == UNEXPLAINED_IDLE.code or not most.unexplained_ratio:
        return ""
    words = CAUSES["unattributed"].words
    if most.known_ps is None:
        return f", with {numbers.share(most.unexplained_ratio)} {words}"
    is_cut = most.known_ps + most.unexplained_ps > (most.ps_per_step or 0)
    cut = "; both together at most the step" if is_cut else ""
    return f" {numbers.time(most.unexplained_ps)} with {words} if that belongs to it{cut}"
