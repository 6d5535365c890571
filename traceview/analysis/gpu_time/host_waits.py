"""Concludes from the ledger which waits for the host are worth a change: a finding per state, over all devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.detours import TRANSFER, copied_results, detour_rows
from traceview.analysis.facts.dispatch import SMALL_KERNEL_PS, ends_of_conditions, rows_of_keys
from traceview.analysis.facts.python import PythonShare, python_of_rows
from traceview.analysis.facts.python_lock import threads_at_work
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.gpu_time import host_wait_rules as rules
from traceview.analysis.gpu_time.host_calls import (
    SHOWN_TYPES,
    EagerOps,
    FirstCall,
    eager_calls,
    eager_ops,
    first_call,
    open_elsewhere,
    retraced_calls,
)
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import Gap, Idle
from traceview.analysis.measures.op_work import line_of
from traceview.analysis.rules.consequences import is_of_jax
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import (
    CRITICAL_LIMIT,
    LIMIT,
    Rule,
    devices_argument,
    finding_loss,
    loss_of_host,
    lost_argument,
)
from traceview.analysis.rules.words import (
    Argument,
    Line,
    Names,
    Number,
    Ops,
    Part,
    Time,
)
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray
from traceview.base.stats import median_ps
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import OF_CAUSE, State
from traceview.ledger.table import Loss, totals
from traceview.trace.device.lines import graph_lines
from traceview.trace.device.op_names import SideWork, op_labels, side_work_of
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import complement, intersection, without_holes
from traceview.trace.model import NONE
from traceview.xplane.host_names import HostNameKind, host_name_kind, op_type
from traceview.xplane.planes import ActivityClass, is_compilation

_LISTED_CALLS: Final = 4

_PUTS: Final = "device_put"
_CALLS: Final = " in quick_execute"
_KERAS_STEP: Final = re.compile(
    rb"EagerLocalExecute: __inference_(?:multi_step_on_iterator|one_step_on_data|train_function)"
)
"""The graphs of `Model.fit` (Keras 2 and 3)."""
"""The end of functions of JAX that copy arrays to devices."""

_CONVERTS: Final = (
    *("tensorflow/python/framework/constant_op.py", "tensorflow/python/framework/tensor_"),
    *("jax/_src/dtypes.py", "jax/_src/numpy/array", "numpy/"),
)
"""Modules that make tensors and arrays of what Python has (TensorFlow 2.21, JAX 0.10)."""

_CLEAR_RATIO: Final = 0.5
"""Of the sampled time: from here on a title names the line, for most of the loss is there."""

_AFFECTED_RATIO: Final = 0.2
"""A step with this share of the most that a state takes in any step is affected by it."""

_OF_AFFECTED_RATIO: Final = 0.8
"""Of the time of a state: where some steps have less of it, the others have it too, and nothing is said of how many."""

_FEWEST_TO_COMPARE: Final = 3
"""Of fewer steps none counts as affected."""

_MOST_BETWEEN_PS: Final = 200 * PS_PER_US
"""Between two calls Python reads variables and checks arguments, which took 40 to 100 µs on two slow cores."""

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


class _Waits(Struct, frozen=True, eq=False, dict=True):
    """The rows of some states: how much they are, on which host most, and the steps that have them if most have not."""

    context: Context
    result: Idle
    rows: BoolArray

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
    def host(self) -> int:
        """Its host."""
        return self.context.trace.device_list[self.device].host

    def python(self, state: State) -> PythonShare | None:
        """The line of Python that ran in them, in the state that they are in."""
        return python_of_rows(self.context.idle.python, self.context.ledger, self.rows, state)

    @property
    def line_of_calls(self) -> dict[str, Argument]:
        """The line whose calls of the framework are most of them, where a line is."""
        ledger, columns = self.context.ledger, self.context.ledger.columns
        rows = np.flatnonzero(self.rows & (columns.by_kind == By.PYTHON))
        of_line = totals(columns.by[rows], columns.duration_ps[rows], len(ledger.python))
        if not rows.size or of_line.max() < _CLEAR_RATIO * columns.duration_ps[self.rows].sum():
            return {}
        return {"line": Line(ledger.python[int(of_line.argmax())])}

    def gap(self, state: State) -> tuple[str, Gap] | None:
        """The longest listed gap of a device that has most of its time in a state, with the key of the device."""
        named = [row for row in self.result.devices if row.device in self.loss.devices]
        gaps = [(row.device, gap) for row in named for gap in row.gaps if gap.state == state.key]
        return max(gaps, key=lambda pair: pair[1].duration_ps, default=None)

    def finding(
        self,
        rule: Rule,
        *,
        arguments: Mapping[str, Argument] | None = None,
        evidence: Sequence[Evidence] = (),
        notes: Sequence[str] = (),
        unsure: str = "",
        **words: Any,
    ) -> Finding | None:
        """The finding by a rule, with the line of Python, the longest gap, and the steps that it is about if most have none of it.

        `unsure`: the key of the reason why it is little more than a guess. `words`: as of `Rule.finding`.
        """
        steps, arguments_of_steps = self._affected()
        return rule.of_rows(
            self.context,
            self.rows,
            arguments={**(arguments or {}), **arguments_of_steps},
            confidence=("low", unsure) if unsure else ("high", ""),
            evidence=(
                *evidence,
                *self._sampled(rule.states[0]),
                *self._longest_gap(rule.states[0]),
            ),
            steps=steps,
            notes=(*notes, *(("some",) if steps else ())),
            **words,
        )

    def _sampled(self, state: State) -> Iterator[Evidence]:
        python = self.python(state)
        # After a wait the next step is called; the line of the wait is the cause.
        if python is not None and not (state == State.SYNC and self.line_of_calls):
            yield python.evidence

    def _longest_gap(self, state: State) -> Iterator[Evidence]:
        longest = self.gap(state)
        if longest is None:
            return
        device, gap = longest
        where = "outside of steps" if gap.step is None else f"step {gap.step}"
        yield Evidence("longest_gap_ps", gap.duration_ps, None, device, where)
        if gap.host_event is not None:
            yield _event("host_event", gap.host_event, gap)

    @cached_property
    def is_affected(self) -> BoolArray:
        """By used step of the host, whether it has about as much of it as the one with most; empty without steps."""
        ledger = self.context.ledger
        if not ledger.has_steps:
            return np.zeros(0, dtype=np.bool_)
        of_steps = ledger.by_step(self.rows, self.device)
        return of_steps >= max(int(_AFFECTED_RATIO * int(of_steps.max(initial=0))), 1)

    def _affected(self) -> tuple[tuple[int, ...], dict[str, Argument]]:
        """The numbers of the steps that take what most steps do not have, and how many and how long; none otherwise."""
        affected = self.is_affected
        count = int(affected.sum())
        if affected.size < _FEWEST_TO_COMPARE or not 0 < 2 * count <= affected.size:
            return (), {}
        used = self.context.selection.used_of(self.host)
        of_steps = self.context.ledger.by_step(self.rows, self.device)
        if of_steps[affected].sum() < _OF_AFFECTED_RATIO * of_steps.sum():
            return (), {}
        chosen = zip(used, affected.tolist(), strict=True)
        return tuple(step.number for step, is_affected in chosen if is_affected), {
            "affected": Number(count),
            "used": Number(len(used), "used step"),
            "each": Time(int(of_steps[affected].sum()) // count),
        }


def diagnose(context: Context, result: Idle) -> Iterator[Finding | None]:
    """The states of the host that devices wait for, each as one finding over all devices."""
    ledger = context.ledger
    lost_ps: Counter[State] = Counter()
    for device in ledger.devices:
        lost_ps.update(ledger.by_state(device))
    least_ps = LIMIT * sum(ledger.gpu_ps_by_device.values())
    detours = context.once(detour_rows)

    def waits(*states: State) -> _Waits | None:
        """The rows of some states; None where they are too few for any rule."""
        if sum(lost_ps[state] for state in states) < max(least_ps, 1):
            return None
        return _Waits(context, result, ledger.rows(states=states) & ~detours)

    if detours.any():
        yield _detours(_Waits(context, result, detours))
    if launches := waits(State.LAUNCH):
        yield from _launches(launches)
    for rule in (rules.CHECKPOINT_STALL, rules.VALIDATION_STALL, rules.GARBAGE_COLLECTION):
        known = waits(*rule.states)
        if known:
            yield known.finding(rule, arguments=_line(known.python(rule.states[0])))
    if sync := waits(State.SYNC):
        yield from _sync(sync)
    if between := waits(State.BETWEEN):
        yield from _between_steps(between)
    if thread := waits(State.PYTHON_THREAD):
        yield from _python_thread(thread)
    if compiles := waits(State.COMPILE):
        yield from _compilation(compiles)
    ops = waits(State.HOST_OPS)
    if ops:
        # What collectives cause is told of them.
        ops = _Waits(context, result, ops.rows & ~rows_of_keys(context, ledger))
    heavy = _heavy_ops(context, ops.rows) if ops else {}
    yield from _of_heavy_ops(context, result, heavy)
    one_by_one = waits(State.HOST_OPS, State.PYTHON, State.BETWEEN_CALLS)
    outside = list(_outside_of_graphs(one_by_one)) if one_by_one else []
    yield from outside
    if not any(outside):
        if ops:
            others = ops.rows.copy()
            for rows in heavy.values():
                others &= ~rows
            yield from _host_ops(_Waits(context, result, others))
        if python := waits(State.PYTHON):
            yield from _python(python)
        if silent := waits(State.BETWEEN_CALLS):
            yield from _between_calls(silent)


# Blocked calls


def _sync(waits: _Waits) -> Iterator[Finding | None]:
    """Calls that block the host; most of the time they wait for a device, and sometimes they outlast its work."""
    context, limits = waits.context, rules.D2H_SYNC.limits
    ledger, columns = context.ledger, context.ledger.columns
    arguments = waits.line_of_calls or _line(waits.python(State.SYNC))
    own = [d for d in ledger.devices if context.trace.device_list[d].host == waits.host]
    at_work = ledger.spans_of(own, columns.activity != IDLE)
    of_host = waits.rows & is_in(ledger.device, own)
    rows = np.flatnonzero(of_host & (columns.duration_ps >= limits["late_row_ps"]))
    start, end = columns.start_ps[rows], columns.start_ps[rows] + columns.duration_ps[rows]
    late_ps = end - start - at_work.within(start, end)
    ratio = int(late_ps.sum()) / int(columns.duration_ps[of_host].sum())
    # What is idle has nothing to do: of a device alone that would hold for every wait.
    if len(own) < 2 or ratio < limits["late_ratio"]:
        key = _how_read(waits)
        title = key if key in rules.D2H_SYNC.titles else ""
        yield waits.finding(
            rules.D2H_SYNC, arguments=arguments, title=title, action=key, notes=(title,)
        )
        return
    longest = int(late_ps.argmax())
    arguments["late"] = Part(ratio)
    states, span = context.idle.states[waits.host], (int(start[longest]), int(end[longest]))
    event = open_elsewhere(context.trace, states, waits.host, *span)
    if event is not None:
        arguments |= {"event": Ops((event[0],)), "thread": Names((event[1],), "thread")}
    yield waits.finding(
        rules.D2H_SYNC,
        arguments=arguments,
        evidence=[Evidence("late_ratio", ratio, limits["late_ratio"], waits.loss.devices[0])],
        title="late",
        notes=("late",),
    )


def _how_read(waits: _Waits) -> str:
    """Whether the call of a graph waits for what it returns, or Keras reads its metrics; else empty."""
    trace = waits.context.trace
    if is_of_jax(trace):
        return ""
    columns, own = trace.device_columns, trace.device_columns.rows_of(waits.device)
    copied = columns.op[own][columns.class_[own] == ActivityClass.D2H]
    sent = int(trace.names.where(copied, TRANSFER.fullmatch).sum())
    python = waits.python(State.SYNC)
    is_in_call = python is not None and (python.inner or "").endswith(_CALLS)
    if (is_in_call or _begin_in_calls(waits)) and sent >= waits.context.ledger.steps_of_device[
        waits.device
    ]:
        return "returned"
    return "keras" if trace.named_on(waits.host, _KERAS_STEP.match).size else ""


def _begin_in_calls(waits: _Waits) -> bool:
    """Whether in most steps such a wait begins while the caller runs a graph."""
    start = waits.context.ledger.columns.start_ps[waits.rows]
    calls = waits.context.idle.states[waits.host].calls
    count = int(np.count_nonzero(calls.within(start, start + 1)))
    return 2 * count >= waits.context.ledger.steps_of_device[waits.device]


# Launches


def _launches(waits: _Waits) -> Iterator[Finding | None]:
    """Launches, or the small kernels that they start."""
    ledger, columns, trace = waits.context.ledger, waits.context.ledger.columns, waits.context.trace
    running = waits.rows & (columns.activity != IDLE)
    ratio = int(columns.duration_ps[running].sum()) / int(columns.duration_ps[waits.rows].sum())
    of_named = [d for d in ledger.devices if trace.device_key(d) in waits.loss.devices]
    kernels = unique_ids(columns.event[running & is_in(ledger.device, of_named)]).size
    key, arguments = "", _line_of_ops(waits.context, waits.rows)
    asked = _conditions_per_step(waits)
    ops = _many_eager_ops(waits.context, waits.host)
    if ratio >= _CLEAR_RATIO and waits.loss.named_steps:
        key = "kernels"
        arguments |= {
            "count": Number(kernels // waits.loss.named_steps, "kernel"),
            "short": Time(SMALL_KERNEL_PS),
        }
    elif asked >= rules.LAUNCH_BOUND.limits["asked_count"]:
        key, arguments["count"] = "loop", Number(asked, "time")
    elif ops is not None:
        key = "jax-eager" if is_of_jax(trace) else "eager"
        arguments = _line(waits.python(State.LAUNCH)) | _of_ops(
            ops, "call" if is_of_jax(trace) else "op"
        )
    yield waits.finding(
        rules.LAUNCH_BOUND,
        arguments=arguments,
        title=key,
        action=key.removeprefix("jax-"),
        notes=(key.removeprefix("jax-"),),
    )


def _conditions_per_step(waits: _Waits) -> int:
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


# Python


def _line(python: PythonShare | None) -> dict[str, Argument]:
    """The argument that names a line, where most of the time was there."""
    return {"line": Line(python.line)} if python and python.ratio >= _CLEAR_RATIO else {}


def _instead(python: PythonShare | None) -> str:
    """The key of what is said where the thread runs no Python: what it waits for, where a module shows that."""
    if python is None or python.state == "runs":
        return ""
    inner = python.inner or ""
    known = (key for key, modules in rules.AWAITED_IN.items() if inner.startswith(modules))
    return next(known, python.state)


def _python(waits: _Waits) -> Iterator[Finding | None]:
    """Python on the thread of the steps, as samples or frames show it."""
    python = waits.python(State.PYTHON)
    instead = _instead(python)
    yield waits.finding(
        rules.PYTHON_STALL,
        arguments=_line(python),
        title=instead if instead in rules.PYTHON_STALL.titles else "",
        action=instead,
        notes=(instead,),
        # A pause inside a call of the framework is what that call takes.
        unsure="native" if instead == "native" else "",
    )


def _between_calls(waits: _Waits) -> Iterator[Finding | None]:
    """Silence between recorded calls, with the calls around the longest gap."""
    around: list[Evidence] = []
    longest = waits.gap(State.BETWEEN_CALLS)
    if longest is not None:
        _, gap = longest
        events = {"previous_event": gap.previous_event, "next_event": gap.next_event}
        around = [
            _event(metric, event, gap) for metric, event in events.items() if event is not None
        ]
    python = waits.context.idle.python.get(waits.host)
    action = "sampled" if python is not None and python.is_sampled else ""
    yield waits.finding(rules.BETWEEN_CALLS, evidence=around, action=action, unsure="unseen")


def _event(metric: str, event: str, gap: Gap) -> Evidence:
    """An event of the thread that a gap is of."""
    return Evidence(metric, event, None, gap.thread or "", value_is="event", where_is="thread")


def _between_steps(waits: _Waits) -> Iterator[Finding | None]:
    """Python between steps; the ops that it runs one by one where a graph would save most of the time."""
    python = waits.python(State.BETWEEN)
    arguments, key = _line(python), _instead(python) if python else "unseen"
    evidence: list[Evidence] = []
    ops = _ops_between_steps(waits)
    if ops is not None:
        key, (calls, running_ps, own_ps) = "ops", ops
        arguments |= {
            "count": Number(calls.count_per_step, "op"),
            "types": Ops(calls.types),
            "running": Time(running_ps),
            "own": Time(own_ps),
        }
        least = int(rules.CALLBACK_STALL.limits["least_op_count"])
        evidence.append(Evidence("eager_ops_per_step", calls.count_per_step, least, ""))
    yield waits.finding(
        rules.CALLBACK_STALL,
        arguments=arguments,
        evidence=evidence,
        title=key if key in rules.CALLBACK_STALL.titles else "",
        action=key,
        notes=(key,),
        unsure="short" if waits.loss.mean_ps < rules.CALLBACK_STALL.limits["short_ps"] else "",
    )


def _ops_between_steps(waits: _Waits) -> tuple[EagerOps, int, int] | None:
    """The ops between step markers, how long they follow each other per step, and how long they run themselves.

    None if a graph would not save most of the time: histograms of weights, whose ops take longer than Python does, took
    as long in a graph; a moving average of 30 variables took 2 instead of 19 ms.
    """
    context, host = waits.context, waits.host
    trace, selection, markers = context.trace, context.selection, context.idle.states[host].markers
    if not markers.start.size or not selection.used_of(host):
        return None
    between = complement(markers)
    calls = eager_calls(trace, selection, host, between)
    limits = rules.CALLBACK_STALL.limits
    if calls is None or calls.count_per_step < limits["least_op_count"]:
        return None
    bounds = step_bounds(selection.used_of(host))
    ops, running = eager_ops(trace, selection, host), without_holes(calls.spans, _MOST_BETWEEN_PS)
    own_ps = int(np.sum(intersection(ops.spans, between).within(*bounds))) if ops else 0
    running_ps = int(np.sum(running.within(*bounds)))
    count = bounds[0].size
    if (running_ps - own_ps) // count < limits["saved_ratio"] * waits.loss.mean_ps:
        return None
    return calls, running_ps // count, own_ps // count


def _slows_ops(waits: _Waits) -> bool:
    """Whether most of what is lost are ops that take longer: a thread that keeps the lock keeps none of them from running."""
    columns = waits.context.ledger.columns
    busy = waits.rows & (columns.activity != IDLE)
    lost_ps, busy_ps = (int(columns.duration_ps[rows].sum()) for rows in (waits.rows, busy))
    return 2 * busy_ps >= lost_ps


def _python_thread(waits: _Waits) -> Iterator[Finding | None]:
    """Waits for other threads of the script: for the lock of Python that they keep, what they make, or the cores that they take."""
    context = waits.context
    threads = [
        (thread, context.selection.windows[host].length_ps)
        for host in context.idle.python
        for thread in threads_at_work(context, host)
    ]
    if not threads:
        return
    longest, _ = max(threads, key=lambda pair: max(pair[0].kept_ps, pair[0].awaited_ps))
    key = "awaited" if longest.awaited_ps > longest.kept_ps else ""
    metric, shares = "lock_kept_ratio", [(row, row.kept_ps / window) for row, window in threads]
    if _slows_ops(waits):
        longest, window_ps = max(threads, key=lambda pair: pair[0].computed_ps)
        key, metric = "cores", "computed_ratio"
        shares = [(longest, longest.computed_ps / window_ps)]
    yield rules.PYTHON_THREAD.of_rows(
        context,
        waits.rows,
        arguments={"thread": Names((longest.thread,), "thread"), "line": Line(longest.python.line)},
        confidence=("high", "cores" if key == "cores" else ""),
        evidence=(
            *(
                Evidence(metric, share, None, row.thread, where_is="thread")
                for row, share in shares
            ),
            longest.python.evidence,
        ),
        title=key,
        action=key,
        notes=(key or "lock",),
        keeps_waiting=True,
    )


# Tracing and compilation


def _compilation(waits: _Waits) -> Iterator[Finding | None]:
    """One finding: functions traced again, the first call of a function, or what else is compiled."""
    context = waits.context
    trace, selection = context.trace, context.selection
    retraced = [
        call for host in selection.windows for call in retraced_calls(trace, selection, host)
    ]
    call = first_call(trace, context.idle.states[waits.host], selection, waits.host)
    # A graph that is made again is prepared as at the first call.
    if not retraced and call is not None and waits.loss.named_share >= rules.FIRST_CALL.limit:
        yield _first_call(waits, call)
        return
    if not retraced:
        times, used = int(waits.is_affected.sum()), waits.is_affected.size
        recurs = (
            used >= _FEWEST_TO_COMPARE
            and (
                times >= rules.COMPILE_IN_WINDOW.limits["again_ratio"] * used
                # The warm-up is at the beginning.
                or (times > 1 and not waits.is_affected[:times].all())
            )
        )
        arguments = _line(waits.python(State.COMPILE))
        if recurs:
            arguments |= {"times": Number(times), "used": Number(used, "used step")}
        key = "again" if recurs else ""
        yield waits.finding(rules.COMPILE_IN_WINDOW, arguments=arguments, title=key, action=key)
        return
    traced_by = {call.traced_by for call in retraced if call.traced_by}
    (cause, *others) = traced_by.pop() if len(traced_by) == 1 else ("",)
    key = "" if others else cause
    states = context.idle.states[waits.host]
    called = trace.host_columns.name[states.rows_of_thread(states.caller)]
    compiles = bool(trace.names.where(called, is_compilation).any())
    functions = tuple(dict.fromkeys(call.function for call in retraced))
    yield waits.finding(
        rules.RETRACING,
        arguments={
            "functions": Names(functions, "function"),
            "times": Number(sum(call.count for call in retraced), "time"),
        },
        evidence=[
            Evidence(
                "traced_call_count",
                call.count,
                None,
                call.function,
                call.since_start,
                where_is="function",
            )
            for call in retraced[:_LISTED_CALLS]
        ],
        action="xla" if compiles and key != "python" else key,
        notes=(key,),
    )


def _first_call(waits: _Waits, call: FirstCall) -> Finding:
    """It is sure however few steps there are: nothing in the recording says how training runs."""
    context, lost = waits.context, waits.loss
    loss = finding_loss(lost, context.ledger.bound_ps(waits.rows), rules.FIRST_CALL.states)
    arguments: dict[str, Argument] = {
        "who": devices_argument(context, lost.devices),
        "loss": lost_argument(loss),
        "copies": Number(call.copy_count, "constant"),
        "kernels": Number(call.kernel_count, "kernel"),
    }
    if call.types:
        arguments["types"] = Ops(call.types)
    return rules.FIRST_CALL.finding(
        arguments=arguments,
        loss=loss,
        confidence=("high", "constants"),
        evidence=(
            Evidence("constant_copy_count", call.copy_count, None, lost.devices[0]),
            Evidence("kernel_count", call.kernel_count, None, "", "all devices"),
        ),
    )


# Host ops


def _detours(waits: _Waits) -> Finding | None:
    """Ops of the step on the CPU with the copies around them, and the line of the one that devices wait for longest."""
    context, columns = waits.context, waits.context.ledger.columns
    by_op = waits.rows & (columns.by_kind == By.OP) & (columns.state != State.D2H)
    ops, place = unique_inverse(columns.by[by_op])
    longest = np.argsort(-totals(place, columns.duration_ps[by_op], ops.size), kind="stable")
    # A copy counts for the op whose result it brings.
    op_of = context.once(copied_results).op_of
    names = [op_of.get(op, context.trace.names[op]) for op in ops[longest].tolist()]
    types = dict.fromkeys((op_type(name) or name).decode("utf-8", "replace") for name in names)
    first = names[0].decode("utf-8", "replace")
    is_python = side_work_of(names[0]) is SideWork.PYTHON
    line = context.trace.once(graph_lines).of(first)
    named = _line(waits.python(State.HOST_OPS)) if is_python else {}
    return waits.finding(
        rules.CPU_HEAVY_OP,
        arguments={
            "op": Ops(tuple(types)[:SHOWN_TYPES]),
            **({"line": Line(line)} if line else named),
        },
        evidence=[Evidence("op", first, None, "", value_is="op")],
        title="copies",
        action="" if is_python else "copies",
        notes=("copies",),
    )


def _heavy_ops(context: Context, of_ops: BoolArray) -> dict[int, BoolArray]:
    """The rows of each op on the CPU that devices wait for so long that it is a finding, the longest first; by name."""
    ledger, columns = context.ledger, context.ledger.columns
    rows = of_ops & (columns.by_kind == By.OP)
    ops, place = unique_inverse(columns.by[rows])
    total = totals(place, columns.duration_ps[rows], ops.size)
    share = total / (sum(ledger.gpu_ps_by_device.values()) or 1)
    longest = np.argsort(-total, kind="stable")
    chosen = ops[longest[share[longest] >= rules.CPU_HEAVY_OP.limit]]
    return {op: rows & (columns.by == op) for op in chosen.tolist()}


def _of_heavy_ops(
    context: Context, result: Idle, heavy: Mapping[int, BoolArray]
) -> Iterator[Finding | None]:
    for op, rows in heavy.items():
        name = context.trace.names[op]
        type_ = op_type(name)
        key = "" if type_ or host_name_kind(name) != HostNameKind.OTHER else "event"
        line = context.trace.once(graph_lines).of(name.decode("utf-8", "replace"))
        waits = _Waits(context, result, rows)
        of_python = (
            _line(waits.python(State.HOST_OPS)) if side_work_of(name) is SideWork.PYTHON else {}
        )
        is_callback = key == "event" and side_work_of(name) is SideWork.PYTHON
        yield waits.finding(
            rules.CPU_HEAVY_OP,
            arguments={
                "op": Ops(((type_ or name).decode("utf-8", "replace"),)),
                **({"line": Line(line)} if line else of_python),
            },
            evidence=[
                Evidence(
                    "op",
                    name.decode("utf-8", "replace"),
                    None,
                    "",
                    value_is="event" if key else "op",
                )
            ],
            title=key,
            action="callback" if is_callback else key,
            notes=("" if is_callback else key,),
        )


def _host_ops(waits: _Waits) -> Iterator[Finding | None]:
    is_replica = waits.context.trace.device_list[waits.device].kind == "replica"
    is_small = waits.context.ledger.has_steps and (
        waits.loss.share >= CRITICAL_LIMIT and (_is_short(waits) or _is_usual_dispatch(waits))
    )
    line = {} if is_small else waits.line_of_calls
    action = "replica" if is_replica else ""
    python = waits.python(State.PYTHON) if line else None
    inner = (python.inner if python else None) or ""
    if inner.endswith(_PUTS):
        action = "puts"
    elif inner.startswith(_CONVERTS):
        action = "convert"
    yield waits.finding(
        rules.HOST_BOUND,
        arguments=line,
        title="small" if is_small else "",
        action="small" if is_small else action,
        notes=() if is_replica else ("gpu",),
        # On a CPU the dispatch shares the cores with the ops.
        unsure="cores" if is_replica else "",
    )


def _is_short(waits: _Waits) -> bool:
    """Whether the step is short without the profiler, as the sidecar measured that."""
    ratio = _profiler_ratio(waits.context, waits.host)
    return waits.loss.of_ps < rules.HOST_BOUND.limits["small_step_ps"] * (1 + ratio)


def _is_usual_dispatch(waits: _Waits) -> bool:
    """Whether calling the step and dispatching its ops takes so long wherever they are so many; not where most are tiny."""
    ledger, columns, limits = (
        waits.context.ledger,
        waits.context.ledger.columns,
        rules.HOST_BOUND.limits,
    )
    own = ledger.rows_of(waits.device)
    if (columns.activity[own][waits.rows[own]] != IDLE).any():
        return False
    is_busy = ledger.counts[own] & (columns.activity[own] != IDLE)
    count = unique_ids(columns.event[own][is_busy]).size / ledger.steps_of_device[waits.device]
    return waits.loss.mean_ps <= limits["call_ps"] + count * limits["dispatch_ps"]


_EAGER_DISPATCH_PS: Final = 10 * PS_PER_US
"""What Python takes for an op outside of a graph without the profiler, at least: 10 to 32 µs (TensorFlow 2.21, ops of 8 × 8)."""


def _profiler_ratio(context: Context, host: int) -> float:
    """By how much of a step the profiler makes it longer, as the sidecar measured it; 0 where that is not known, or noise."""
    sidecar = context.trace.hosts[host].sidecar
    overhead = sidecar.environment.overhead if sidecar else None
    ratio = (overhead.ratio or 0.0) if overhead else 0.0
    return ratio if overhead and ratio > (overhead.spread_ratio or 0.0) else 0.0


def _is_of_profiler(context: Context, host: int, ps: int, ops: EagerOps) -> bool:
    """Whether some time per step of ops outside of graphs may be the profiler's: without what that took less than the limit is left.

    What dispatch of these ops takes without the profiler is left in any case.
    """
    ratio, mean_ps = _profiler_ratio(context, host), context.selection.mean_step_ps
    if mean_ps is None or not ratio:
        return False
    # Both are medians, of other steps than the used ones: only their ratio is a share of these.
    own_ps = ps - mean_ps * ratio / (1 + ratio)
    least_ps = ops.count_per_step * _EAGER_DISPATCH_PS
    limit_ps = rules.HOST_BOUND.limit * mean_ps
    return own_ps < limit_ps and least_ps < limit_ps


# Ops outside of graphs


def _outside_of_graphs(waits: _Waits) -> Iterator[Finding | None]:
    """Steps of a CPU-only run without a graph: replicas look idle while the host runs their ops."""
    context, host = waits.context, waits.host
    if context.trace.device_list[waits.device].kind != "replica":
        return
    ops = _many_eager_ops(context, host)
    if ops is None or _is_of_profiler(context, host, waits.loss.mean_ps, ops):
        return
    elsewhere = _at_another_line(waits)
    if context.ledger.loss(elsewhere).share >= LIMIT:
        yield from _python(_Waits(context, waits.result, elsewhere))
        waits = _Waits(context, waits.result, waits.rows & ~elsewhere)
    key, unit = ("jax-eager", "call") if is_of_jax(context.trace) else ("eager", "op")
    yield waits.finding(
        rules.HOST_BOUND,
        arguments={
            **_of_ops(ops, unit),
            **_line(waits.python(State.PYTHON)),
            "own": Time(int(ops.ps_of_steps.sum()) // ops.ps_of_steps.size),
        },
        evidence=[_count(context, ops, context.trace.device_key(waits.device))],
        title=key,
        action="eager",
        notes=(key,),
    )


def _at_another_line(waits: _Waits) -> BoolArray:
    """Python in the step at lines other than the one that calls most of the ops."""
    ledger, columns = waits.context.ledger, waits.context.ledger.columns
    python: BoolArray = waits.rows & (columns.state == State.PYTHON)
    python &= columns.by_kind == By.PYTHON
    calls = _Waits(waits.context, waits.result, waits.rows & (columns.state == State.HOST_OPS))
    called_at = calls.python(State.PYTHON)
    if called_at is None:
        return np.zeros(columns.count, dtype=np.bool_)
    own = [number for number, line in enumerate(ledger.python) if line == called_at.line]
    python &= ~is_in(columns.by, own)
    return python


def diagnose_without_devices(context: Context) -> Iterator[Finding]:
    """Steps without a graph on one CPU, where no event shows a device: the step without its ops, each as quick as it can be."""
    trace, selection = context.trace, context.selection
    for host in selection.windows:
        ops, steps = _many_eager_ops(context, host), selection.used_of(host)
        if ops is None:
            continue
        states, (start, end) = HostStates(trace, host), step_bounds(steps)
        of_causes = states.timeline(states.caller).within(start, end)
        of_graph = [OF_CAUSE[cause] in _OF_GRAPHS for cause in Cause]
        between = np.maximum(of_causes[of_graph].sum(axis=0) - ops.least_ps_of_steps, 0)
        whole_ps = int((end - start).sum())
        loss = loss_of_host(int(between.sum()), whole_ps, len(steps), State.HOST_OPS)
        if loss.ratio < rules.HOST_BOUND.limit or _is_of_profiler(
            context, host, loss.ps_per_step, ops
        ):
            continue
        yield rules.HOST_BOUND.finding(
            arguments={**_of_ops(ops), "loss": lost_argument(loss)},
            loss=loss,
            confidence=("low", "few-steps") if selection.has_few_steps else ("high", "between"),
            evidence=(_count(context, ops, trace.hosts[host].name),),
            title="host",
            action="eager",
            notes=("host",),
        )


def _many_eager_ops(context: Context, host: int) -> EagerOps | None:
    """The ops of a host outside of graphs, where steps run many; those between steps are not the step's."""
    within = (context.idle.states.get(host) or HostStates(context.trace, host)).markers
    if is_of_jax(context.trace):
        # The marker of a step may be the call of one function.
        own = [d for d in context.ledger.devices if context.trace.device_list[d].host == host]
        rows = context.ledger.rows(states=(State.BETWEEN,))
        within = complement(context.ledger.spans_of(own, rows)) if own else within
    ops = eager_ops(context.trace, context.selection, host, within if within.start.size else None)
    return ops if ops is not None and ops.count_per_step >= _least_count(context) else None


def _least_count(context: Context) -> int:
    """From how many calls per step on the step is no graph; JAX takes longer for each than TensorFlow."""
    is_jax = is_of_jax(context.trace)
    return int(rules.HOST_BOUND.limits["calls_per_step_count" if is_jax else "ops_per_step_count"])


def _of_ops(ops: EagerOps, unit: str = "op") -> dict[str, Argument]:
    return {"count": Number(ops.count_per_step, unit), "types": Ops(ops.types)}


def _count(context: Context, ops: EagerOps, where: str) -> Evidence:
    return Evidence("eager_ops_per_step", ops.count_per_step, _least_count(context), where)
