"""Finds the line of the script that made each op of a graph: the innermost frame of the user's code, where there is one.

What calls a function so that it is traced, as a line with `fit` does, made all of its ops alike and is the line of none. Left out,
for stacks take time to read, are constants, and ops whose name says more: what is inside of another op, gradients, which belong to
the op that they are the gradient of, and updates of variables. Updates run outside of the code of any replica, in the scope in which
replicas asked for them. Of gradients whose name shows no op the stack shows the function of its type, `_MeanGrad`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from traceview.capture.process.python_code import CodePlaces
from traceview.capture.steps.graphs import DEEPEST, Visits, inner_graphs

_USER, _LIBRARY, _TRACING, _TAPE, _REPLICAS = range(5)
_PARTS: Final = {
    "tensorflow/python/eager/polymorphic_function/": _TRACING,
    "tensorflow/python/eager/backprop": _TAPE,
    "tensorflow/python/ops/gradients_": _TAPE,
    "tensorflow/python/distribute/mirrored_run": _REPLICAS,
    "/__autograph_generated_file": _LIBRARY,
}
"""What frames are, by a part of the path of their file (TensorFlow 2.21)."""

_WITHOUT_WORK: Final = frozenset(("Const", "NoOp", "Placeholder"))
_NAMED: Final = re.compile(r"(?:^|/)(?:(?P<tape>gradient_tape)|update_\d+(?:_\d+)*)/")
_TAPE_SCOPE: Final = "gradient_tape/"

_MOST_OPS: Final = 100_000
"""Ops, each as often as calls lead to it."""

_SEVERAL: Final = ""
"""Instead of a line, where ops have several."""

_UNKNOWN: Final = "\1"
"""Instead of a line that was not looked for."""

_OF_ALL: Final = "\0"
"""Instead of a line, where an op was made for all replicas at once: it has that of its scope."""


def describe_lines(graphs: Iterable[Any]) -> dict[str, Any]:
    """The fields of the sidecar: `lines`, each once, and `line_of`, the place of the line among them by name of op.

    A name that ends with a slash is that of a scope whose ops all have the line. The place is None where several ops have the name;
    with a slash and the calls that lead to it in front it is the name of one.

    Raises `NoAnswerError` where calls lead to too many ops.
    """
    found = _Found()
    for graph in graphs:
        found.visit(graph, ())
    place: dict[str, int] = {}
    line_of = {
        name: place.setdefault(line, len(place)) if line else None
        for name, line in found.by_name_or_scope().items()
    }
    return {"lines": list(place), "line_of": line_of}


class _Found:
    """The lines of ops, as far as graphs were visited."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, str | None]] = {}
        """By the name of an op in its function its lines, by its name with the calls that lead to it."""
        self._visits = Visits(_MOST_OPS)
        self._ops: dict[int, list[tuple[Any, str | None, list[Any]]]] = {}
        """By graph its ops, the line of each, and the graphs that it calls."""
        self._taped: list[tuple[int, Any]] = []
        """Graphs and gradients in them."""
        self._of_stack: dict[Any, str | None] = {}
        self._latest: dict[str, tuple[Any, str | None]] = {}
        self._code = CodePlaces()
        self._parts: dict[str, int] = {}

    def visit(self, graph: Any, calls: tuple[str, ...]) -> None:
        """Add the ops of a graph; `calls`: the ops that led to it."""
        ops = self._ops.get(id(graph))
        if ops is None:
            ops = self._ops[id(graph)] = self._ops_of(graph)
        self._visits.add(len(ops))
        for op, line, inner in ops:
            name = op.name
            if line != _OF_ALL:
                lines, path = self._lines.setdefault(name, {}), "/".join(("", *calls, name))
                # Both branches of a condition have the same path.
                lines[path] = line if lines.get(path, line) == line else _SEVERAL
            if len(calls) < DEEPEST:
                for called_graph in inner:
                    self.visit(called_graph, (*calls, name))

    def _ops_of(self, graph: Any) -> list[tuple[Any, str | None, list[Any]]]:
        ops, line_of = [], dict[str, str | None]()
        for op in graph.get_operations():
            name, type_ = op.name, op.type
            if type_ in _WITHOUT_WORK:
                continue
            named = _NAMED.search(name)
            if named is None:
                around = name.rpartition("/")[0]
                line = line_of.get(name, _UNKNOWN)
                if line == _UNKNOWN:
                    line = line_of[around] if around in line_of else self._line(op, type_)
                line_of[name] = line
                if type_ == "ReadVariableOp":
                    # `MatMul/ReadVariableOp` comes before `MatMul`, which asked for it.
                    line_of.setdefault(around, line)
                ops.append((op, line, [inner for _, inner in inner_graphs(op, graph)]))
            elif named["tape"]:
                self._taped.append((id(graph), op))
        return ops

    def by_name_or_scope(self) -> dict[str, str | None]:
        """The lines, of a scope where all its ops have one; `_SEVERAL` for a name that has several, None for none."""
        of_name = {
            name: next(iter(lines.values())) if len(set(lines.values())) == 1 else _SEVERAL
            for name, lines in self._lines.items()
        }
        of_scope: dict[str, str | None] = {}
        for name, line in of_name.items():
            scope = name.rpartition("/")[0]
            while scope and of_scope.get(scope) != _SEVERAL:
                if of_scope.setdefault(scope, line) != line:
                    of_scope[scope] = _SEVERAL
                scope = scope.rpartition("/")[0]
        result = {}
        for name, line in of_name.items():
            if line == _SEVERAL:
                result.update(self._lines[name])
                result[name] = _SEVERAL
            elif line is not None:
                result[_outermost(name, of_scope)] = line
        result.update(
            self._of_gradients({*of_name, *(each for each in of_scope if of_scope[each])})
        )
        return result

    def _of_gradients(self, known: set[str]) -> Iterator[tuple[str, str | None]]:
        """The lines of gradients in whose name is neither an op nor a scope of one line, which `known` has.

        It is that of the ops of the type in the scope of the gradient, or of those of them that it has a tensor of.
        """
        if not self._taped:
            return
        types = _gradient_functions()
        forward: dict[tuple[int, str, str], _Forward] = {}
        for graph, ops in self._ops.items():
            for op, line, _ in ops:
                key = graph, op.name.rpartition("/")[0], op.type
                forward.setdefault(key, _Forward()).add(op, line)
        for graph, op in self._taped:
            scope = op.name.rpartition(_TAPE_SCOPE)[2].rpartition("/")[0]
            if any(each in known for each in _scopes(scope)):
                continue
            base = op.type.removesuffix("Grad")
            is_of_one = base != op.type and (graph, scope, base) in forward
            makers = (base,) if is_of_one else types.get(self._gradient_function(op), ())
            every = [forward[key] for type_ in makers if (key := (graph, scope, type_)) in forward]
            lines = set[str | None]().union(*(each.lines for each in every))
            if len(lines) > 1:
                lines = set[str | None]().union(*(each.lines_of(op.inputs) for each in every))
            if len(lines) == 1 and (line := lines.pop()) not in (None, _SEVERAL, _OF_ALL):
                yield op.name, line

    def _gradient_function(self, op: Any) -> str:
        """The name of the function that a tape called to make a gradient; "" where its stack shows none."""
        stack, inside = op.traceback, ""
        for place in range(1, len(stack) + 1) if stack is not None else ():
            frame = stack[-place]
            if self._part(frame.filename) == _TAPE:
                return inside
            inside = frame.name
        return ""

    def _line(self, op: Any, type_: str) -> str | None:
        stack = op.traceback
        if stack is None:
            # TensorFlow has read the graph from a file, or made it anew.
            return None
        # Replicas and layers of one kind have the same. To compare stacks takes less time than to hash them, and that less than to
        # read them.
        latest = self._latest.get(type_)
        if latest is not None and latest[0] == stack:
            return latest[1]
        line = self._of_stack.get(stack, _SEVERAL)
        if line == _SEVERAL:
            line = self._of_stack[stack] = self._line_of_stack(stack)
        self._latest[type_] = stack, line
        return line

    def _line_of_stack(self, stack: Any) -> str | None:
        found: Any = None
        passed: set[int] = set()
        # One by one: most of a long stack is not needed.
        for frame in (stack[-place] for place in range(1, len(stack) + 1)):
            part = self._part(frame.filename)
            if found is not None:
                if part in (_TRACING, _REPLICAS):
                    break
            elif part == _TAPE:
                return None
            elif part == _USER and _REPLICAS in passed:
                return _OF_ALL
            elif part == _USER:
                found = frame
                if _TRACING not in passed:
                    break
            passed.add(part)
        else:
            return None
        return f"{self._code.shown(found.filename)}:{found.lineno} in {found.name}"

    def _part(self, file: str) -> int:
        if file not in self._parts:
            path = file.replace("\\", "/")
            of_tensorflow = (part for piece, part in _PARTS.items() if piece in path)
            usual = _USER if self._code.is_user(file) else _LIBRARY
            self._parts[file] = next(of_tensorflow, usual)
        return self._parts[file]


def _outermost(name: str, of_scope: dict[str, str | None]) -> str:
    """The outermost scope around an op that has one line, with a slash; the name of the op without such a scope."""
    end = name.find("/")
    while end > 0:
        if of_scope[name[:end]] != _SEVERAL:
            return name[: end + 1]
        end = name.find("/", end + 1)
    return name


def _scopes(scope: str) -> Iterator[str]:
    """A scope and those around it, from the innermost."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


class _Forward:
    """The ops of one type in one scope, of which a gradient may be."""

    def __init__(self) -> None:
        self.lines: set[str | None] = set()
        self._ops: list[tuple[Any, str | None]] = []
        self._of_tensor: dict[Any, set[str | None]] = {}

    def add(self, op: Any, line: str | None) -> None:
        self.lines.add(line)
        self._ops.append((op, line))

    def lines_of(self, tensors: Iterable[Any]) -> set[str | None]:
        """The lines of those that take or make one of these tensors."""
        while self._ops:
            op, line = self._ops.pop()
            for tensor in (*op.inputs, *op.outputs):
                self._of_tensor.setdefault(tensor.ref(), set()).add(line)
        return set[str | None]().union(*(self._of_tensor.get(each.ref(), ()) for each in tensors))


def _gradient_functions() -> dict[str, Sequence[str]]:
    """By the name of a function that makes gradients the types of ops that it makes them of (TensorFlow 2.21)."""
    ops: Any = sys.modules.get("tensorflow.python.framework.ops")
    found: dict[str, list[str]] = {}
    for type_, entry in getattr(getattr(ops, "gradient_registry", None), "_registry", {}).items():
        found.setdefault(getattr(entry["type"], "__name__", ""), []).append(type_)
    return dict(found)
