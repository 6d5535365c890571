"""Finds the collectives that layers of the model make, such as synchronised batch normalisation, and what they cost.

Gradients are summed once per step, after the backward pass and in a scope of the optimizer. A layer that computes over all replicas
makes its own collectives, in its scope, which the backward pass has too; there each of them may have one more, which TensorFlow
names after no layer (TensorFlow 2.21).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Evidence, Finding, Rule
from traceview.analysis.context import Context
from traceview.analysis.cost import mean_ps
from traceview.analysis.selection import step_bounds
from traceview.document import numbers
from traceview.ids import is_in, unique_ids
from traceview.intervals import BoolArray, Int64Array, uncovered, union
from traceview.robust import median
from traceview.trace.collectives import Collectives
from traceview.trace.model import NONE, Trace
from traceview.trace.op_names import op_names, split_op
from traceview.trace.op_phase import LONGEST_NAME, OPTIMIZER_SCOPE, Phase, phases_of

OF_LAYERS: Final = Rule(
    code="layer-collectives",
    starts_at=(
        "{warning_ratio} of the mean step in which devices compute nothing but are in collectives of layers; critical from "
        "{critical_ratio} on"
    ),
    severities=("warning", "critical", "info"),
    limits={"warning_ratio": 0.05, "critical_ratio": 0.30},
    meaning=(
        "Layers exchange data between replicas inside the step, as BatchNormalization(synchronized=True) does three times per "
        "layer in the forward pass and twice in the backward pass. These collectives are small, so each takes as long as the "
        "devices need to meet, and what comes after the layer waits for them. The cost is a lower bound: it counts only time in "
        "them without compute, and the host has more ops to dispatch, too."
    ),
    evidence="collectives whose op is in the scope of a layer, in results.collectives",
    advice=(
        "Use BatchNormalization without synchronized=True where the batch of each replica is large enough for statistics of its "
        "own, or GroupNormalization or LayerNormalization, which need none of the other replicas. Or synchronise fewer layers: "
        "each one costs as much as the next. A larger batch per replica spreads the same collectives over more examples."
    ),
    example=(
        "synchronised batch normalisation, 80 collectives per step in 16 layers, takes at least 6.98 ms of the mean 36.0 ms "
        "step (19.4%)"
    ),
    explains=("collective-exposed", "collective-wait"),
    path_causes=("collective",),
)

_GRADIENTS: Final = b"gradient_tape/"
_OF_CALL: Final = re.compile(rb"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_BATCH_NORM: Final = re.compile(rb"batch_?norm", re.IGNORECASE)


class _OfLayers(Struct, frozen=True, eq=False):
    """`rows`: bool `[n]` of the collectives. `scopes`: of the layers. `per_step`: collectives in a used step, median."""

    rows: BoolArray
    scopes: frozenset[bytes]
    per_step: int


def diagnose(context: Context) -> Iterator[Finding]:
    """What the collectives of layers cost the device that is in them least."""
    of_layers = _of_layers(context.trace, context.collectives, _used_steps(context))
    if of_layers is None:
        return
    exposed = _exposed(context, of_layers.rows)
    if not exposed:
        return
    least = min(exposed, key=lambda key: exposed[key])
    cost = context.selection.cost("mean", exposed[least]).as_bound("lower")
    severity = OF_LAYERS.severity_of(cost.ratio or 0.0)
    if severity is None:
        return
    few_steps, limit = context.selection.few_steps, OF_LAYERS.limits["warning_ratio"]
    count = len(of_layers.scopes)
    layers = "one layer" if count == 1 else f"{count} layers"
    is_batch_norm = all(_BATCH_NORM.search(scope) for scope in of_layers.scopes)
    what = "synchronised batch normalisation" if is_batch_norm else "exchange of data in the model"
    calls = numbers.plural(of_layers.per_step, "collective")
    yield OF_LAYERS.finding(
        f"{what}, {calls} per step in {layers}, takes at least {cost.stated}",
        (
            Evidence("layer_collective_ratio", cost.ratio or 0.0, limit, least),
            Evidence("layer_collective_count", of_layers.per_step, None, "median step"),
            *(
                Evidence("layer", scope.decode("utf-8", "replace"), None, "scope")
                for scope in sorted(of_layers.scopes)[:1]
            ),
        ),
        severity="info" if few_steps else severity,
        confidence=few_steps or ("high", "the names of the ops show it"),
        devices=sorted(exposed),
        cost=cost,
    )


def _used_steps(context: Context) -> Int64Array:
    used = [
        step.number
        for host in context.selection.windows
        for step in context.selection.used_of(host)
    ]
    return np.array(sorted(set(used)), dtype=np.int64)


def _of_layers(trace: Trace, collectives: Collectives, steps: Int64Array) -> _OfLayers | None:
    """The collectives of layers; None without any in a used step."""
    if not steps.size or not collectives.count:
        return None
    scope_of = {
        op: _path(split_op(trace.names.text(op) or "")[0]).rpartition(b"/")[0]
        for op in unique_ids(collectives.op).tolist()
        if op != NONE
    }
    scopes = _scopes(trace)
    is_forward = _asked_in(collectives, scope_of, scopes.of_layers)
    is_backward = _asked_in(collectives, scope_of, scopes.of_step)
    is_backward &= _before_the_last_gradient(trace, collectives, is_backward)
    forward, backward = (_per_step(collectives, rows, steps) for rows in (is_forward, is_backward))
    if not forward:
        return None
    # More of them cannot all belong to these layers: some may sum gradients.
    rows = is_forward | is_backward if backward <= forward else is_forward
    per_step = _per_step(collectives, rows, steps)
    return _OfLayers(rows, scopes.of_layers & set(scope_of.values()), per_step)


def _per_step(collectives: Collectives, rows: BoolArray, steps: Int64Array) -> int:
    """How many of the collectives begin in a used step, median."""
    first = np.zeros(collectives.count, dtype=np.bool_)
    first[collectives.collective[rows]] = True
    of_step = collectives.first_step[first]
    counts = [int((of_step == step).sum()) for step in steps.tolist()]
    return round(median(counts))


def _asked_in(
    collectives: Collectives, scope_of: Mapping[int, bytes], scopes: frozenset[bytes]
) -> BoolArray:
    """Which collectives were asked for by an op right in one of some scopes."""
    ops = [op for op, scope in scope_of.items() if scope in scopes]
    return is_in(collectives.op.astype(np.int64), np.array(sorted(ops), dtype=np.int64))


class _Scopes(Struct, frozen=True):
    """`of_layers`: those of layers. `of_step`: those around the model, b"" among them, in which gradients are computed."""

    of_layers: frozenset[bytes]
    of_step: frozenset[bytes]


def _scopes(trace: Trace) -> _Scopes:
    """The scopes that ops of the backward pass repeat, for what is in a layer has gradients, and those around them.

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
    return _Scopes(frozenset(layers), frozenset(of_step))


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


def _exposed(context: Context, rows: BoolArray) -> Mapping[str, int]:
    """The time of each device in collectives without compute, mean over the used steps of its host."""
    collectives, trace = context.collectives, context.trace
    activities: tuple[DeviceActivity, ...] = context.activities
    exposed = {}
    for device in unique_ids(collectives.device[rows]).tolist():
        own = rows & (collectives.device == device)
        columns, row = trace.device_columns, collectives.row[own]
        spans = union(columns.start_ps[row], columns.end_ps[row])
        start, end = step_bounds(context.selection.used_of(trace.device_list[device].host))
        if start.size:
            of_steps = uncovered(spans, activities[device].compute, start, end)
            exposed[trace.device_key(device)] = mean_ps(of_steps)
    return exposed
