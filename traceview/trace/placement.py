"""What did the graph of each step function ask for before it ran, as `traceview capture` wrote it down?

The group `placement` of the sidecar. Device names are TensorFlow's own, such as
`/job:localhost/replica:0/task:0/device:GPU:0`; `local_device` makes them short.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from traceview.record import DeviceKey, FunctionName, Integer, OpName, OpType, Record

_DEVICE: Final = re.compile(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


class VariablesOnDevice(Record, frozen=True):
    """How many variables one device holds for the function, and of these how many are of which kind.

    Attributes:
        count: How many.
        bytes: Their bytes.
        mirrored: Those that are mirrored.
        trainable: Those that are trainable.
    """

    count: Integer | None
    bytes: Integer | None
    mirrored: Integer | None
    trainable: Integer | None


class NotMirrored(Record, frozen=True):
    """Variables of which there is one for all replicas; `names` are the first of them.

    Attributes:
        count: How many.
        trainable: Those that are trainable.
        names: Names of the first.
    """

    count: Integer | None
    trainable: Integer | None
    names: tuple[OpName, ...]


class FunctionVariables(Record, frozen=True):
    """Variables that a function uses. `classes`: how many by TensorFlow's class.

    Attributes:
        per_device: Device to what it holds.
        classes: Class of TensorFlow to the number of variables.
        not_mirrored: Those of which there is one for all replicas.
    """

    per_device: dict[DeviceKey, VariablesOnDevice]
    classes: dict[str, Integer]
    not_mirrored: NotMirrored


class FunctionPlacement(Record, frozen=True):
    """One step function. `step`: what its calls are counted as; `name`: its own. `traces`: its graphs.

    Attributes:
        step: What its calls are counted as.
        name: Its own name.
        traces: Graphs that it has; the newest is counted.
        jit_compile: Whether XLA compiles it as a whole.
        op_count: Ops, those of inner functions included.
        ops_per_device: Device to the number of ops that ask for it.
        ops_without_device: Ops that ask for no device.
        ops_per_type: Type of op to their number.
        training_loop: Type of the op that repeats whole steps inside it; null if none does.
        variables: Variables that it uses.
        missing: Field that could not be had to the reason, as recorded.
    """

    step: FunctionName | None
    name: FunctionName | None
    traces: Integer | None
    jit_compile: bool | None
    op_count: Integer | None
    ops_per_device: dict[DeviceKey, Integer]
    ops_without_device: Integer | None
    ops_per_type: dict[OpType, Integer]
    training_loop: FunctionName | None
    variables: FunctionVariables | None
    missing: dict[str, str]


class RecordedPlacement(Struct, frozen=True):
    """The step functions of the window; `missing`: those without a graph, and why."""

    functions: tuple[FunctionPlacement, ...]
    missing: dict[str, str]


def local_device(name: str, role: str | None, index: int | None) -> str:
    """`GPU:0` for a device of the process itself, `worker:1/GPU:0` for another's, else the name as it is.

    `role` and `index`: the task of the process, None outside a cluster.
    """
    found = _DEVICE.fullmatch(name)
    if found is None:
        return name
    short = f"{found['type'].upper()}:{int(found['ordinal'])}"
    job, task = found["job"], int(found["task"] or 0)
    is_local = job in (None, "localhost") or (job, task) == (role, index)
    return short if is_local else f"{job}:{task}/{short}"
