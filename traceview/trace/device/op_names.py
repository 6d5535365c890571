"""Numbers what device events run, and reads the names of ops, for all topics once.

The text of an op is `scope/name:Type`. The name is used without the number of the replica, so that the copies of one
op on several devices share it: `replica_1/` is removed, an optimizer's `update_1` becomes `update`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from traceview.base.ids import unique_ids
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.trace.device.op_phase import KEPT_NAMES
from traceview.trace.model import NONE, Recording

_Value = TypeVar("_Value", bound=Hashable)

_REPLICA_PART = re.compile(r"(?:^|(?<=/))replica_\d+/")
_UPDATE_PART = re.compile(r"(?:^|(?<=/))update_\d+(?=_|/|$)")
_TYPE = re.compile(r"[A-Za-z_][\w>-]*")

OpName: TypeAlias = tuple[str | None, str | None]
"""The name of an op without its replica part, and its type; None where not recorded."""


class OpLabels(Struct, frozen=True, eq=False):
    """`of_row`: the label of each device event, int32. `row`: by label the first event that has it, int64."""

    of_row: Int32Array
    row: Int64Array


def op_labels(recording: Recording) -> OpLabels:
    """The labels of all device events, from 0 on as they first occur."""
    columns = recording.device_columns
    labels = SWEEPS.labelled(columns.op, columns.name, columns.class_)
    if recording.instructions:
        # Several programs may have an instruction and a kernel of the same names.
        labels = SWEEPS.labelled(labels[0], columns.instruction, columns.class_)
    return OpLabels(*labels)


class OpNames(Struct, frozen=True, eq=False):
    """`ops`: distinct. `of_name`: int32, by name the place of its op in `ops`; of `NONE` in its last place."""

    ops: tuple[OpName, ...]
    of_name: Int32Array


def op_names(recording: Recording) -> OpNames:
    """The ops that device events name."""
    unnamed: OpName = None, None
    return OpNames(*read_once(recording, recording.device_columns.op, split_op, unnamed))


def read_once(
    recording: Recording, column: Int32Array, read: Callable[[str], _Value], unnamed: _Value
) -> tuple[tuple[_Value, ...], Int32Array]:
    """Distinct values read from the names in a column that labels distinguish, and int32 the place of its value by name.

    The last place is that of `NONE`, whose value is `unnamed`.
    """
    place_of = {unnamed: 0}
    of_name = np.zeros(len(recording.names) + 1, dtype=np.int32)
    names = column[recording.once(op_labels).row]
    for name in unique_ids(names[names != NONE]).tolist():
        value = read(recording.names.text(name) or "")
        of_name[name] = place_of.setdefault(value, len(place_of))
    return tuple(place_of), of_name


@lru_cache(KEPT_NAMES)
def split_op(text: str) -> tuple[str, str | None]:
    """Name without its replica part, and type, of an op as recorded."""
    name, colon, type_ = text.rpartition(":")
    if not colon or not _TYPE.fullmatch(type_):
        # An op of an XLA program has a name and no type.
        return _without_replica(text), None
    return _without_replica(name), type_


def _without_replica(name: str) -> str:
    if "replica_" in name:
        name = _REPLICA_PART.sub("", name)
    return _UPDATE_PART.sub("update", name) if "update_" in name else name
