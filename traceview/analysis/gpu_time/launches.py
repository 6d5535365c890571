"""Concludes what the host hands to devices late: after it read a value, one launch after the other, and after ops on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from traceview.analysis.facts.detours import TRANSFER, copied_results
from traceview.analysis.facts.dispatch import SMALL_KERNEL_PS, ends_of_conditions
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.gpu_time import host_wait_rules as rules
from traceview.analysis.gpu_time.host_calls import SHOWN_TYPES, many_eager_ops
from traceview.analysis.gpu_time.waits import CLEAR_RATIO, Waits, line_argument
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import Idle
from traceview.analysis.measures.op_work import line_of
from traceview.analysis.rules.consequences import is_of_jax
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.words import Argument, Line, Number, Ops, Part, Time
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray
from traceview.base.stats import median_ps
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.lines import graph_lines
from traceview.trace.device.op_names import SideWork, op_labels, side_work_of
from traceview.trace.model import NONE
from traceview.xplane.host_names import HostNameKind, host_name_kind, op_type

# Reads


def values_read(waits: Waits) -> Finding | None:
    """Calls that block the host; most of the time they wait for a device, and sometimes they outlast its work."""
    context, limits = waits.context, rules.D2H_SYNC.limits
    ledger, columns = context.ledger, context.ledger.columns
    arguments = waits.line_of_calls or line_argument(waits.python(State.SYNC))
    own = [d for d in ledger.devices if context.trace.device_list[d].host == waits.host]
    at_work = ledger.spans_of(own, columns.activity != IDLE)
    of_host = waits.rows & is_in(ledger.device, own)
    rows = np.flatnonzero(of_host & (columns.duration_ps >= limits["late_row_ps"]))
    start, end = columns.start_ps[rows], columns.start_ps[rows] + columns.duration_ps[rows]
    late_ps = end - start - at_work.within(start, end)
    ratio = int(late_ps.sum()) / int(columns.duration_ps[of_host].sum())
    # What is idle has nothing to do: of a device alone that would hold for every wait.
    if len(own) < 2 or ratio < limits["late_ratio"]:
        return waits.finding(rules.D2H_SYNC, arguments=arguments)
    return waits.finding(
        rules.D2H_SYNC,
        arguments=arguments | {"late": Part(ratio)},
        evidence=[Evidence("late_ratio", ratio, limits["late_ratio"], waits.loss.devices[0])],
        title="late",
        notes=("late",),
    )


# Launches


def late_launches(waits: Waits) -> Finding | None:
    """Launches, or the small kernels that they start."""
    ledger, columns, trace = waits.context.ledger, waits.context.ledger.columns, waits.context.trace
    running = waits.rows & (columns.activity != IDLE)
    ratio = int(columns.duration_ps[running].sum()) / int(columns.duration_ps[waits.rows].sum())
    of_named = [d for d in ledger.devices if trace.device_key(d) in waits.loss.devices]
    kernels = unique_ids(columns.event[running & is_in(ledger.device, of_named)]).size
    key, arguments = "", _line_of_ops(waits.context, waits.rows)
    asked = _conditions_per_step(waits)
    if ratio >= CLEAR_RATIO and waits.loss.named_steps:
        key = "kernels"
        arguments |= {
            "count": Number(kernels // waits.loss.named_steps, "kernel"),
            "short": Time(SMALL_KERNEL_PS),
        }
    elif asked >= rules.LAUNCH_BOUND.limits["asked_count"]:
        key, arguments["count"] = "loop", Number(asked, "iteration")
    elif (ops := many_eager_ops(waits.context, waits.host)) is not None:
        key = "jax-eager" if is_of_jax(trace) else "eager"
        arguments = line_argument(waits.python(State.LAUNCH)) | ops.arguments(
            "call" if is_of_jax(trace) else "op"
        )
    elif waits.is_of_small_step:
        key = "small"
    return waits.finding(
        rules.LAUNCH_BOUND,
        arguments=arguments,
        title=key,
        action=key.removeprefix("jax-"),
        notes=(key.removeprefix("jax-"),),
    )


def _conditions_per_step(waits: Waits) -> int:
    """How often the host read whether a loop of XLA goes on, median of the used steps."""
    ends = np.sort(ends_of_conditions(waits.context.trace, waits.device))
    start, end = step_bounds(waits.context.selection.used_of(waits.host))
    return median_ps(np.searchsorted(ends, end) - np.searchsorted(ends, start)) or 0


def _line_of_ops(context: Context, rows: BoolArray) -> dict[str, Argument]:
    """The line of Python that made most of the ops that run, or begin, after these rows of the ledger."""
    columns, labels = context.ledger.columns, context.trace.once(op_labels)
    known = rows & (columns.event != NONE)
    of_row = labels.of_row[columns.event[known]]
    line = line_of(context, totals(of_row, columns.duration_ps[known], labels.row.size))
    return {"line": Line(line)} if line else {}


# Ops on the CPU


def ops_on_cpu(waits: Waits) -> Finding | None:
    """Ops of the step on the CPU with the copies around them, and the line of the one that devices wait for longest."""
    context, columns = waits.context, waits.context.ledger.columns
    by_op = waits.rows & (columns.by_kind == By.OP) & (columns.state != State.D2H)
    ops, place = unique_inverse(columns.by[by_op])
    longest = np.argsort(-totals(place, columns.duration_ps[by_op], ops.size), kind="stable")
    # A copy counts for the op whose result it brings.
    op_of = context.once(copied_results).op_of
    names = [op_of.get(op, context.trace.names[op]) for op in ops[longest].tolist()]
    names = names or [*op_of.values()]
    key = "copies" if names else "asked"
    names = names or _ops_asked(waits)
    types = dict.fromkeys((op_type(name) or name).decode("utf-8", "replace") for name in names)
    first = names[0].decode("utf-8", "replace")
    return waits.finding(
        rules.CPU_HEAVY_OP,
        arguments={"op": Ops(tuple(types)[:SHOWN_TYPES]), **_line_of_op(waits, names[0])},
        evidence=[Evidence("op", first, None, "", value_is="op")],
        title=key,
        action="" if side_work_of(names[0]) is SideWork.PYTHON else key,
        notes=(key,),
    )


def _ops_asked(waits: Waits) -> list[bytes]:
    """The ops of a GPU whose results the CPU needs, those of most copies first, as `scope/name:Type` where that is known."""
    columns, trace = waits.context.ledger.columns, waits.context.trace
    event = columns.event[waits.rows & (columns.state == State.D2H)]
    copied = Counter(trace.device_columns.op[event].tolist())
    transfers = (TRANSFER.fullmatch(trace.names[name]) for name, _ in copied.most_common())
    asked = [match["edge"] or match["node"] for match in transfers if match]
    ops = (trace.names[op] for op in unique_ids(trace.device_columns.op).tolist() if op != NONE)
    named = {op.rpartition(b":")[0]: op for op in ops}
    return [named.get(op, op) for op in asked]


def _line_of_op(waits: Waits, name: bytes) -> dict[str, Argument]:
    """The line that made an op of a graph; of one that is Python, else the line that ran in it."""
    line = waits.context.trace.once(graph_lines).of(name.decode("utf-8", "replace"))
    if line:
        return {"line": Line(line)}
    is_python = side_work_of(name) is SideWork.PYTHON
    return line_argument(waits.python(State.HOST_OPS)) if is_python else {}


def heavy_ops(context: Context, of_ops: BoolArray) -> dict[int, BoolArray]:
    """The rows of each op on the CPU that devices wait for so long that it is a finding, the longest first; by name."""
    ledger, columns = context.ledger, context.ledger.columns
    rows = of_ops & (columns.by_kind == By.OP)
    ops, place = unique_inverse(columns.by[rows])
    total = totals(place, columns.duration_ps[rows], ops.size)
    share = total / (sum(ledger.gpu_ps_by_device.values()) or 1)
    longest = np.argsort(-total, kind="stable")
    chosen = ops[longest[share[longest] >= rules.CPU_HEAVY_OP.limit]]
    return {op: rows & (columns.by == op) for op in chosen.tolist()}


def of_heavy_ops(
    context: Context, result: Idle, heavy: Mapping[int, BoolArray]
) -> Iterator[Finding | None]:
    """A finding for each of these ops."""
    for op, rows in heavy.items():
        name = context.trace.names[op]
        type_, text = op_type(name), name.decode("utf-8", "replace")
        key = "" if type_ or host_name_kind(name) != HostNameKind.OTHER else "event"
        waits = Waits(context, result, rows)
        is_callback = key == "event" and side_work_of(name) is SideWork.PYTHON
        yield waits.finding(
            rules.CPU_HEAVY_OP,
            arguments={
                "op": Ops((type_.decode("utf-8", "replace") if type_ else text,)),
                **_line_of_op(waits, name),
            },
            evidence=[Evidence("op", text, None, "", value_is="event" if key else "op")],
            title=key,
            action="callback" if is_callback else key,
            notes=("" if is_callback else key,),
        )
