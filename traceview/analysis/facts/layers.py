"""Reads what names of kernels and instructions show: formats, conversions, the layer of the model, the phase and the line.

A *layer* is the scope that an op was made in: in TensorFlow that of Keras's layer or of `tf.name_scope`, in JAX that of a
module or of `jax.named_scope`, below the compiled function. What frameworks add to it is left out: replicas, loops and
calls, the tape of a gradient, transformations, and ops that are scopes of others, as `BiasAdd` is in
`dense/BiasAdd/ReadVariableOp`. So a gradient belongs to the layer whose op it is the gradient of. An optimizer is a layer of
its own, unless its ops are named after the variable that they update.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int32Array
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.device.kernel_names import kernel_name
from traceview.trace.device.op_names import (
    OPTIMIZER_FUNCTION,
    TRANSFORMATION,
    Phase,
    event_phases,
    label_lines,
    label_texts,
    of_instructions,
    op_labels,
    op_names,
    phase_of,
    split_op,
    split_op_name,
)
from traceview.trace.model import Recording
from traceview.xplane.columns import Instruction
from traceview.xplane.planes import ActivityClass

MOST_PARTS: Final = 24
"""Scopes inside each other; deeper ones are the same layer. A choice of ours, for names may be of any length."""


class Place(Struct, frozen=True):
    """Where an op was made: scopes from the outermost, none where no name shows any, and a line of Python or ""."""

    scopes: tuple[str, ...]
    line: str = ""


class LabelPlaces(Struct, frozen=True, eq=False):
    """By label (`op_labels`): `place`, int32 in `places`; `phase`, uint8 `Phase`."""

    places: tuple[Place, ...]
    place: Int32Array
    phase: npt.NDArray[np.uint8]


def label_places(trace: Recording) -> LabelPlaces:
    """Where the op of each label was made, and the phase that it is a part of."""
    texts, phase = trace.once(label_texts), trace.once(event_phases)[trace.once(op_labels).row]
    has_scope = np.flatnonzero(instructions_that(trace, lambda each: bool(each.scope)))
    phase[has_scope] = [phase_of(texts[label].encode()) for label in has_scope.tolist()]
    # Replicas and kernels share ops.
    op_of = {text: _op(text) for text in dict.fromkeys(texts)}
    ops = list(dict.fromkeys(op_of.values()))
    scopes = _Scopes(ops, trace)
    scopes_of = {op: scopes.named(op) for op in ops}
    number_of: dict[Place, int] = {}
    places = (
        Place(scopes_of[op_of[text]], line)
        for text, line in zip(texts, trace.once(label_lines), strict=True)
    )
    numbers = [number_of.setdefault(made, len(number_of)) for made in places]
    place = np.array(numbers, dtype=np.int32)
    phase[(phase == Phase.UNKNOWN) & trace.once(label_updates)] = Phase.OPTIMIZER
    return LabelPlaces(tuple(number_of), place, phase)


def label_updates(trace: Recording) -> BoolArray:
    """By label whether its instruction is of an optimizer of JAX, whose scopes show none.

    It computes with gradients and is none, or a Python function made it that is named like an optimizer.
    """
    return instructions_that(
        trace,
        lambda each: (
            each.is_update or bool(OPTIMIZER_FUNCTION.fullmatch(each.line.rpartition(" in ")[2]))
        ),
    )


def op_places(trace: Recording, names: Iterable[str]) -> dict[str, tuple[Place, Phase]]:
    """Where ops were made that are named without their type, as allocators name them, and the phase that each is a part of.

    The type is that under which another event has the op. Folded constants are of the op that they were folded from.
    """
    bare = {name: name.removeprefix(_FOLDED) for name in names}
    typed = _with_types(trace, dict.fromkeys(bare.values()))
    columns, rows = trace.device_columns, trace.once(op_labels).row
    recorded = dict.fromkeys(trace.names.text(op) or "" for op in columns.op[rows].tolist())
    # One of the replicas of each op tells scopes from ops as all do.
    known = {split_op(text): text for text in recorded}
    ops = {name: _op(typed[op]) for name, op in bare.items()}
    scopes = _Scopes([*map(_op, known.values()), *ops.values()], trace)
    return {name: (Place(scopes.named(op)), op.phase) for name, op in ops.items()}


def _with_types(trace: Recording, ops: Iterable[str]) -> dict[str, str]:
    """The text `scope/name:Type` of ops that are named without their type; what is in no scope may be no op."""
    typed = {
        op: op if "/" not in op or TRANSFORMATION.search(op) else f"{op}:{_UNKNOWN_TYPE}"
        for op in ops
    }
    for name in trace.names:
        path, type_ = split_op_name(name)
        op = path.decode("utf-8", "replace") if type_ else ""
        if op in typed:
            typed[op] = f"{op}:{type_.decode()}"
    return typed


def _op(text: str) -> _Op:
    return _Op(*split_op(text), phase_of(text.encode()))


class _Op(Struct, frozen=True):
    """The name of an op without its replica part, its type, and the phase that both show."""

    name: str
    type_: str | None
    phase: Phase


# JAX

_NAMELESS: Final = lazy_pattern(r"(?<![^/(])p?jit\((?:main|<\w+>|_\w*)\)")
"""Functions that JAX wraps or calls itself."""

_OF_JAX: Final = lazy_pattern(
    r"|while|body|cond|closed_call|core_call|remat|checkpoint|rematted_computation|shard_map|pjit|scan"
    r"|custom_[jv][vj]p_call\w*|branch_\d+_fun"
)


_JITTED: Final = lazy_pattern(r"(?:^|[/(])p?jit\(([^()]*)\)")


def jitted_functions(trace: Recording) -> frozenset[str]:
    """The names of functions that JAX compiled, alone or as a part of others: they are scopes of ops, and no layers."""
    scopes = dict.fromkeys(each.scope for each in trace.instructions)
    return frozenset(name for scope in scopes for name in _JITTED.findall(scope))


def _scopes_of_jax(path: str) -> list[str]:
    """The scopes of `jit(step)/transpose(jvp(Model))/dense/dot_general`: `step`, `Model`, `dense`."""
    # XLA joins the scopes of what it fuses by semicolons, or `f/(a/dot:b/add)`; the first stands for all.
    one = path.partition(";")[0]
    scope, _, inside = one.partition("/(")
    first, several, _ = inside.partition(":")
    one = f"{scope}/{first}" if several else one
    bare = TRANSFORMATION.sub("", _NAMELESS.sub("", one)).replace(")", "")
    *scopes, _ = bare.split("/", MOST_PARTS)
    return [scope for scope in scopes if not _OF_JAX.fullmatch(scope)]


# TensorFlow

_FOLDED: Final = "ConstantFolding/"
_UNKNOWN_TYPE: Final = "Op"
"""Says no more than that it is an op."""

_OF_TENSORFLOW: Final = lazy_pattern(
    r"(?:(?:Stateful)?PartitionedCall|(?:Stateless)?(?:If|Case|While)|while|cond|case|body|then|else|branch\d*|gradient_tape"
    r"|gradients)?(?:_\d+)*"
)
_UPDATE: Final = lazy_pattern(r"update(?:_\d+)*")
_UPDATE_OF: Final = lazy_pattern(r"update_(?=[^\d])")
_NUMBER: Final = lazy_pattern(r"_\d+$")
_GRAD: Final = lazy_pattern(r"_grad(?:_\d+)?$")
"""In graphs of TensorFlow 1 the gradient of `MatMul` is in the scope `MatMul_grad`."""

_VERSIONED: Final = lazy_pattern(r"[A-Z]\w*V\d+")
_FUSED: Final = lazy_pattern(r"_(?:Mkl)?(?:Native)?(?:Fused)?")
_VERSION: Final = lazy_pattern(r"V\d+$")


def _forward_type(type_: str) -> str:
    """The type of op that one is a variant or the gradient of: `Conv2D` of `_MklNativeConv2DBackpropFilterWithBias`."""
    fused = _FUSED.match(type_)
    base, _, _ = type_[fused.end() if fused else 0 :].partition("Backprop")
    return _VERSION.sub("", base).removesuffix("WithArgmax").removesuffix("Grad")


class _Scopes:
    """Tells scopes from ops by all the names of a trace."""

    def __init__(self, ops: Sequence[_Op], trace: Recording) -> None:
        sidecars = (host.sidecar for host in trace.hosts if host.sidecar)
        self._layers = {name for sidecar in sidecars for name in sidecar.graphs.layers}
        types = {op.type_ for op in ops if op.type_}
        self._types = types | {_forward_type(type_) for type_ in types}
        self._ops: set[tuple[str, ...]] = set()
        self._forward: set[tuple[str, ...]] = set()
        forward = [op for op in ops if op.type_ and op.phase is not Phase.BACKWARD]
        for op in forward:
            parts = tuple(_parts(op.name))
            self._ops.add(parts)
            if op.type_ == "ReadVariableOp":
                # An op reads a variable inside of its own scope.
                self._ops.add(parts[:-1])
        for scopes in set(map(self.of, forward)):
            self._forward.update(scopes[:depth] for depth in range(1, len(scopes) + 1))

    def named(self, op: _Op) -> tuple[str, ...]:
        """The scopes of an op; layers of Keras as `model.summary()` names them, where the capture has seen these."""
        bare = ((_NUMBER.sub("", scope), scope) for scope in self.of(op))
        return tuple(name if name in self._layers else scope for name, scope in bare)

    def of(self, op: _Op) -> tuple[str, ...]:
        """The scopes of an op; none where its name shows none."""
        if not op.type_:
            return tuple(_scopes_of_jax(op.name)) if TRANSFORMATION.search(op.name) else ()
        *scopes, _ = _parts(op.name)
        is_update = op.phase is Phase.OPTIMIZER
        if is_update:
            for place, scope in enumerate(scopes[:-1]):
                variable = _UPDATE_OF.sub("", scope)
                if variable != scope:
                    # `adam/update_dense/kernel/Mul`: the last scope is the name of the variable.
                    return (variable, *scopes[place + 1 : -1])
        while scopes and (self._is_op(scopes) or (is_update and _UPDATE.fullmatch(scopes[-1]))):
            scopes.pop()
        layer = tuple(scopes)
        if op.phase is Phase.BACKWARD:
            # A gradient is in the scope of its op, which may have become a part of another.
            while layer and layer[-1][:1].isupper() and layer not in self._forward:
                layer = layer[:-1]
        return layer if layer in self._forward else tuple(scopes)

    def _is_op(self, scopes: list[str]) -> bool:
        *around, last = scopes
        op = _GRAD.sub("", last)
        type_ = _NUMBER.sub("", op)
        is_type = type_ in self._types or _VERSIONED.fullmatch(type_) is not None
        return (*around, op) in self._ops or (is_type and type_[:1].isupper())


def _parts(name: str) -> Iterator[str]:
    """The parts of a name, of which the last is the op, without what TensorFlow adds.

    In loops and conditions scopes are said again: `net/while/body/_5/net/while/MatMul`.
    """
    *scopes, last = name.split("/", MOST_PARTS)
    kept: list[str] = []
    begin, is_left_out = 0, False
    for scope in scopes:
        if _OF_TENSORFLOW.fullmatch(scope):
            is_left_out, begin = True, len(kept) if "Call" in scope else begin
            continue
        if is_left_out and kept[begin : begin + 1] == [scope]:
            del kept[begin:]
        kept.append(scope)
        is_left_out = False
    yield from kept
    yield last.rpartition("/")[2]


# Kernels

EAGER: Final = b"EagerKernelExecute"
"""Marks the run of an eager op; a call of a `tf.function` is such an op, too."""
GRAPH: Final = (b"FunctionRun", b"ExecutorState::Process")
"""Mark a graph; `KernelAndDeviceFunc::Run` is in every eager op, graph or not (TensorFlow 2.21, measured)."""


class KernelNames(Struct, frozen=True, eq=False):
    """What the names of kernels show, by label (`op_labels`): uint8 `NumberFormat` and bool."""

    precision: npt.NDArray[np.uint8]
    tensor_core: BoolArray
    is_matrix: BoolArray


def label_kernels(recording: Recording) -> KernelNames:
    """What the names of all compute shows; a replica on CPUs runs ops, whose names are of layers."""
    columns, rows = recording.device_columns, recording.once(op_labels).row
    has_kernels = np.array([device.kind != "replica" for device in recording.device_list], np.bool_)
    is_kernel = columns.class_[rows] == ActivityClass.COMPUTE
    is_kernel &= has_kernels[columns.device[rows]]
    names, of_label = unique_inverse(np.where(is_kernel, columns.name[rows], NONE))
    kernels = [kernel_name(b"" if at == NONE else recording.names[at]) for at in names.tolist()]
    return KernelNames(
        np.array([kernel.precision for kernel in kernels], dtype=np.uint8)[of_label],
        np.array([kernel.tensor_core for kernel in kernels], dtype=np.bool_)[of_label],
        np.array([kernel.is_matrix for kernel in kernels], dtype=np.bool_)[of_label],
    )


# What only converts, by label (`op_labels`), bool

_CAST: Final = lazy_pattern(r"(?:^|/)convert_element_type$")
_CONVERT: Final = lazy_pattern(rb"(?:wrapped_)?convert(?:_element_type)?(?:\.\d+)?")
"""Names of instructions that convert and do nothing else; a fusion that ends with a conversion may do much."""


def cast_labels(trace: Recording) -> BoolArray:
    """Which labels are conversions between types alone."""
    casts = instructions_that(
        trace, lambda each: bool(_CONVERT.fullmatch(each.name) and _CAST.search(each.scope))
    )
    ops, of_label = trace.once(op_names)
    is_cast = np.array([type_ == "Cast" for _, type_ in ops], dtype=np.bool_)
    return casts | is_cast[of_label]


def instructions_that(trace: Recording, matches: Callable[[Instruction], bool]) -> BoolArray:
    """Which labels are instructions of programs that match."""
    return of_instructions(trace, matches, False)


def makes_batches(instructions: Sequence[Instruction], trained: Collection[str]) -> list[str]:
    """Functions of JAX that give arrays of a kind that one of those that train takes, and neither gives again nor they take.

    What is computed for the step is no second pass, such as what an actor plays for the learner.
    """
    # All instructions of a program hold the same sets.
    programs = {(each.function, each.taken, each.given) for each in instructions}
    batches = {kind for name, taken, given in programs if name in trained for kind in taken - given}
    return [name for name, taken, given in programs if (given - taken) & batches]
