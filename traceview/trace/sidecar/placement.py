"""Records of the devices that the graph of each step function asks for, as `traceview capture` writes them.

They are the group `placement` of the sidecar. Device names are those of TensorFlow, such as
`/job:localhost/replica:0/task:0/device:GPU:0`; `local_device` shortens them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Struct

from traceview.base.record import (
    DeviceKey,
    FunctionName,
    Message,
    OpName,
    OpType,
    Record,
    RecordedCount,
    one_of,
)

_DEVICE: Final = re.compile(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


class VariablesOnDevice(Record, frozen=True):
    """Variables that one device holds for the function.

    Attributes:
        count: Number of variables.
        bytes: Their bytes.
        mirrored: Number of mirrored variables.
        trainable: Number of trainable variables.
    """

    count: RecordedCount | None
    bytes: RecordedCount | None
    mirrored: RecordedCount | None
    trainable: RecordedCount | None


class NotMirrored(Record, frozen=True):
    """Variables that all replicas share, instead of a mirrored copy for each.

    Attributes:
        count: Number of variables.
        trainable: Number of trainable variables.
        names: Names of the first ones.
    """

    count: RecordedCount | None
    trainable: RecordedCount | None
    names: tuple[OpName, ...]


class FunctionVariables(Record, frozen=True):
    """Variables that a function uses.

    Attributes:
        per_device: Device to the variables that it holds.
        classes: Class in TensorFlow to the number of variables.
        not_mirrored: Variables that all replicas share.
    """

    per_device: dict[DeviceKey, VariablesOnDevice]
    classes: dict[Message, RecordedCount]
    not_mirrored: NotMirrored


class FunctionPlacement(Record, frozen=True):
    """One step function and the devices that its ops ask for.

    Attributes:
        step: Name under which its calls are counted as steps.
        name: Name of the function.
        traces: Number of its graphs; the counts are those of the newest.
        jit_compile: Whether XLA compiles it as a whole.
        op_count: Number of ops, including ops of inner functions.
        ops_per_device: Device to the number of ops that ask for it.
        ops_without_device: Ops that ask for no device.
        ops_per_type: Type of op to the number of ops.
        training_loop: Type of the op that repeats whole steps inside the function; null without one.
        traced_by: What differs between its graphs: python: a value of Python, such as a number; shape: the shape of a tensor;
            other: anything else. Empty for one graph, and where not recorded.
        replica_runs: How often its graph calls Strategy.run, if that is several times one after the other; else null.
        variables: Variables that it uses.
        missing: Name of each field that could not be read to the recorded reason.
    """

    step: FunctionName | None
    name: FunctionName | None
    traces: RecordedCount | None
    jit_compile: bool | None
    op_count: RecordedCount | None
    ops_per_device: dict[DeviceKey, RecordedCount]
    ops_without_device: RecordedCount | None
    ops_per_type: dict[OpType, RecordedCount]
    training_loop: FunctionName | None
    variables: FunctionVariables | None
    missing: dict[Message, Message]
    replica_runs: RecordedCount | None = None
    traced_by: tuple[Annotated[str, one_of("python", "shape", "other")], ...] = ()


class RecordedPlacement(Struct, frozen=True):
    """The step functions of the window; `missing`: the reason for each function without a graph."""

    functions: tuple[FunctionPlacement, ...]
    missing: dict[str, str]


def local_device(name: str, role: str | None, index: int | None) -> str:
    """`GPU:0` for a device of the process, `worker:1/GPU:0` for one of another process, else the name itself.

    `role` and `index`: the task of the process, None outside a cluster.
    """
    match = _DEVICE.fullmatch(name)
    if match is None:
        return name
    short = f"{match['type'].upper()}:{int(match['ordinal'])}"
    job, task = match["job"], int(match["task"] or 0)
    is_local = job in (None, "localhost") or (job, task) == (role, index)
    return short if is_local else f"{job}:{task}/{short}"
