"""What did the graph of each step function ask for before it ran, as `traceview capture` wrote it down?

The group `placement` of the sidecar. Device names are TensorFlow's own, such as
`/job:localhost/replica:0/task:0/device:GPU:0`; `local_device` makes them short.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_DEVICE: Final = re.compile(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


@dataclass(frozen=True)
class VariablesOnDevice:
    """How many variables one device holds for the function, and of these how many are of which kind."""

    count: int | None
    bytes: int | None
    mirrored: int | None
    trainable: int | None


@dataclass(frozen=True)
class NotMirrored:
    """Variables of which there is one for all replicas; `names` are the first of them."""

    count: int | None
    trainable: int | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class FunctionVariables:
    """Variables that a function uses. `classes`: how many by TensorFlow's class."""

    per_device: dict[str, VariablesOnDevice]
    classes: dict[str, int]
    not_mirrored: NotMirrored


@dataclass(frozen=True)
class FunctionPlacement:
    """One step function. `step`: what its calls are counted as; `name`: its own. `traces`: its graphs.

    `ops_per_device`: ops of its newest graph and of those in it, by the device that they ask for;
    `ops_without_device` ask for none. `training_loop`: type of the op that repeats whole steps inside the
    graph, if any. `missing`: why a field could not be had.
    """

    step: str | None
    name: str | None
    traces: int | None
    jit_compile: bool | None
    op_count: int | None
    ops_per_device: dict[str, int]
    ops_without_device: int | None
    ops_per_type: dict[str, int]
    training_loop: str | None
    variables: FunctionVariables | None
    missing: dict[str, str]


@dataclass(frozen=True)
class RecordedPlacement:
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
