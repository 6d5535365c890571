"""Which hosts does a run have, what is each for, and how were their clocks set?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analyses.capture import HostCapture
from traceview.render import numbers
from traceview.render.columns import Column, add_columns, fitting
from traceview.render.page import Page
from traceview.report.model import Report
from traceview.trace.model import HostClock

SHOWN: Final = 8
"""Of more hosts those of which there is most to say are shown."""

_WIDEST_NAME: Final = 24
_NAMED_STEPS: Final = 4
_METHOD_WORDS: Final = {
    "collectives": "by collectives",
    "profile_start": "by profile start",
    "none": "not comparable",
}


def add_hosts(page: Page, report: Report) -> None:
    """One row per host of a run of several; nothing for a run of one."""
    hosts = report.capture.hosts
    if len(hosts) < 2:
        return
    page.heading("Hosts", _remark(hosts))
    rows = _worth_showing(hosts)
    add_columns(page, fitting(page, _columns(page, report, rows)))
    if len(rows) < len(hosts):
        page.prose(
            page.styled(f"{len(hosts) - len(rows)} other hosts: --format json lists all.", "dim")
        )


def _remark(hosts: Sequence[HostCapture]) -> str:
    """How the clocks were set, and how well the ends of collectives agree then."""
    clocks = [host.clock for host in hosts if host.clock is not None]
    if any(clock.method == "none" for clock in clocks):
        return "some clocks could not be set: times of those hosts stand alone"
    spreads = [clock.residual_ps for clock in clocks if clock.residual_ps is not None]
    if not spreads:
        return "clocks set by the start of each profile: no collective shows how far they are apart"
    if not any(clock.method == "collectives" for clock in clocks):
        return f"clocks agree within the spread of collective ends, {numbers.time(max(spreads))}"
    return (
        f"clocks set by the ends of collectives, which then spread by {numbers.time(max(spreads))}"
    )


def _worth_showing(hosts: Sequence[HostCapture]) -> list[HostCapture]:
    if len(hosts) <= SHOWN:
        return list(hosts)
    most = sorted(hosts, key=lambda host: (not host.missing_steps, -_moved(host)))[:SHOWN]
    return [host for host in hosts if host in most]


def _moved(host: HostCapture) -> int:
    return 0 if host.clock is None else abs(host.clock.offset_ps)


def _columns(page: Page, report: Report, rows: Sequence[HostCapture]) -> list[Column]:
    columns = [Column("host", [Text(page.middle(row.host, _WIDEST_NAME), "bold") for row in rows])]
    if any(row.role is not None for row in rows):
        roles = [page.middle(row.role or numbers.ABSENT, _WIDEST_NAME) for row in rows]
        columns.append(Column("role", [Text(role) for role in roles], droppable=1))
    columns += [
        Column("devices", [page.styled(_devices(report, row)) for row in rows], True, 5),
        Column("steps", [page.styled(_steps(report, row)) for row in rows], True, 4),
        Column("clock set", [page.styled(_method(row)) for row in rows], droppable=2),
        Column("moved by", [page.styled(_offset(row)) for row in rows], True),
    ]
    if any(row.clock is not None and row.clock.drift_ps_per_s is not None for row in rows):
        columns.append(Column("drift", [page.styled(_drift(row)) for row in rows], True, 3))
    if any(row.missing_steps for row in rows):
        missing = [page.styled(_missing(page, row)) for row in rows]
        columns.append(Column("steps missing", missing))
    return columns


def _devices(report: Report, row: HostCapture) -> str:
    found = report.results.device_time
    return numbers.count(sum(one.host == row.host for one in found.devices) if found else 0)


def _steps(report: Report, row: HostCapture) -> str:
    found = report.results.steps
    return numbers.count(sum(one.host == row.host for one in found.steps) if found else 0)


def _method(row: HostCapture) -> str:
    return numbers.ABSENT if row.clock is None else _METHOD_WORDS[row.clock.method]


def offset(clock: HostClock) -> str:
    """What collectives added to the times of a host: `-7.00 ms`; nothing is known of one that stands alone."""
    if clock.method == "none":
        return numbers.ABSENT
    sign = "-" if clock.offset_ps < 0 else "+" if clock.offset_ps else ""
    return f"{sign}{numbers.time(abs(clock.offset_ps))}"


def _offset(row: HostCapture) -> str:
    return numbers.ABSENT if row.clock is None else offset(row.clock)


def _drift(row: HostCapture) -> str:
    if row.clock is None or row.clock.drift_ps_per_s is None:
        return numbers.ABSENT
    gained = row.clock.drift_ps_per_s
    return f"{'-' if gained < 0 else '+'}{numbers.time(abs(gained))}/s"


def _missing(page: Page, row: HostCapture) -> str:
    named = ", ".join(map(str, row.missing_steps[:_NAMED_STEPS]))
    more = len(row.missing_steps) - _NAMED_STEPS
    return f"{named} {page.ellipsis} {more} more" if more > 0 else named
