"""Compares the devices that the graphs of step functions ask for with the devices that ran work.

The sidecar holds the graphs of the step functions and the devices of their variables, known before any kernel runs.
The trace shows which devices computed or communicated in a step. The comparison shows a model that was created
outside `strategy.scope()`, and ops that are all placed on one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from traceview.analysis.rules.finding import Skipped
from traceview.base.record import DeviceKey, FunctionName, Hostname, Integer, Message, Record, Words
from traceview.document import numbers
from traceview.trace.device.active_devices import ActiveStep, active_steps, changes
from traceview.trace.model import Host, Trace
from traceview.trace.sidecar.placement import FunctionPlacement, VariablesOnDevice, local_device
from traceview.trace.sidecar.sidecar import Sidecar

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context

_MOST_SPANS: Final = 4
"""Changes that the sentence lists; more of them are counted."""
_SEVERAL: Final = 2
_MOST_ALIKE: Final = 3
"""Groups of hosts whose changes are stated."""


class ActiveDevices(Record, frozen=True):
    """Consecutive steps in which the same devices ran work, that is, computed or communicated.

    Attributes:
        first_step: Number of the first step.
        last_step: Number of the last step.
        step_count: Number of steps.
        devices: Keys of the devices.
    """

    first_step: Integer
    last_step: Integer
    step_count: Integer
    devices: tuple[DeviceKey, ...]


class PlacedDevice(Record, frozen=True):
    """What the graph of one function places on one device, and in how many steps that device ran work.

    Attributes:
        device: TensorFlow's name for it.
        op_count: Ops that the graph places on it; null without a graph.
        variable_count: Variables that it holds; null if unknown.
        mirrored_count: Mirrored variables among them.
        trainable_count: Trainable variables among them.
        variable_bytes: Bytes of the variables.
        recorded: Key of the same device in this report; null if unknown.
        step_count: Steps in which it ran work; null without steps or if the device is not in this report.
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
    """One step function and its devices.

    Attributes:
        graph: Its graph as recorded, with short names of devices.
        devices: What it places on each device, and what was recorded there.
    """

    graph: FunctionPlacement
    devices: tuple[PlacedDevice, ...]


class HostPlacement(Record, frozen=True):
    """Placement and recorded work of one host.

    Attributes:
        host: Name of the host.
        has_sidecar: Whether traceview capture wrote a sidecar.
        step_count: Steps in the window.
        active: Which devices ran work, over the steps.
        functions: The step functions; empty without a sidecar.
        statements: What the comparison shows, in sentences.
        missing: Step function to the reason why it has no graph, as recorded.
    """

    host: Hostname
    has_sidecar: bool
    step_count: Integer
    active: tuple[ActiveDevices, ...]
    functions: tuple[PlacedFunction, ...]
    statements: tuple[Words, ...]
    missing: dict[FunctionName, Message]


class Placement(Record, frozen=True):
    """Placement and recorded work.

    Attributes:
        hosts: Host by host.
    """

    hosts: tuple[HostPlacement, ...]


def placement_of(context: Context) -> Placement | Skipped:
    """The comparison of each host that has a sidecar or steps; `Context.once` keeps it."""
    trace = context.trace
    numbers_of = {
        trace.hosts[host].name: {step.number for step in steps}
        for host, steps in context.selection.steps.items()
    }
    rows = [row for row in active_steps(trace) if row.number in numbers_of.get(row.host, ())]
    hosts = tuple(
        _host(trace, host, [row for row in rows if row.host == host.name])
        for host in trace.hosts
        if host.sidecar is not None or any(row.host == host.name for row in rows)
    )
    return Placement(hosts) if hosts else Skipped("neither steps nor a sidecar")


def _host(trace: Trace, host: Host, rows: list[ActiveStep]) -> HostPlacement:
    active = tuple(_active(rows))
    statements = list(activity_statements(active, len(rows)))
    sidecar = host.sidecar
    if sidecar is None:
        missing = {"functions": "no sidecar: only traceview capture writes one beside the trace"}
        return HostPlacement(host.name, False, len(rows), active, (), tuple(statements), missing)
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
    return HostPlacement(host.name, True, len(rows), active, functions, unique, missing)


def _active(rows: Iterable[ActiveStep]) -> Iterator[ActiveDevices]:
    for devices, steps in groupby(rows, key=lambda row: row.devices):
        same = list(steps)
        yield ActiveDevices(same[0].number, same[-1].number, len(same), devices)


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


# Sentences


def local_name(name: str, sidecar: Sidecar) -> str:
    """TensorFlow's name of a device without the task of the sidecar's own process."""
    task = sidecar.environment.cluster
    return local_device(name, task.role, task.index)


# Which devices ran work


def activity_statements(active: Sequence[ActiveDevices], step_count: int) -> Iterator[str]:
    """Which devices ran work in the steps, and where that changes."""
    if len(active) == 1:
        where = f"all {step_count} steps" if step_count > 1 else "the only step"
        yield f"{numbers.listed(active[0].devices) or 'no device'} ran work in {where}"
    if len(active) < _SEVERAL:
        return
    spans = [f"{_span(active[0])} {_devices(active[0])}"]
    spans += [f"{_span(after)} {_change(before, after)}" for before, after in pairwise(active)]
    change_count = len(active) - 1
    times = "once" if change_count == 1 else f"{change_count} times"
    left = len(active) - _MOST_SPANS
    more = f"; {numbers.plural(left, 'more change')}" if left > 0 else ""
    yield (
        f"the devices that ran work changed {times} in {numbers.plural(step_count, 'step')}: "
        f"{'; '.join(spans[:_MOST_SPANS])}{more}"
    )


def _span(steps: ActiveDevices) -> str:
    if steps.step_count == 1:
        return f"step {steps.first_step}"
    return f"steps {steps.first_step} to {steps.last_step}"


def _devices(steps: ActiveDevices) -> str:
    return numbers.listed(steps.devices) or "none"


def _change(before: ActiveDevices, after: ActiveDevices) -> str:
    """Which devices joined and which left; all devices where none of them stayed."""
    joined, left = changes(before.devices, after.devices)
    if len(joined) == len(after.devices):
        return _devices(after)
    parts = (("with", joined), ("without", left))
    return ", ".join(f"{word} {numbers.listed(names)}" for word, names in parts if names)


# Where graph and recording differ


def function_statements(
    function: PlacedFunction, sidecar: Sidecar, step_count: int
) -> Iterator[str]:
    """What is wrong with the placement of one function; nothing where all is as it should be."""
    strategy = sidecar.environment.strategy
    name = function.graph.step or function.graph.name or "the step function"
    if strategy.class_ is not None and strategy.found_by == "memory":
        yield (
            f"the script creates a {strategy.class_}, but nothing in {name} shows that it is used"
        )
    yield from _unmirrored(function, sidecar, name)
    yield from _all_on_one_device(function, sidecar, name)
    yield from _unknown_replicas(function, sidecar, name)
    for device in function.devices:
        if device.op_count and device.step_count == 0:
            same = "it" if device.recorded == device.device else f"{device.recorded}, the same,"
            yield (
                f"{name} places {numbers.plural(device.op_count, 'op')} on {device.device}, but {same} ran no work "
                f"in any of {numbers.plural(step_count, 'step')}"
            )


def _unmirrored(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    strategy, variables = sidecar.environment.strategy, function.graph.variables
    is_mirrored = strategy.is_used and "Mirrored" in (strategy.class_ or "")
    if not is_mirrored or (strategy.replicas or 0) < _SEVERAL or variables is None:
        return
    count = variables.not_mirrored.trainable
    holders = [
        device.device
        for device in function.devices
        if (device.variable_count or 0) > (device.mirrored_count or 0)
    ]
    if count and holders:
        names = numbers.listed(list(dict.fromkeys(variables.not_mirrored.names)), most=3)
        yield (
            f"{numbers.plural(count, 'trainable variable')} of {name} on {numbers.listed(holders)} "
            f"{'is' if count == 1 else 'are'} not mirrored ({names or 'names not recorded'}), as if created "
            "outside strategy.scope()"
        )


def _all_on_one_device(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    graph = function.graph
    reason = _several_devices(sidecar)
    used = [device for device, count in graph.ops_per_device.items() if count]
    if reason is None or not graph.op_count or len(used) > 1:
        return
    if not used:
        yield (
            f"none of the {numbers.plural(graph.op_count, 'op')} of {name} asks for a device, {reason}: "
            "TensorFlow places them on the first device that can run them"
        )
        return
    count = numbers.plural(graph.ops_per_device[used[0]], "op")
    without = graph.ops_without_device or 0
    rest = f"; {numbers.plural(without, 'op')} of it may run anywhere" if without else ""
    yield f"{name} places {count} on {used[0]} and none on another device, {reason}{rest}"


def _unknown_replicas(function: PlacedFunction, sidecar: Sidecar, name: str) -> Iterator[str]:
    """Devices of the strategy that are no device of the report, where others of them are replicas."""
    strategy = sidecar.environment.strategy
    own = {local_name(device, sidecar) for device in strategy.devices or () if strategy.is_used}
    of_strategy = [device for device in function.devices if device.device in own]
    if not any(device.recorded for device in of_strategy):
        return
    for device in of_strategy:
        if device.op_count and device.recorded is None:
            yield (
                f"{name} places {numbers.plural(device.op_count, 'op')} on {device.device}, but no device of this "
                f"report is known to be {device.device}"
            )


def _several_devices(sidecar: Sidecar) -> str | None:
    """Why work should be on several devices of this process; None where it need not."""
    recorded = sidecar.environment
    own = {local_name(name, sidecar) for name in recorded.strategy.devices or ()}
    own = {name for name in own if "/" not in name}
    if len(own) >= _SEVERAL:
        return f"though {recorded.strategy.class_} has {len(own)} devices"
    logical = [local_name(name, sidecar) for name in recorded.devices.logical or ()]
    gpu_count = sum(name.startswith("GPU:") for name in logical)
    return f"though {gpu_count} GPUs are visible" if gpu_count >= _SEVERAL else None


# Hosts that are alike


def alike_hosts(hosts: Sequence[HostPlacement]) -> list[list[HostPlacement]]:
    """The hosts in groups that differ in nothing but the name of the host."""
    groups: dict[str, list[HostPlacement]] = {}
    for host in hosts:
        content = repr((host.functions, host.statements, host.missing))
        groups.setdefault(content.replace(f"{host.host}/", ""), []).append(host)
    return list(groups.values())
