"""Finds calls on the host that explain why devices wait: eager ops, calls that return late, tracing, first calls.

An op outside of any graph is an `EagerKernelExecute` with no graph in it (TensorFlow 2.21). Neither its device nor its
replica is recorded, so that on a host without GPUs its time looks like idle time of the replicas.

What JAX runs outside of any function of the user is a `PjitFunction(add)` for each op (JAX 0.10).

TensorFlow copies the constants of a graph to a device when it makes the kernels of the graph, before the first call.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.kernels import EAGER, GRAPH
from traceview.analysis.facts.selection import Selection, step_bounds
from traceview.analysis.gpu_time import host_wait_rules as rules
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.consequences import JITTED_CALL, is_of_jax
from traceview.analysis.rules.words import Argument, Number, Ops
from traceview.base.ids import unique_counts, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.base.stats import median_ps
from traceview.base.units import PS_PER_NS
from traceview.ledger.states import State
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import complement
from traceview.trace.model import Trace
from traceview.trace.sidecar.sidecar import ArgumentChange, CompiledFor

SHOWN_TYPES: Final = 3
"""Types of ops, the most frequent ones: enough to find the code that calls them."""
_CALL: Final = b"EagerLocalExecute: "


class EagerOps(Struct, frozen=True, eq=False):
    """`count_per_step`: median over the used steps. `spans`: when a thread runs such an op.

    `ps_of_steps` `[steps]`: how long that is; `least_ps_of_steps` `[steps]`: if each op took no longer than in the quickest
    quarter of the steps.

    `types`: the types of ops, the most frequent first.
    """

    count_per_step: int
    spans: IntervalSet
    ps_of_steps: Int64Array
    least_ps_of_steps: Int64Array
    types: tuple[str, ...]

    def arguments(self, unit: str = "op") -> dict[str, Argument]:
        """How many there are, each a `unit`, and their types, for a sentence."""
        return {"count": Number(self.count_per_step, unit), "types": Ops(self.types)}


def many_eager_ops(context: Context, host: int) -> EagerOps | None:
    """The ops of a host outside of graphs, where steps run many; those between steps are not the step's."""
    within = (context.idle.states.get(host) or HostStates(context.trace, host)).markers
    if is_of_jax(context.trace):
        # The marker of a step may be the call of one function.
        own = [d for d in context.ledger.devices if context.trace.device_list[d].host == host]
        rows = context.ledger.rows(states=(State.BETWEEN,))
        within = complement(context.ledger.spans_of(own, rows)) if own else within
    ops = eager_ops(context.trace, context.selection, host, within if within.start.size else None)
    return ops if ops is not None and ops.count_per_step >= least_count(context) else None


def least_count(context: Context) -> int:
    """From how many calls per step on the step is no graph; JAX takes longer for each than TensorFlow."""
    is_jax = is_of_jax(context.trace)
    return int(rules.HOST_BOUND.limits["calls_per_step_count" if is_jax else "ops_per_step_count"])


def eager_ops(
    trace: Trace, selection: Selection, host: int, within: IntervalSet | None = None
) -> EagerOps | None:
    """The eager ops of one host, or those that begin within some spans; None without steps or without such ops."""
    jitted = _outermost(trace, trace.named_on(host, _is_jitted))
    if jitted.size:
        rows = jitted if within is None else _begun_within(trace, jitted, within)
        return _measured(trace, selection, host, rows, rows)
    rows = trace.named_on(host, EAGER.__eq__)
    rows = rows if within is None else _begun_within(trace, rows, within)
    rows = rows[~_holds_graph(trace, rows)]
    return _measured(trace, selection, host, rows, trace.named_on(host, _is_call))


def eager_calls(
    trace: Trace, selection: Selection, host: int, within: IntervalSet
) -> EagerOps | None:
    """The ops of one host that Python begins within these spans, each from its call to its return; None without any."""
    rows = _begun_within(trace, trace.named_on(host, _is_call), within)
    rows = rows[~_holds_graph(trace, rows)]
    return _measured(trace, selection, host, rows, rows)


def _outermost(trace: Trace, rows: Int64Array) -> Int64Array:
    """Those of some events that begin inside no other of them on their thread; they come line by line, by start."""
    columns = trace.host_columns
    start, end, line = columns.start_ps[rows], columns.end_ps[rows], columns.line[rows]
    order = np.lexsort((-end, start, line))
    outer = np.zeros(rows.size, dtype=np.bool_)
    for each in unique_ids(line).tolist():
        own = order[line[order] == each]
        until = np.append(start[own][:1], np.maximum.accumulate(end[own])[:-1])
        outer[own] = start[own] >= until
    return rows[outer]


def _begun_within(trace: Trace, rows: Int64Array, within: IntervalSet) -> Int64Array:
    """Those of some events that begin within some spans."""
    start = trace.host_columns.start_ps[rows]
    last = np.searchsorted(within.start, start, side="right") - 1
    return rows[(last >= 0) & (start < within.end[last])]


def _measured(
    trace: Trace, selection: Selection, host: int, rows: Int64Array, calls: Int64Array
) -> EagerOps | None:
    """How many of these events there are per step, and when; their types are those of `calls`."""
    steps, columns = selection.used_of(host), trace.host_columns
    if not steps or rows.size == 0:
        return None
    start, end = step_bounds(steps)
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    begun = columns.start_ps[rows]
    first, last = np.searchsorted(begun, start), np.searchsorted(begun, end)
    usual = median_ps(last - first) or 0
    spans = union(begun, columns.end_ps[rows])
    own_ps = spans.within(start, end)
    alike = np.flatnonzero(last - first == usual)
    least_ps = own_ps.copy()
    if alike.size:
        # A step is the same ops in the same order.
        length = columns.end_ps[rows] - begun
        by_step = np.sort(length[first[alike, None] + np.arange(usual)], axis=0)
        quickest = int(by_step[(alike.size - 1) // 4].sum())
        least_ps[alike] = np.minimum(own_ps[alike], quickest)
    return EagerOps(usual, spans, own_ps, least_ps, _most_frequent(trace, calls))


def _holds_graph(trace: Trace, rows: Int64Array) -> BoolArray:
    """Whether a graph starts below each of these ops: then it is the call of a `tf.function`."""
    columns = trace.host_columns
    result = np.zeros(rows.size, dtype=np.bool_)
    for line in unique_ids(columns.line[rows]).tolist():
        at_line = np.flatnonzero(columns.line[rows] == line)
        whole = columns.rows_of(line)
        is_graph = trace.names.matching(columns.name[whole], GRAPH)
        graphs = np.sort(columns.start_ps[whole][is_graph])
        first = np.searchsorted(graphs, columns.start_ps[rows[at_line]])
        result[at_line] = np.searchsorted(graphs, columns.end_ps[rows[at_line]]) > first
    return result


def _is_call(name: bytes) -> bool:
    """Whether Python runs an op, or calls a graph, in an event of this name."""
    return name.startswith(_CALL)


def _is_jitted(name: bytes) -> bool:
    return name.startswith(JITTED_CALL)


def _most_frequent(trace: Trace, calls: Int64Array) -> tuple[str, ...]:
    """The types of the ops, or the functions, that these events call, the most frequent first."""
    names, count = unique_counts(trace.host_columns.name[calls])
    frequent = names[np.argsort(-count, kind="stable")[:SHOWN_TYPES]].tolist()
    texts = ((trace.names.text(name) or "").removeprefix(_CALL.decode()) for name in frequent)
    return tuple(text.removeprefix(JITTED_CALL.decode()).removesuffix(")") for text in texts)


# Tracing


class Retraced(Struct, frozen=True):
    """A function that was traced in the window.

    `traced_by`: what differs between its graphs, as in `FunctionPlacement`.
    """

    function: str
    count: int
    traced_by: tuple[str, ...]


def retraced_calls(trace: Trace, selection: Selection, host: int) -> tuple[Retraced, ...]:
    """Functions traced in a step of the window that is not the first recorded, most often first.

    One that is traced for the first time in its process, such as that of the first evaluation, is not among them.
    """
    columns = trace.host_columns
    calls = columns.stat("tf_function_call").among(columns.rows_of_host(host))
    rows = calls.row[trace.names.where(calls.value, lambda name: name.startswith(b"traced-"))]
    recorded = trace.steps_by_host[host].steps
    steps = [step for step in selection.steps[host] if step != recorded[0]]
    begun = columns.start_ps[rows]
    rows = rows[union(*step_bounds(steps)).within(begun, begun + 1) > 0]
    counts = columns.stat("tracing_count").at(rows, -1)
    sidecar = trace.hosts[host].sidecar
    functions = sidecar.placement.functions if sidecar is not None else ()
    traced_by = {function.name: function.traced_by for function in functions}
    retraced = []
    for name in unique_ids(columns.name[rows]).tolist():
        same = columns.name[rows] == name
        if int(counts[same].max()) == 1:
            continue
        function = trace.names.text(name) or ""
        retraced.append(
            Retraced(
                function,
                int(same.sum()),
                traced_by.get(function, ()),
            )
        )
    return tuple(sorted(retraced, key=lambda call: (-call.count, call.function)))


class Changed(Struct, frozen=True):
    """An argument that a function of JAX was compiled again for.

    `kind`: shape, dtype, static or sharding, as the actions of the rule, or empty. `words`: before and now.
    """

    name: str
    kind: str
    words: str


class Recompiled(Struct, frozen=True):
    """A function of JAX that was compiled again in a step. `is_new`: the script has made the function anew."""

    function: str
    step: int
    is_new: bool
    changes: tuple[Changed, ...]

    @property
    def kinds(self) -> set[str]:
        """Why: `function` where it is new, which alone would do; else the kinds of what has changed."""
        return {"function"} if self.is_new else {change.kind for change in self.changes}


def recompilations(trace: Trace, selection: Selection, host: int) -> list[Recompiled]:
    """The functions of JAX that a host compiled again in used steps, as the sidecar says."""
    info = trace.hosts[host]
    if info.sidecar is None or info.profile_start_ns is None:
        return []
    found = []
    for function in info.sidecar.jax.functions:
        for each in function.compilations:
            at_ps = info.start_ps + ((each.t_ns or 0) - info.profile_start_ns) * PS_PER_NS
            for step in selection.used_of(host):
                if step.start_ps <= at_ps < step.end_ps:
                    changes = tuple(map(_changed, each.changes))
                    is_new = bool(each.is_new_function)
                    found.append(Recompiled(function.name or "", step.number, is_new, changes))
    return found


def _changed(change: ArgumentChange) -> Changed:
    """`float32[96,128] -> float32[64,128]`."""
    old, new = change.old, change.new
    words = " -> ".join(_kind(each) if each else "absent" for each in (old, new))
    kind = ""
    if old is not None and new is not None:
        if old.static or new.static:
            # An object cannot be passed as an array.
            kind = "" if new.static == "object" else "static"
        elif old.type == new.type:
            kind, words = "sharding", f"{_kind(old)} placed differently"
        else:
            types = {(each.type or "").partition("[")[0] for each in (old, new)}
            kind = "shape" if len(types) == 1 else "dtype"
    return Changed(change.name or "", kind, words)


def _kind(argument: CompiledFor) -> str:
    return f"static {argument.static}" if argument.static else argument.type or "not known"


# First calls


def constant_copies(trace: Trace, states: HostStates, selection: Selection, host: int) -> int:
    """How many constants a host copied in its window, as only the first call of a function does."""
    window = selection.windows[host]
    calls = trace.host_columns.start_ps[states.copies_of_constants]
    return int(np.count_nonzero((calls >= window.start_ps) & (calls < window.end_ps)))
