"""Records of the devices that the graph of each step function asks for, as `traceview capture` writes them.

They are the group `placement` of the sidecar. Device names are those of TensorFlow, such as
`/job:localhost/replica:0/task:0/device:GPU:0`; `local_device` shortens them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Struct

from traceview.base.record import DeviceKey, FunctionName, RecordedCount, one_of

_DEVICE: Final = re.compile(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


class FunctionPlacement(Struct, frozen=True):
    """One step function and the devices that its ops ask for.

    `step`: the name under which its calls are counted as steps. `op_count`: its ops, those of inner functions among them;
    `ops_per_device`: those that ask for a device. `training_loop`: the type of the op that repeats whole steps inside the
    function. `not_mirrored`: trainable variables that all replicas share, instead of a copy for each. `replica_runs`: how
    often its graph calls `Strategy.run`, if that is several times one after the other. `traced_by`: what differs between its
    graphs: a value of Python, such as a number, the shape of a tensor, or anything else.
    """

    step: FunctionName | None
    name: FunctionName | None
    op_count: RecordedCount | None
    ops_per_device: dict[DeviceKey, RecordedCount]
    training_loop: FunctionName | None
    not_mirrored: RecordedCount | None
    replica_runs: RecordedCount | None = None
    traced_by: tuple[Annotated[str, one_of("python", "shape", "other")], ...] = ()


class RecordedPlacement(Struct, frozen=True):
    """The step functions of the window."""

    functions: tuple[FunctionPlacement, ...]


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
