"""What was asked of which device, and which devices ran work?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.placement import HostPlacement, PlacedDevice, PlacedFunction, Placement
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_fitting
from traceview.render.device_names import bare
from traceview.report.model import Report

SHOWN_GROUPS: Final = 3
SHOWN_FUNCTIONS: Final = 3
SHOWN_DEVICES: Final = 16
_SHOWN_HOSTS: Final = 4
_WIDEST_NAME: Final = 40
_ROOMY: Final = 80
_WIDEST_DEVICE: Final = 24
_NARROW_DEVICE: Final = 14


def add_placement(page: Page, report: Report) -> None:
    """Graph and recording side by side, by function; nothing without a sidecar unless devices change."""
    placement = report.results.placement
    environment = report.results.environment
    if placement is None:
        return
    known = {host.host for host in environment.hosts} if environment else set()
    told = [
        host
        for host in placement.hosts
        if host.functions or len(host.active) > 1 or (host.host in known and host.missing)
    ]
    groups = alike(told)
    for group in groups[:SHOWN_GROUPS]:
        names = numbers.listed([host.host for host in group], most=_SHOWN_HOSTS)
        where = f"on {names}" if len(placement.hosts) > 1 else ""
        _add_host(page, group[0], where, has_sidecar=group[0].host in known)
    left = sum(map(len, groups[SHOWN_GROUPS:]))
    if left:
        page.prose(page.styled(f"{numbers.plural(left, 'more host')}: --format json", "dim"))


def changes_of_devices(placement: Placement) -> list[str]:
    """Which devices ran work in which steps, for hosts on which that changes; of hosts alike the first."""
    changing = [host for host in placement.hosts if len(host.active) > 1]
    return [group[0].statements[0] for group in alike(changing)[:SHOWN_GROUPS]]


def alike(hosts: Sequence[HostPlacement]) -> list[list[HostPlacement]]:
    """Hosts of which the same is to be said."""
    groups: dict[str, list[HostPlacement]] = {}
    for host in hosts:
        same = repr((host.functions, host.statements, host.missing))
        groups.setdefault(same.replace(f"{host.host}/", ""), []).append(host)
    return list(groups.values())


def _add_host(page: Page, host: HostPlacement, where: str, *, has_sidecar: bool) -> None:
    page.heading("Placement", where)
    for function in host.functions[:SHOWN_FUNCTIONS]:
        _add_function(page, function, host.step_count)
    left = len(host.functions) - SHOWN_FUNCTIONS
    if left > 0:
        page.prose(page.styled(f"{numbers.plural(left, 'more function')}: --format json", "dim"))
    for statement in host.statements:
        # The host stands in the heading.
        page.prose(statement.replace(f"{host.host}/", ""), indent=4, label=Text("  - "))
    if has_sidecar:
        for name, reason in list(host.missing.items())[:SHOWN_FUNCTIONS]:
            text = f"{page.middle(name, _WIDEST_NAME)}: {reason}"
            page.prose(page.styled(text, "dim"), indent=4, label=Text("  - "))


def _add_function(page: Page, function: PlacedFunction, step_count: int) -> None:
    page.prose(", ".join(about(page, function)))
    devices = function.devices[:SHOWN_DEVICES]
    widest = _WIDEST_DEVICE if page.width >= _ROOMY else _NARROW_DEVICE
    names = [Text(page.middle(one.device, widest)) for one in devices]
    recorded = [Text(page.middle(bare(one.recorded or numbers.ABSENT), widest)) for one in devices]
    columns = [
        Column("device", names),
        _numbers(page, "ops asked", [one.op_count for one in devices]),
        _numbers(page, "variables", [one.variable_count for one in devices]),
        _numbers(page, "mirrored", [one.mirrored_count for one in devices], droppable=3),
        Column(
            "size",
            [page.styled(numbers.size(one.variable_bytes)) for one in devices],
            right=True,
            droppable=4,
        ),
        Column("recorded as", recorded, droppable=2),
        Column("work in", [page.styled(_steps(one, step_count)) for one in devices], droppable=1),
    ]
    if devices:
        add_fitting(page, columns)
    left = len(function.devices) - SHOWN_DEVICES
    if left > 0:
        page.prose(page.styled(f"{numbers.plural(left, 'more device')}: --format json", "dim"))


def _numbers(page: Page, heading: str, values: Sequence[int | None], droppable: int = 0) -> Column:
    cells = [page.styled(numbers.count(value)) for value in values]
    return Column(heading, cells, right=True, droppable=droppable)


def about(page: Page, function: PlacedFunction) -> Iterator[str]:
    """What a step function is, a few words each."""
    graph = function.graph
    yield page.middle(graph.step or graph.name or "a step function", _WIDEST_NAME)
    if graph.op_count is not None:
        yield numbers.plural(graph.op_count, "op")
    if graph.ops_without_device:
        yield f"{numbers.count(graph.ops_without_device)} of them for no device"
    if graph.traces is not None and graph.traces > 1:
        yield f"the newest of {numbers.plural(graph.traces, 'trace')}"
    if graph.training_loop is not None:
        yield f"several steps per call ({page.middle(graph.training_loop, _WIDEST_NAME)})"
    if graph.jit_compile:
        yield "compiled by XLA as a whole"


def _steps(one: PlacedDevice, step_count: int) -> str:
    if one.step_count is None:
        return numbers.ABSENT
    return f"{one.step_count} of {numbers.plural(step_count, 'step')}"
