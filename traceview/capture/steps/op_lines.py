"""Finds the line of the script that made each op of a graph: the innermost frame of the user's code, where there is one.

What calls a function so that it is traced, as a line with `fit` does, made all of its ops alike and is the line of none. Left out,
for stacks take time to read, are constants, and ops whose name says more: what is inside of another op, gradients, which belong to
the op that they are the gradient of, and updates of variables. Of gradients whose name shows no op the stack shows the function of
its type, `_MeanGrad`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from traceview.capture.process.python_code import CodePlaces
from traceview.capture.steps.graphs import Call, calls_of

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
_SEVERAL: Final = ""
_OF_ALL: Final = "\0"
"""Instead of a line, where an op was made for all replicas at once: it has that of its scope."""


def describe_lines(graphs: Iterable[Any]) -> dict[str, Any]:
    """The fields of the sidecar: `lines`, each once, and `line_of`, the place of the line among them by name of op.

    A name that ends with a slash is that of a scope whose ops all have the line. The place is None where several ops have the name;
    with a slash and the calls that lead to it in front it is the name of one. Raises `NoAnswerError` where calls lead to too many ops.
    """
    found = _Found()
    for call in calls_of(graphs, _is_own):
        found.add(call)
    place: dict[str, int] = {}
    line_of = {
        name: place.setdefault(line, len(place)) if line else None
        for name, line in found.by_name_or_scope().items()
    }
    return {"lines": list(place), "line_of": line_of}


def _is_own(op: Any) -> bool:
    return op.type not in _WITHOUT_WORK and _NAMED.search(op.name) is None


class _Found:
    """The lines of ops, as far as calls were added."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, str | None]] = {}
        """By the name of an op in its function its lines, by its name with the calls that lead to it."""
        self._of_graph: dict[int, tuple[Call, list[str | None]]] = {}
        """By graph its first call, and the lines of the ops."""
        self._of_stack: dict[Any, str | None] = {}
        self._latest: dict[str, tuple[Any, str | None]] = {}
        self._code = CodePlaces()
        self._parts: dict[str, int] = {}

    def add(self, call: Call) -> None:
        """Add the ops of a call."""
        graph = id(call.graph)
        if graph not in self._of_graph:
            self._of_graph[graph] = call, self._lines_of(call.ops)
        for op, line in zip(call.ops, self._of_graph[graph][1], strict=True):
            if line != _OF_ALL:
                lines = self._lines.setdefault(op.name, {})
                path = "/".join(("", *call.path, op.name))
                # Both branches of a condition have the same path.
                lines[path] = line if lines.get(path, line) == line else _SEVERAL

    def _lines_of(self, ops: Iterable[Any]) -> list[str | None]:
        line_of: dict[str, str | None] = {}
        for op in ops:
            around = op.name.rpartition("/")[0]
            if op.name not in line_of:
                line_of[op.name] = line_of[around] if around in line_of else self._line(op)
            if op.type == "ReadVariableOp":
                # `MatMul/ReadVariableOp` comes before `MatMul`, which asked for it.
                line_of.setdefault(around, line_of[op.name])
        return [line_of[op.name] for op in ops]

    def by_name_or_scope(self) -> dict[str, str | None]:
        """The lines, of a scope where all its ops have one; `_SEVERAL` for a name that has several, None for none."""
        of_name = {
            name: next(iter(lines.values())) if len(set(lines.values())) == 1 else _SEVERAL
            for name, lines in self._lines.items()
        }
        of_scope: dict[str, str | None] = {}
        for name, line in of_name.items():
            for scope in _scopes(name):
                if of_scope.setdefault(scope, line) != line:
                    of_scope[scope] = _SEVERAL
        result: dict[str, str | None] = {}
        for name, line in of_name.items():
            if line == _SEVERAL:
                result |= {**self._lines[name], name: _SEVERAL}
            elif line is not None:
                outermost = reversed([*_scopes(name)])
                whole = (f"{scope}/" for scope in outermost if of_scope[scope] != _SEVERAL)
                result[next(whole, name)] = line
        known = {*of_name, *(scope for scope, line in of_scope.items() if line)}
        return {**result, **dict(self._of_gradients(known))}

    def _of_gradients(self, known: set[str]) -> Iterator[tuple[str, str | None]]:
        """The lines of gradients whose name holds no `known` op or scope: that of ops of the type in their scope, or near them."""
        types = _gradient_functions()
        for call, lines in self._of_graph.values():
            taped = [op for op in call.graph.get_operations() if _is_taped(op)]
            forward: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
            for op, line in zip(call.ops, lines, strict=True) if taped else ():
                key = op.name.rpartition("/")[0], op.type
                forward.setdefault(key, []).append((op.name, line))
            for op in taped:
                inside = op.name.rpartition("gradient_tape/")[2]
                scope, base = inside.rpartition("/")[0], op.type.removesuffix("Grad")
                if any(each in known for each in _scopes(inside)):
                    continue
                is_of_one = base != op.type and (scope, base) in forward
                makers = (base,) if is_of_one else types.get(self._gradient_function(op), ())
                every = [each for maker in makers for each in forward.get((scope, maker), ())]
                found = {line for _, line in every}
                if len(found) > 1:
                    users = (op for each in op.inputs for op in (each.op, *each.consumers()))
                    near = {user.name for user in users}
                    found = {line for name, line in every if name in near}
                if len(found) == 1 and (line := found.pop()) not in (None, _SEVERAL, _OF_ALL):
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

    def _line(self, op: Any) -> str | None:
        stack, latest = op.traceback, self._latest.get(op.type)
        if stack is None:
            # TensorFlow has read the graph from a file, or made it anew. Its stacks cannot be compared with None.
            return None
        # Replicas and layers of one kind have the same stack, which takes less time to compare than to hash.
        if latest is None or latest[0] != stack:
            line = self._of_stack.get(stack, _SEVERAL)
            if line == _SEVERAL:
                line = self._of_stack[stack] = self._line_of_stack(stack)
            latest = self._latest[op.type] = stack, line
        return latest[1]

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


def _scopes(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def _is_taped(op: Any) -> bool:
    named = None if op.type in _WITHOUT_WORK else _NAMED.search(op.name)
    return named is not None and named["tape"] is not None


def _gradient_functions() -> dict[str, Sequence[str]]:
    """By the name of a function that makes gradients the types of ops that it makes them of (TensorFlow 2.21)."""
    ops: Any = sys.modules.get("tensorflow.python.framework.ops")
    found: dict[str, list[str]] = {}
    for type_, entry in getattr(getattr(ops, "gradient_registry", None), "_registry", {}).items():
        found.setdefault(getattr(entry["type"], "__name__", ""), []).append(type_)
    return dict(found)
