"""Says in sentences which devices ran work, and where that differs from what the graphs ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from traceview.analysis.placement.result import ActiveDevices, PlacedFunction
from traceview.document import numbers
from traceview.trace.active_devices import changes
from traceview.trace.placement import local_device
from traceview.trace.sidecar import Sidecar

_MOST_SPANS: Final = 4
"""Changes that the sentence lists; more of them are counted."""
_SEVERAL: Final = 2


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
