"""Compute: what the compute of the steps consists of: types of ops, float64, constants, and what is no part of the model.

That a schedule has no problem says nothing of the compute itself. Names show what calls Python, prints, writes summaries,
checks for NaN, works on text or updates variables; names of kernels show float64; of other ops the capture has looked at the
graphs of the step functions. Ops that factor matrices are slow on every device.

JAX names a program after its function (`jit_loss`), and each op says its program. TensorFlow calls the graph of a `tf.function` in
an event of its name (`EagerLocalExecute: __inference_loss_42`), in which its kernels are launched, or whose id the threads that
launch them carry. A function without gradients that runs layers which another one trains is a second forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.layers import (
    Place,
    cast_labels,
    instructions_that,
    label_places,
    label_updates,
    makes_batches,
)
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.measures.op_work import (
    label_kernels,
    line_of,
    peak_flops,
    rows_with,
    time_by_label,
)
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule, is_of_jax
from traceview.analysis.rules.words import Argument, Line, Names, Ops
from traceview.analysis.workload.compute_rules import (
    CASTS,
    CONSTANT,
    COPIES_RATIO,
    COSTLY_OPS,
    FACTORING,
    FLOAT64,
    HOST_OP,
    OPTIMIZER_BOUND,
    RECOMPUTED,
    REPEATED,
    SECOND_FORWARD,
    SLOW_PRODUCTS,
)
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.record import OpType, Record, Share
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import Roots, steps_of_rows
from traceview.trace.device.op_names import (
    Phase,
    SideWork,
    op_labels,
    op_names,
    phases_of,
    side_work_of,
)
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import GraphValues
from traceview.xplane.columns import C128, F64, Instruction
from traceview.xplane.kernel_names import NumberFormat
from traceview.xplane.planes import ActivityClass

TOP_TYPES: Final = 3
"""Types of ops that are named, those that take longest."""

OPTIMIZER: Final = "optimizer"

_KINDS: Final = (*(kind.value for kind in SideWork), OPTIMIZER)
_SPARSE_UPDATES: Final = ("UnsortedSegmentSum", "ResourceScatter", "ResourceSparseApply")


class TypeOfCompute(Record, frozen=True):
    """The ops of one type.

    Attributes:
        op_type: Their type.
        compute_ratio: Their share of the compute in the used steps.
    """

    op_type: OpType
    compute_ratio: Share


class Compute(Record, frozen=True):
    """What the compute of the used steps consists of.

    Attributes:
        op_types: The three types of ops that take longest on all devices together.
    """

    op_types: tuple[TypeOfCompute, ...]


def compute(context: Context) -> Compute | Skipped:
    """The compute of each device in the used steps."""
    if not context.ledger.has_steps:
        return Skipped("no used step")
    by_type = _time_by_type(context, context.once(_computed_ps))
    whole_ps = sum(by_type.values())
    if not whole_ps:
        return Skipped("no device computed in the used steps")
    return Compute(
        tuple(TypeOfCompute(type_, by_type[type_] / whole_ps) for type_ in _longest(by_type))
    )


def _longest(by_type: Mapping[str, int]) -> list[str]:
    """The types of ops that take longest, among those that were recorded."""
    named = filter(None, by_type)
    return sorted(named, key=lambda type_: (-by_type[type_], type_))[:TOP_TYPES]


def _time_by_type(context: Context, by_label: Int64Array) -> dict[str, int]:
    """Time by type of op, of the time of each label; "" where none was recorded."""
    types, of_label = context.once(_types_of_labels)
    total = SWEEPS.totals(of_label, by_label, len(types)).tolist()
    return {type_: ps for type_, ps in zip(types, total, strict=True) if ps}


def _types_of_labels(context: Context) -> tuple[tuple[str, ...], Int64Array]:
    """The types of ops, "" where none was recorded, and int64 the place of that of each label.

    Of an instruction of XLA it is the op of the source that it was made for, or its own, of what XLA has added.
    """
    trace = context.trace
    names, instruction = trace.once(op_names), trace.device_columns.instruction
    place_of: dict[str, int] = {}
    place = [place_of.setdefault(type_ or "", len(place_of)) for _, type_ in names.ops]
    of_label: Int64Array = np.array(place, dtype=np.int64)[
        names.of_name[context.once(_op_of_label)]
    ]
    types = (place_of.setdefault(_type_of(each), len(place_of)) for each in trace.instructions)
    of_instruction = np.fromiter((*types, NONE), np.int64, len(trace.instructions) + 1)
    compiled = of_instruction[instruction[trace.once(op_labels).row]]
    return tuple(place_of), np.where(compiled == NONE, of_label, compiled)


_PRIMITIVE: Final = lazy_pattern(r"[a-z][a-z0-9_]{0,40}")
_PRODUCTS: Final = {"dot": "dot_general", "convolution": "conv_general_dilated"}


def _type_of(instruction: Instruction) -> str:
    """`gather` of `jit(step)/take/gather`; `copy` of `copy.3`; "" of a CUDA graph, which hides its ops."""
    last, name = instruction.scope.rpartition("/")[2], instruction.name.decode("utf-8", "replace")
    own = name.rstrip("0123456789").removesuffix(".") or name
    if own == "command_buffer_":
        return ""
    if own in _PRODUCTS:
        # Gradients of products end with the transposition of their result.
        return _PRODUCTS[own]
    return instruction.op_type or (last if _PRIMITIVE.fullmatch(last) else own)


# What ops are


def _op_of_label(context: Context) -> Int32Array:
    """By label its op, a name of the trace; `NONE` where none was recorded."""
    trace = context.trace
    return trace.device_columns.op[trace.once(op_labels).row]


def _kind_of_label(context: Context) -> Int64Array:
    """By label the index of its kind; `NONE` for the model and for what is no compute."""
    trace, op = context.trace, context.once(_op_of_label)
    rows = trace.once(op_labels).row
    sides = (None if name == NONE else side_work_of(trace.names[name]) for name in op.tolist())
    kinds = (NONE if side is None else _KINDS.index(side.value) for side in sides)
    result = np.fromiter(kinds, np.int64, op.size)
    is_update = (phases_of(trace)[rows] == Phase.OPTIMIZER) | trace.once(label_updates)
    is_update &= result == NONE
    result[is_update] = _KINDS.index(OPTIMIZER)
    result[trace.device_columns.class_[rows] != ActivityClass.COMPUTE] = NONE
    return result


def _float64_labels(context: Context) -> BoolArray:
    """Which labels are compute in float64."""
    of_graphs = _named_in(context, lambda graphs: graphs.float64_ops)
    return of_graphs | context.once(_shown_float64)


def _shown_float64(context: Context) -> BoolArray:
    """Which labels are kernels whose names say float64, or instructions with float64 or complex128 results."""
    marks = instructions_that(context.trace, lambda each: each.element_type in (F64, C128))
    marks |= context.trace.once(label_kernels).precision == NumberFormat.FP64
    return marks


def _constant_labels(context: Context) -> BoolArray:
    """Which labels are ops that compute the same in every step."""
    of_graphs = _named_in(context, lambda graphs: graphs.constant_ops)
    return of_graphs | context.once(_shown_constants)


def _shown_constants(context: Context) -> BoolArray:
    """Which labels are instructions of programs that have no input."""
    return instructions_that(context.trace, lambda each: each.is_constant)


def _named_in(context: Context, names_of: Callable[[GraphValues], Iterable[str]]) -> BoolArray:
    """Which labels are ops that the graphs of all hosts name whose capture names some; an evaluator runs others."""
    trace, ops = context.trace, context.once(_op_of_label)
    named = filter(None, (frozenset(names_of(host.captured.graphs)) for host in trace.hosts))
    names = frozenset.intersection(*sets) if (sets := list(named)) else frozenset()
    texts = {op: trace.names.text(op) or "" for op in unique_ids(ops).tolist()} if names else {}
    return is_in(ops, [op for op, text in texts.items() if text.rpartition(":")[0] in names])


def _computed_ps(context: Context) -> Int64Array:
    """How long all devices together compute what each label names, int64 `[labels]`."""
    return _sum(context, context.ledger.devices)


def _sum(context: Context, devices: Iterable[int]) -> Int64Array:
    """The same of some devices."""
    result = np.zeros(context.once(_op_of_label).size, dtype=np.int64)
    for device in devices:
        of = context.once(time_by_label)[device]
        result[of.label] += of.value
    return result


# Findings

_PYTHON_CALLS: Final = {
    "EagerPyFunc": "py_function",
    "PyFunc": "numpy_function",
    "PyFuncStateless": "numpy_function",
}
"""By the type of an op the call that makes it (TensorFlow 2.21)."""

_ON_EVERY_OP: Final = ("DebugNumericSummary", "DebugNumericSummaryV2")
"""Checks that are added for every output of every op."""


class _ByName(Struct, frozen=True):
    """Ops that a rule is about, by their types in TensorFlow and by instructions of XLA. `key`: of its title and action."""

    rule: Rule
    key: str = ""
    types: re.Pattern[str] | None = None
    is_one: Callable[[Instruction], bool] | None = None


_FACTORINGS: Final = lazy_pattern(
    "cholesky|eigh?|geqrf|hessenberg|householder_product|lu|qr|schur|svd|triangular_solve|tridiagonal"
)
"""Primitives of JAX (0.4 to 0.11), with which the scope of an instruction ends."""
_SORTS: Final = frozenset(["sort", "top_k", "approx_top_k"])
_DRAWS: Final = lazy_pattern(
    r"jit\(_(?:bernoulli|exponential|gamma|gumbel|normal|normal_real|permutation|randint|shuffle|truncated_normal|uniform)\)"
    r"|(?:random_bits|rng_bit_generator|rng_uniform|threefry2x32)$"
)
"""Functions of `jax.random`, and the primitives that they call (JAX 0.10)."""
_COPY: Final = lazy_pattern(rb"copy(?:\.\d+)?")
_COPYING: Final = replace(COSTLY_OPS, limit=COPIES_RATIO)


def _is_copy_of(made_of: str, each: Instruction) -> bool:
    """Whether an instruction is a copy that XLA has added, of what."""
    return each.copied == made_of and not each.scope and _COPY.fullmatch(each.name) is not None


_RECOMPUTED: Final = "rematted_computation"
"""The scope of what `jax.checkpoint` computes again (JAX 0.4 to 0.11)."""

_BY_NAME: Final = (
    _ByName(RECOMPUTED, is_one=lambda each: _RECOMPUTED in each.scope.split("/")),
    _ByName(
        FACTORING,
        types=lazy_pattern(
            r"(?:Batch)?(?:Svd|SelfAdjointEig|Eig|Qr|Lu|Cholesky(?:Grad)?|(?:Log)?MatrixDeterminant"
            r"|Matrix(?:Inverse|Solve|SolveLs|TriangularSolve|SquareRoot|Logarithm|Exponential))(?:V\d+)?"
        ),
        is_one=lambda each: _FACTORINGS.fullmatch(each.scope.rpartition("/")[2]) is not None,
    ),
    _ByName(
        COSTLY_OPS,
        "sorting",
        lazy_pattern(r"(?:InTopK|TopK|Unique)(?:With\w+)?(?:V2)?"),
        lambda each: each.scope.rpartition("/")[2] in _SORTS,
    ),
    _ByName(
        COSTLY_OPS,
        "random",
        lazy_pattern(r"(?:Stateless)?(?:Multinomial|Random|(?:Parameterized)?TruncatedNormal)\w*"),
        lambda each: _DRAWS.search(each.scope) is not None,
    ),
    _ByName(
        COSTLY_OPS,
        "images",
        lazy_pattern(
            r"(?:Adjust(?:Contrast|Hue|Saturation)|CropAndResize|ImageProjectiveTransform|Resize)\w*|RGBToHSV|HSVToRGB"
        ),
    ),
    _ByName(_COPYING, "donating", is_one=partial(_is_copy_of, "argument")),
    _ByName(_COPYING, "copying", is_one=partial(_is_copy_of, "")),
)


def _labels_by_name(context: Context, ops: _ByName) -> BoolArray:
    """Which labels are such ops; what never changes is computed once, whatever it is."""
    types, of_label = context.once(_types_of_labels)
    marks: BoolArray = np.zeros(of_label.size, dtype=np.bool_)
    if ops.types is not None:
        is_type = [ops.types.fullmatch(type_) is not None for type_ in types]
        marks = np.array(is_type, dtype=np.bool_)[of_label]
    if ops.is_one is not None:
        marks |= instructions_that(context.trace, ops.is_one)
    return marks & ~context.once(_constant_labels)


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
    labels, is_product = context.once(_float64_labels), context.trace.once(label_kernels).is_matrix
    computed_ps = np.where(labels, context.once(_computed_ps), 0)
    of_products = _saved_ratio(context, NumberFormat.FP64, labels, context.ledger.devices)
    note, saved = "half", _SAVED_OF_BYTES
    if of_products is not None:
        share = int(computed_ps[is_product].sum()) / int(computed_ps.sum())
        note, saved = "peaks", share * of_products + (1 - share) * _SAVED_OF_BYTES
    return _of_ops(context, FLOAT64, labels, saved, note, context.once(_shown_float64))


_SAVED_OF_BYTES: Final = 0.5
"""Of an op in float64: in 32 bits it moves half of the bytes, and no GPU or CPU has fewer units for these."""


def _slow_products(context: Context) -> Finding | None:
    """Products of float32 matrices off the tensor cores of GPUs that have them for TF32."""
    trace, kernels = context.trace, context.trace.once(label_kernels)
    labels = kernels.is_matrix & ~kernels.tensor_core & (kernels.precision == NumberFormat.FP32)
    devices = [d for d in context.ledger.devices if NumberFormat.TF32 in peak_flops(trace, d)]
    saved = _saved_ratio(context, NumberFormat.FP32, labels, devices)
    if not saved:
        return None
    return _of_ops(context, SLOW_PRODUCTS, labels, saved, "peaks", devices=devices)


def _repeated(context: Context) -> Finding | None:
    """Compute that every device of a program repeats: all but the part that one of them would have."""
    every = [each.partitions for each in context.trace.instructions if each.is_repeated]
    if not every:
        return None
    labels = instructions_that(context.trace, lambda each: each.is_repeated)
    return _of_ops(context, REPEATED, labels, 1 - 1 / min(every), "part")


def diagnose(context: Context, result: Compute) -> Iterator[Finding | None]:
    """Compute in float64 and of what never changes, and what each kind of op costs the devices."""
    yield _float64(context)
    yield _slow_products(context)
    constants, shown = context.once(_constant_labels), context.once(_shown_constants)
    yield _of_ops(context, CONSTANT, constants, shown=shown)
    yield _repeated(context)
    yield _second_forward(context)
    yield _of_ops(context, CASTS, context.trace.once(cast_labels))
    for ops in _BY_NAME:
        yield _of_ops(context, ops.rule, _labels_by_name(context, ops), key=ops.key)
    for number, kind in enumerate(_KINDS):
        labels = context.once(_kind_of_label) == number
        by_label = np.where(labels, context.once(_computed_ps), 0)
        if by_label.any():
            make = _optimizer if kind == OPTIMIZER else _side_work
            yield make(context, kind, labels, by_label)


def _rows(context: Context, labels: BoolArray, devices: Iterable[int]) -> BoolArray:
    """Which rows of the ledger are compute of some devices, of what these labels name; bool `[n]`."""
    result = np.zeros(context.ledger.count, dtype=np.bool_)
    for device in devices:
        result[rows_with(context, device, labels)] = True
    return result


def _of_ops(
    context: Context,
    rule: Rule,
    labels: BoolArray,
    saved_ratio: float = 1.0,
    note: str = "",
    shown: BoolArray | None = None,
    key: str = "",
    devices: Collection[int] | None = None,
) -> Finding | None:
    """The finding about some ops, with the type and the line of those that take longest.

    `saved_ratio`: how much of their time is the loss, for the reason that `note` gives. `shown`: labels that the trace shows to
    be such ops; where none of these took time, graphs of the capture do. `key`: of its title and action. `devices`: on which
    they are such ops, by default all.
    """
    chosen = context.ledger.devices if devices is None else devices
    computed_ps = context.once(_computed_ps) if devices is None else _sum(context, devices)
    by_label = np.where(labels, computed_ps, 0)
    if not by_label.any():
        return None
    is_of_graph = shown is not None and not by_label[shown].any()
    types = _longest(_time_by_type(context, by_label))
    every, of_label = context.once(_types_of_labels)
    arguments: dict[str, Argument] = {"ops": Ops((types[0],))} if types else {}
    # The line is that of the ops that are named.
    named = of_label == every.index(types[0]) if types else by_label > 0
    return rule.of_rows(
        context,
        _rows(context, labels, chosen),
        arguments=arguments | _line(context, np.where(named, by_label, 0)),
        confidence=("high", "graph" if is_of_graph else ""),
        keeps_waiting=note in ("", "part"),
        saved_ratio=saved_ratio,
        title=note or key,
        action=key,
        notes=(note,),
        evidence=_type_evidence(types),
    )


def _line(context: Context, by_label: Int64Array) -> dict[str, Argument]:
    line = line_of(context, by_label)
    return {"line": Line(line)} if line else {}


def _side_work(
    context: Context, kind: str, labels: BoolArray, by_label: Int64Array
) -> Finding | None:
    """What some ops that are no part of the model cost; `by_label`: their time."""
    trace, types = context.trace, _longest(_time_by_type(context, by_label))
    title = kind
    arguments: dict[str, Argument] = {"ops": Ops(tuple(types)), **_line(context, by_label)}
    if not types or is_of_jax(trace):
        ops = unique_ids(context.once(_op_of_label)[by_label > 0]).tolist()[:TOP_TYPES]
        title, arguments["names"] = "callback", Ops(tuple(trace.names.text(op) or "" for op in ops))
    elif kind == SideWork.PYTHON.value:
        calls = {_PYTHON_CALLS[type_] for type_ in types if type_ in _PYTHON_CALLS}
        title = calls.pop() if len(calls) == 1 else kind
        known = (context.python_of_input.get(host.name) for host in trace.hosts)
        python = next(filter(None, known), None)
        if python is not None:
            arguments["line"] = Line(python.line)
    is_bound = any(type_ in _ON_EVERY_OP for type_ in types)
    return HOST_OP.of_rows(
        context,
        _rows(context, labels, context.ledger.devices),
        arguments=arguments,
        evidence=_type_evidence(types),
        title="all_checks" if is_bound else title,
        action=kind,
        notes=("all_checks",) if is_bound else (),
        keeps_waiting=True,
    )


def _optimizer(context: Context, _: str, labels: BoolArray, by_label: Int64Array) -> Finding | None:
    """What the updates of the variables cost; `by_label`: their time."""
    by_type = _time_by_type(context, by_label)
    types = _longest(by_type)
    share = int(by_label.sum()) / int(context.once(_computed_ps).sum())
    return OPTIMIZER_BOUND.of_rows(
        context,
        _rows(context, labels, context.ledger.devices),
        arguments={**({"ops": Ops((types[0],))} if types else {}), **_line(context, by_label)},
        evidence=[Evidence("compute_ratio", share, None, ""), *_type_evidence(types)],
        action="sparse" if any(type_.startswith(_SPARSE_UPDATES) for type_ in by_type) else "",
    )


def _type_evidence(types: Iterable[str]) -> list[Evidence]:
    return [Evidence("op_type", type_, None, "", value_is="type") for type_ in types]


# Compiled functions

_GRAPH: Final = lazy_pattern(rb"EagerLocalExecute: __(?:inference|forward)_(.+)_\d+", re.DOTALL)


class Called(Struct, frozen=True, eq=False):
    """The functions that computed: `names`, and int32 `of_event`, by device event the place of its function, else `NONE`."""

    names: tuple[str, ...]
    of_event: Int32Array


def functions_called(trace: Recording) -> Called:
    """The function of each device event; that of no event where a host called only one, or none."""
    places: dict[str, int] = {}

    def place_of(function: str) -> int:
        return places.setdefault(function, len(places)) if function else NONE

    device = trace.device_columns
    programs = [place_of(each.function) for each in trace.instructions]
    of_event = np.array([*programs, NONE], dtype=np.int32)[device.instruction]
    for number in range(len(trace.hosts)):
        calls = trace.named_on(number, _GRAPH.fullmatch)
        names, of_call = np.unique(trace.host_columns.name[calls], return_inverse=True)
        graphs = (_GRAPH.fullmatch(trace.names[name]) for name in names.tolist())
        found = [place_of(graph[1].decode("utf-8", "replace") if graph else "") for graph in graphs]
        if len(set(found)) > 1:
            own = trace.device_rows(number)
            function = np.array(found, dtype=np.int64)[of_call]
            launch = device.launch[own].astype(np.int64)
            of_event[own] = _of_launches(trace, launch, Roots(calls, function))
    return Called(tuple(places), of_event)


def _of_launches(trace: Recording, launch: Int64Array, calls: Roots) -> Int64Array:
    """The function in whose call each launch lies, `NONE` where it lies in none."""
    rows = unique_ids(launch)
    of_row = steps_of_rows(rows, calls, trace.host_columns, trace.thread_of_line)
    found: Int64Array = of_row[np.searchsorted(rows, launch)]
    found[launch == NONE] = NONE
    return found


def _second_forward(context: Context) -> Finding | None:
    """Functions without gradients that run the code of one that trains."""
    called, ledger, trace = context.trace.once(functions_called), context.ledger, context.trace
    if len(called.names) < 2:
        return None
    rows = np.flatnonzero(ledger.rows(states=(State.COMPUTE,)))
    function = called.of_event[ledger.columns.event[rows]]
    rows, function = rows[function != NONE], function[function != NONE]
    places, ps = trace.once(label_places), ledger.columns.duration_ps[rows]
    label = trace.once(op_labels).of_row[ledger.columns.event[rows]]
    number_of: dict[object, int] = {None: 0}
    codes = [number_of.setdefault(_code_of(place), len(number_of)) for place in places.places]
    code, count = np.array(codes, dtype=np.int64)[places.place[label]], len(called.names)
    # On another device it does not make a step of this one longer.
    of_device = code * len(trace.device_list) + ledger.device[rows]
    is_training = np.isin(places.phase[label], (Phase.BACKWARD, Phase.OPTIMIZER))
    trains = np.bincount(function[is_training], minlength=count) > 0
    is_again = is_in(of_device, unique_ids(of_device[trains[function]])) & (code > 0)
    whole = SWEEPS.totals(function, ps, count)
    again = SWEEPS.totals(function[is_again], ps[is_again], count)
    is_second = ~trains & (whole > 0) & (again >= SECOND_FORWARD.limits["code_ratio"] * whole)
    trained = {name for name, does in zip(called.names, trains.tolist(), strict=True) if does}
    is_second &= ~np.isin(called.names, makes_batches(trace.instructions, trained))
    seconds = np.flatnonzero(is_second)
    of_seconds = np.zeros(ledger.count, dtype=np.bool_)
    of_seconds[rows[is_in(function, seconds)]] = True
    longest = seconds[np.argsort(-whole[seconds], kind="stable")].tolist()
    texts = tuple(called.names[place] for place in longest)
    return SECOND_FORWARD.of_rows(
        context,
        of_seconds,
        arguments={"function": Names(texts[:1], "function")},
        evidence=[Evidence("function", text, None, "", value_is="function") for text in texts],
    )


def _code_of(place: Place) -> object:
    """The Python function that made an op, for XLA names a fusion after any of its lines; else the layer; None where neither is known."""
    line, _, function = place.line.partition(" in ")
    return (line.rpartition(":")[0], function) if function else place.scopes or None


ANALYSIS: Final = Analysis[Compute](
    "compute",
    compute=compute,
    rules=(
        FLOAT64,
        SLOW_PRODUCTS,
        CONSTANT,
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
