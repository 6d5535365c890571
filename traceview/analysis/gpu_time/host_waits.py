"""Concludes from the ledger which waits for the host are worth a change: a finding per state, over all devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from traceview.analysis.facts.detours import TRANSFER, copied_results, detour_rows
from traceview.analysis.facts.dispatch import SMALL_OP_PS, rows_of_keys
from traceview.analysis.facts.input_supply import DEBUGGED
from traceview.analysis.facts.layers import label_places
from traceview.analysis.facts.ledger import is_restore
from traceview.analysis.facts.python import PythonShare
from traceview.analysis.facts.selection import rows_in, step_bounds
from traceview.analysis.gpu_time import host_wait_rules as rules
from traceview.analysis.gpu_time.python_waits import (
    CONVERTS,
    NUMPY,
    TRACED,
    between_calls,
    between_steps,
    garbage,
    python_in_step,
    python_thread,
)
from traceview.analysis.gpu_time.tracing import compilation
from traceview.analysis.gpu_time.waits import (
    CLEAR_RATIO,
    SHOWN_TYPES,
    EagerOps,
    Waits,
    least_count,
    line_argument,
    many_eager_ops,
    profiler_ratio,
)
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.graph_loops import graph_loops
from traceview.analysis.measures.idle_report import Idle
from traceview.analysis.measures.op_work import counted_events, dispatch_left_out, line_of_rows
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import (
    LIMIT,
    is_of_jax,
    loss_of_host,
    lost_argument,
)
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops, Quantity
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, places, union
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import SideWork, graph_lines, op_labels, side_work_of
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.pipeline import find_input_waits, iterator_calls
from traceview.trace.host.state_timeline import intersection
from traceview.xplane.planes import HostNameKind, host_name_kind, op_type

_WITHOUT_GRAPHS: Final = frozenset(("tf.config.run_functions_eagerly", "jax_disable_jit", DEBUGGED))
"""Settings with which the ops of functions, or of the pipeline, run one by one."""

_OF_GRAPHS: Final = frozenset(
    (
        State.HOST_OPS,
        State.PYTHON,
        State.UNKNOWN,
        State.LAUNCH,
        State.LATENCY,
        State.DEPENDENCY,
    )
)
"""What the thread of the steps is in between ops that run one by one, where it is there for no other reason."""


def diagnose(context: Context, result: Idle) -> Iterator[Finding | None]:
    """The states of the host that devices wait for, each as one finding over all devices."""
    ledger = context.ledger
    lost_ps: Counter[State] = Counter()
    for device in ledger.devices:
        lost_ps.update(ledger.by_state(device))
    least_ps = LIMIT * sum(ledger.gpu_ps_by_device.values())
    detours = context.once(detour_rows)
    of_others = context.once(graph_loops).rows | context.once(dispatch_left_out)
    taken = np.zeros(ledger.columns.count, dtype=np.bool_)

    def waits(*states: State) -> Waits | None:
        """The rows of some states; None where they are too few for any rule."""
        if sum(lost_ps[state] for state in states) < max(least_ps, 1):
            return None
        rows = ledger.rows(states=states) & ~detours & ~taken
        return Waits(context, result, rows) if rows.any() else None

    if detours.any():
        yield ops_on_cpu(Waits(context, result, detours))
    one_by_one = waits(State.HOST_OPS, State.PYTHON, State.BETWEEN_CALLS)
    reads = _reads_of_calls(one_by_one) if one_by_one else taken
    outside = list(_outside_of_graphs(one_by_one, reads)) if one_by_one else []
    yield from outside
    if any(outside):
        taken |= reads
    for states, conclude in _CONCLUSIONS.items():
        known = waits(*states)
        if known and states in _OF_LINES:
            yield from map(conclude, known.by_cause)
        elif known:
            yield conclude(known)
    ops = waits(State.HOST_OPS)
    if ops:
        # What collectives, loops and ops cause that a step could be without is a finding about them.
        ops = Waits(context, result, ops.rows & ~(rows_of_keys(context, ledger) | of_others))
    heavy = heavy_ops(context, ops.rows) if ops else {}
    yield from of_heavy_ops(context, result, heavy)
    if not any(outside):
        if ops:
            others = ops.rows.copy()
            for rows in heavy.values():
                others &= ~rows
            yield _host_ops(Waits(context, result, others))
        if python := waits(State.PYTHON):
            yield from map(python_in_step, python.by_cause)
        if silent := waits(State.BETWEEN_CALLS):
            yield between_calls(silent)


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
        arguments=arguments | {"late": Quantity(ratio, "ratio")},
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
    key, arguments, ops = "", line_of_rows(waits.context, waits.rows), None
    if ratio >= CLEAR_RATIO and waits.loss.named_steps:
        key = "kernels"
        arguments |= {
            "count": Number(kernels // waits.loss.named_steps, "kernel"),
            "short": Quantity(SMALL_OP_PS, "ps"),
        }
    elif (ops := many_eager_ops(waits.context, waits.host)) is not None:
        key, unit = ("jax-eager", "call") if is_of_jax(trace) else ("eager", "op")
        arguments = line_argument(waits.python(State.LAUNCH)) | ops.arguments(unit)
        arguments |= waits.tracing
    elif waits.is_of_small_step:
        key = "small"
    action = _one_by_one(key, ops) if ops else key
    return waits.finding(
        rules.LAUNCH_BOUND,
        arguments=arguments,
        title=key,
        action=TRACED if _WITHOUT_GRAPHS & {*waits.hooks} else action,
        notes=(key.removeprefix("jax-"),),
    )


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
    line, _ = waits.context.trace.once(graph_lines).of(name.decode("utf-8", "replace"))
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


# Host ops


def _host_ops(waits: Waits) -> Finding | None:
    is_replica = waits.context.trace.device_list[waits.device].kind == "replica"
    # What as many ops take anywhere is no fault of theirs.
    is_of_dispatch = is_replica and waits.is_of_dispatch
    is_many = is_replica and waits.has_many_ops and not is_of_dispatch
    is_small = waits.is_of_small_step and not (is_many or waits.tracing)
    line = {} if is_small else waits.line_of_calls
    action = "ops_of_replicas" if is_replica else ""
    if is_small or is_of_dispatch:
        action = "small"
    # Nor is it one of a program on CPUs to be small, whose ops would else be as small.
    is_usual = is_small and is_replica and waits.loss.share < CLEAR_RATIO
    python = waits.python(State.PYTHON) if line else None
    inner = (python.inner if python else None) or ""
    if inner.startswith((*CONVERTS, NUMPY)) or inner.endswith("device_put"):
        action = "converted_values"
    if waits.tracing:
        action = TRACED
    title = "small" if is_small else ""
    handed = _arrays_handed(waits)
    if handed is not None:
        title = action = "arguments"
        line, is_usual = {**waits.line_of_calls, "count": handed}, False
    if action == "ops_of_replicas" and not title and waits.has_many_ops:
        # Before the first op the graph is called.
        of_ops = waits.rows & (waits.context.ledger.columns.activity != IDLE)
        line = line or line_of_rows(waits.context, of_ops) or _scope_of_most(waits)
        line["count"], title = Number(int(waits.ops_per_step(waits.device)), "op"), "many"
    return waits.finding(
        rules.HOST_BOUND,
        arguments=line | waits.tracing,
        title=title,
        action=action,
        severity="info" if is_usual else None,
        # On a CPU the dispatch shares the cores with the ops.
        unsure="cores" if is_replica and not waits.tracing else "",
    )


def _scope_of_most(waits: Waits) -> dict[str, Argument]:
    """The scope that most of the ops of a device are in; nothing without one."""
    trace = waits.context.trace
    places, label = trace.once(label_places), trace.once(op_labels).of_row
    place = places.place[label[counted_events(waits.context, waits.device)]]
    count = Counter[tuple[str, ...]]()
    for number, times in enumerate(np.bincount(place).tolist()):
        count[places.places[number].scopes] += times
    for scopes, most in count.most_common(1):
        if scopes and 2 * most > place.size:
            return {"scope": Names(("/".join(scopes),), "op")}
    return {}


_EAGER_DISPATCH_PS: Final = 10 * PS_PER_US
"""What Python takes for an op outside of a graph without the profiler, at least: 10 to 32 µs (TensorFlow 2.21, ops of 8 × 8)."""


def _is_of_profiler(context: Context, host: int, ps: int, ops: EagerOps) -> bool:
    """Whether some time per step of ops outside of graphs may be the profiler's: without what that took less than the limit is left.

    What dispatch of these ops takes without the profiler is left in any case.
    """
    ratio, mean_ps = profiler_ratio(context, host), context.selection.mean_step_ps
    if mean_ps is None or not ratio:
        return False
    # Both are medians, of other steps than the used ones: only their ratio is a share of these.
    own_ps = ps - mean_ps * ratio / (1 + ratio)
    least_ps = ops.count_per_step * _EAGER_DISPATCH_PS
    limit_ps = rules.HOST_BOUND.limit * mean_ps
    return own_ps < limit_ps and least_ps < limit_ps


# Ops outside of graphs


def _outside_of_graphs(waits: Waits, reads: BoolArray) -> Iterator[Finding | None]:
    """Steps of a CPU-only run without a graph: replicas look idle while the host runs their ops, and `reads` their results there."""
    context, host = waits.context, waits.host
    if context.trace.device_list[waits.device].kind != "replica":
        return
    ops = many_eager_ops(context, host)
    if ops is None or _is_of_profiler(context, host, waits.loss.mean_ps, ops):
        return
    elsewhere = _at_another_line(waits)
    if context.ledger.loss(elsewhere).share >= LIMIT:
        yield python_in_step(Waits(context, waits.result, elsewhere))
        waits = Waits(context, waits.result, waits.rows & ~elsewhere)
    waits = Waits(context, waits.result, waits.rows | reads)
    key, unit = ("jax-eager", "call") if is_of_jax(context.trace) else ("eager", "op")
    yield waits.finding(
        rules.HOST_BOUND,
        arguments={
            **ops.arguments(unit),
            **line_argument(waits.python(State.PYTHON)),
            "own": Quantity(int(ops.ps_of_steps.sum()) // ops.ps_of_steps.size, "ps"),
            **waits.tracing,
        },
        evidence=[_count(context, ops, context.trace.device_key(waits.device))],
        title=key,
        action=TRACED if _WITHOUT_GRAPHS & {*waits.hooks} else _one_by_one(key, ops),
        notes=(key,),
    )


_PUTS, _PUT = b"shard_args", b"DevicePutWithSharding"
"""What JAX records where it puts the arguments of a call on devices, and for each of them (JAX 0.10)."""
_MANY_ARRAYS: Final = 16
"""Handed over in each step. A choice of ours."""


def _arrays_handed(waits: Waits) -> Number | None:
    """How many arrays a step hands over, if that is most of these waits and they are many."""
    context, trace, columns = waits.context, waits.context.trace, waits.context.trace.host_columns
    rows, each = (trace.named_on(waits.host, name.__eq__) for name in (_PUTS, _PUT))
    steps = context.selection.used_of(waits.host)
    if not (rows.size and each.size and steps):
        return None
    handing = union(columns.start_ps[rows], columns.end_ps[rows])
    waiting = context.ledger.spans_of([waits.device], waits.rows)
    begun, (start, end) = np.sort(columns.start_ps[each]), step_bounds(steps)
    count = int(np.sum(places(begun, end) - places(begun, start))) // len(steps)
    is_most = 2 * intersection(waiting, handing).length >= waiting.length
    return Number(count, "argument") if is_most and count >= _MANY_ARRAYS else None


_OF_INDEXING: Final = {"gather", "dynamic_slice", "unstack"}
"""What an index of an array calls, and a loop over it (JAX 0.10)."""


def _one_by_one(key: str, ops: EagerOps) -> str:
    """The key of the advice against ops outside of graphs."""
    is_indexing = key == "jax-eager" and not _OF_INDEXING.isdisjoint(ops.types)
    return "indexing" if is_indexing else "eager"


def _called_at(waits: Waits) -> PythonShare | None:
    """The line that calls most of the ops; None where it is not known."""
    of_ops = waits.rows & (waits.context.ledger.columns.state == State.HOST_OPS)
    return Waits(waits.context, waits.result, of_ops).python(State.PYTHON)


def _at_another_line(waits: Waits) -> BoolArray:
    """Python in the step at lines other than the one that calls most of the ops."""
    ledger, called_at = waits.context.ledger, _called_at(waits)
    if called_at is None:
        return np.zeros(ledger.count, dtype=np.bool_)
    columns = ledger.columns
    own = [number for number, line in enumerate(ledger.python) if line == called_at.line]
    python: BoolArray = waits.rows & (columns.state == State.PYTHON)
    python &= (columns.by_kind == By.PYTHON) & ~is_in(columns.by, own)
    return python


def _reads_of_calls(waits: Waits) -> BoolArray:
    """Reads of values at the line that calls most of the ops, where these index an array: each read is one of its numbers."""
    context = waits.context
    ops = many_eager_ops(context, waits.host) if is_of_jax(context.trace) else None
    reads = context.ledger.rows(states=(State.SYNC,))
    if ops is not None and _one_by_one("jax-eager", ops) == "indexing" and reads.any():
        called_at = _called_at(waits)
        read_at = Waits(context, waits.result, reads).python(State.SYNC)
        if called_at and read_at and called_at.line == read_at.line:
            return reads
    return np.zeros(reads.size, dtype=np.bool_)


def diagnose_without_devices(context: Context) -> Iterator[Finding]:
    """Steps without a graph on one CPU, where no event shows a device: the step without its ops, each as quick as it can be."""
    trace, selection = context.trace, context.selection
    for host in selection.windows:
        ops, steps = many_eager_ops(context, host), selection.used_of(host)
        if ops is None:
            continue
        states, (start, end) = HostStates(trace, host), step_bounds(steps)
        of_graphs = states.timeline(states.caller).spans_of(_OF_GRAPHS).within(start, end)
        between = np.maximum(of_graphs - ops.least_ps_of_steps, 0)
        whole_ps = int((end - start).sum())
        loss = loss_of_host(int(between.sum()), whole_ps, len(steps), State.HOST_OPS)
        if loss.ratio < rules.HOST_BOUND.limit or _is_of_profiler(
            context, host, loss.ps_per_step, ops
        ):
            continue
        yield rules.HOST_BOUND.finding(
            arguments={**ops.arguments(), "loss": lost_argument(loss)},
            loss=loss,
            confidence=("low", "few-steps") if selection.has_few_steps else ("high", "between"),
            evidence=(_count(context, ops, trace.hosts[host].name),),
            title="host",
            action="eager",
            notes=("host",),
        )


def _count(context: Context, ops: EagerOps, where: str) -> Evidence:
    limit = None if ops.graphs_per_step else least_count(context)
    return Evidence("eager_ops_per_step", ops.count_per_step + ops.graphs_per_step, limit, where)


# Checkpoints


def checkpoints(waits: Waits) -> Finding | None:
    """Saves and what restores variables, whichever takes longer."""
    trace, window = waits.context.trace, waits.context.selection.windows[waits.host]
    events = trace.host_columns
    rows = trace.named_on(waits.host, lambda name: host_name_kind(name) == HostNameKind.CHECKPOINT)
    rows = rows[rows_in(events.start_ps[rows], events.end_ps[rows], window)]
    restores = trace.names.where(events.name[rows], is_restore)
    length_ps = events.end_ps[rows] - events.start_ps[rows]
    key = "restored" if 2 * length_ps[restores].sum() > length_ps.sum() else ""
    arguments = line_argument(waits.python(State.CHECKPOINT))
    return waits.finding(rules.CHECKPOINT_STALL, arguments=arguments, title=key, action=key)


def evaluations(waits: Waits) -> Finding | None:
    """Evaluations, and whether most of their time is that they wait for their own input."""
    calls = iterator_calls(waits.context.trace, waits.host)
    asked = find_input_waits(waits.context.trace, waits.host, calls)
    spans = waits.context.ledger.spans_of([waits.device], waits.rows)
    input_ps = intersection(union(asked.start_ps, asked.end_ps), spans).length
    least_ps = rules.VALIDATION_STALL.limits["input_ratio"] * spans.length
    key = "input" if input_ps >= least_ps else ""
    arguments = line_argument(waits.python(State.EVALUATION))
    return waits.finding(rules.VALIDATION_STALL, arguments=arguments, title=key, action=key)


_CONCLUSIONS: Final[Mapping[tuple[State, ...], Callable[[Waits], Finding | None]]] = {
    rules.LAUNCH_BOUND.states: late_launches,
    (State.CHECKPOINT,): checkpoints,
    (State.EVALUATION,): evaluations,
    (State.GARBAGE_COLLECTION,): garbage,
    (State.SYNC,): values_read,
    (State.BETWEEN,): between_steps,
    (State.PYTHON_THREAD,): python_thread,
    (State.COMPILE,): compilation,
}
"""What states lead to that are a cause by themselves, in the order of findings that cost the same."""

_OF_LINES: Final = ((State.SYNC,), (State.BETWEEN,))
"""Those that as many lines of the script may cause, each for itself."""
