"""Numbers what device events run, and reads the names of ops, for all topics once: phase, side work, and line of Python.

The text of an op is `scope/name:Type`. The name is used without the number of the replica, so that the copies of one op on several
devices share it (docs/method.md, "Ops", "Gradients" and "Step ops"). Names that XLA generates, such as `fusion_3`, show nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import unique_inverse
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, kept
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import GraphValues
from traceview.xplane.columns import Instruction
from traceview.xplane.planes import ActivityClass


class Phase(IntEnum):
    """A part of the training step; `UNKNOWN` where the name does not show it."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    REDUCTION = 4


_NAME: Final = lazy_pattern(rb"[A-Za-z_]\w*")
_BACKWARD_SCOPE: Final = lazy_pattern(rb"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")
_BACKWARD_TYPE: Final = lazy_pattern(
    rb"Grad(?:WithArgmax)?(?:V\d+)?$|Backprop(?!Input)|DepthwiseConv2dNativeBackprop"
)
"""A transposed convolution is a `Conv2DBackpropInput` of the forward pass."""
_REDUCTION_TYPE: Final = lazy_pattern(rb"Collective\w+|Nccl(?:AllReduce|Reduce)\w*")
_OPTIMIZER_TYPE: Final = lazy_pattern(rb"(?:Resource)?(?:Sparse)?Apply[A-Z]\w*")
_OPTIMIZERS: Final = "sgd|gradientdescent|momentum|rm_?sprop|adam|adam_?w|adamax|nadam|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon|adamweightdecay"
OPTIMIZER_SCOPE: Final = lazy_pattern(
    rf"(?:^|/)(?:update_\d+|(?:loss_scale_)?optimizer|{_OPTIMIZERS})(?:_\d+)*/".encode(),
    re.IGNORECASE,
)
OPTIMIZER_FUNCTION: Final = lazy_pattern(
    rf"(?:scale_by_)?(?:{_OPTIMIZERS})(?:_(?:step|update))?|apply_updates|apply_gradients|update_moment\w*",
    re.IGNORECASE,
)
"""Names of Python functions that update variables: of optimizers, and of Optax and Flax."""
_USES_VARIABLE: Final = lazy_pattern(
    rb"(?:Read|Assign(?:Add|Sub)?)VariableOp|Resource(?:Gather|Scatter|(?:Sparse)?Apply)\w*"
)
_FORWARD_PATH: Final = lazy_pattern(rb"(?:^|/)jvp\(")
KEPT_NAMES: Final = 1 << 14
"""Names whose reading is remembered, because several topics ask for it."""

LONGEST_NAME: Final = 1 << 13
"""Bytes of a name that are searched; a name may be of any length."""


@lru_cache(KEPT_NAMES)
def phase_of(name: bytes) -> Phase:
    """The phase that the recorded text of an op, `scope/name:Type`, shows."""
    path, type_ = split_op_name(name[:LONGEST_NAME])
    if _REDUCTION_TYPE.fullmatch(type_):
        return Phase.REDUCTION
    # What shows a phase in a path ends before the name of the op, but for a function of JAX.
    scope = path[: path.rfind(b"/") + 1]
    is_backward = _BACKWARD_TYPE.search(type_) or _BACKWARD_SCOPE.search(scope)
    if is_backward or b"transpose(jvp(" in path:
        return Phase.BACKWARD
    if _OPTIMIZER_TYPE.fullmatch(type_) or OPTIMIZER_SCOPE.search(scope):
        return Phase.OPTIMIZER
    return Phase.FORWARD if type_ or _FORWARD_PATH.search(path) else Phase.UNKNOWN


def split_op_name(name: bytes) -> tuple[bytes, bytes]:
    """Path and type of an op; an op without a type has a name from XLA, or of a function in C++, `a::b`."""
    path, _, type_ = name.rpartition(b":")
    return (path, type_) if path and path[-1:] != b":" and _NAME.fullmatch(type_) else (name, b"")


@lru_cache(KEPT_NAMES)
def uses_variable(type_: bytes) -> bool:
    """Whether an op of this type runs on the device of a variable, whichever replica issues it."""
    return _USES_VARIABLE.fullmatch(type_) is not None


def event_phases(recording: Recording) -> npt.NDArray[np.uint8]:
    """The phase of every device event, uint8; copies and fills have none, collectives are reduction."""
    columns = recording.device_columns
    phase = recording.names.each(columns.op, phase_of, np.uint8, Phase.UNKNOWN)
    phase[columns.class_ > ActivityClass.COLLECTIVE] = Phase.UNKNOWN
    phase[columns.class_ == ActivityClass.COLLECTIVE] = Phase.REDUCTION
    return phase


_Value = TypeVar("_Value", bound=Hashable)

_REPLICA_PART = lazy_pattern(r"(?:^|(?<=/))replica_\d+/")
_UPDATE_PART = lazy_pattern(r"(?:^|(?<=/))update_\d+(?=_|/|$)")
_TYPE = lazy_pattern(r"[A-Za-z_][\w>-]*")

OpName: TypeAlias = tuple[str | None, str | None]
"""The name of an op without its replica part, and its type; None where not recorded."""


class OpLabels(Struct, frozen=True, eq=False):
    """`of_row`: the label of each device event, int32. `row`: by label the first event that has it, int64."""

    of_row: Int32Array
    row: Int64Array


def op_labels(recording: Recording) -> OpLabels:
    """The labels of all device events, from 0 on as they first occur."""
    columns = recording.device_columns
    labels = SWEEPS.labelled(columns.op, columns.name, columns.class_)
    if recording.instructions:
        # Several programs may have an instruction and a kernel of the same names.
        labels = SWEEPS.labelled(labels[0], columns.instruction, columns.class_)
    return OpLabels(*labels)


def of_instructions(
    recording: Recording, read: Callable[[Instruction], Any], without: Any
) -> npt.NDArray[Any]:
    """What is read of the instruction that each label (`op_labels`) runs; `without` where it runs none."""
    # The last entry is that of `NONE`.
    known = np.array([*map(read, recording.instructions), without])
    return known[recording.device_columns.instruction[recording.once(op_labels).row]]


TRANSFORMATION: Final = lazy_pattern(
    r"(?<![^/(])(?:jit|pjit|pmap|xmap|vmap|jvp|transpose|remat|checkpoint|shard_map|custom_jvp|custom_vjp)\("
)
"""What JAX writes around a scope."""


def label_texts(recording: Recording) -> list[str]:
    """The name of the op of each label (`op_labels`) with all its scopes; programs know more of it than events do."""
    columns, rows = recording.device_columns, recording.once(op_labels).row
    texts = []
    for op, at in zip(columns.op[rows].tolist(), columns.instruction[rows].tolist(), strict=True):
        each = None if at == NONE else recording.instructions[at]
        if each is None or not each.scope:
            texts.append(_as_made(recording.names.text(op) or ""))
        elif not each.op_type or TRANSFORMATION.search(each.scope):
            texts.append(each.scope)
        else:
            texts.append(f"{each.scope}:{each.op_type}")
    return texts


def op_names(recording: Recording) -> tuple[tuple[OpName, ...], Int32Array]:
    """The ops that device events name, and int32 the place of that of each label (`op_labels`)."""
    unnamed: OpName = None, None
    return read_once(recording, recording.device_columns.op, split_op, unnamed)


def read_once(
    recording: Recording, column: Int32Array, read: Callable[[str], _Value], unnamed: _Value
) -> tuple[tuple[_Value, ...], Int32Array]:
    """Distinct values read from a column of names that labels distinguish, and int32 the place of that of each label.

    `unnamed`: the value of `NONE`.
    """
    names, of_label = unique_inverse(column[recording.once(op_labels).row])
    values = [
        unnamed if name == NONE else read(recording.names.text(name) or "")
        for name in names.tolist()
    ]
    place_of = {value: place for place, value in enumerate(dict.fromkeys([unnamed, *values]))}
    places = np.array([place_of[value] for value in values], dtype=np.int32)
    return tuple(place_of), places[of_label]


@lru_cache(KEPT_NAMES)
def split_op(text: str) -> tuple[str, str | None]:
    """Name without its replica part, and type, of an op as recorded."""
    name, colon, type_ = text.rpartition(":")
    if not colon or name[-1:] == ":" or not _TYPE.fullmatch(type_):
        # An op of an XLA program has a name and no type, as has a function in C++, `a::b`.
        return _without_replica(text), None
    return _without_replica(name), type_


_STAGE: Final = lazy_pattern(
    r"(?:^|(?<=/))ArithmeticOptimizer/(?:AddOpsRewrite_Leaf_\d+|HoistCommonFactor_(?:Add|Mul)|[A-Za-z]+)_"
)
"""What Grappler writes before the name of an op that it makes anew: `ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul_1` (TensorFlow 2.21)."""


def _as_made(name: str) -> str:
    """The name that an op had before Grappler made it anew."""
    return _STAGE.sub("", name) if "ArithmeticOptimizer/" in name else name


def _without_replica(name: str) -> str:
    if "replica_" in name:
        name = _REPLICA_PART.sub("", name)
    return _UPDATE_PART.sub("update", name) if "update_" in name else name


class SideWork(Enum):
    """A kind of side work; the value is its key in a report."""

    PYTHON = "python"
    PRINTING = "printing"
    SUMMARIES = "summaries"
    CHECKS = "checks"
    TEXT = "text"


_TYPES: Final = {
    SideWork.PYTHON: lazy_pattern(rb"(?:Eager)?PyFunc(?:Stateless)?"),
    SideWork.PRINTING: lazy_pattern(rb"Print(?:V2)?|StringFormat"),
    SideWork.CHECKS: lazy_pattern(rb"DebugNumericSummary(?:V2)?|CheckNumerics(?:V2)?"),
    SideWork.SUMMARIES: lazy_pattern(rb"(?<!\w)(?=\w*Summary)\w+"),
    SideWork.TEXT: lazy_pattern(
        rb"(?:Static)?Regex\w+|String(?!Format$)\w+|LookupTable\w+|AsString|ReduceJoin|UnsortedSegmentJoin|Substr|Unicode\w+"
    ),
}
_SCOPES: Final = {
    SideWork.SUMMARIES: (b"write_summary", lazy_pattern(rb"(?:^|/)write_summary(?:_\d+)?/")),
    SideWork.TEXT: (b"StringSplit", lazy_pattern(rb"(?:^|/)StringSplit(?:_\d+)?/")),
}
"""By kind a part of its scopes, which is found faster, and a pattern of them."""

_CALLBACKS: Final = {
    b"pure_callback": SideWork.PYTHON,
    b"io_callback": SideWork.PYTHON,
    b"debug_callback": SideWork.PYTHON,
    b"debug_print": SideWork.PRINTING,
}
"""Names of HLO instructions before their number."""


@lru_cache(KEPT_NAMES)
def side_work_of(name: bytes) -> SideWork | None:
    """The side work that the recorded text of an op shows: `scope/name:Type`, or the name of an HLO instruction."""
    path, _, type_ = name[:LONGEST_NAME].rpartition(b":")
    if not path:
        return _CALLBACKS.get(type_.partition(b".")[0])
    for kind, (part, scope) in _SCOPES.items():
        if part in path and scope.search(path):
            return kind
    return next((kind for kind, types in _TYPES.items() if types.fullmatch(type_)), None)


# The line of Python that made an op: as its XLA program says, else as the graph of the step function. An event has the name of
# the op in its graph, with more around it: calls and loops that lead to the op, the replica, and what TensorFlow does to a
# graph. A gradient belongs to the line of its op, which its name has in front.

_MOST_PARTS: Final = 32
"""Scopes inside each other; no line is known of what is deeper. A choice of ours, for names may be of any length."""

_WITHOUT_LINE: Final = ("Const", "NoOp", "Placeholder")
"""Types of ops that captures pass over, and what constant subgraphs become."""

_OF_GRADIENTS: Final = lazy_pattern(r"gradient_tape|gradients(?:_\d+)?")
"""The scope of gradients."""

_GRAD: Final = lazy_pattern(r"_grad(?:_\d+)?$")
"""In a graph of TensorFlow 1, and in that of the gradient of a function, the gradient of `MatMul` is in the scope `MatMul_grad`."""

_BRANCH: Final = lazy_pattern(r"(?:(?<=/)|^)(?:then|else|cond|body|branch\d*)/_\d+/")
"""What is between a loop or a condition and the names of the ops inside: `while/body/_5/while/MatMul`."""

_CALL: Final = lazy_pattern(
    rf"(?:.*/|)(?:(?:Stateful)?PartitionedCall(?:_\d+)*/|{_BRANCH.pattern})"
)
_LAYOUT: Final = "LayoutOptimizer"
_OF_LAYOUT: Final = lazy_pattern(r"-\d+-")
"""What turns a tensor around for the op that it is named after: `conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer`."""


def label_lines(recording: Recording) -> tuple[str, ...]:
    """The line of each label (`op_labels`), "" where it is not known."""
    lines, texts = recording.once(graph_lines), recording.once(label_texts)
    compiled = of_instructions(recording, lambda each: each.line, "").tolist()
    return tuple(line or lines.of(text)[0] for line, text in zip(compiled, texts, strict=True))


def label_callers(recording: Recording) -> tuple[str, ...]:
    """The line that called the function of the line of each label (`op_labels`), "" where it is not known."""
    return tuple(recording.once(graph_lines).of(text)[1] for text in recording.once(label_texts))


def graph_lines(recording: Recording) -> GraphLines:
    """The lines of the graphs that captures have seen."""
    sidecars = (host.sidecar for host in recording.hosts)
    return GraphLines([sidecar.graphs for sidecar in sidecars if sidecar is not None])


_NO_LINE: Final = ("", "")


class GraphLines:
    """The lines of the ops of graphs; where those of several hosts differ, the line is not known."""

    def __init__(self, graphs: Iterable[GraphValues]) -> None:
        self._line_of: dict[str, tuple[str, str]] = {}
        for graph in graphs:
            made = [*zip_longest(graph.lines, graph.callers[: len(graph.lines)], fillvalue="")]
            for name, place in graph.line_of.items():
                line = made[place] if place is not None and place < len(made) else _NO_LINE
                known = self._line_of.setdefault(name, line)
                if known != line:
                    self._line_of[name] = _NO_LINE if known[0] != line[0] else (line[0], "")

    @kept
    def of(self, op: str) -> tuple[str, str]:
        """The line of an op as events name it, `scope/name:Type`, and the one that called its function; "" for what is not known."""
        recorded, _, type_ = op.rpartition(":")
        if not self._line_of or type_ in _WITHOUT_LINE or len(recorded) > LONGEST_NAME:
            return _NO_LINE
        if recorded.count("/") >= _MOST_PARTS:
            return _NO_LINE
        name = _as_made(recorded)
        if recorded.endswith(_LAYOUT):
            scope, slash, last = recorded.rpartition("/")
            name = scope + slash + _OF_LAYOUT.split(last, maxsplit=1)[0]
        parts = name.split("/")
        marks = [at for at, part in enumerate(parts[:-1]) if _OF_GRADIENTS.fullmatch(part)]
        # In the gradient of a loop what has no op of its own, such as a sum, is of the loop.
        of_marks = (_names_of_forward_op(parts, mark) for mark in reversed(marks))
        names = chain.from_iterable(of_marks) if marks else _names_of_op(name)
        return next((self._line_of[name] for name in names if name in self._line_of), _NO_LINE)


def _names_of_op(name: str) -> Iterator[str]:
    """The names that an op may have in its graph, each before the scopes around it, and the loop or condition that made it."""
    yield f"/{_BRANCH.sub('', name)}"
    own = own_name(name)
    yield own
    for scope in _scopes(own):
        yield from (f"{scope}/", scope)


def own_name(name: str) -> str:
    """The name of an op in its graph, without the calls that lead to it."""
    name = _as_made(name)
    call = _CALL.match(name)
    return name[call.end() :] if call else name


def _names_of_forward_op(parts: Sequence[str], mark: int) -> Iterator[str]:
    """The name of a gradient, and those of ops and scopes around it: calls lead to the scope of gradients at `mark`, the op follows."""
    yield own_name("/".join(parts))
    calls = _BRANCH.sub("", "".join(f"{part}/" for part in parts[:mark]))
    for scope in _scopes("/".join(parts[mark + 1 :])):
        op = _GRAD.sub("", scope)
        yield from (f"/{calls}{op}", scope, op, f"{scope}/")


def _scopes(name: str) -> Iterator[str]:
    """The scopes around an op, from the innermost."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name
