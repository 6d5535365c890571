"""Step ops: how much of the step goes to Python, printing and summaries in it, and to the optimizer.

Side work is Python, printing, summaries and checks inside the step (`trace.side_work`). It counts as compute where the CPU is
the device, which hides it: the device looks busy with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Line, Ops
from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import Count, OpType, Picoseconds, Record, Share, one_of
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.device.op_names import split_op
from traceview.trace.device.op_phase import Phase, phases_of
from traceview.trace.device.side_work import SideWork, side_work_of
from traceview.trace.model import NONE, Trace
from traceview.xplane.planes import ActivityClass

OPTIMIZER: Final = "optimizer"
TOP_TYPES: Final = 3
"""Types of ops that are named, those that take longest."""

OPTIMIZER_RATIO: Final = 0.50
"""Of the GPU time: what the optimizer takes where the batch is small for the model; a choice of ours."""


class OpKind(Record, frozen=True):
    """Ops of one kind on one device in the used steps.

    Attributes:
        kind: python: Python functions; printing: formatting and printing; summaries: tf.summary with what it
            computes; checks: checks for NaN and infinity; text: ops on strings; optimizer: updates of the variables.
        op_types: Types of these ops, the three that take longest.
        count: Events that take time in the used steps.
        ps_per_step: Compute of these ops, picoseconds, mean over the used steps, rounded down; each instant belongs to the
            op that began first, and of the model if one of it runs.
        compute_ratio: Its share of the compute of the device in the used steps.
    """

    kind: Annotated[str, one_of("python", "printing", "summaries", "checks", "text", "optimizer")]
    op_types: tuple[OpType, ...]
    count: Count
    ps_per_step: Picoseconds
    compute_ratio: Share


class DeviceStepOps(OfDevice, frozen=True):
    """One device that computed in the used steps.

    Attributes:
        kinds: Kinds of ops that ran there.
        updates_sparse: Whether the optimizer ran ops for sparse gradients, those of an embedding.
    """

    kinds: tuple[OpKind, ...]
    updates_sparse: bool


class StepOps(Record, frozen=True):
    """What else than the model runs in the steps.

    Attributes:
        devices: Devices that computed in the used steps, in the order of hosts and ordinals.
    """

    devices: tuple[DeviceStepOps, ...]


_SPARSE_UPDATES: Final = ("UnsortedSegmentSum", "ResourceScatter", "ResourceSparseApply")
_KINDS: Final = (*(kind.value for kind in SideWork), OPTIMIZER)


def compute(context: Context) -> StepOps | Skipped:
    """The ops of each kind in the used steps."""
    if not context.selection.used_steps:
        return Skipped("no used step")
    trace, ledger = context.trace, context.ledger
    is_compute, kind = ledger.rows(states=(State.COMPUTE,)), context.once(_kind_of_row)
    rows = [
        _row(trace, ledger, device, kind)
        for device in ledger.devices
        if is_compute[ledger.rows_of(device)].any()
    ]
    rows.sort(key=lambda row: (row.host, row.device.partition(":")[0], row.ordinal))
    return StepOps(tuple(rows)) if rows else Skipped("no device computed in the used steps")


def _kind_of_row(context: Context) -> Int64Array:
    """By row of the ledger the index of the kind of op that it is compute of; `NONE` for the model and other states."""
    ledger = context.ledger
    result = np.full(ledger.count, NONE, dtype=np.int64)
    rows = np.flatnonzero(ledger.rows(states=(State.COMPUTE,)))
    result[rows] = _kinds(context.trace)[ledger.columns.event[rows]]
    return result


def _kinds(trace: Trace) -> Int64Array:
    """By device event the index of its kind, int64; `NONE` for the model and for what is no compute."""
    columns = trace.device_columns
    # The last place is that of `NONE`.
    of_name = np.full(len(trace.names) + 1, NONE, dtype=np.int64)
    for name in unique_ids(columns.op).tolist():
        kind = None if name == NONE else side_work_of(trace.names[name])
        if kind is not None:
            of_name[name] = _KINDS.index(kind.value)
    result: Int64Array = of_name[columns.op]
    is_update = (phases_of(trace) == Phase.OPTIMIZER) & (result == NONE)
    result[is_update] = _KINDS.index(OPTIMIZER)
    result[columns.class_ != ActivityClass.COMPUTE] = NONE
    return result


def _row(trace: Trace, ledger: Ledger, device: int, kind: Int64Array) -> DeviceStepOps:
    own = ledger.rows_of(device)
    step_count = ledger.steps_of_device[device] or 1
    compute_ps = ledger.by_state(device).get(State.COMPUTE, 0)
    found: list[OpKind] = []
    for number in unique_ids(kind[own][kind[own] != NONE]).tolist():
        rows = np.flatnonzero(kind[own] == number) + own.start
        ps = int(ledger.columns.duration_ps[rows].sum())
        found.append(
            OpKind(
                kind=_KINDS[number],
                op_types=_types(trace, ledger, rows),
                count=int(unique_ids(ledger.columns.event[rows]).size),
                ps_per_step=ps // step_count,
                compute_ratio=ps / compute_ps if compute_ps else 0.0,
            )
        )
    updates = np.flatnonzero(kind[own] == _KINDS.index(OPTIMIZER)) + own.start
    return DeviceStepOps(
        *trace.identity(device),
        kinds=tuple(found),
        updates_sparse=any(
            type_.startswith(_SPARSE_UPDATES) for type_ in _time_by_type(trace, ledger, updates)
        ),
    )


def _time_by_type(trace: Trace, ledger: Ledger, rows: Int64Array) -> dict[str, int]:
    """The time of some compute rows by type of op."""
    total: dict[str, int] = {}
    names, index = unique_inverse(
        trace.device_columns.op[ledger.columns.event[rows]].astype(np.int64)
    )
    times = np.zeros(names.size, dtype=np.int64)
    np.add.at(times, index, ledger.columns.duration_ps[rows])
    for name, ps in zip(names.tolist(), times.tolist(), strict=True):
        type_ = split_op(trace.names.text(name) or "")[1] or ""
        total[type_] = total.get(type_, 0) + ps
    return total


def _names(context: Context, rows: BoolArray) -> tuple[str, ...]:
    """The names of ops without a type, as HLO instructions are."""
    trace, event = context.trace, context.ledger.columns.event[rows]
    names = unique_ids(trace.device_columns.op[event]).tolist()
    return tuple(trace.names.text(name) or "" for name in names[:TOP_TYPES])


def _types(trace: Trace, ledger: Ledger, rows: Int64Array) -> tuple[str, ...]:
    total = _time_by_type(trace, ledger, rows)
    longest = sorted(total, key=lambda type_: (-total[type_], type_))
    return tuple(type_ for type_ in longest if type_)[:TOP_TYPES]


# Findings

HOST_OP: Final = Rule(
    code="host-op-in-step",
    title="{who:spends/spend} {loss} in {ops}[, {line}]",
    titles={
        "py_function": "{who:spends/spend} {loss} in `tf.py_function`[, {line}]",
        "numpy_function": "{who:spends/spend} {loss} in `tf.numpy_function`[, {line}]",
        "python": "{who:spends/spend} {loss} in `tf.py_function` and `tf.numpy_function`[, {line}]",
        "callback": "{who:spends/spend} {loss} in calls of Python inside the step, {names}",
        "printing": "{who:spends/spend} {loss} in `tf.print` inside the step",
        "summaries": "{who:spends/spend} {loss} in `tf.summary` inside the step",
        "checks": "{who:spends/spend} {loss} in `tf.debugging.check_numerics`",
        "all_checks": "{who:spends/spend} {loss} in `tf.debugging.enable_check_numerics`",
        "text": "{who:spends/spend} {loss} in ops on strings, {ops}",
    },
    meaning=(
        "Ops inside the step that are no part of the model, while no op of the model runs, and what other devices wait for "
        "them. On CPU devices they count as compute, so the device looks busy with the model. Ops of the input pipeline do "
        "not count."
    ),
    notes={
        "all_checks": (
            "`tf.debugging.enable_check_numerics` adds one after every op, so ops that TensorFlow would fuse run one by one. "
            "The loss is a lower bound."
        )
    },
    action="Take them out of the step function: return the tensors and use them outside, every 100th step.",
    actions={
        "python": (
            "Write the Python functions of the step in TensorFlow ops, or move them into `dataset.map(...)`.",
            (
                "Python's lock lets replicas run them only one after the other. What only needs the batch belongs into the "
                "input pipeline; else return the tensors and call Python after the step."
            ),
        ),
        "jax-python": (
            "Write it in `jax.numpy`, or call Python on what the step returns.",
            "The program waits for each call of Python, which needs its lock.",
        ),
        "jax-printing": (
            "Return the values, and print them outside every 100th step.",
            "The program waits until Python has printed them.",
        ),
        "printing": (
            "Take `tf.print` out of the step function, or print a scalar.",
            (
                "Formatting a tensor takes longer than computing it. Return the tensor and print it outside every 100th "
                "step: `if step % 100 == 0: print(float(loss))`."
            ),
        ),
        "summaries": (
            "Write summaries every 100th step: call a second `tf.function` that writes them.",
            (
                "Or wrap them in `tf.summary.record_if(step % 100 == 0)`. Scalars cost little; histograms sort every weight "
                "into buckets."
            ),
        ),
        "checks": (
            "Remove the checks once the NaN is found.",
            "Or train without them until the loss is NaN, and from the last checkpoint with them.",
        ),
        "text": (
            "Move ops on strings into the input pipeline, `dataset.map(...)`.",
            "There they run ahead of the step, beside the devices.",
        ),
    },
    starts_at=(
        "Python, printing, summaries, checks for NaN or text for {limit} of the GPU time; only where the CPU is the device: on "
        "GPUs it is `cpu-heavy-op`"
    ),
    metrics={"op_count": "ops in the used steps", "op_type": "type of op"},
    states=(State.COMPUTE,),
    explains=("straggler-gpu",),
    example="Replica:0 spends 12.9 of 53.5 ms (24%) in tf.print inside the step",
)

OPTIMIZER_BOUND: Final = Rule(
    code="optimizer-bound",
    title="{who:spends/spend} {loss} in the optimizer[, {ops}]",
    meaning=(
        "The work of an optimizer depends on the number of parameters and not on the batch. Most of it can go, but one update "
        "per step is needed."
    ),
    action="Use a larger batch per replica: it needs fewer updates per example, and an update takes no longer.",
    advice="An optimizer with less state, such as SGD, does less work per parameter.",
    actions={
        "sparse": (
            "Train embeddings with `tf.keras.optimizers.SGD` without momentum: it updates only the rows that were looked up.",
            (
                "Their gradients are sparse (`tf.IndexedSlices`), but adaptive optimizers of Keras update the whole table. A "
                "larger batch per replica needs fewer updates per example."
            ),
        )
    },
    starts_at="the optimizer takes {limit} of the GPU time",
    limit=OPTIMIZER_RATIO,
    metrics={"compute_ratio": "share of the compute", "op_type": "type of op"},
    states=(State.COMPUTE,),
    example="Both replicas spend 30.1 of 42.3 ms (71%) in the optimizer, ResourceApplyAdam",
)

_PYTHON_CALLS: Final = {
    "EagerPyFunc": "py_function",
    "PyFunc": "numpy_function",
    "PyFuncStateless": "numpy_function",
}
"""By the type of an op the call that makes it (TensorFlow 2.21)."""

_ON_EVERY_OP: Final = ("DebugNumericSummary", "DebugNumericSummaryV2")
"""Checks that are added for every output of every op."""


def diagnose(context: Context, result: StepOps) -> Iterator[Finding]:
    """What each kind of op costs the devices."""
    kind_of_row = context.once(_kind_of_row)
    for number, kind in enumerate(_KINDS):
        rows = kind_of_row == number
        devices = [(row, ops) for row in result.devices for ops in row.kinds if ops.kind == kind]
        if devices:
            make = _optimizer if kind == OPTIMIZER else _side_work
            finding = make(context, rows, devices)
            if finding:
                yield finding


_Devices = Sequence[tuple[DeviceStepOps, OpKind]]


def _side_work(context: Context, rows: BoolArray, devices: _Devices) -> Finding | None:
    _, most = max(devices, key=lambda pair: pair[1].ps_per_step)
    types = tuple(dict.fromkeys(type_ for _, ops in devices for type_ in ops.op_types))
    title = most.kind
    arguments: dict[str, Argument] = {"ops": Ops(most.op_types)}
    if not types:
        title, arguments["names"] = "callback", Ops(_names(context, rows))
    elif most.kind == SideWork.PYTHON.value:
        calls = {_PYTHON_CALLS[type_] for type_ in types if type_ in _PYTHON_CALLS}
        title = calls.pop() if len(calls) == 1 else most.kind
        lines = [
            python.line
            for row, _ in devices
            if (python := context.python_of_input.get(row.host)) is not None
        ]
        if lines:
            arguments["line"] = Line(lines[0])
    is_bound = any(type_ in _ON_EVERY_OP for type_ in types)
    if is_bound:
        title = "all_checks"
    return HOST_OP.of_rows(
        context,
        rows,
        arguments=arguments,
        evidence=_evidence(devices),
        title=title,
        action=most.kind,
        notes=("all_checks",) if is_bound else (),
        keeps_waiting=True,
    )


def _optimizer(context: Context, rows: BoolArray, devices: _Devices) -> Finding | None:
    row, most = max(devices, key=lambda pair: pair[1].ps_per_step)
    return OPTIMIZER_BOUND.of_rows(
        context,
        rows,
        arguments={"ops": Ops(most.op_types[:1])} if most.op_types else {},
        evidence=[
            *(
                Evidence("compute_ratio", ops.compute_ratio, None, row.device)
                for row, ops in devices
            ),
            *(Evidence("op_type", type_, None, row.device) for type_ in most.op_types),
        ],
        action="sparse" if row.updates_sparse else "",
    )


def _evidence(devices: _Devices) -> list[Evidence]:
    return [
        *(Evidence("op_count", ops.count, None, row.device) for row, ops in devices),
        *(
            Evidence("op_type", type_, None, row.device)
            for row, ops in devices
            for type_ in ops.op_types
        ),
    ]


ANALYSIS: Final = Analysis[StepOps](
    "step_ops", compute=compute, rules=(HOST_OP, OPTIMIZER_BOUND), diagnose=diagnose
)
