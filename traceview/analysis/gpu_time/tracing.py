"""Finds functions that were traced or compiled in the window, and concludes whether that recurs, and why.

TensorFlow copies the constants of a graph to a device when it makes the kernels of the graph, before the first call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import Selection, step_bounds
from traceview.analysis.gpu_time.host_wait_rules import SOME_STEPS
from traceview.analysis.gpu_time.waits import (
    FEWEST_TO_COMPARE,
    Waits,
    line_argument,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import (
    Rule,
    devices_argument,
    finding_loss,
    lost_argument,
)
from traceview.analysis.rules.words import Names, Number
from traceview.base.ids import unique_ids
from traceview.base.intervals import union
from traceview.base.units import PS_PER_NS
from traceview.ledger.states import State
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.sidecar.sidecar import ArgumentChange, CompiledFor
from traceview.xplane.planes import is_compilation

_LISTED_CALLS: Final = 4

_NAMED_ARGUMENTS: Final = 3


# The rules

RETRACING: Final = Rule(
    code="retracing",
    states=(State.COMPILE,),
    title="{functions} traced {times} after the first step: {who:waits/wait} {loss}",
    titles={
        "argument": "{functions} compiled again {times} as {argument:changes/change}: {who:waits/wait} {loss}",
        "function": "{functions} made and compiled anew {times}[ in {line}]: {who:waits/wait} {loss}",
    },
    meaning=(
        "A compiled function is traced again for every new combination of shapes, dtypes and Python arguments. Tracing runs "
        "in Python and takes as long as many steps; nothing is launched meanwhile."
    ),
    starts_at=(
        "{limit} of the GPU time idle for tracing and compilation, and a tf.function traced again after the first recorded "
        "step, or a function of JAX is compiled again (sidecar); a first trace is compile-in-window"
    ),
    action="Give each call arguments of one kind: tensors of one shape and dtype, numbers as tensors, and the same Python objects.",
    advice="Where sizes change, `reduce_retracing=True`; lists of one length; `tf.constant(number)` for a number; an object made once.",
    actions={
        "python": (
            "Pass a tensor instead of a Python number: `tf.constant(number)`, or a `tf.Variable` that the loop assigns.",
            "One graph then serves every value. `reduce_retracing=True` does not help here.",
        ),
        "shape": (
            "Let one graph serve every shape: `reduce_retracing=True`, or an `input_signature` with None for sizes that change.",
            "Or give all batches one shape: `dataset.batch(n, drop_remainder=True)` if only the last one is smaller, else pad to few.",
        ),
        "xla": (
            "Give all batches one shape, or few: pad them, or drop a smaller last one, batch(n, drop_remainder=True).",
            "No signature helps: XLA compiles each shape, also of a graph that serves all of them.",
        ),
        "jax": (
            "Give each call the same arguments, with the same shapes, dtypes and static values.",
            "`JAX_EXPLAIN_CACHE_MISSES=1` says why a function was traced again.",
        ),
        "jax-shape": "Give {argument} one shape, or few: pad to few lengths, or drop a smaller last batch.",
        "jax-dtype": (
            "Give {argument} one dtype in all calls: `jnp.asarray(value, jnp.float32)`.",
            "A Python number is weakly typed, `~float32[]`, which an array is not.",
        ),
        "jax-static_arguments": "Pass {argument} as an array: leave it out of `static_argnums` and `static_argnames`.",
        "jax-sharding": (
            "Give {argument} one sharding in all calls: `jax.device_put(batch, sharding)`.",
            "`out_shardings` of `jax.jit` sets that of results that the next step is given.",
        ),
        "jax-function": "Make the function and its `jax.jit` once, before the loop. Without `jax.jit` each call of `jax.shard_map` compiles.",
        "jax-field": (
            "Leave fields that change out of the static ones of an argument, `meta_fields` or `static=True`: make them arrays.",
            "`JAX_EXPLAIN_CACHE_MISSES=1` says what has changed. `jax.clear_caches()` in the loop drops all that was compiled.",
        ),
    },
    notes={
        **SOME_STEPS,
        "python": "Its graphs differ in a value of Python, such as a number.",
        "shape": "Its graphs differ in the shape of a tensor.",
        "field": (
            "No argument that was recorded has another shape, dtype, sharding or static value: a field of one that is no array may "
            "have changed, or a setting of JAX, or its caches were cleared."
        ),
    },
    metrics={
        "traced_call_count": "calls that traced",
        "changed_argument": "argument, as last compiled for -> now",
    },
    example="train_step traced 3 times after the first step: GPU:0 waits 7.50 of 50.0 ms (15%)",
)

COMPILE_IN_WINDOW: Final = Rule(
    code="compile-in-window",
    states=(State.COMPILE,),
    title="{who:waits/wait} {loss} for tracing and compilation[ in {line}]",
    meaning="A function is traced, XLA compiles, kernels are tuned or modules are loaded inside the window.",
    starts_at=(
        "{limit} of the GPU time idle for tracing, XLA compilation, autotuning or module loading on the launching thread; "
        "not where it is retracing or first-call. It recurs in {again_ratio} of the used steps or more, or in several of them "
        "that are not the first ones"
    ),
    limits={"again_ratio": 0.50},
    action="Capture later, when everything is compiled, with `--steps 100:110`.",
    actions={
        "functions_made_anew": (
            "Make each `tf.function` once, before the loop; call it with the same shapes, and `tf.vectorized_map` only within one.",
            (
                "`keras.metrics.AUC(multi_label=True)` calls that. `dataset.batch(n, drop_remainder=True)` gives equal shapes. In the loop `compile()` and `make_train_function(force=True)` "
                "of Keras trace anew, and `tf.random.set_seed` and `clear_session()` drop the kernels of all graphs."
            ),
        ),
        "jax-functions_made_anew": (
            "Make each `jax.jit` once, before the loop; give each call the same shapes, dtypes and static arguments.",
            "`JAX_EXPLAIN_CACHE_MISSES=1` says why it compiles. `lower`, `compile` and `cost_analysis` work on all of it in each call.",
        ),
        "jax": (
            "Record steps after the warm-up: `jax.profiler.start_trace('logs')` before them, `stop_trace()` after them.",
            "If it recurs, give each call the same shapes; `JAX_LOG_COMPILES=1` names what is compiled.",
        ),
    },
    notes=SOME_STEPS,
    example="GPU:0 waits 10.0 of 50.0 ms (20%) for tracing and compilation",
)

FIRST_CALL: Final = Rule(
    code="first-call",
    states=(State.COMPILE,),
    severity="critical",
    limit=0.50,
    title="{who:waits/wait} {loss} for the first call of a function",
    meaning=(
        "The window holds the first call of a function. Its graph is optimized and its kernels are made, which takes "
        "longer than many steps. These steps say nothing of later training. The host copied {copies} of the graph to "
        "devices meanwhile, as only the preparation of a graph does."
    ),
    starts_at=(
        "devices idle for tracing and compilation for {limit} of their steps, and copies of constants (MakeTensorFromProto) to devices, "
        "which only the preparation of a graph makes"
    ),
    action="Capture later, after the first steps, with `--steps 100:110`.",
    actions={
        "jax": "Record steps after the warm-up: `jax.profiler.start_trace('logs')` before them, `stop_trace()` after them."
    },
    explains=("unused-gpu", "few-steps"),
    reasons={"constants": "only the preparation of a graph copies its constants"},
    metrics={"constant_copy_count": "copies of constants"},
    example="GPU:0 waits 596 of 669 ms (89%) for the first call of a function",
)

RULES: Final = (RETRACING, COMPILE_IN_WINDOW, FIRST_CALL)


# What was traced or compiled


def compilation(waits: Waits) -> Finding | None:
    """One finding: functions traced again, the first call of a function, or what else is compiled."""
    context = waits.context
    trace, selection = context.trace, context.selection
    retraced = [
        call for host in selection.windows for call in retraced_calls(trace, selection, host)
    ]
    copies = constant_copies(trace, context.idle.states[waits.host], selection, waits.host)
    # A graph that is made again is prepared as at the first call.
    if not retraced and copies and waits.loss.named_share >= FIRST_CALL.limit:
        return _first_call(waits, copies)
    hosts = (recompilations(trace, selection, host) for host in selection.windows)
    # The processes of a job compile the same.
    recompiled = [*dict.fromkeys(call for calls in hosts for call in calls)]
    if not retraced and recompiled:
        return _recompiled(waits, recompiled)
    if not retraced:
        key = "functions_made_anew" if _recurs(waits) else ""
        arguments = line_argument(waits.python(State.COMPILE))
        return waits.finding(COMPILE_IN_WINDOW, arguments=arguments, action=key)
    traced_by = {call.traced_by for call in retraced if call.traced_by}
    (cause, *others) = traced_by.pop() if len(traced_by) == 1 else ("",)
    key = "" if others else cause
    states = context.idle.states[waits.host]
    called = trace.host_columns.name[states.rows_of_thread(states.caller)]
    compiles = bool(trace.names.where(called, is_compilation).any())
    functions = tuple(dict.fromkeys(call.function for call in retraced))
    return waits.finding(
        RETRACING,
        arguments={
            "functions": Names(functions, "function"),
            "times": Number(sum(call.count for call in retraced), "time"),
        },
        evidence=[
            Evidence("traced_call_count", call.count, None, call.function, where_is="function")
            for call in retraced[:_LISTED_CALLS]
        ],
        action="xla" if compiles and key != "python" else key,
        notes=(key,),
    )


def _recurs(waits: Waits) -> bool:
    """Whether as many steps compile as no warm-up explains, which is at the beginning."""
    times, used = int(waits.is_affected.sum()), waits.is_affected.size
    is_often = times >= COMPILE_IN_WINDOW.limits["again_ratio"] * used
    is_later = times > 1 and not waits.is_affected[:times].all()
    return used >= FEWEST_TO_COMPARE and (is_often or is_later)


def _recompiled(waits: Waits, calls: Sequence[Recompiled]) -> Finding | None:
    """Functions of JAX that were compiled again, with what has changed most often."""
    kinds = Counter(kind for call in calls for kind in call.kinds)
    kind = max(kinds, key=lambda each: kinds[each], default="")
    steps: dict[Changed, int] = {}
    for call in calls:
        for change in call.changes:
            steps.setdefault(change, call.step)
    names = tuple(dict.fromkeys(each.name for each in steps if each.kind == kind and each.name))
    changed = "changed_argument"
    evidence = [
        Evidence(changed, each.words, None, each.name, f"step {step}", "words", "argument")
        for each, step in steps.items()
    ]
    functions = tuple(dict.fromkeys(call.function for call in calls))
    made_in = line_argument(waits.python(State.COMPILE)) if kind == "function" else {}
    return waits.finding(
        RETRACING,
        arguments={
            "functions": Names(functions, "function"),
            "times": Number(len(calls), "time"),
            **({"argument": Names(names[:_NAMED_ARGUMENTS], "argument")} if names else {}),
            **made_in,
        },
        evidence=evidence[:_LISTED_CALLS],
        title="argument" if names else kind,
        action=kind if names or kind == "function" else "" if kinds else "field",
        notes=() if kinds else ("field",),
    )


def _first_call(waits: Waits, copies: int) -> Finding:
    """It is sure however few steps there are: nothing in the recording says how training runs."""
    context, lost = waits.context, waits.loss
    loss = finding_loss(lost, context.ledger.bound_ps(waits.rows), FIRST_CALL.states)
    return FIRST_CALL.finding(
        arguments={
            "who": devices_argument(context, lost.devices),
            "loss": lost_argument(loss),
            "copies": Number(copies, "constant"),
        },
        loss=loss,
        confidence=("high", "constants"),
        evidence=(Evidence("constant_copy_count", copies, None, lost.devices[0]),),
    )


# Functions of TensorFlow


class Retraced(Struct, frozen=True):
    """A function that was traced in the window, how often, and what differs between its graphs, as in `FunctionPlacement`."""

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
    functions = trace.hosts[host].captured.placement.functions
    traced_by = {function.name: function.traced_by for function in functions}
    retraced = []
    for name in unique_ids(columns.name[rows]).tolist():
        same = columns.name[rows] == name
        if int(counts[same].max()) == 1:
            continue
        function = trace.names.text(name) or ""
        retraced.append(Retraced(function, int(same.sum()), traced_by.get(function, ())))
    return tuple(sorted(retraced, key=lambda call: (-call.count, call.function)))


# Functions of JAX


class Changed(Struct, frozen=True):
    """An argument that a function of JAX was compiled again for.

    `kind`: as the actions of the rule, or empty. `words`: what it was compiled for last, which need not be the call before, and now.
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
            kind = "" if new.static == "object" else "static_arguments"
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
