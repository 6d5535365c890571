"""Reads the names of ops, for all topics once.

The text of an op is `scope/name:Type`. The name is used without the number of the replica, so that the copies of one
op on several devices share it: `replica_1/` is removed, an optimizer's `update_1` becomes `update`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from traceview.ids import unique_ids
from traceview.intervals import Int32Array
from traceview.trace.model import NONE, Recording
from traceview.trace.op_labels import op_labels
from traceview.trace.op_phase import KEPT_NAMES

_REPLICA_PART = re.compile(r"(?:^|(?<=/))replica_\d+/")
_UPDATE_PART = re.compile(r"(?:^|(?<=/))update_\d+(?=_|/|$)")
_TYPE = re.compile(r"[A-Za-z_][\w>-]*")

OpName: TypeAlias = tuple[str | None, str | None]
"""The name of an op without its replica part, and its type; None where not recorded."""


class OpNames(Struct, frozen=True, eq=False):
    """`ops`: distinct. `of_name`: int32, by name the place of its op in `ops`; of `NONE` in its last place."""

    ops: tuple[OpName, ...]
    of_name: Int32Array


def op_names(recording: Recording) -> OpNames:
    """The ops that device events name."""
    place_of: dict[OpName, int] = {(None, None): 0}
    of_name = np.zeros(len(recording.names) + 1, dtype=np.int32)
    names = recording.device_columns.op[recording.once(op_labels).row]
    for name in unique_ids(names[names != NONE]).tolist():
        op = split_op(recording.names.text(name) or "")
        of_name[name] = place_of.setdefault(op, len(place_of))
    return OpNames(tuple(place_of), of_name)


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
