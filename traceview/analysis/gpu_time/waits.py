"""Holds the rows of the ledger in which devices wait for the host, with the line, the gap and the steps that have most of them.

Also measures the ops that Python runs outside of any graph. Such an op is an `EagerKernelExecute` with no graph in it
(TensorFlow 2.21). Neither its device nor its replica is recorded, so that on a host without GPUs its time looks like idle
time of the replicas. What JAX runs outside of any function of the user is a `PjitFunction(add)` for each op (JAX 0.10).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.input_supply import DETERMINED
from traceview.analysis.facts.layers import EAGER, GRAPH
from traceview.analysis.facts.python import PythonShare, python_of_rows
from traceview.analysis.facts.selection import Selection, step_bounds
from traceview.analysis.gpu_time.host_wait_rules import HOST_BOUND
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import Idle
from traceview.analysis.measures.op_work import counted_events
from traceview.analysis.measures.step_report import FEWEST_SLOW, distance_of
from traceview.analysis.rules.finding import Confidence, Evidence, Finding, Severity
from traceview.analysis.rules.rule import (
    CRITICAL_LIMIT,
    HOOKS,
    JITTED_CALL,
    LIMIT,
    WITH_LOCK,
    Rule,
    is_of_jax,
)
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops, Quantity
from traceview.base.ids import is_in, unique_counts, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.base.stats import median_ps
from traceview.base.text import lazy_pattern
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import Loss, totals
from traceview.trace.columns import NONE
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.python_stacks import OURS
from traceview.trace.host.state_timeline import complement
from traceview.trace.model import Trace

CLEAR_RATIO: Final = 0.5
"""Of the sampled time: from here on a title names the line, for most of the loss is there."""

_AFFECTED_RATIO: Final = 0.2
"""A step with this share of the most that a state takes in any step is affected by it."""

_OF_AFFECTED_RATIO: Final = 0.8
"""Of the time of a state: where some steps have less of it, the others have it too, and nothing is said of how many."""

_OURS: Final = -2

_SURELY_SEEN: Final = 3
"""Rounds of samples: of what takes less, a step may have no sample by chance. A choice of ours."""

FEWEST_TO_COMPARE: Final = 3
"""Of fewer steps none counts as affected."""


def profiler_ratio(context: Context, host: int) -> float:
    """By how much of a step the profiler makes it longer, as the sidecar measured it; 0 where that is not known, or noise."""
    overhead = context.trace.hosts[host].captured.environment.overhead
    ratio = overhead.ratio or 0.0
    return ratio if ratio > (overhead.spread_ratio or 0.0) else 0.0


class Waits(Struct, frozen=True, eq=False, dict=True):
    """The rows of some states: how much they are, on which host most, and the steps that have them if most have not."""

    context: Context
    result: Idle
    rows: BoolArray
    of_samples: bool = False
    """Whether samples chose them among the rows of their states."""

    @cached_property
    def loss(self) -> Loss:
        """Their sum."""
        return self.context.ledger.loss(self.rows)

    @cached_property
    def device(self) -> int:
        """The device that loses most."""
        lost_ps = self.context.ledger.by_device(self.rows)
        return max(lost_ps, key=lambda device: lost_ps[device])

    @property
    def is_of_small_step(self) -> bool:
        """Whether a step loses much to what dispatch takes in any step: it is short without the profiler, or the loss is no longer
        than calling it and dispatching its ops takes wherever they are so many; not where most are tiny.
        """
        ledger, limits = self.context.ledger, HOST_BOUND.limits
        if not ledger.has_steps or self.loss.share < CRITICAL_LIMIT:
            return False
        if self.loss.of_ps < limits["small_step_ps"] * (
            1 + profiler_ratio(self.context, self.host)
        ):
            return True
        return self.is_of_dispatch

    @property
    def is_of_dispatch(self) -> bool:
        """Whether the loss is no longer than calling a step and dispatching its ops takes, and not of tiny ops."""
        columns, limits = self.context.ledger.columns, HOST_BOUND.limits
        own = self.context.ledger.rows_of(self.device)
        if (columns.activity[own][self.rows[own]] != IDLE).any():
            return False
        dispatch_ps = self.ops_per_step(self.device) * limits["dispatch_ps"]
        return self.loss.mean_ps <= limits["call_ps"] + dispatch_ps

    @property
    def has_many_ops(self) -> bool:
        """Whether to dispatch the ops of some device takes as long as to call the step."""
        most = max(map(self.ops_per_step, self.context.ledger.devices))
        return most * HOST_BOUND.limits["dispatch_ps"] >= HOST_BOUND.limits["call_ps"]

    def ops_per_step(self, device: int) -> float:
        """How many ops a device computes in a step, also beside others."""
        count: int = counted_events(self.context, device).size
        return count / (self.context.ledger.steps_of_device[device] or 1)

    @property
    def host(self) -> int:
        """Its host."""
        return self.context.trace.device_list[self.device].host

    @property
    def hooks(self) -> tuple[str, ...]:
        """What was on that slows down all Python of the host, or each of its calls."""
        hooks = self.context.trace.hosts[self.host].captured.environment.tracing.hooks
        return tuple(hook for hook in hooks if hook != DETERMINED)

    @property
    def tracing(self) -> dict[str, Argument]:
        """The same as an argument, where something was on."""
        return {HOOKS: Names(self.hooks, "setting")} if self.hooks else {}

    def python(self, state: State) -> PythonShare | None:
        """The line of Python that ran in them, in the state that they are in."""
        return python_of_rows(self.context.idle.python, self.context.ledger, self.rows, state)

    @property
    def line_of_calls(self) -> dict[str, Argument]:
        """The line whose calls of the framework are most of them, where a line is."""
        ledger, columns = self.context.ledger, self.context.ledger.columns
        rows = np.flatnonzero(self.rows & (columns.by_kind == By.PYTHON))
        of_line = totals(columns.by[rows], columns.duration_ps[rows], len(ledger.python))
        if not rows.size or of_line.max() < CLEAR_RATIO * columns.duration_ps[self.rows].sum():
            return {}
        return {"line": Line(ledger.python[int(of_line.argmax())])}

    @property
    def by_cause(self) -> list[Waits]:
        """The rows of each cause, the longest first, where several are worth a finding; the longest has what no line is known of.

        Samples tell apart what calls the lines of the rows. What the capture does there is none of the program. Where one is worth
        a finding, those that are not belong to none; else all are one.
        """
        ledger, columns = self.context.ledger, self.context.ledger.columns
        cause_of = self.context.once(causes_of_lines)
        rows = np.flatnonzero(self.rows & (columns.by_kind == By.PYTHON))
        cause = np.full(columns.count, NONE, dtype=np.int64)
        cause[rows] = cause_of[columns.by[rows]]
        is_own = cause == _OURS
        of_causes = [cause == each for each in unique_ids(cause[rows]).tolist() if each >= 0]
        costs = [(ledger.loss(each & self.rows).share, each) for each in of_causes]
        costs.sort(key=lambda row: -row[0])
        others = [self.rows & each for share, each in costs[1:] if share >= LIMIT]
        is_any = bool(costs) and costs[0][0] >= LIMIT
        apart = [each for _, each in costs[1:]] if is_any else []
        rest = self.rows & ~np.logical_or.reduce([is_own, *apart])
        return [Waits(self.context, self.result, each, bool(apart)) for each in (rest, *others)]

    def finding(
        self,
        rule: Rule,
        *,
        arguments: Mapping[str, Argument] | None = None,
        evidence: Sequence[Evidence] = (),
        notes: Sequence[str] = (),
        unsure: str = "",
        title: str = "",
        action: str = "",
        severity: Severity | None = None,
    ) -> Finding | None:
        """The finding by a rule, with the line of Python, the longest gap, and the steps that it is about if most have none of it.

        `unsure`: the key of the reason why it is little more than a guess.
        """
        steps, arguments_of_steps = self._affected()
        sure: tuple[Confidence, str] = ("high", "")
        lines = self.context.idle.python.get(self.host)
        if HOOKS in (arguments or {}):
            sure = ("medium", HOOKS)
        elif lines and lines.lines.needed_lock and self.python(rule.states[0]):
            sure = ("medium", WITH_LOCK)
        return rule.of_rows(
            self.context,
            self.rows,
            arguments={**(arguments or {}), **arguments_of_steps},
            confidence=("low", unsure) if unsure else sure,
            evidence=(
                *evidence,
                *self._sampled(rule.states[0]),
                *self._longest_gap(rule.states[0]),
            ),
            steps=steps,
            notes=(*notes, *(("some",) if steps else ())),
            title=title,
            action=action,
            severity=severity,
            keeps_waiting=True,
        )

    def _sampled(self, state: State) -> Iterator[Evidence]:
        python = self.python(state)
        # After a wait the next step is called; the line of the wait is the cause.
        if python is not None and not (state == State.SYNC and self.line_of_calls):
            yield from python.evidence

    def _longest_gap(self, state: State) -> Iterator[Evidence]:
        """The longest listed gap of a device that has most of its time in a state."""
        named = [row for row in self.result.devices if row.device in self.loss.devices]
        gaps = [(row.device, gap) for row in named for gap in row.gaps if gap.state == state.key]
        if not gaps:
            return
        device, gap = max(gaps, key=lambda pair: pair[1].duration_ps)
        where = "outside of steps" if gap.step is None else f"step {gap.step}"
        yield Evidence("longest_gap_ps", gap.duration_ps, None, device, where)
        if gap.host_event is not None:
            yield Evidence(
                "host_event",
                gap.host_event,
                None,
                gap.thread or "",
                value_is="event",
                where_is="thread",
            )

    @cached_property
    def is_affected(self) -> BoolArray:
        """By used step of the host, whether it has about as much of it as the one with most; empty without steps."""
        ledger = self.context.ledger
        if not ledger.has_steps:
            return np.zeros(0, dtype=np.bool_)
        of_steps = ledger.by_step(self.rows, self.device)
        return of_steps >= max(int(_AFFECTED_RATIO * int(of_steps.max(initial=0))), 1)

    @property
    def _interval_ps(self) -> int:
        """The usual time between two rounds of samples of the host."""
        return median_ps(np.diff(self.context.idle.python[self.host].lines.rounds_ps)) or 0

    def _affected(self) -> tuple[tuple[int, ...], dict[str, Argument]]:
        """The numbers of the steps that take what most steps do not have, how many and how long, and how often they come."""
        affected = self.is_affected
        count = int(affected.sum())
        if affected.size < FEWEST_TO_COMPARE or not 0 < 2 * count <= affected.size:
            return (), {}
        used = self.context.selection.used_of(self.host)
        of_steps = self.context.ledger.by_step(self.rows, self.device)
        if of_steps[affected].sum() < _OF_AFFECTED_RATIO * of_steps.sum():
            return (), {}
        each_ps = int(of_steps[affected].sum()) // count
        if self.of_samples and each_ps < _SURELY_SEEN * self._interval_ps:
            return (), {}
        chosen = zip(used, affected.tolist(), strict=True)
        steps = tuple(step.number for step, is_affected in chosen if is_affected)
        period = distance_of(steps, [step.number for step in used], FEWEST_SLOW)
        return steps, {
            "affected": Number(count),
            **(
                {"some": Number(count)} if period is None else {"period": Quantity(period, "place")}
            ),
            "used": Number(len(used), "used step"),
            "each": Quantity(each_ps, "ps"),
        }


def causes_of_lines(context: Context) -> Int64Array:
    """By line of Python in the ledger the number of what calls it, `NONE` where that is not known, `_OURS` of the capture, int64."""
    number_of: dict[str, int] = {}
    found = np.full(len(context.ledger.python), NONE, dtype=np.int64)
    for python in context.idle.python.values():
        called = python.lines.called_by_loop(python.caller)
        for place, line in enumerate(context.ledger.python):
            if line in called:
                number = number_of.setdefault(called[line], len(number_of))
                found[place] = _OURS if called[line] == OURS else number
    return found


def line_argument(python: PythonShare | None) -> dict[str, Argument]:
    """The argument that names a line, where most of the time was there."""
    return {"line": python.argument} if python and python.ratio >= CLEAR_RATIO else {}


# Ops outside of graphs

SHOWN_TYPES: Final = 3
"""Types of ops, the most frequent ones: enough to find the code that calls them."""
_CALL: Final = lazy_pattern(rb"EagerLocalExecute: ")
"""What Python records where it runs an op, or calls a graph."""
_GRAPHS: Final = lazy_pattern(rb"EagerLocalExecute: __(?:inference|forward)_")
_GRADIENTS: Final = lazy_pattern(rb"EagerLocalExecute: __inference___backward_")
"""The same of graphs, and of those that a tape outside of them calls for the gradients of one (TensorFlow 2.21)."""
_FEWEST_GRADIENTS: Final = 2
"""Of one function the rest of the step is little. A choice of ours."""


class EagerOps(Struct, frozen=True, eq=False):
    """`count_per_step`: median over the used steps. `spans`: when a thread runs such an op.

    `ps_of_steps` `[steps]`: how long that is; `least_ps_of_steps` `[steps]`: if each op took no longer than in the quickest
    quarter of the steps.

    `types`: the types of ops, the most frequent first. `graphs_per_step`: median of calls of graphs, where a tape outside of them makes
    gradients of several; else 0.
    """

    count_per_step: int
    spans: IntervalSet
    ps_of_steps: Int64Array
    least_ps_of_steps: Int64Array
    types: tuple[str, ...]
    graphs_per_step: int = 0

    def arguments(self, unit: str = "op") -> dict[str, Argument]:
        """How many there are, each a `unit`, with calls of graphs among them, and their types, for a sentence."""
        count = self.count_per_step + self.graphs_per_step
        named = Number(count, "call" if self.graphs_per_step else unit)
        return {"count": named, "types": Ops(self.types)}


def many_eager_ops(context: Context, host: int) -> EagerOps | None:
    """The ops of a host outside of graphs, where steps run many; those between steps, and of a thread beside them, are not the step's."""
    states = context.idle.states.get(host) or HostStates(context.trace, host)
    within = states.markers
    if is_of_jax(context.trace):
        # The marker of a step may be the call of one function.
        own = [d for d in context.ledger.devices if context.trace.device_list[d].host == host]
        rows = context.ledger.rows(states=(State.BETWEEN,))
        within = complement(context.ledger.spans_of(own, rows)) if own else within
    ops = eager_ops(
        context.trace,
        context.selection,
        host,
        within if within.start.size else None,
        without=states.guests.keys(),
    )
    if ops is not None and ops.count_per_step < least_count(context) and not ops.graphs_per_step:
        return None
    return ops


def least_count(context: Context) -> int:
    """From how many calls per step on the step is no graph; JAX takes longer for each than TensorFlow."""
    is_jax = is_of_jax(context.trace)
    return int(HOST_BOUND.limits["calls_per_step_count" if is_jax else "ops_per_step_count"])


def eager_ops(
    trace: Trace,
    selection: Selection,
    host: int,
    within: IntervalSet | None = None,
    *,
    without: Collection[int] = (),
) -> EagerOps | None:
    """The eager ops of one host, or those that begin within some spans; None without steps or without such ops.

    `without`: threads whose calls of JAX do not count.
    """
    jitted = _outermost(trace, trace.named_on(host, JITTED_CALL.match))
    if jitted.size:
        of_thread = trace.thread_of_line[trace.host_columns.line[jitted]]
        jitted = jitted[~is_in(of_thread, sorted(without))]
        rows = jitted if within is None else _begun_within(trace, jitted, within)
        return _measured(trace, selection, host, rows, rows)
    rows = trace.named_on(host, EAGER.__eq__)
    rows = rows if within is None else _begun_within(trace, rows, within)
    rows = rows[~_holds_graph(trace, rows)]
    ops = _measured(trace, selection, host, rows, trace.named_on(host, _CALL.match))
    gradients, graphs = (
        rows if within is None else _begun_within(trace, rows, within)
        for rows in (trace.named_on(host, kind.match) for kind in (_GRADIENTS, _GRAPHS))
    )
    if ops is None or _per_step(trace, selection, host, gradients) < _FEWEST_GRADIENTS:
        return ops
    return replace(ops, graphs_per_step=_per_step(trace, selection, host, graphs))


def _per_step(trace: Trace, selection: Selection, host: int, rows: Int64Array) -> int:
    """How many of some events begin in a used step, median."""
    begun = np.sort(trace.host_columns.start_ps[rows])
    start, end = step_bounds(selection.used_of(host))
    return median_ps(np.searchsorted(begun, end) - np.searchsorted(begun, start)) or 0


def eager_calls(
    trace: Trace, selection: Selection, host: int, within: IntervalSet
) -> EagerOps | None:
    """The ops of one host that Python begins within these spans, each from its call to its return; None without any."""
    rows = _begun_within(trace, trace.named_on(host, _CALL.match), within)
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
    return rows[within.within(start, start + 1) > 0]


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


def _most_frequent(trace: Trace, calls: Int64Array) -> tuple[str, ...]:
    """The types of the ops, or the functions, that these events call, the most frequent first."""
    names, count = unique_counts(trace.host_columns.name[calls])
    frequent = names[np.argsort(-count, kind="stable")[:SHOWN_TYPES]].tolist()
    texts = (trace.names.text(name) or "" for name in frequent)
    bare = (text.removeprefix("EagerLocalExecute: ") for text in texts)
    return tuple(text.removeprefix("PjitFunction(").removesuffix(")") for text in bare)
