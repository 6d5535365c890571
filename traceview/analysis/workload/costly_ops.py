"""Chooses ops that take much and are not what a step is made for: by their types and instructions, and by what they do together.

A step is expected to multiply matrices, convolve, and update variables. Of all else one *group* is a finding that takes a large
part of it: what only moves data, what one function makes that multiplies nothing, one type of op; and products at a low rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.functions import codes_of_labels
from traceview.analysis.facts.layers import instructions_that, label_places
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import (
    flops_by_device,
    label_flops,
    label_ps,
    rows_of_labels,
)
from traceview.analysis.rules.rule import Rule
from traceview.analysis.workload.compute_rules import (
    AGAIN_RATIO,
    CHOSEN,
    COPIES_RATIO,
    COSTLY_OPS,
    FACTORING,
    FUNCTION_RATIO,
    MOVING_RATIO,
    PRODUCTS_RATIO,
    RECOMPUTED,
    SLICES_RATIO,
    SLOW_RATE,
    TYPE_RATIO,
    UNTRAINED,
)
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import (
    Phase,
    of_instructions,
    op_labels,
    op_names,
)
from traceview.xplane.columns import Instruction


def types_of_labels(context: Context) -> tuple[tuple[str, ...], Int64Array]:
    """The types of ops, "" where none was recorded, and int64 the place of that of each label.

    Of an instruction of XLA it is the op of the source that it was made for, or its own, of what XLA has added.
    """
    trace = context.trace
    (ops, op_of_label), place_of = trace.once(op_names), dict[str, int]()

    def place(type_: str) -> int:
        return place_of.setdefault(type_, len(place_of))

    places = np.array([place(type_ or "") for _, type_ in ops], dtype=np.int64)
    compiled = of_instructions(trace, lambda each: place(_type_of(each)), NONE)
    return tuple(place_of), np.where(compiled == NONE, places[op_of_label], compiled)


_PRIMITIVE: Final = lazy_pattern(r"[a-z][a-z0-9_]{0,40}")
_KNOWN: Final = {"dot": "dot_general", "convolution": "conv_general_dilated", "command_buffer_": ""}


_DRAWS: Final = lazy_pattern(
    r"jit\(_(bernoulli|exponential|gamma|gumbel|normal|normal_real|randint|truncated_normal|uniform)\)"
    r"|(random_bits|rng_bit_generator|rng_uniform|threefry2x32)$"
)
"""Functions of `jax.random`, and the primitives that they call (JAX 0.10)."""


def _type_of(instruction: Instruction) -> str:
    """`gather` of `jit(step)/take/gather`; `copy` of `copy.3`; "" of a CUDA graph, which hides its ops; what numbers are drawn for."""
    last, name = instruction.scope.rpartition("/")[2], instruction.name.decode("utf-8", "replace")
    own = name.rstrip("0123456789").removesuffix(".") or name
    # `convolution-base-dilated` is one, too.
    known = _KNOWN.get(own.partition("-")[0])
    if known is not None:
        # Gradients of products end with the transposition of their result.
        return known
    drawn = _DRAWS.search(instruction.scope)
    if drawn:
        return str(drawn[1] or drawn[2])
    return instruction.op_type or (last if _PRIMITIVE.fullmatch(last) else own)


# By name


class OpsByName(Struct, frozen=True):
    """Ops that a rule is about, by their types in TensorFlow, by kernels and by instructions of XLA. `key`: of its title and action."""

    rule: Rule
    key: str = ""
    types: re.Pattern[str] | None = None
    is_one: Callable[[Instruction], bool] | None = None
    kernels: re.Pattern[bytes] | None = None


_FACTORINGS: Final = lazy_pattern(
    "cholesky|eigh?|geqrf|hessenberg|householder_product|lu|qr|schur|svd|triangular_solve|tridiagonal"
)
"""Primitives of JAX (0.4 to 0.11), with which the scope of an instruction ends."""
_SORTS: Final = frozenset(["sort", "top_k", "approx_top_k"])
_SHUFFLES: Final = lazy_pattern(r"jit\(_(?:permutation|shuffle)\)")
"""Those that sort all of what they draw from."""
_COPY: Final = lazy_pattern(rb"copy(?:\.\d+)?")
_COPYING: Final = replace(COSTLY_OPS, limit=COPIES_RATIO)


def _is_copy(copied: str, each: Instruction) -> bool:
    """Whether an instruction is such a copy."""
    return each.copied == copied and _COPY.fullmatch(each.name) is not None


DRAWN: Final = OpsByName(
    COSTLY_OPS,
    "random",
    lazy_pattern(r"(?:Stateless)?(?:Multinomial|Random|(?:Parameterized)?TruncatedNormal)\w*"),
    lambda each: _DRAWS.search(each.scope) is not None,
)

BY_NAME: Final = (
    OpsByName(UNTRAINED, "number", is_one=lambda each: each.need == "number"),
    OpsByName(CHOSEN, "choice", is_one=lambda each: each.need == "choice"),
    OpsByName(COSTLY_OPS, "order", is_one=lambda each: each.need == "order"),
    OpsByName(COSTLY_OPS, "length", is_one=lambda each: each.need == "length"),
    OpsByName(COSTLY_OPS, "copies", is_one=lambda each: each.need == "copies"),
    OpsByName(COSTLY_OPS, "examples", is_one=lambda each: each.need == "examples"),
    OpsByName(COSTLY_OPS, "zeros", is_one=lambda each: each.need == "zeros"),
    OpsByName(COSTLY_OPS, "mask", is_one=lambda each: each.need == "mask"),
    # The scope of what `jax.checkpoint` computes again (JAX 0.4 to 0.11).
    OpsByName(RECOMPUTED, is_one=lambda each: "rematted_computation" in each.scope.split("/")),
    OpsByName(
        FACTORING,
        types=lazy_pattern(
            r"(?:Batch)?(?:Svd|SelfAdjointEig|Eig|Qr|Lu|Cholesky(?:Grad)?|(?:Log)?MatrixDeterminant"
            r"|Matrix(?:Inverse|Solve|SolveLs|TriangularSolve|SquareRoot|Logarithm|Exponential))(?:V\d+)?"
        ),
        is_one=lambda each: _FACTORINGS.fullmatch(each.scope.rpartition("/")[2]) is not None,
    ),
    OpsByName(
        COSTLY_OPS, "shuffling", is_one=lambda each: _SHUFFLES.search(each.scope) is not None
    ),
    OpsByName(
        COSTLY_OPS,
        "sorting",
        lazy_pattern(r"(?:InTopK|TopK|Unique)(?:With\w+)?(?:V2)?"),
        lambda each: each.scope.rpartition("/")[2] in _SORTS,
    ),
    DRAWN,
    OpsByName(
        COSTLY_OPS,
        "images",
        lazy_pattern(
            r"(?:Adjust(?:Contrast|Hue|Saturation)|CropAndResize|ImageProjectiveTransform|Resize)\w*|RGBToHSV|HSVToRGB"
        ),
    ),
    OpsByName(COSTLY_OPS, "updating", lazy_pattern(r"TensorScatter\w+")),
    # Kernels of cuDNN in front of and behind convolutions. Transpositions of XLA were up to 14% of healthy steps on CPUs.
    OpsByName(
        COSTLY_OPS,
        "layout",
        lazy_pattern(r"_?(?:Mkl)?(?:Conjugate)?Transpose"),
        kernels=lazy_pattern(rb"(?:nchwToNhwc|nhwcToNchw)Kernel"),
    ),
    OpsByName(_COPYING, "donating", is_one=partial(_is_copy, "argument")),
    OpsByName(_COPYING, "copying", is_one=partial(_is_copy, "inside")),
)


def labels_by_name(context: Context, ops: OpsByName) -> BoolArray:
    """Which labels are such ops."""
    types, of_label = context.once(types_of_labels)
    is_type = [ops.types is not None and ops.types.fullmatch(type_) is not None for type_ in types]
    marks: BoolArray = np.array(is_type, dtype=np.bool_)[of_label]
    if ops.is_one is not None:
        marks |= instructions_that(context.trace, ops.is_one)
    if ops.kernels is not None:
        names = context.trace.device_columns.name[context.trace.once(op_labels).row]
        marks |= context.trace.names.where(names, ops.kernels.search)
    return marks


# By what they do together


def all_ps(context: Context) -> Int64Array:
    """How long all devices together compute what each label names, int64 picoseconds."""
    labels = np.ones(context.trace.once(op_labels).row.size, dtype=np.bool_)
    return label_ps(context, rows_of_labels(context, labels))


def multiplies_nothing(context: Context) -> BoolArray:
    """Which labels are ops of a known type that do no product."""
    types, of_label = context.once(types_of_labels)
    is_typed = np.array([bool(type_) for type_ in types], dtype=np.bool_)[of_label]
    nothing: BoolArray = is_typed & (context.trace.once(label_flops) == 0)
    return nothing


def _is_of_graph(context: Context) -> BoolArray:
    """Which labels are ops that run by themselves, as XLA has not compiled them."""
    trace = context.trace
    runs: BoolArray = trace.device_columns.instruction[trace.once(op_labels).row] == NONE
    return runs


_MOVES: Final = lazy_pattern(
    r"_?(?:Mkl)?(?:(?:Strided)?Slice|Tile|(?:Mirror)?Pad(?:V2)?|BroadcastTo|Reverse(?:V2)?|Roll|TensorList\w+"
    r"|(?:Concat|Split|Pack|Unpack|(?:Conjugate)?Transpose)\w*|(?:Batch|Depth|Space)To(?:Batch|Depth|Space)\w*)(?:Grad)?"
)
"""Types of ops whose result has the numbers of their input in other places, once or more often, and zeros."""
_MOVED: Final = lazy_pattern(
    rb"(?:wrapped_)?(?:concatenate|dynamic-slice|dynamic-update-slice|pad|reverse|slice|transpose)(?:\.\d+)?"
)
"""Names of instructions of XLA that do the same and nothing else."""


def moving(context: Context, is_free: BoolArray) -> BoolArray:
    """Which labels only move data."""
    types, of_label = context.once(types_of_labels)
    is_type = np.array([_MOVES.fullmatch(type_) is not None for type_ in types], dtype=np.bool_)
    marks = is_type[of_label] & context.once(_is_of_graph)
    marks |= instructions_that(context.trace, lambda each: _MOVED.fullmatch(each.name) is not None)
    return is_free & marks


_MULTIPLIED: Final = 0.1
"""Of the compute of a function that multiplies nothing worth mentioning; a choice of ours."""
_ONE_TYPE: Final = 2 / 3
"""Of the compute of a function whose ops are rather of one type; a choice of ours."""


def of_one_function(context: Context, is_free: BoolArray, most: float = _ONE_TYPE) -> BoolArray:
    """Which labels are ops of the function, or layer, that takes longest of those that multiply nothing. `most`: that one type takes.

    Gradients belong to the function of their op. What XLA has compiled it has fused as far as it can.
    """
    is_free = is_free & context.once(_is_of_graph)
    codes, code = context.trace.once(codes_of_labels)
    types, type_ = context.once(types_of_labels)
    ps = context.once(all_ps)
    own = SWEEPS.totals(code, np.where(is_free, ps, 0), len(codes))
    products = np.where(context.once(multiplies_nothing), 0, ps)
    own[SWEEPS.totals(code, products, len(codes)) > _MULTIPLIED * own] = 0
    for each in np.argsort(-own[1:], kind="stable").tolist():
        labels: BoolArray = is_free & (code == each + 1)
        by_type = SWEEPS.totals(type_, np.where(labels, ps, 0), len(types))
        if by_type.max() <= most * own[each + 1]:
            return labels
    return np.zeros_like(is_free)


def of_slices(context: Context) -> BoolArray:
    """Which labels are gradients of slices in a graph, with the sums of these, unless other sums take longer than they do."""
    types, of_label = context.once(types_of_labels)
    sliced, added = (
        np.array([type_ == each for type_ in types], dtype=np.bool_)[of_label]
        for each in ("StridedSliceGrad", "AddN")
    )
    ps = context.once(all_ps)
    labels: BoolArray = sliced | (added & (ps[added].sum() <= ps[sliced].sum()))
    return labels


def of_one_type(context: Context, is_free: BoolArray) -> BoolArray:
    """Which labels are ops of the type that takes longest, of XLA in the forward and backward pass: others may update variables."""
    types, of_label = context.once(types_of_labels)
    phase = context.trace.once(label_places).phase
    is_free = is_free & (context.once(_is_of_graph) | (phase != Phase.UNKNOWN))
    ps = SWEEPS.totals(of_label, np.where(is_free, context.once(all_ps), 0), len(types))
    longest: BoolArray = is_free & (of_label == np.argmax(ps))
    return longest


def own_part(context: Context, labels: BoolArray) -> float:
    """How much of the time that ops have in the ledger they would save at most, for other ops run at the same time.

    The ledger gives an instant to the op that began first. All that runs then waits for the same cores or multiprocessors.
    """
    ps, most = int(context.once(all_ps)[labels].sum()), 0.0
    for of in context.once(flops_by_device).values():
        duration_ps = of.duration_ps.total
        most += of.ran_ps * (of.duration_ps.where(labels).total / duration_ps if duration_ps else 0)
    return min(1.0, most / ps) if ps else 1.0


class Group(Struct, frozen=True):
    """Ops that are a finding together, of those that no other one is about. `key`: of its title and action."""

    rule: Rule
    key: str
    choose: Callable[[Context, BoolArray], BoolArray]


AGAIN: Final = replace(COSTLY_OPS, limit=AGAIN_RATIO)
SLICES: Final = replace(COSTLY_OPS, limit=SLICES_RATIO)

GROUPS: Final = (
    Group(replace(COSTLY_OPS, limit=MOVING_RATIO), "moving", moving),
    Group(replace(COSTLY_OPS, limit=FUNCTION_RATIO), "function", of_one_function),
    Group(replace(COSTLY_OPS, limit=TYPE_RATIO), "", of_one_type),
    Group(replace(COSTLY_OPS, limit=TYPE_RATIO), "function", partial(of_one_function, most=1.0)),
)
"""In this order: what a finding is about is in no later group."""

LOW_RATE: Final = replace(COSTLY_OPS, limit=PRODUCTS_RATIO)


_Floats = npt.NDArray[np.float64]


def slow_products(context: Context) -> tuple[BoolArray, float]:
    """Which labels are products that do few FLOPs for their time, and how much of that they would save at the usual rate.

    No convolution of each channel for itself, which does few for each number that it reads: a network that has some is made of them.
    """
    flops, ps, usual = context.once(_usual_rate)
    types, of_label = context.once(types_of_labels)
    is_apart = np.array(["Depthwise" in type_ for type_ in types], dtype=np.bool_)[of_label]
    is_slow: BoolArray = (flops > 0) & (flops < SLOW_RATE * usual * ps) & ~is_apart
    return is_slow, saved_at_usual_rate(context, is_slow)


def saved_at_usual_rate(context: Context, labels: BoolArray) -> float:
    """How much of their time some labels would save if all of it went for their FLOPs, at the usual rate of products."""
    flops, ps, usual = context.once(_usual_rate)
    whole_ps = float(ps[labels].sum())
    return (
        max(1 - float(flops[labels].sum()) / usual / whole_ps, 0.0) if whole_ps and usual else 0.0
    )


def _usual_rate(context: Context) -> tuple[_Floats, _Floats, float]:
    """The known FLOPs and the picoseconds of each label on all devices, and the rate at which, or faster, half of them are done."""
    flops = np.zeros(context.trace.once(op_labels).row.size)
    ps = np.zeros_like(flops)
    for of in context.once(flops_by_device).values():
        flops += of.known_flops
        ps += of.duration_ps.every
    known = np.flatnonzero((flops > 0) & (ps > 0))
    if not known.size:
        return flops, ps, 0.0
    rate = flops[known] / ps[known]
    order = np.argsort(rate, kind="stable")
    done = np.cumsum(flops[known[order]])
    return flops, ps, float(rate[order[np.searchsorted(done, done[-1] / 2)]])
