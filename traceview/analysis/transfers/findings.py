"""Concludes which copies to GPUs hold up the training, and why they are slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from traceview.analysis.base import Evidence, Finding, Rule, Severity
from traceview.analysis.cost import Cost
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.selection import Selection
from traceview.analysis.transfers.result import DeviceTransfers, Transfers
from traceview.analysis.transfers.rules import (
    H2D_EXPOSED,
    H2D_PAGEABLE,
    H2D_SLOW_LINK,
    H2D_SMALL_COPIES,
    SMALL_SIZE,
)
from traceview.document import numbers
from traceview.document.vocabulary import a_thread

_Measure = Callable[[DeviceTransfers], float]


def diagnose(result: Transfers, device_time: DeviceTime, selection: Selection) -> Iterator[Finding]:
    """Exposed copies to GPUs that compute; a GPU that only copies does not slow the training down."""
    in_use = {row.device for row in device_time.devices if row.is_in_use}
    # The device that loses most comes first.
    rows = sorted(
        (row for row in result.devices if row.device in in_use),
        key=lambda row: -_exposed(row, selection),
    )
    affected = [row for row in rows if H2D_EXPOSED.severity_of(_exposed(row, selection))]
    if affected:
        worst = affected[0]
        yield _finding(
            H2D_EXPOSED,
            affected,
            selection,
            title=f"copies to {worst.device} are exposed for {_cost(worst, selection).stated}",
            severity=H2D_EXPOSED.severity_of(_exposed(worst, selection)),
            more=_round_trip(worst),
        )
    affected = _past(H2D_PAGEABLE, rows, selection, "pageable_ratio", _pageable_ratio)
    if affected:
        worst = affected[0]
        share = _pageable_ratio(worst)
        yield _finding(
            H2D_PAGEABLE,
            affected,
            selection,
            title=f"{numbers.share(share)} of the bytes copied to {worst.device} come from pageable memory",
            evidence=("pageable_ratio", _pageable_ratio),
            cost_share=min(share, 1.0),
        )
    affected = _past(H2D_SMALL_COPIES, rows, selection, "small_count_per_step", _small_count)
    if affected:
        worst = affected[0]
        yield _finding(
            H2D_SMALL_COPIES,
            affected,
            selection,
            title=f"{_small_count(worst)} copies below {SMALL_SIZE} to {worst.device} per step",
            evidence=("small_count_per_step", _small_count),
        )
    affected = _past(
        H2D_SLOW_LINK, rows, selection, "link_use_ratio", _link_use_ratio, is_below=True
    )
    if affected:
        worst = affected[0]
        rate = numbers.rate(worst.directions.h2d.bytes_per_second)
        share = _link_use_ratio(worst)
        yield _finding(
            H2D_SLOW_LINK,
            affected,
            selection,
            title=(
                f"copies to {worst.device} run at {rate}, {numbers.share(share)} of the rate of its link"
            ),
            evidence=("link_use_ratio", _link_use_ratio),
            cost_share=1 - share,
        )


def _exposed(row: DeviceTransfers, selection: Selection) -> float:
    """Share of the mean step, without steps of the window."""
    return _cost(row, selection).ratio or 0.0


def _cost(row: DeviceTransfers, selection: Selection, share: float = 1.0) -> Cost:
    exposed_ps = row.directions.h2d.mean_exposed_ps_per_step
    if exposed_ps is None:
        return Cost.of_window((row.directions.h2d.exposed_ratio or 0.0) * share)
    return selection.cost("mean", int(exposed_ps * share))


def _pageable_ratio(row: DeviceTransfers) -> float:
    h2d = row.directions.h2d
    return (h2d.pageable_bytes or 0) / h2d.bytes if h2d.bytes else 0.0


def _small_count(row: DeviceTransfers) -> int:
    return row.directions.h2d.small_count_per_step or 0


def _link_use_ratio(row: DeviceTransfers) -> float:
    """The rate of the copies over that of the link; infinite where either is not known."""
    rate, link = row.directions.h2d.bytes_per_second, row.link_bytes_per_second
    return math.inf if rate is None or not link else rate / link


def _past(
    rule: Rule,
    rows: Sequence[DeviceTransfers],
    selection: Selection,
    limit: str,
    measure: _Measure,
    *,
    is_below: bool = False,
) -> list[DeviceTransfers]:
    """The devices past a limit whose copies are exposed long enough to matter."""
    exposed = [row for row in rows if _exposed(row, selection) >= rule.limits["exposed_ratio"]]
    return [row for row in exposed if (measure(row) >= rule.limits[limit]) is not is_below]


def _finding(
    rule: Rule,
    rows: Sequence[DeviceTransfers],
    selection: Selection,
    *,
    title: str,
    severity: Severity | None = None,
    more: str = "",
    evidence: tuple[str, _Measure] | None = None,
    cost_share: float = 1.0,
) -> Finding:
    """A finding on all `rows`; the first loses most, and `cost_share` of its exposed time is the cost.

    `evidence`: the limit that was passed besides the exposed time, and its measure. `more`: sentences of the explanation.
    """
    worst = rows[0]
    least = rule.limits.get("exposed_ratio", rule.limits.get("warning_ratio"))
    passed = []
    if evidence is not None:
        metric, measure = evidence
        passed = [Evidence(metric, measure(row), rule.limits[metric], row.device) for row in rows]
    return rule.finding(
        title,
        (
            *passed,
            *(
                Evidence("exposed_ratio", _exposed(row, selection), least, row.device)
                for row in rows
            ),
        ),
        severity="info" if selection.few_steps else severity,
        confidence=selection.few_steps or ("high", "the copies are recorded with their times"),
        explanation=f"{rule.meaning}{_issued(worst)}{more}",
        devices=[row.device for row in rows],
        cost=_cost(worst, selection, cost_share).as_bound("upper")
        if "upper bound" in rule.meaning
        else _cost(worst, selection, cost_share),
    )


def _issued(row: DeviceTransfers) -> str:
    """The op and thread whose copies are exposed longest, as a sentence; empty where not recorded."""
    source = next((source for source in row.top_sources if source.direction == "h2d"), None)
    if source is None:
        return ""
    issuer = " on ".join(filter(None, (source.op, source.thread and a_thread(source.thread))))
    return (
        f" On {row.device}, {issuer} issues the copies that are exposed longest." if issuer else ""
    )


def _round_trip(row: DeviceTransfers) -> str:
    if not row.round_trips:
        return ""
    trip = row.round_trips[0]
    return (
        f" {trip.op} runs on the CPU between two ops on {row.device}, so its data is copied to the host and back in "
        "every step."
    )
