"""Finds the line of Python that made the op of a device event: as its XLA program says, else as the graph of the step function.

An event has the name of the op in its graph, with more around it: the calls and loops that lead to the op, the replica, and what
TensorFlow does to a graph. A gradient belongs to the line of its op, which its name has in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from traceview.base.text import lazy_pattern
from traceview.trace.device.op_names import LONGEST_NAME, op_labels
from traceview.trace.model import NONE, Recording, kept
from traceview.trace.sidecar.sidecar import GraphValues

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
    columns, rows = recording.device_columns, recording.once(op_labels).row
    lines = recording.once(graph_lines)
    found = []
    for op, place in zip(
        columns.op[rows].tolist(), columns.instruction[rows].tolist(), strict=True
    ):
        text, line = recording.names.text(op) or "", ""
        if place != NONE:
            instruction = recording.instructions[place]
            line = instruction.line
            # Programs of TensorFlow name the op of its graph.
            if instruction.scope and instruction.op_type:
                text = f"{instruction.scope}:{instruction.op_type}"
        found.append(line or lines.of(text))
    return tuple(found)


def graph_lines(recording: Recording) -> GraphLines:
    """The lines of the graphs that captures have seen."""
    sidecars = (host.sidecar for host in recording.hosts)
    return GraphLines([sidecar.graphs for sidecar in sidecars if sidecar is not None])


class GraphLines:
    """The lines of the ops of graphs; where those of several hosts differ, the line is not known."""

    def __init__(self, graphs: Iterable[GraphValues]) -> None:
        self._line_of: dict[str, str] = {}
        for graph in graphs:
            for name, place in graph.line_of.items():
                lines = graph.lines[place : place + 1] if place is not None else ()
                line = lines[0] if lines else ""
                if self._line_of.setdefault(name, line) != line:
                    self._line_of[name] = ""

    @kept
    def of(self, op: str) -> str:
        """The line of an op as events name it, `scope/name:Type`; "" where it is not known."""
        recorded, _, type_ = op.rpartition(":")
        if not self._line_of or type_ in _WITHOUT_LINE or len(recorded) > LONGEST_NAME:
            return ""
        if recorded.count("/") >= _MOST_PARTS:
            return ""
        name = recorded
        if recorded.endswith(_LAYOUT):
            scope, slash, last = recorded.rpartition("/")
            name = scope + slash + _OF_LAYOUT.split(last, maxsplit=1)[0]
        parts = name.split("/")
        marks = [at for at, part in enumerate(parts[:-1]) if _OF_GRADIENTS.fullmatch(part)]
        names = _names_of_forward_op(parts, marks[-1]) if marks else _names_of_op(name)
        return next((self._line_of[name] for name in names if name in self._line_of), "")


def _names_of_op(name: str) -> Iterator[str]:
    """The names that an op may have in its graph, each before the scopes around it."""
    yield f"/{_BRANCH.sub('', name)}"
    own = _own_name(name)
    yield own
    yield from (f"{scope}/" for scope in _scopes(own))


def _own_name(name: str) -> str:
    """The name of an op in its graph, without the calls that lead to it."""
    call = _CALL.match(name)
    return name[call.end() :] if call else name


def _names_of_forward_op(parts: Sequence[str], mark: int) -> Iterator[str]:
    """The name of a gradient, and those of ops and scopes around it: calls lead to the scope of gradients at `mark`, the op follows."""
    yield _own_name("/".join(parts))
    calls = _BRANCH.sub("", "".join(f"{part}/" for part in parts[:mark]))
    for scope in _scopes("/".join(parts[mark + 1 :])):
        op = _GRAD.sub("", scope)
        yield from (f"/{calls}{op}", scope, op, f"{scope}/")


def _scopes(name: str) -> Iterator[str]:
    """The scopes around an op, from the innermost."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name
