"""What was asked of which device, and which devices ran work?

The graphs of the step functions and the devices of their variables stand in the sidecar, known before any
kernel runs. Which devices computed or communicated in a step stands in the trace. Side by side they show a
model that was created outside `strategy.scope()`, and ops that all ask for one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Final

from msgspec.structs import replace

from traceview.analysis import steps as step_times
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.steps.result import StepRow, Steps
from traceview.document import numbers
from traceview.record import DeviceKey, FunctionName, Hostname, Integer, Record
from traceview.trace.active_devices import changes, tells_devices
from traceview.trace.model import Host, Trace
from traceview.trace.placement import FunctionPlacement, VariablesOnDevice, local_device
from traceview.trace.sidecar import Sidecar

_MOST_SPANS: Final = 4
_SEVERAL: Final = 2


class ActiveDevices(Record, frozen=True):
    """Steps in a row in which the same devices ran work, that is computed or communicated.

    Attributes:
        first_step: Number of the first.
        last_step: Number of the last.
        step_count: How many there are.
        devices: Keys of the devices.
    """

    first_step: Integer
    last_step: Integer
    step_count: Integer
    devices: tuple[DeviceKey, ...]


class PlacedDevice(Record, frozen=True):
    """What one function asks of one device, beside what was recorded of that device.

    Attributes:
        device: TensorFlow's name for it.
        op_count: Ops that ask for it; null where there is no graph.
        variable_count: Variables that it holds; null where that is not known.
        mirrored_count: Those of them that are mirrored.
        trainable_count: Those of them that are trainable.
        variable_bytes: Bytes of the variables.
        recorded: Key of the device of this report that it is; null where none is known to be.
        step_count: Steps in which that one ran work; null without steps or such a device.
    """

    device: DeviceKey
    op_count: Integer | None
    variable_count: Integer | None
    mirrored_count: Integer | None
    trainable_count: Integer | None
    variable_bytes: Integer | None
    recorded: DeviceKey | None
    step_count: Integer | None


class PlacedFunction(Record, frozen=True):
    """One step function: its graph as recorded, with short names of devices, and the comparison.

    Attributes:
        graph: Its graph as recorded, with short names of devices.
        devices: What it asks of each device, beside what was recorded there.
    """

    graph: FunctionPlacement
    devices: tuple[PlacedDevice, ...]


class HostPlacement(Record, frozen=True):
    """One host. `functions` is empty without a sidecar, and `missing` says why one has no graph.

    Attributes:
        host: Name of the host.
        step_count: Steps in the window.
        active: Which devices ran work, over the steps.
        functions: The step functions.
        statements: What the comparison shows, in sentences.
        missing: Step function without a graph to the reason, as recorded.
    """

    host: Hostname
    step_count: Integer
    active: tuple[ActiveDevices, ...]
    functions: tuple[PlacedFunction, ...]
    statements: tuple[str, ...]
    missing: dict[FunctionName, str]


class Placement(Record, frozen=True):
    """Static placement and recorded work of each host.

    Attributes:
        hosts: Host by host.
    """

    hosts: tuple[HostPlacement, ...]


def compute(trace: Trace, steps: Steps | Skipped) -> Placement | Skipped:
    """Compare host by host; a host with neither sidecar nor steps has nothing to compare."""
    methods = {trace.hosts[one.host].name: one.method for one in trace.steps_by_host}
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
    told = tuple(_told(active, len(rows)))
    sidecar = host.sidecar
    if sidecar is None:
        missing = {"functions": "no sidecar: only traceview capture writes one beside the trace"}
        return HostPlacement(host.name, len(rows), active, (), told, missing)
    recorded = _recorded_devices(trace, host, sidecar)
    functions = tuple(
        _function(_short(graph, sidecar), recorded, active, has_steps=bool(rows))
        for graph in sidecar.placement.functions
    )
    told += tuple(
        statement
        for function in functions
        for statement in _statements(function, sidecar, len(rows))
    )
    missing = dict(sidecar.placement.missing)
    if not functions and not missing:
        missing = {"functions": "the sidecar holds none"}
    return HostPlacement(
        host.name, len(rows), active, functions, tuple(dict.fromkeys(told)), missing
    )


def _active(rows: Iterable[StepRow]) -> Iterator[ActiveDevices]:
    for devices, group in groupby(rows, key=_working):
        same = list(group)
        yield ActiveDevices(same[0].number, same[-1].number, len(same), devices)


def _working(row: StepRow) -> tuple[str, ...]:
    return tuple(
        one.device for one in row.devices if one.compute_ps + one.exposed_collective_ps > 0
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
    is_divided = any((one.logical_devices or 1) > 1 for one in physical if one.type == "GPU")
    found = {
        f"{kind.upper()}:{ordinal}": key
        for (kind, ordinal), key in keys.items()
        if kind in ("gpu", "tpu") and not is_divided
    }
    strategy = sidecar.environment.strategy
    # One that only the recording shows need not be the one found in memory.
    if strategy.is_used and strategy.found_by != "recording":
        for replica, name in enumerate(strategy.devices or ()):
            if ("replica", replica) in keys:
                found[_local(name, sidecar)] = keys["replica", replica]
    return found


def _local(name: str, sidecar: Sidecar) -> str:
    task = sidecar.environment.cluster
    return local_device(name, task.role, task.index)


def _short(graph: FunctionPlacement, sidecar: Sidecar) -> FunctionPlacement:
    ops: dict[str, int] = {}
    for name, count in graph.ops_per_device.items():
        ops[_local(name, sidecar)] = ops.get(_local(name, sidecar), 0) + count
    variables = graph.variables
    if variables is not None:
        per_device = {_local(name, sidecar): one for name, one in variables.per_device.items()}
        variables = replace(variables, per_device=per_device)
    return replace(graph, ops_per_device=ops, variables=variables)


def _function(
    graph: FunctionPlacement,
    recorded: dict[str, str],
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
    return None if key is None else sum(one.step_count for one in active if key in one.devices)


def _told(active: tuple[ActiveDevices, ...], step_count: int) -> Iterator[str]:
    """Which devices ran work in the steps, and where that changes."""
    if not active:
        return
    if len(active) == 1:
        where = f"all {step_count} steps" if step_count > 1 else "the only step"
        devices = active[0].devices
        yield (
            f"{numbers.listed(devices)} ran work in {where}"
            if devices
            else f"no device ran work in {where}"
        )
        return
    told = [f"{_span(active[0])} {_named(active[0])}"]
    told += [f"{_span(now)} {_changed(before, now)}" for before, now in pairwise(active)]
    spans = "; ".join(told[:_MOST_SPANS])
    left = len(active) - _MOST_SPANS
    yield (
        f"the devices that ran work changed {_times(len(active) - 1)} in {numbers.plural(step_count, 'step')}: "
        f"{spans}" + (f"; {numbers.plural(left, 'more change')}" if left > 0 else "")
    )


def _span(one: ActiveDevices) -> str:
    if one.step_count == 1:
        return f"step {one.first_step}"
    return f"steps {one.first_step} to {one.last_step}"


def _named(one: ActiveDevices) -> str:
    return numbers.listed(one.devices) if one.devices else "none"


def _changed(before: ActiveDevices, now: ActiveDevices) -> str:
    """What joined and what left, where some devices stayed; else those at work now."""
    joined, left = changes(before.devices, now.devices)
    if len(joined) == len(now.devices):
        return _named(now)
    told = [
        f"{word} {numbers.listed(names)}"
        for word, names in (("with", joined), ("without", left))
        if names
    ]
    return ", ".join(told)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _statements(function: PlacedFunction, sidecar: Sidecar, step_count: int) -> Iterator[str]:
    """What the comparison shows of one function; nothing where all is as it should be."""
    strategy, graph = sidecar.environment.strategy, function.graph
    name = graph.step or graph.name or "the step function"
    if strategy.class_ is not None and strategy.found_by == "memory":
        yield f"the script has a {strategy.class_}, and nothing in {name} shows that it is used"
    yield from _unmirrored(function, sidecar, name)
    yield from _one_device(function, sidecar, name)
    yield from _unseen_replicas(function, sidecar, name)
    for one in function.devices:
        if one.op_count and one.step_count == 0:
            same = "it" if one.recorded == one.device else f"{one.recorded}, which is {one.device},"
            yield (
                f"{name} asks {one.device} for {numbers.plural(one.op_count, 'op')}, and {same} ran no work "
                f"in any of {numbers.plural(step_count, 'step')}"
            )


def _unmirrored(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    strategy, variables = sidecar.environment.strategy, function.graph.variables
    is_mirrored = strategy.is_used and "Mirrored" in (strategy.class_ or "")
    if not is_mirrored or (strategy.replicas or 0) < _SEVERAL or variables is None:
        return
    alone = variables.not_mirrored
    places = [
        d.device for d in function.devices if (d.variable_count or 0) > (d.mirrored_count or 0)
    ]
    if alone.trainable and places:
        names = (
            numbers.listed(list(dict.fromkeys(alone.names)), most=3) if alone.names else "not named"
        )
        yield (
            f"{numbers.plural(alone.trainable, 'trainable variable')} of {name} on {numbers.listed(places)} "
            f"{'is' if alone.trainable == 1 else 'are'} not mirrored ({names}): that is so of variables "
            "created outside strategy.scope()"
        )


def _one_device(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    graph = function.graph
    why = _several_devices(sidecar)
    asked = [name for name, count in graph.ops_per_device.items() if count]
    if why is None or not graph.op_count or len(asked) > 1:
        return
    if not asked:
        yield (
            f"none of the {numbers.plural(graph.op_count, 'op')} of {name} asks for a device, {why}: "
            "TensorFlow puts them on the first that can run them"
        )
        return
    without = graph.ops_without_device or 0
    count = graph.ops_per_device[asked[0]]
    yield (
        f"{numbers.plural(count, 'op')} of {name} ask for {asked[0]} and none for another device, {why}"
        + (f"; {without} ask for none" if without else "")
    )


def _unseen_replicas(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    """Devices of the strategy that are no device of the report, beside others that are replicas."""
    strategy = sidecar.environment.strategy
    own = {_local(device, sidecar) for device in strategy.devices or () if strategy.is_used}
    if any(one.recorded for one in function.devices if one.device in own):
        for one in function.devices:
            if one.device in own and one.op_count and one.recorded is None:
                yield (
                    f"{name} asks {one.device} for {numbers.plural(one.op_count, 'op')}, and no device of this "
                    "report is known to be it"
                )


def _several_devices(sidecar: Sidecar) -> str | None:
    """Why work should be on several devices of this process; None where it need not."""
    environment = sidecar.environment
    own = {_local(name, sidecar) for name in environment.strategy.devices or ()}
    own = {name for name in own if "/" not in name}
    if len(own) >= _SEVERAL:
        return f"though {environment.strategy.class_} has {len(own)} devices"
    gpus = [n for n in environment.devices.logical or () if _local(n, sidecar).startswith("GPU:")]
    return f"though {len(gpus)} GPUs are visible" if len(gpus) >= _SEVERAL else None


ANALYSIS: Final = Analysis[Placement](
    "placement",
    compute=lambda context: compute(context.trace, context.result(step_times.ANALYSIS)),
)
