"""Compute: the types of ops that it consists of, what of it is in float64, what gives the same in every step, and what
factors matrices.

That a schedule has no problem says nothing of the compute itself. Names of kernels show float64; of other ops the capture has
looked at the graphs of the step functions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import numpy as np

from traceview.analysis.facts.kernels import kernel_names
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Line, Ops
from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import OpType, Picoseconds, Record, Share
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.op_names import op_names
from traceview.trace.model import NONE
from traceview.trace.sidecar.sidecar import GraphValues
from traceview.xplane.kernel_names import NumberFormat

TOP_TYPES: Final = 3
"""Types of ops that are named, those that take longest."""


class TypeOfCompute(Record, frozen=True):
    """The ops of one type.

    Attributes:
        op_type: Their type.
        compute_ratio: Their share of the compute in the used steps.
    """

    op_type: OpType
    compute_ratio: Share


class ComputeOfDevice(OfDevice, frozen=True):
    """What one device computes in the used steps.

    Attributes:
        op_types: The three types of ops that take longest; ops without a recorded type are in none.
        compute_ps_per_step: Its compute, picoseconds, mean over the used steps, rounded down.
        float64_ps_per_step: The part in float64, as names of kernels and graphs of step functions show it.
        constant_ps_per_step: The part in ops that read nothing but constants, as graphs of step functions show it.
    """

    op_types: tuple[TypeOfCompute, ...]
    compute_ps_per_step: Picoseconds
    float64_ps_per_step: Picoseconds
    constant_ps_per_step: Picoseconds


class Compute(Record, frozen=True):
    """What the compute of the used steps consists of.

    Attributes:
        op_types: The three types of ops that take longest on all devices together.
        devices: Devices that computed in the used steps, in the order of the device list.
    """

    op_types: tuple[TypeOfCompute, ...]
    devices: tuple[ComputeOfDevice, ...]


def compute(context: Context) -> Compute | Skipped:
    """The compute of each device in the used steps."""
    if not context.ledger.has_steps:
        return Skipped("no used step")
    of_devices = {d: rows for d, rows in context.once(_rows_of_devices).items() if rows.size}
    if not of_devices:
        return Skipped("no device computed in the used steps")
    types = {device: _time_by_type(context, rows) for device, rows in of_devices.items()}
    together: Counter[str] = Counter()
    for by_type in types.values():
        together.update(by_type)
    return Compute(
        _largest(together),
        tuple(_of_device(context, d, rows, types[d]) for d, rows in of_devices.items()),
    )


def _of_device(
    context: Context, device: int, rows: Int64Array, by_type: Mapping[str, int]
) -> ComputeOfDevice:
    duration_ps = context.ledger.columns.duration_ps[rows]
    steps = context.ledger.steps_of_device[device] or 1
    float64, constant = (
        int(duration_ps[of[rows]].sum()) // steps
        for of in (context.once(_float64_rows), context.once(_constant_rows))
    )
    return ComputeOfDevice(
        *context.trace.identity(device),
        op_types=_largest(by_type),
        compute_ps_per_step=int(duration_ps.sum()) // steps,
        float64_ps_per_step=float64,
        constant_ps_per_step=constant,
    )


def _rows_of_devices(context: Context) -> dict[int, Int64Array]:
    """By device the rows of the ledger in which it computes, those that take part in sums."""
    ledger = context.ledger
    is_compute = ledger.rows(states=(State.COMPUTE,))
    slices = {device: ledger.rows_of(device) for device in ledger.devices}
    return {device: np.flatnonzero(is_compute[own]) + own.start for device, own in slices.items()}


def _largest(by_type: Mapping[str, int]) -> tuple[TypeOfCompute, ...]:
    whole_ps = sum(by_type.values())
    return tuple(TypeOfCompute(type_, by_type[type_] / whole_ps) for type_ in _longest(by_type))


def _longest(by_type: Mapping[str, int]) -> list[str]:
    """The types of ops that take longest, among those that were recorded."""
    named = filter(None, by_type)
    return sorted(named, key=lambda type_: (-by_type[type_], type_))[:TOP_TYPES]


def _time_by_type(context: Context, rows: Int64Array) -> dict[str, int]:
    """The time of some compute rows by type of op; "" where none was recorded."""
    names = context.trace.once(op_names)
    by_type: dict[str, int] = {}
    for op, ps in _time_by_op(context, rows).items():
        type_ = names.ops[int(names.of_name[op])][1] or ""
        by_type[type_] = by_type.get(type_, 0) + ps
    return by_type


def _time_by_op(context: Context, rows: Int64Array) -> dict[int, int]:
    """The time of some compute rows by op, a name of the trace, `NONE` where none was recorded."""
    columns = context.ledger.columns
    names, place = unique_inverse(context.trace.device_columns.op[columns.event[rows]])
    sums = totals(place, columns.duration_ps[rows], names.size)
    return dict(zip(names.tolist(), sums.tolist(), strict=True))


# Ops that graphs and kernels show


def _float64_rows(context: Context) -> BoolArray:
    """Rows of compute in float64."""
    of_graphs = _rows_of_ops(context, lambda graphs: frozenset(graphs.float64_ops))
    return of_graphs | context.once(_float64_kernels)


def _float64_kernels(context: Context) -> BoolArray:
    """Rows of kernels whose names say float64."""
    trace, event = context.trace, context.ledger.columns.event
    result = np.zeros(context.ledger.count, dtype=np.bool_)
    is_float64 = trace.once(kernel_names).precision == NumberFormat.FP64
    for rows in context.once(_rows_of_devices).values():
        result[rows] |= is_float64[trace.device_columns.name[event[rows]]]
    return result


def _constant_rows(context: Context) -> BoolArray:
    """Rows of ops that compute the same in every step."""
    return _rows_of_ops(context, lambda graphs: graphs.constant_ops)


def _rows_of_ops(context: Context, named: Callable[[GraphValues], Collection[str]]) -> BoolArray:
    """Rows of compute in ops of the graphs that a capture named."""
    trace, ledger = context.trace, context.ledger
    result = np.zeros(ledger.count, dtype=np.bool_)
    wanted = {
        index: names
        for index, host in enumerate(trace.hosts)
        if host.sidecar is not None and (names := named(host.sidecar.graphs))
    }
    for device, rows in context.once(_rows_of_devices).items():
        names = wanted.get(trace.device_list[device].host, ())
        if names and rows.size:
            ops, place = unique_inverse(trace.device_columns.op[ledger.columns.event[rows]])
            texts = (trace.names.text(op) or "" if op != NONE else "" for op in ops.tolist())
            result[rows] = np.array([_graph_name(text) in names for text in texts])[place]
    return result


def _graph_name(op: str) -> str:
    """The name of an op in its graph, of `scope/name:Type`."""
    return op.rpartition(":")[0]


# Findings

_OF_GRAPH: Final = {"graph": "the graph of the step function shows it"}

FLOAT64: Final = Rule(
    code="float64-compute",
    states=(State.COMPUTE,),
    title="{who:computes/compute} {loss} in float64[, {ops}]",
    meaning=(
        "The results of these ops are float64, which takes longer than float32: on two cores a step of dense layers took 31 "
        "instead of 17 ms. GPUs made for graphics have few units for it."
    ),
    starts_at=(
        "{limit} of the GPU time in ops whose results are float64 or complex128: by the names of kernels, and by the graphs of the "
        "step functions"
    ),
    action="Use float32: cast the input with `tf.cast`, and create variables with dtype `tf.float32`.",
    advice="NumPy makes float64 unless told otherwise: `array.astype(np.float32)` before the dataset is made.",
    actions={
        "jax": (
            "Leave `jax_enable_x64` off, or cast what needs no float64 with `astype(jnp.float32)`.",
            "",
        )
    },
    reasons=_OF_GRAPH,
    metrics={"op_type": "type of op"},
    example="Both replicas compute 36.1 of 40.1 ms (90%) in float64, MatMul",
)

CONSTANT: Final = Rule(
    code="constant-compute",
    states=(State.COMPUTE,),
    title="{who:spends/spend} {loss} on recomputing constants[: {ops}][ in {line}]",
    meaning=(
        "These ops read nothing but constants and tensors that were made before the graph. Neither changes, so each step computes "
        "the same again."
    ),
    starts_at=(
        "{limit} of the GPU time in ops of step functions that read neither variables, arguments, random numbers nor what depends "
        "on these"
    ),
    action="Compute it once before the loop, and let the step read the result.",
    advice="A tensor that a function reads from outside is not computed again: `table = make_table()` above `@tf.function`.",
    reasons=_OF_GRAPH,
    metrics={"op_type": "type of op"},
    example="Both replicas spend 4.61 of 22.1 ms (21%) on recomputing constants: SelfAdjointEigV2 in loss, train.py:11",
)


FACTORING: Final = Rule(
    code="matrix-factoring",
    states=(State.COMPUTE,),
    title="{who:spends/spend} {loss} on factoring matrices: {ops}",
    meaning=(
        "Factorings, such as singular values, go column by column: they neither use many cores nor tensor cores, and on GPUs "
        "they are as slow as on CPUs."
    ),
    starts_at="{limit} of the GPU time in ops that factor, invert or solve matrices, with what other devices wait meanwhile",
    action="Do it every 100th step, and let the other steps use the last result.",
    advice=(
        "Or replace it: two matrix products per step, a power iteration, give the largest singular value; a solver needs no "
        "inverse."
    ),
    metrics={"op_type": "type of op"},
    example="Both replicas spend 41.2 of 60.3 ms (68%) on factoring matrices: Svd",
)

_FACTORING: Final = re.compile(
    r"(?:Batch)?(?:Svd|SelfAdjointEig|Eig|Qr|Lu|Cholesky(?:Grad)?|(?:Log)?MatrixDeterminant"
    r"|Matrix(?:Inverse|Solve|SolveLs|TriangularSolve|SquareRoot|Logarithm|Exponential))(?:V\d+)?"
)


def _factoring_rows(context: Context) -> BoolArray:
    """Rows of compute in ops that factor, invert or solve matrices."""
    names = context.trace.once(op_names)
    is_type = [_FACTORING.fullmatch(type_ or "") is not None for _, type_ in names.ops]
    result = np.zeros(context.ledger.count, dtype=np.bool_)
    for rows in context.once(_rows_of_devices).values():
        op = context.trace.device_columns.op[context.ledger.columns.event[rows]]
        known = op != NONE
        result[rows[known]] = np.array(is_type, dtype=np.bool_)[names.of_name[op[known]]]
    return result


def diagnose(context: Context, _: Compute) -> Iterator[Finding]:
    """Compute in float64, of what never changes, and in factorings of matrices."""
    shown_by_kernels = bool(context.once(_float64_kernels).any())
    for rule, rows, lines in (
        (FLOAT64, context.once(_float64_rows), {}),
        (CONSTANT, context.once(_constant_rows), _constant_lines(context)),
        (FACTORING, context.once(_factoring_rows), {}),
    ):
        if rows.any():
            chosen = np.flatnonzero(rows)
            types = _longest(_time_by_type(context, chosen))
            arguments: dict[str, Argument] = {}
            if types:
                arguments["ops"] = Ops((types[0],))
            if lines:
                by_op = _time_by_op(context, chosen)
                longest = context.trace.names.text(max(by_op, key=lambda op: (by_op[op], op)))
                line = lines.get(_graph_name(longest or ""))
                if line is not None:
                    arguments["line"] = Line(line)
            finding = rule.of_rows(
                context,
                rows,
                arguments=arguments,
                confidence=("high", "" if rule is FLOAT64 and shown_by_kernels else "graph"),
                keeps_waiting=rule is FACTORING,
                evidence=[Evidence("op_type", type_, None, "") for type_ in types],
            )
            if finding is not None:
                yield finding


def _constant_lines(context: Context) -> dict[str, str | None]:
    lines: dict[str, str | None] = {}
    for host in context.trace.hosts:
        if host.sidecar is not None:
            lines |= host.sidecar.graphs.constant_ops
    return lines


ANALYSIS: Final = Analysis[Compute](
    "compute", compute=compute, rules=(FLOAT64, CONSTANT, FACTORING), diagnose=diagnose
)
