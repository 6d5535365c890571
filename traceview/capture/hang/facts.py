"""Collects what the report of a hang says: what the hooks know, threads, collectives, workers and GPUs.

Only what is there is read, and nothing is asked of the main thread.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traceview.base.stack_dump import dumped_stacks
from traceview.base.version import VERSION
from traceview.capture.hang import threads
from traceview.capture.hang.peers import Peers
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.sidecar.file import NoAnswerError, reason_of
from traceview.capture.sidecar.gpu_libraries import opened_nvml
from traceview.capture.steps.graphs import called
from traceview.capture.steps.step_objects import traces

SCHEMA_VERSION: Final = 1
_DRIVER: Final = Path("/proc/driver/nvidia")
_TRACING: Final = "framework/func_graph.py"


def facts_now(
    steps: StepWatch,
    peers: Peers,
    places: CodePlaces,
    known: Mapping[str, Any],
    *,
    wait: Callable[[], object],
    own_threads: frozenset[int],
) -> dict[str, Any]:
    """Everything about a hang that is open. `wait`: lets the time between the two looks at threads pass.

    `known`: fields that only the watch has.
    """
    calls = other_calls(steps)
    first = threads.look(places, without=own_threads)
    wait()
    second = threads.look(places, without=own_threads)
    facts = {**_of_hooks(steps, peers), **threads.described(first, second)}
    facts["calls_in_look"] = max(other_calls(steps) - calls, 0)
    facts["workers"] = peers.read()
    facts["gpus"] = _gpus(facts["missing"])
    if facts["is_step"]:
        facts["collectives"] = _collectives(steps, facts)
    return {**facts, **known}


def facts_of_lock(
    steps: StepWatch, peers: Peers, places: CodePlaces, known: Mapping[str, Any], stacks: str
) -> dict[str, Any]:
    """About a time in which no Python ran. `stacks`: what `faulthandler` wrote in it."""
    now = threads.look(places)
    facts = {**_of_hooks(steps, peers), **threads.described(now, now), **known}
    return {
        **facts,
        "step_function": None,
        "is_step": False,
        "is_first_call": False,
        "is_evaluation": False,
        "is_lock_held": True,
        "look_ns": 0,
        "cores": None,
        "written_bytes": None,
        "threads": threads_of_fallback(stacks, places),
        "native": [],
        "missing": {} if stacks else {"threads": "the stacks of that time were not written"},
    }


def other_calls(steps: StepWatch) -> int:
    """Calls so far of functions that are no step."""
    return sum(callee.calls for callee in list(steps.observer.callees) if not callee.is_step)


def _of_hooks(steps: StepWatch, peers: Peers) -> dict[str, Any]:
    """What the hooks know."""
    callee = steps.observer.current
    task = peers.place.task if peers.place else None
    others = [callee for callee in list(steps.observer.callees) if not callee.is_step]
    most_called = max(others, key=lambda callee: callee.calls, default=None)
    return {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": VERSION,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "task": str(task) if task else None,
        "state": "open",
        "noticed_ns": time.time_ns(),
        "total_ns": None,
        "step_function": callee.name if callee else None,
        "is_step": callee is not None and callee.is_step,
        "is_first_call": callee is not None and callee.calls <= 1,
        "is_evaluation": callee is not None and callee.is_evaluation,
        "is_lock_held": False,
        "other_function": most_called.name if most_called else None,
        "calls_in_look": 0,
    }


def _collectives(steps: StepWatch, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The collectives in the graph of the step that is being called."""
    missing: dict[str, str] = facts["missing"]
    callee = steps.observer.current
    main: Sequence[str] = next((row["frames"] for row in facts["threads"] if row["is_main"]), ())
    if callee is None or any(_TRACING in line for line in main):
        missing["collectives"] = "the graph of the step is still being made"
        return []
    try:
        functions = [
            traces(function) for function in steps.framework.step_objects.functions(callee.name)
        ]
        graphs = [traced[-1].graph for traced in functions if traced]
        return [entry for graph in graphs for entry in collectives_of(graph)]
    except Exception as error:
        missing["collectives"] = reason_of(error)
        return []


def threads_of_fallback(text: str, places: CodePlaces) -> list[dict[str, Any]]:
    """The stacks that `faulthandler` wrote; it names no thread."""
    stacks = [
        [
            (frame.file, f"{places.shown(frame.file)}:{frame.line} in {frame.function}")
            for frame in stack
            if not places.is_own(frame.file)
        ]
        for stack in dumped_stacks(text)
    ]
    return [
        {
            "name": "main thread" if place == 0 else "thread",
            "is_main": place == 0,
            "is_moving": None,
            "wait": None,
            "computing_ratio": None,
            "user_line": next((line for file, line in stack if places.is_user(file)), None),
            "frames": [line for _, line in stack],
        }
        for place, stack in enumerate(stack for stack in stacks if stack)
    ]


def _gpus(missing: dict[str, str]) -> list[dict[str, Any]]:
    """Load and power of each GPU now."""
    gpus = []
    try:
        with opened_nvml() as nvml:
            for ordinal in range(int(nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(ordinal)
                busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
                power = None
                with suppress(Exception):
                    power = float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000
                gpus.append({"ordinal": ordinal, "busy_ratio": busy, "power_watts": power})
    except NoAnswerError as reason:
        if _DRIVER.exists():
            missing["gpus"] = str(reason)
    except Exception as error:
        missing["gpus"] = reason_of(error)
    return gpus


MOST: Final = 500
"""Ops that are listed; a graph with more has its first ones here."""
_TYPES: Final = ("Collective", "Nccl")
_NO_WAITING: Final = ("CollectiveAssignGroup", "CollectiveInitializeCommunicator")


def collectives_of(graph: Any) -> list[dict[str, Any]]:
    """The collectives of a graph and of the functions that it calls, in the order of the graph."""
    found: list[dict[str, Any]] = []
    for op in _ops(graph, set()):
        if len(found) == MOST:
            break
        if op.type.startswith(_TYPES) and not op.type.startswith(_NO_WAITING):
            found.append({
                "op": op.name,
                "type": op.type,
                "device": short_device(op.device),
                "group_key": _number(op, "group_key"),
                "instance_key": _number(op, "instance_key"),
                "has_come": None,
            })  # fmt: skip
    return found


def short_device(device: str) -> str:
    """`CPU:0` for `/job:localhost/replica:0/task:0/device:CPU:0`."""
    return device.rpartition("/device:")[2] if "/device:" in device else ""


def _ops(graph: Any, known: set[str]) -> Iterator[Any]:
    for op in graph.get_operations():
        yield op
        for name in called(op, op.type):
            if name not in known:
                known.add(name)
                yield from _ops(graph._get_function(name).graph, known)


def _number(op: Any, argument: str) -> int | None:
    """The value of an input that the graph fixes; None where only the run knows it."""
    names = [entry.name for entry in op.op_def.input_arg]
    if argument not in names:
        return None
    value = sys.modules["tensorflow"].get_static_value(op.inputs[names.index(argument)])
    return None if value is None else int(value)
