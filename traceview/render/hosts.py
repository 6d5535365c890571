"""Which hosts does a run have, what is each for, and how were their clocks set?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.capture.compute import HostCapture
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_fitting
from traceview.report.model import Report
from traceview.report.standing_out import NAMED
from traceview.trace.model import HostClock

SHOWN: Final = 8
"""Of more hosts those of which there is most to say are shown."""

_WIDEST_NAME: Final = 24
_NAMED_STEPS: Final = 4
_NAMED_TASKS: Final = 8
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
    page.heading("Hosts", clock_remark(hosts))
    rows = _worth_showing(report, hosts)
    add_fitting(page, _columns(page, report, rows))
    if report.capture.unrecorded_tasks:
        absent = numbers.listed(list(report.capture.unrecorded_tasks), _NAMED_TASKS)
        page.prose(page.styled(f"Not recorded: {absent}."))
    if len(rows) < len(hosts):
        others = [host for host in hosts if host not in rows]
        page.prose(page.styled(_others(report, others), "dim"))


def clock_remark(hosts: Sequence[HostCapture]) -> str:
    """How the clocks were set, and how well the ends of collectives agree then."""
    clocks = [host.clock for host in hosts if host.clock is not None]
    if any(clock.method == "none" for clock in clocks):
        return "some clocks could not be set: times of those hosts stand alone"
    spreads = [clock.residual_ps for clock in clocks if clock.residual_ps is not None]
    most = max((clock.residual_max_ps or 0 for clock in clocks), default=0)
    if not spreads:
        return "clocks set by the start of each profile: no collective shows how far they are apart"
    spread = f"{numbers.time(max(spreads))}, at most {numbers.time(most)}"
    if not any(clock.method == "collectives" for clock in clocks):
        return f"clocks agree within the spread of collective ends, {spread}"
    return f"clocks set by the ends of collectives: spread {spread}"


def _worth_showing(report: Report, hosts: Sequence[HostCapture]) -> list[HostCapture]:
    """Hosts that lack steps, then those of devices that differ or that a finding is about, then those moved most."""
    if len(hosts) <= SHOWN:
        return list(hosts)
    found = report.results.device_time
    devices = found.devices if found else ()
    statuses = [row.status for row in devices]
    usual = max(statuses, key=statuses.count, default="")
    named = {key for one in report.findings if len(one.devices) <= NAMED for key in one.devices}
    apart = {row.host for row in devices if row.status != usual or row.device in named}
    most = sorted(
        hosts, key=lambda host: (not host.missing_steps, host.host not in apart, -_moved(host))
    )[:SHOWN]
    return [host for host in hosts if host in most]


def _others(report: Report, hosts: Sequence[HostCapture]) -> str:
    """Between what the hosts lie that have no row."""
    moved = sorted(host.clock.offset_ps for host in hosts if host.clock is not None)
    told = f"{numbers.plural(len(hosts), 'other')}: busy {_busy(report, hosts)}"
    if moved:
        told += f", moved by {_signed(moved[0])} to {_signed(moved[-1])}"
    return f"{told}; --format json has all."


def _busy(report: Report, hosts: Sequence[HostCapture]) -> str:
    """Between which shares the devices of the hosts are busy."""
    found = report.results.device_time
    names = {host.host for host in hosts}
    rows = [row for row in found.devices if row.host in names] if found else []
    return numbers.shares(row.busy_ratio for row in rows)


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
        Column("busy", [page.styled(_busy(report, [row])) for row in rows], True, 3),
        Column("clock set", [page.styled(method(row)) for row in rows], droppable=2),
        Column("moved by", [page.styled(_offset(row)) for row in rows], True),
    ]
    if any(row.clock is not None and row.clock.drift_ps_per_s is not None for row in rows):
        columns.append(Column("drift", [page.styled(drift(row)) for row in rows], True, 3))
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


def method(row: HostCapture) -> str:
    """How the clock of a host was set."""
    return numbers.ABSENT if row.clock is None else _METHOD_WORDS[row.clock.method]


def offset(clock: HostClock) -> str:
    """What collectives added to the times of a host: `-7.00 ms`; nothing is known of one that stands alone."""
    if clock.method == "none":
        return numbers.ABSENT
    return _signed(clock.offset_ps)


def _signed(picoseconds: int) -> str:
    sign = "-" if picoseconds < 0 else "+" if picoseconds else ""
    return f"{sign}{numbers.time(abs(picoseconds))}"


def _offset(row: HostCapture) -> str:
    return numbers.ABSENT if row.clock is None else offset(row.clock)


def drift(row: HostCapture) -> str:
    """How much a clock gained: `+1.20 µs/s`."""
    if row.clock is None or row.clock.drift_ps_per_s is None:
        return numbers.ABSENT
    gained = row.clock.drift_ps_per_s
    return f"{'-' if gained < 0 else '+'}{numbers.time(abs(gained))}/s"


def _missing(page: Page, row: HostCapture) -> str:
    named = ", ".join(map(str, row.missing_steps[:_NAMED_STEPS]))
    more = len(row.missing_steps) - _NAMED_STEPS
    return f"{named} {page.ellipsis} {more} more" if more > 0 else named
