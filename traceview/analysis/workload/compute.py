"""Compute: what the compute of the steps consists of: types of ops, float64, constants, and what is no part of the model.

Names show what calls Python, prints, writes summaries, checks for NaN, works on text or updates variables; names of kernels show
float64; of other ops the capture has looked at the graphs of the step functions.

Ops of JAX say their program, named after its function. TensorFlow calls the graph of a `tf.function` in an event of its name
(`EagerLocalExecute: __inference_loss_42`), in which its kernels are launched, or whose id the threads that launch them carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import prod
from typing import Final

import numpy as np

from traceview.analysis.facts.functions import functions_called
from traceview.analysis.facts.graph_ops import assigns_eagerly, named_in_graphs, op_of_label
from traceview.analysis.facts.input_supply import supply_of
from traceview.analysis.facts.layers import (
    cast_labels,
    instructions_that,
    label_kernels,
    label_places,
    label_updates,
)
from traceview.analysis.facts.python import PythonShare, shared
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.measures.graph_loops import graph_loops, loops_in_turn, unrolled_loops
from traceview.analysis.measures.op_work import (
    DISPATCH,
    label_flops,
    label_ps,
    needless,
    peak_flops,
    rows_of_labels,
    time_by_label,
)
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import is_of_jax
from traceview.analysis.rules.words import Names, Number, Ops, plain_type
from traceview.analysis.workload.compute_rules import (
    BATCH_WORK,
    CASTS,
    CONSTANT,
    COSTLY_RATIO,
    FACTORING,
    FLOAT64,
    HOST_OP,
    LOOPED,
    OPTIMIZER_BOUND,
    RECOMPUTED,
    REPEATED,
    SECOND_FORWARD,
    SLOW_PRODUCTS,
    UNTRAINED,
    UPDATED_BY_PRODUCTS,
    VARIABLE_WORK,
)
from traceview.analysis.workload.costly_ops import (
    AGAIN,
    BY_NAME,
    COSTLY_OPS,
    DRAWN,
    GROUPS,
    LOW_RATE,
    SLICES,
    OpsByName,
    all_ps,
    asks_for_largest,
    labels_by_name,
    multiplies_nothing,
    of_slices,
    own_part,
)
from traceview.analysis.workload.low_rate import saved_at_usual_rate, slow_products
from traceview.analysis.workload.parts import PartOfCompute, parts_of_compute
from traceview.analysis.workload.second_gradients import of_second_gradients
from traceview.analysis.workload.some_ops import (
    TOP_TYPES,
    SomeOps,
    finding_of_ops,
    named_ops,
    some_ops,
    type_evidence,
)
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import Record
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.kernel_names import NumberFormat
from traceview.trace.device.op_names import (
    Phase,
    SideWork,
    event_phases,
    op_labels,
    op_names,
    side_work_of,
)
from traceview.xplane.columns import C128, F64
from traceview.xplane.planes import ActivityClass

MOST_PARTS: Final = 3

OPTIMIZER: Final = "optimizer"

_KINDS: Final = (*(kind.value for kind in SideWork), OPTIMIZER)
_SPARSE_UPDATES: Final = ("UnsortedSegmentSum", "ResourceScatter", "ResourceSparseApply")


class Compute(Record, frozen=True):
    """What the compute of the used steps consists of.

    Attributes:
        parts: The three parts that take longest on all devices together, by type where one line and layer has nearly all.
    """

    parts: tuple[PartOfCompute, ...]


def compute(context: Context) -> Compute | Skipped:
    """The compute of each device in the used steps."""
    if not context.ledger.has_steps:
        return Skipped("no used step")
    if not context.once(all_ps).any():
        return Skipped("no device computed in the used steps")
    return Compute(tuple(islice(parts_of_compute(context), MOST_PARTS)))


def _all_ops(context: Context) -> SomeOps:
    """All that was computed."""
    return some_ops(context, np.ones(context.trace.once(op_of_label).size, dtype=np.bool_))


# What ops are


def _kind_of_label(context: Context) -> Int64Array:
    """By label the index of its kind; `NONE` for the model and for what is no compute."""
    trace, op = context.trace, context.trace.once(op_of_label)
    rows = trace.once(op_labels).row
    sides = (None if name == NONE else side_work_of(trace.names[name]) for name in op.tolist())
    kinds = (NONE if side is None else _KINDS.index(side.value) for side in sides)
    result = np.fromiter(kinds, np.int64, op.size)
    is_update = (trace.once(event_phases)[rows] == Phase.OPTIMIZER) | trace.once(label_updates)
    named = context.trace.once(named_in_graphs)
    is_update &= ~(named["dense_ops"] | named["idle_ops"])
    is_update &= ~instructions_that(trace, lambda each: each.need in ("choice", "number"))
    result[is_update & (result == NONE)] = _KINDS.index(OPTIMIZER)
    result[trace.device_columns.class_[rows] != ActivityClass.COMPUTE] = NONE
    return result


def _shown_constants(context: Context) -> BoolArray:
    """Which labels are instructions of programs that have no input."""
    return instructions_that(context.trace, lambda each: each.is_constant)


def _constant_labels(context: Context) -> BoolArray:
    """Which labels are ops that compute the same in every step, but for those of gradients, which nobody has written."""
    trace = context.trace
    phase = trace.once(event_phases)[trace.once(op_labels).row]
    named = context.trace.once(named_in_graphs)["constant_ops"]
    constant: BoolArray = (named | context.once(_shown_constants)) & (phase != Phase.BACKWARD)
    return constant


def _gives_examples_again(context: Context) -> bool:
    """Whether the input pipelines of all hosts give the same examples in each epoch."""
    supplies = (supply_of(context, host) for host in range(len(context.trace.hosts)))
    return all(supply is not None and supply.gives_again for supply in supplies)


_CONVERTS: Final = "UnsortedSegmentSum"
"""The type of the op that makes `tf.IndexedSlices` a tensor (TensorFlow 2.21)."""

_BY_GRAPH: Final = (
    (BATCH_WORK, "batch_ops"),
    (VARIABLE_WORK, "variable_ops"),
    (UNTRAINED, "untrained_ops"),
)
"""Findings about what ops depend on, and the fields of `GraphValues` that say it."""


def _misplaced_labels(context: Context) -> BoolArray:
    """Which labels are ops that need not be in each step, or not for a whole variable."""
    named = context.trace.once(named_in_graphs)
    of_fields = (named[field] for _, field in _BY_GRAPH)
    misplaced: BoolArray = np.logical_or.reduce([context.once(_constant_labels), *of_fields])
    return misplaced


# Findings

_PYTHON_CALLS: Final = {
    "EagerPyFunc": "py_function",
    "PyFunc": "numpy_function",
    "PyFuncStateless": "numpy_function",
}
"""By the type of an op the call that makes it (TensorFlow 2.21)."""

_ON_EVERY_OP: Final = ("DebugNumericSummary", "DebugNumericSummaryV2")
"""Checks that are added for every output of every op."""


def _saved_ratio(
    context: Context, slow: NumberFormat, labels: BoolArray, devices: Iterable[int]
) -> float | None:
    """How much less products take in the quickest 32-bit format, by the peaks of the devices that run ops with these labels.

    None where one of them has no known peak.
    """
    saved = []
    for device in devices:
        if context.once(time_by_label)[device].where(labels).total:
            peaks = peak_flops(context.trace, device)
            if slow not in peaks:
                return None
            quick = peaks.get(NumberFormat.TF32, peaks[NumberFormat.FP32])
            saved.append(1 - peaks[slow] / quick)
    return min(saved, default=None)


def _float64(context: Context) -> Finding | None:
    """What float64 costs: of products by the peaks of the GPUs, of other ops half, for in 32 bits they move half the bytes."""
    kernels = context.trace.once(label_kernels)
    shown = kernels.precision == NumberFormat.FP64
    shown |= instructions_that(context.trace, lambda each: each.element_type in (F64, C128))
    labels = shown | context.trace.once(named_in_graphs)["float64_ops"]
    of_products = _saved_ratio(context, NumberFormat.FP64, labels, context.ledger.devices)
    if of_products is None:
        return finding_of_ops(context, FLOAT64, labels, _SAVED_OF_BYTES, "half", shown)
    ops = some_ops(context, labels)
    share = int(ops.by_label[kernels.is_matrix].sum()) / ops.whole_ps
    saved = share * of_products + (1 - share) * _SAVED_OF_BYTES
    return finding_of_ops(context, FLOAT64, labels, saved, "peaks", shown)


_SAVED_OF_BYTES: Final = 0.5
"""Of an op in float64: in 32 bits it moves half of the bytes, and no GPU or CPU has fewer units for these."""


def _slow_products(context: Context) -> Finding | None:
    """Products of float32 matrices off the tensor cores of GPUs that have them for TF32."""
    trace, kernels = context.trace, context.trace.once(label_kernels)
    labels = kernels.is_matrix & ~kernels.tensor_core & (kernels.precision == NumberFormat.FP32)
    devices = [d for d in context.ledger.devices if NumberFormat.TF32 in peak_flops(trace, d)]
    saved = _saved_ratio(context, NumberFormat.FP32, labels, devices)
    return finding_of_ops(context, SLOW_PRODUCTS, labels, saved or 0.0, "peaks", devices=devices)


def _repeated(context: Context) -> Finding | None:
    """Compute that every device of a program repeats: all but the part that one of them would have, and what is exchanged for it.

    No ops that are costly by themselves: without these nothing of them is repeated.
    """
    labels = instructions_that(context.trace, lambda each: each.is_repeated)
    ps = context.once(all_ps)
    for known in BY_NAME if labels.any() else ():
        own = labels_by_name(context, known)
        if known.rule in (COSTLY_OPS, FACTORING) and ps[own].sum() >= COSTLY_RATIO * ps.sum():
            labels &= ~own
    every = (each.partitions for each in context.trace.instructions if each.is_repeated)
    saved, ledger = 1 - 1 / min(every, default=1), context.ledger
    alike = instructions_that(context.trace, lambda each: each.need == "alike" and not each.part)
    exchanged, _ = needless(context, alike)
    if not labels.any() or not exchanged.any():
        return finding_of_ops(context, REPEATED, labels, saved, "part")
    own_ps = ledger.loss(rows_of_labels(context, labels & ~alike)).ps
    whole_ps = own_ps + (other_ps := ledger.loss(exchanged).ps)
    saved = (own_ps * saved + other_ps) / max(whole_ps, 1)
    return finding_of_ops(
        context, REPEATED, labels, saved, "gathered", key="gathered", also=exchanged
    )


def _second_forward(context: Context) -> Finding | None:
    """Functions without gradients that run the code of one that trains."""
    ledger, functions = context.ledger, context.trace.once(functions_called)
    if not functions.repeats.any():
        return None
    rows = ledger.rows(states=(State.COMPUTE,))
    # `NONE` is the last.
    repeats = np.append(functions.repeats, False)
    rows &= repeats[functions.of_event[ledger.columns.event]]
    for states in context.idle.states.values():
        # What a thread beside the steps runs is a cause of its own.
        for guests in states.guests.values():
            rows &= ~is_in(ledger.columns.event, guests)
    of_rows = functions.of_event[ledger.columns.event[rows]]
    whole = SWEEPS.totals(of_rows, ledger.columns.duration_ps[rows], len(functions.names))
    longest = np.argsort(-whole, kind="stable")[: np.count_nonzero(whole)].tolist()
    texts = tuple(functions.names[place] for place in longest)
    # What others wait meanwhile is of the one device that runs it.
    is_alone = 4 * ledger.loss(rows, keeps_waiting=True).ps >= 5 * ledger.loss(rows).ps
    return SECOND_FORWARD.of_rows(
        context,
        rows,
        keeps_waiting=True,
        action="alone" if is_alone else "",
        arguments={"function": Names(texts[:1], "function")},
        evidence=[Evidence("function", text, None, "", value_is="function") for text in texts],
    )


def diagnose(context: Context, result: Compute) -> Iterator[Finding | None]:
    """Compute in float64 and of what never changes, and what each kind of op costs the devices."""
    yield _float64(context)
    yield _slow_products(context)
    constants, shown = context.once(_constant_labels), context.once(_shown_constants)
    yield finding_of_ops(context, CONSTANT, constants, shown=shown)
    kind_of_label, named = context.once(_kind_of_label), context.trace.once(named_in_graphs)
    is_model, ps = kind_of_label == NONE, context.once(all_ps)
    # No trace shows what an op depends on.
    nowhere = np.zeros_like(is_model)
    fixed, phases = named["fixed_ops"], context.trace.once(label_places).phase
    drawn, products = labels_by_name(context, DRAWN), context.trace.once(label_flops) != 0
    keys = {"variable_ops": ("dense", "dense_ops"), "untrained_ops": ("zeros", "idle_ops")}
    structured = np.zeros_like(is_model)
    for kind, key in (("zero", "zeros"), ("separable", "separable")):
        # Without the rest of these the others below cost less.
        labels, saved = named[f"{kind}_ops"] & ~constants, _least_saved(context, kind)
        found = finding_of_ops(
            *(context, COSTLY_OPS, labels, saved),
            shown=nowhere,
            key=key,
            action=_by_type(context, kind, labels),
        )
        yield found
        structured = structured | (labels & (found is not None))
    for rule, field in _BY_GRAPH:
        labels = named[field] & is_model & ~(fixed | structured)
        key, of_field = keys.get(field, ("", field))
        own = key if 2 * ps[labels & named[of_field]].sum() > ps[labels].sum() else ""
        made_by = None
        if own == "dense" and not (named[of_field] & (phases == Phase.BACKWARD)).any():
            # No other gradient is added: the script converts this one.
            own, made_by = "converted", _CONVERTS
        if rule is UNTRAINED and not own and 2 * ps[labels & drawn].sum() > ps[labels].sum():
            own = "random"
        if rule is VARIABLE_WORK and not own and 2 * ps[labels & products].sum() > ps[labels].sum():
            own = "products"
        yield finding_of_ops(context, rule, labels, shown=nowhere, key=own, made_by=made_by)
    if context.once(_gives_examples_again) and not context.trace.once(assigns_eagerly):
        frozen = named["batch_ops"] & fixed & is_model & ~structured
        yield finding_of_ops(context, BATCH_WORK, frozen, shown=nowhere, key="frozen")
    for key, field in (("losses", "summed_ops"), ("ids", "again_ops"), ("same", "same_ops")):
        yield finding_of_ops(context, REPEATED, named[field] & is_model, shown=nowhere, key=key)
    yield _repeated(context)
    readers = min((host.captured.graphs.same_batch or 0 for host in context.trace.hosts), default=0)
    if readers > 1:
        alike = is_model & ~context.once(_misplaced_labels)
        saved = 1 - 1 / readers
        yield finding_of_ops(context, REPEATED, alike, saved, "part", shown=nowhere, key="batch")
    yield _second_forward(context)
    casts = context.trace.once(cast_labels) & ~context.once(_misplaced_labels)
    found = finding_of_ops(context, CASTS, casts)
    yield found
    repeated = instructions_that(context.trace, lambda each: each.is_repeated) | named["again_ops"]
    taken = context.once(_misplaced_labels) | structured
    looped = _looped(context)
    yield looped
    taken = taken | (context.once(graph_loops).labels & (looped is not None))
    for key, find in (("unrolled", unrolled_loops), ("in_turn", loops_in_turn)):
        of_loops = context.once(find).labels & is_model & ~taken
        found = _in_loops(context, key, of_loops, context.once(find).turns)
        yield found
        taken = taken | (of_loops & (found is not None))
    is_free = is_model & context.once(multiplies_nothing)
    is_free &= ~(taken | repeated | (casts & (found is not None)))
    again = of_second_gradients(context) & ~taken
    again &= ps[again].sum() <= AGAIN.limits["most_again_ratio"] * ps.sum()
    for rule, key, chosen, ratio, parts, shown_by in (
        (AGAIN, "again", again, 1.0, (), None),
        (SLICES, "slices", of_slices(context) & is_model, 1.0, (), None),
        (COSTLY_OPS, "updating", named["shifted_ops"], 1.0, (own_part,), nowhere),
        (COSTLY_OPS, "pairs", named["pair_ops"] & is_model, 1.0, (own_part,), nowhere),
        # Multiplied first, it is a small product, whatever else it does.
        (COSTLY_OPS, "copied", named["copied_ops"], _least_saved(context, "copied"), (), nowhere),
        (COSTLY_OPS, "apart", named["apart_ops"], 1.0, (own_part, saved_at_usual_rate), nowhere),
        (COSTLY_OPS, "dropped", named["dropped_ops"], _least_saved(context, "dropped"), (), None),
        (RECOMPUTED, "", named["recomputed_ops"] & is_model, 1.0, (), nowhere),
    ):
        labels = chosen & ~taken
        saved = prod((ratio, *(part(context, labels) for part in parts)))
        found = finding_of_ops(context, rule, labels, saved, shown=shown_by, key=key)
        yield found
        taken = taken | (labels & (found is not None))
    is_free &= ~taken
    for known in BY_NAME:
        labels = labels_by_name(context, known) & ~taken
        rows, saved = needless(context, labels)
        action = _action_on(context, known, labels, rows)
        # What is exchanged for it again is a collective as any other.
        also = rows if known.rule is not RECOMPUTED else False
        found = finding_of_ops(
            context, known.rule, labels, saved, key=known.key, also=also, action=action
        )
        yield found
        is_free &= ~labels
        taken = taken | (labels & (found is not None))
    for group in GROUPS:
        labels = group.choose(context, is_free)
        found = finding_of_ops(
            context,
            group.rule,
            labels,
            own_part(context, labels),
            key=group.key,
            severity="warning" if group.is_of_model else None,
        )
        yield found
        is_free &= ~(labels & (found is not None))
    labels, saved = slow_products(context)
    labels &= is_model & ~taken
    yield finding_of_ops(context, LOW_RATE, labels, saved, "products", key="products")
    for number, kind in enumerate(_KINDS):
        ops = some_ops(context, kind_of_label == number)
        if ops.whole_ps:
            yield _optimizer(context, ops) if kind == OPTIMIZER else _side_work(context, kind, ops)


def _least_saved(context: Context, kind: str) -> float:
    """How much of products of a kind graphs say is needless, 1.0 for all."""
    every = (host.captured.graphs.saved_percent.get(kind, 0) for host in context.trace.hosts)
    return min(min(filter(None, every), default=0), 100) / 100


_FALLS_BACK: Final = lazy_pattern(r"(?:^|/)pfor/while/")
"""Where `tf.vectorized_map` runs a loop (TensorFlow 2.21)."""


def _looped(context: Context) -> Finding | None:
    """Loops of small ops, with their dispatch."""
    loops = context.once(graph_loops)
    ops = some_ops(context, loops.labels)
    if not ops.whole_ps:
        return None
    names, op_of_label = context.trace.once(op_names)
    of_label = op_of_label[loops.labels].tolist()
    falls_back = any(_FALLS_BACK.search(names[each][0] or "") for each in of_label)
    every = label_ps(context, loops.rows)
    return LOOPED.of_rows(
        context,
        loops.rows,
        arguments={
            **named_ops(context, ops.types[:1], every),
            "turns": Number(loops.turns, "iteration"),
        },
        keeps_waiting=True,
        saved_ratio=loops.saved_ratio,
        notes=("dispatch", *(("xla",) if loops.saved_ratio < 1 else ())),
        action="vectorized" if falls_back else "turns" if loops.has_others else "",
        evidence=type_evidence(ops),
    )


def _in_loops(context: Context, key: str, labels: BoolArray, turns: int) -> Finding | None:
    """Ops of loops of a kind, the `key` of its title, with their dispatch where that could be less."""
    ops, is_unrolled = some_ops(context, labels), key == "unrolled"
    rows = ops.rows
    if is_unrolled:
        rows = rows_of_labels(context, labels, states=(State.COMPUTE, *DISPATCH))
    if context.ledger.loss(rows).share < LOOPED.limits[f"{key}_ratio"]:
        return None
    return LOOPED.of_rows(
        context,
        rows,
        arguments={
            **named_ops(context, ops.types[:1] if is_unrolled else (), ops.by_label),
            "turns": Number(turns, "small op" if is_unrolled else "iteration"),
        },
        confidence=("high", "") if is_unrolled else ("medium", "in_turn"),
        keeps_waiting=True,
        title=key,
        action=key,
        notes=("dispatch" if is_unrolled else key,),
        # The model may be made of the others.
        severity=None if is_unrolled else "warning",
        evidence=type_evidence(ops),
    )


_BY_TYPE: Final = {
    ("zeros", "conv_general_dilated"): "moved",
    ("zero", "Conv2D"): "channels",
    ("zero", "Conv2DBackpropInput"): "channels",
    ("random", "Multinomial"): "categories",
}
"""Keys of actions on ops of a name that are mostly of one type."""


def _action_on(context: Context, known: OpsByName, labels: BoolArray, rows: BoolArray) -> str:
    """The key of what helps where ops take long; `rows`: theirs, with those in which devices exchange what they compute."""
    exchanged = f"exchanged_{known.key}"
    if exchanged in known.rule.actions and _is_mostly_exchange(context, labels, rows):
        return exchanged
    if known.key == "sorting" and asks_for_largest(context, labels):
        return "largest"
    is_backward = context.trace.once(label_places).phase == Phase.BACKWARD
    if known.rule is FACTORING and (labels & is_backward).any():
        # A gradient goes through it: of other batches it is another.
        return "batch"
    return _by_type(context, known.key, labels)


def _by_type(context: Context, key: str, labels: BoolArray) -> str:
    """The key of what helps where the type of most of these ops decides that, else `key`."""
    most = next(iter(some_ops(context, labels).types), "")
    return _BY_TYPE.get((key, plain_type(most)), key)


def _is_mostly_exchange(context: Context, labels: BoolArray, rows: BoolArray) -> bool:
    """Whether devices take longer to exchange what these ops compute than to compute it; `rows`: of both."""
    own = rows_of_labels(context, labels)
    return context.ledger.loss(rows).ps > 2 * context.ledger.loss(own).ps


def _side_work(context: Context, kind: str, ops: SomeOps) -> Finding | None:
    """What some ops that are no part of the model cost."""
    trace, types, title, action = context.trace, ops.types, kind, kind
    arguments = {"ops": Ops(()), **named_ops(context, types, ops.by_label)}
    if any(type_ in _ON_EVERY_OP for type_ in types):
        title = "all_checks"
    elif not types or is_of_jax(trace):
        names = unique_ids(context.trace.once(op_of_label)[ops.by_label > 0]).tolist()
        # XLA numbers its instructions: `debug_callback.3`.
        kinds = dict.fromkeys((trace.names.text(name) or "").partition(".")[0] for name in names)
        arguments["names"] = Ops(tuple(kinds)[:TOP_TYPES])
        title = "callback"
        if python := _python_called(context, ops.rows):
            arguments["line"] = python.argument
    elif kind == SideWork.PYTHON.value:
        calls = {_PYTHON_CALLS[type_] for type_ in types if type_ in _PYTHON_CALLS}
        title = calls.pop() if len(calls) == 1 else kind
        known = map(context.python_of_input.get, (host.name for host in trace.hosts))
        if python := next(filter(None, known), None):
            arguments["line"] = python.argument
            action = python.works_on if python.works_on in HOST_OP.actions else kind
    return HOST_OP.of_rows(
        context,
        ops.rows,
        arguments=arguments,
        evidence=type_evidence(ops),
        title=title,
        action=action,
        notes=(title,) if title in HOST_OP.notes else (),
        keeps_waiting=True,
    )


def _python_called(context: Context, rows: BoolArray) -> PythonShare | None:
    """The Python that native threads run for most of some rows, on the first host whose samples show it."""
    for host, python in context.idle.python.items():
        own = [d for d in context.ledger.devices if context.trace.device_list[d].host == host]
        spans = context.ledger.spans_of(own, rows)
        group = np.zeros(spans.start.size, dtype=np.int64)
        times = spans.start, spans.end, group, 1
        (line,) = python.lines.of_others(python.caller, *times, may_wait=True, is_native=True)
        if line is not None and line.state == "runs":
            return shared(line)
    return None


def _optimizer(context: Context, ops: SomeOps) -> Finding | None:
    """What the updates of the variables cost."""
    share = ops.whole_ps / context.once(_all_ops).whole_ps
    is_sparse = any(type_.startswith(_SPARSE_UPDATES) for type_ in ops.by_type)
    has_products = any("MatMul" in type_ for type_ in ops.types[:1])
    return (UPDATED_BY_PRODUCTS if has_products else OPTIMIZER_BOUND).of_rows(
        context,
        ops.rows,
        arguments=named_ops(context, ops.types[:1], ops.by_label),
        evidence=[Evidence("compute_ratio", share, None, ""), *type_evidence(ops)],
        action="products" if has_products else "embeddings" if is_sparse else "",
    )


ANALYSIS: Final = Analysis[Compute](
    "compute",
    compute=compute,
    rules=(
        LOOPED,
        FLOAT64,
        SLOW_PRODUCTS,
        CONSTANT,
        BATCH_WORK,
        VARIABLE_WORK,
        UNTRAINED,
        REPEATED,
        FACTORING,
        CASTS,
        COSTLY_OPS,
        HOST_OP,
        OPTIMIZER_BOUND,
        RECOMPUTED,
        SECOND_FORWARD,
    ),
    diagnose=diagnose,
)
