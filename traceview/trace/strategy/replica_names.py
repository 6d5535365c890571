"""Reads from the names of ops which replica issued them, and how many replicas a host has at least."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.device.op_names import (
    KEPT_NAMES,
    LONGEST_NAME,
    OPTIMIZER_SCOPE,
    Phase,
    phases_of,
    split_op_name,
    uses_variable,
)
from traceview.trace.model import NONE, DeviceColumns, Names, Recording
from traceview.xplane.planes import ActivityClass

_REPLICA: Final = lazy_pattern(rb"(?:^|/)replica_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_UPDATE: Final = lazy_pattern(rb"(?:^|/)update_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_REPLICA_SCOPE: Final = lazy_pattern(rb"(?:^|/|_)replica_(\d{1,4})(?:_\d+)?/")


class ReplicaNames:
    """The replicas that the names of ops show, by host and by device."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @cached_property
    def least_counts(self) -> dict[int, int]:
        """The smallest number of replicas that the op names of each host (by index) allow: the highest number plus one.

        The first replica has no number in names, so a host whose ops name no other replica is left out.
        """
        return {index: value + 1 for index, value in enumerate(self._highest.tolist()) if value > 0}

    def on_device(self, device: int) -> tuple[int, ...]:
        """The replicas, `replica_4/…`, that the names of ops computed on one device contain, sorted."""
        columns, rows = self._columns_of(device)
        op = columns.op[rows][columns.class_[rows] == ActivityClass.COMPUTE]
        replicas = unique_ids(self._replicas_of(unique_ids(op), device))
        return tuple(replicas[replicas != NONE].tolist())

    def of_gradients(self, device: int) -> dict[int, int]:
        """Picoseconds of gradient computation by replica on one device; ops without a number belong to replica 0."""
        columns, rows = self._columns_of(device)
        is_gradient = columns.class_[rows] == ActivityClass.COMPUTE
        is_gradient &= phases_of(self._recording)[rows] == Phase.BACKWARD
        names, index = unique_inverse(columns.op[rows][is_gradient])
        replicas, place = unique_inverse(np.maximum(self._replicas_of(names, device), 0))
        length_ps = columns.duration_ps[rows][is_gradient]
        total = SWEEPS.totals(place[index], length_ps, replicas.size)
        return dict(zip(replicas.tolist(), total.tolist(), strict=True))

    def _columns_of(self, device: int) -> tuple[DeviceColumns, slice]:
        columns = self._recording.device_columns
        return columns, columns.rows_of(device)

    def _replicas_of(self, names: Int64Array, device: int) -> Int64Array:
        """The replica that each of some names of ops on a device contains, `NONE` without one."""
        highest = int(self._highest[self._recording.device_list[device].host])
        texts = (b"" if name == NONE else self._recording.names[name] for name in names.tolist())
        return np.array([_replica_of_op(text, highest) for text in texts], dtype=np.int64)

    @cached_property
    def _highest(self) -> Int64Array:
        """The highest replica in the names of each host, over the events of the host and of its devices."""
        recording = self._recording
        columns, events = recording.device_columns, recording.host_columns
        used = [
            np.concatenate(
                (
                    unique_ids(events.name[events.rows_of_host(host)]),
                    *(unique_ids(columns.op[columns.rows_of(device)]) for device in devices),
                )
            )
            for host, devices in enumerate(recording.devices_of_host)
        ]
        return highest_replicas(recording.names, used)


@lru_cache(KEPT_NAMES)
def _replica_of_op(text: bytes, highest: int) -> int:
    """The replica that the recorded text of an op contains, `NONE` without one."""
    path, type_ = split_op_name(text[:LONGEST_NAME])
    # An optimizer names an op after the device of the variable; other ops are named after the replica that asks.
    if uses_variable(type_) and not OPTIMIZER_SCOPE.search(path):
        return NONE
    replica = replica_in(path, highest)
    return NONE if replica is None else replica


def highest_replicas(names: Names, of_hosts: Sequence[Int64Array]) -> Int64Array:
    """The highest k in a scope `replica_<k>/` among the names of each host, int64; `NONE` where no name has one.

    `of_hosts`: by host, indices of names, or `NONE`. Ops that only send to another device or receive from it count too.
    """
    number = np.array(
        [
            int(match[1])
            if b"replica_" in text and (match := _REPLICA_SCOPE.search(text[:LONGEST_NAME]))
            else NONE
            for text in names
        ]
        # The entry of `NONE`.
        + [NONE],
        dtype=np.int64,
    )
    return np.array([number[own].max(initial=NONE) for own in of_hosts], dtype=np.int64)


def replica_in(path: bytes, highest: int) -> int | None:
    """The replica that the name or path of an op contains: `replica_<k>`, or an optimizer's `update_<k>`.

    Of several `update_<k>` the innermost counts: an optimizer of tf_keras numbers its variables outside of it. Where
    k exceeds `highest`, the highest `replica_<k>` of the host, it numbers a variable.
    """
    # Most names have neither, which is found faster.
    match = _REPLICA.search(path) if b"replica_" in path else None
    if match:
        return int(match[1])
    updates = _UPDATE.findall(path) if b"update_" in path else []
    return int(updates[-1]) if updates and int(updates[-1]) <= max(highest, 0) else None
