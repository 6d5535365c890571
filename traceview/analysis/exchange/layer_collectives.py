"""Tells collectives that layers of the model make from those that sum gradients.

Gradients are summed once per step, after the backward pass and in a scope of the optimizer. A layer that computes over all
replicas, such as synchronised batch normalisation, makes its collectives in its own scope, which the backward pass has too;
there each of them may have one more, which TensorFlow names after no layer (TensorFlow 2.21).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Context
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, places
from traceview.base.stats import median_ps
from traceview.trace.device.op_names import (
    LONGEST_NAME,
    OPTIMIZER_SCOPE,
    Phase,
    op_names,
    phases_of,
    split_op,
)
from traceview.trace.model import NONE, Trace
from traceview.trace.strategy.collectives import Collectives

_GRADIENTS: Final = b"gradient_tape/"
_OF_CALL: Final = re.compile(rb"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_BATCH_NORM: Final = re.compile(rb"batch_?norm", re.IGNORECASE)


class LayerCollectives(Struct, frozen=True, eq=False):
    """`rows`: int64, of the device columns. `scopes`: of the layers. `per_step`: collectives in a used step, median."""

    rows: Int64Array
    scopes: frozenset[bytes]
    per_step: int

    @property
    def is_batch_norm(self) -> bool:
        """Whether all of the layers normalise batches."""
        return all(_BATCH_NORM.search(scope) for scope in self.scopes)


def layer_collectives(context: Context) -> LayerCollectives | None:
    """The collectives of layers; None without any in a used step."""
    trace, collectives, steps = context.trace, context.collectives, used_steps(context)
    if not steps.size or not collectives.count:
        return None
    scope_of = {
        op: _path(split_op(trace.names.text(op) or "")[0]).rpartition(b"/")[0]
        for op in unique_ids(collectives.op).tolist()
        if op != NONE
    }
    of_layers, of_step = _scopes(trace)
    is_forward = _asked_in(collectives, scope_of, of_layers)
    is_backward = _asked_in(collectives, scope_of, of_step)
    is_backward &= _before_the_last_gradient(trace, collectives, is_backward)
    forward, backward = (per_step(collectives, rows, steps) for rows in (is_forward, is_backward))
    if not forward:
        return None
    # More of them cannot all belong to these layers: some may sum gradients.
    rows = is_forward | is_backward if backward <= forward else is_forward
    layers = of_layers & set(scope_of.values())
    return LayerCollectives(collectives.row[rows], layers, per_step(collectives, rows, steps))


def used_steps(context: Context) -> Int64Array:
    """The numbers of the used steps, ascending."""
    return np.array(sorted({s.number for s in context.selection.used_steps}), dtype=np.int64)


def per_step(collectives: Collectives, rows: BoolArray | Int64Array, steps: Int64Array) -> int:
    """How many of the collectives of some rows begin in a used step, median, rounded down; 0 without steps."""
    of_step = np.sort(collectives.first_step[unique_ids(collectives.collective[rows])])
    return median_ps(places(of_step, steps, right=True) - places(of_step, steps)) or 0


def _asked_in(
    collectives: Collectives, scope_of: Mapping[int, bytes], scopes: frozenset[bytes]
) -> BoolArray:
    """Which collectives were asked for by an op right in one of some scopes."""
    ops = [op for op, scope in scope_of.items() if scope in scopes]
    return is_in(collectives.op.astype(np.int64), np.array(sorted(ops), dtype=np.int64))


def _scopes(trace: Trace) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The scopes of layers, which ops of the backward pass repeat, and those around the model, b"" among them.

    A scope that the script puts around the step has most gradient ops or the optimizer in it, and is none of a layer.
    """
    gradients: Counter[bytes] = Counter()
    of_step: set[bytes] = {b""}
    of_optimizer: set[bytes] = set()
    gradient_count = 0
    # Replicas have the same ops, so that each is read once.
    for path in {_path(name) for name, _ in trace.once(op_names).ops if name is not None}:
        if path.startswith(_GRADIENTS):
            gradient_count += 1
            gradients.update(_around(path.removeprefix(_GRADIENTS).rpartition(b"/")[0]))
        elif (optimizer := OPTIMIZER_SCOPE.search(path)) is not None:
            of_step.update(_around(path[: optimizer.start()]))
            of_optimizer.update(_around(path[: optimizer.end()].rstrip(b"/")))
    of_step.update(scope for scope, count in gradients.items() if 2 * count > gradient_count)
    layers = gradients.keys() - of_step - of_optimizer
    return frozenset(layers), frozenset(of_step)


def _around(scope: bytes) -> Iterator[bytes]:
    """A scope and those around it."""
    while scope:
        yield scope
        scope = scope.rpartition(b"/")[0]


def _path(name: str) -> bytes:
    """The path of an op, whose name is without replica and type, without the function that was called."""
    return _OF_CALL.sub(b"", name[:LONGEST_NAME].encode())


def _before_the_last_gradient(trace: Trace, collectives: Collectives, rows: BoolArray) -> BoolArray:
    """Which of `rows` end before an op of the backward pass begins, in the same step on their device."""
    columns, phase = trace.device_columns, phases_of(trace)
    result = np.zeros(rows.size, dtype=np.bool_)
    for device in unique_ids(collectives.device[rows]).tolist():
        of_device = columns.rows_of(device)
        gradients = np.sort(columns.start_ps[of_device][phase[of_device] == Phase.BACKWARD])
        own = np.flatnonzero(rows & (collectives.device == device))
        end = collectives.end_ps[own]
        steps = trace.steps_by_host[trace.device_list[device].host].steps
        step_ends = np.array([step.end_ps for step in steps], dtype=np.int64)
        step_end = np.append(step_ends, end.max())[np.searchsorted(step_ends, end, side="right")]
        result[own] = np.searchsorted(gradients, step_end) > np.searchsorted(gradients, end)
    return result
