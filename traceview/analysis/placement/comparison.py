"""Compares the devices that the graphs of step functions ask for with the devices that ran work.

The sidecar holds the graphs of the step functions and the devices of their variables, known before any kernel runs.
The trace shows which devices computed or communicated in a step. The comparison shows a model that was created
outside `strategy.scope()`, and ops that are all placed on one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from msgspec.structs import replace

from traceview.analysis.base import Skipped
from traceview.analysis.placement.result import (
    ActiveDevices,
    HostPlacement,
    PlacedDevice,
    PlacedFunction,
    Placement,
)
from traceview.analysis.placement.statements import (
    activity_statements,
    function_statements,
    local_name,
)
from traceview.analysis.steps.result import StepRow, Steps
from traceview.trace.active_devices import tells_devices
from traceview.trace.model import Host, Trace
from traceview.trace.placement import FunctionPlacement, VariablesOnDevice
from traceview.trace.sidecar import Sidecar


def compute(trace: Trace, steps: Steps | Skipped) -> Placement | Skipped:
    """The comparison of each host that has a sidecar or steps."""
    methods = {trace.hosts[of_host.host].name: of_host.method for of_host in trace.steps_by_host}
    rows = [
        row
        for row in (() if isinstance(steps, Skipped) else steps.steps)
        if tells_devices(methods[row.host], row.excluded)
    ]
    hosts = tuple(
        _host(trace, host, [row for row in rows if row.host == host.name])
        for host in trace.hosts
        if host.sidecar is not None or any(row.host == host.name for row in rows)
    )
    return Placement(hosts) if hosts else Skipped("neither steps nor a sidecar")


def _host(trace: Trace, host: Host, rows: list[StepRow]) -> HostPlacement:
    active = tuple(_active(rows))
    statements = list(activity_statements(active, len(rows)))
    sidecar = host.sidecar
    if sidecar is None:
        missing = {"functions": "no sidecar: only traceview capture writes one beside the trace"}
        return HostPlacement(host.name, len(rows), active, (), tuple(statements), missing)
    recorded = _recorded_devices(trace, host, sidecar)
    functions = tuple(
        _function(_short(graph, sidecar), recorded, active, has_steps=bool(rows))
        for graph in sidecar.placement.functions
    )
    for function in functions:
        statements += function_statements(function, sidecar, len(rows))
    missing = dict(sidecar.placement.missing)
    if not functions and not missing:
        missing = {"functions": "the sidecar holds none"}
    unique = tuple(dict.fromkeys(statements))
    return HostPlacement(host.name, len(rows), active, functions, unique, missing)


def _active(rows: Iterable[StepRow]) -> Iterator[ActiveDevices]:
    for devices, steps in groupby(rows, key=_working):
        same = list(steps)
        yield ActiveDevices(same[0].number, same[-1].number, len(same), devices)


def _working(row: StepRow) -> tuple[str, ...]:
    return tuple(
        part.device for part in row.devices if part.compute_ps + part.exposed_collective_ps > 0
    )


def _recorded_devices(trace: Trace, host: Host, sidecar: Sidecar) -> dict[str, str]:
    """Keys of the report's devices by TensorFlow's short names, where these are known to be the same."""
    keys = {
        (device.kind, device.ordinal): trace.device_key(index)
        for index, device in enumerate(trace.device_list)
        if trace.hosts[device.host] is host
    }
    physical = sidecar.environment.devices.physical or ()
    # A GPU that TensorFlow divides is one plane and several logical devices.
    is_divided = any((gpu.logical_devices or 1) > 1 for gpu in physical if gpu.type == "GPU")
    recorded = {
        f"{kind.upper()}:{ordinal}": key
        for (kind, ordinal), key in keys.items()
        if kind in ("gpu", "tpu") and not is_divided
    }
    strategy = sidecar.environment.strategy
    # A strategy that only the recording shows need not be the strategy in memory.
    if strategy.is_used and strategy.found_by != "recording":
        for replica, name in enumerate(strategy.devices or ()):
            if ("replica", replica) in keys:
                recorded[local_name(name, sidecar)] = keys["replica", replica]
    return recorded


def _short(graph: FunctionPlacement, sidecar: Sidecar) -> FunctionPlacement:
    ops: dict[str, int] = {}
    for name, count in graph.ops_per_device.items():
        short = local_name(name, sidecar)
        ops[short] = ops.get(short, 0) + count
    variables = graph.variables
    if variables is not None:
        per_device = {
            local_name(name, sidecar): held for name, held in variables.per_device.items()
        }
        variables = replace(variables, per_device=per_device)
    return replace(graph, ops_per_device=ops, variables=variables)


def _function(
    graph: FunctionPlacement,
    recorded: Mapping[str, str],
    active: tuple[ActiveDevices, ...],
    *,
    has_steps: bool,
) -> PlacedFunction:
    held = None if graph.variables is None else graph.variables.per_device
    ops = None if graph.op_count is None else graph.ops_per_device
    nothing = VariablesOnDevice(0, 0, 0, 0)
    unknown = VariablesOnDevice(None, None, None, None)
    devices = []
    for name in sorted({*(ops or ()), *(held or ()), *recorded}, key=_by_number):
        variables = unknown if held is None else held.get(name, nothing)
        devices.append(
            PlacedDevice(
                device=name,
                op_count=None if ops is None else ops.get(name, 0),
                variable_count=variables.count,
                mirrored_count=variables.mirrored,
                trainable_count=variables.trainable,
                variable_bytes=variables.bytes,
                recorded=recorded.get(name),
                step_count=_steps_with(recorded.get(name), active) if has_steps else None,
            )
        )
    return PlacedFunction(graph, tuple(devices))


def _by_number(name: str) -> tuple[str, int]:
    prefix, _, number = name.rpartition(":")
    return prefix, int(number) if number.isdecimal() and len(number) < 10 else -1


def _steps_with(key: str | None, active: tuple[ActiveDevices, ...]) -> int | None:
    return (
        None if key is None else sum(steps.step_count for steps in active if key in steps.devices)
    )
