"""Finds which line of the script made each op of a graph: the innermost frame of the user's code, where there is one.

What calls a function so that it is traced, as a line with `fit` does, made all of its ops alike and is the line of none. Left out,
for stacks take time to read, are constants, and ops whose name says more: what is inside of another op, gradients, which belong to
the op that they are the gradient of, and updates of variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from traceview.capture.process.python_code import CodePlaces
from traceview.graphs.calls import Call, calls_of

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
_NAMED: Final = re.compile(r"(?:^|/)(?:gradient_tape|update_\d+(?:_\d+)*)/")
_SEVERAL: Final = ""
_CALLED_IN: Final = "\n"
"""Between a line and the one of the script that called its function."""
_SHOWN: Final = 2
"""Frames of the script: the line that made an op, and the one that called its function."""
_OF_ALL: Final = "\0"
"""Instead of a line, where an op was made for all replicas at once: it has that of its scope."""


def describe_lines(graphs: Iterable[Any]) -> dict[str, Any]:
    """The fields of the sidecar: `lines` with their `callers`, each once, and `line_of`, the place of the line among them by name of op.

    A name that ends with a slash is that of a scope whose ops all have the line. The place is None where several ops have the name;
    with a slash and the calls that lead to it in front it is the name of one. Raises `NoAnswerError` where calls lead to too many ops.
    """
    found = OpLines()
    for call in calls_of(graphs, _is_own):
        found.add(call)
    lines = found.by_name_or_scope()
    different = list(filter(None, dict.fromkeys(lines.values())))
    place: dict[str | None, int] = {line: number for number, line in enumerate(different)}
    line_of = {name: place.get(line) for name, line in lines.items()}
    made, callers = zip(*(_parts(line) for line in different), strict=True) if place else ((), ())
    return {"lines": list(made), "callers": list(callers), "line_of": line_of}


def _parts(line: str) -> tuple[str, str]:
    """A line, and the one that called its function, "" without one."""
    made, _, caller = line.partition(_CALLED_IN)
    return made, caller


def _is_own(op: Any) -> bool:
    return op.type not in _WITHOUT_WORK and _NAMED.search(op.name) is None


class OpLines:
    """The lines of ops, as far as calls were added."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, str | None]] = {}
        """By the name of an op in its function its lines, by its name with the calls that lead to it."""
        self._of_graph: dict[int, list[str | None]] = {}
        self._of_stack: dict[Any, str | None] = {}
        self._latest: dict[str, tuple[Any, str | None]] = {}
        self._code = CodePlaces()
        self._part = cache(self._part_of)

    def add(self, call: Call) -> None:
        """Add the ops of a call."""
        graph = id(call.graph)
        if graph not in self._of_graph:
            self._of_graph[graph] = self._lines_of(call.ops)
        for op, line in zip(call.ops, self._of_graph[graph], strict=True):
            if line != _OF_ALL:
                lines = self._lines.setdefault(op.name, {})
                path = "/".join(("", *call.path, op.name))
                # Both branches of a condition have the same path.
                lines[path] = line if lines.get(path, line) == line else _SEVERAL

    def _lines_of(self, ops: Sequence[Any]) -> list[str | None]:
        line_of: dict[str, str | None] = {}
        names = {op.name for op in ops}
        for op in ops:
            around = op.name.rpartition("/")[0]
            if op.name not in line_of:
                line_of[op.name] = line_of[around] if around in line_of else self._line(op)
            if op.type == "ReadVariableOp" and around in names:
                # `MatMul/ReadVariableOp` comes before `MatMul`, which asked for it; a layer asks, too.
                line_of.setdefault(around, line_of[op.name])
        return [line_of[op.name] for op in ops]

    def by_name_or_scope(self) -> dict[str, str | None]:
        """The lines, of a scope where all its ops have one; `_SEVERAL` for a name that has several, None for none."""
        each = {name: set(lines.values()) for name, lines in self._lines.items()}
        of_name = {name: own.pop() if len(own) == 1 else _SEVERAL for name, own in each.items()}
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
        return result

    def by_name(self, graph: Any) -> Iterator[tuple[str, str]]:
        """The ops of a graph and of what it calls, by the calls that lead to each and its name, with their lines."""
        for call in calls_of([graph], _is_own):
            for op in call.ops:
                if line := self._line(op):
                    yield "/".join((*call.path, op.name)), _parts(line)[0]

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
        found: list[Any] = []
        passed: set[int] = set()
        is_outside = False
        # One by one: most of a long stack is not needed.
        for frame in (stack[-place] for place in range(1, len(stack) + 1)):
            part = self._part(frame.filename)
            if found and (part in (_TRACING, _REPLICAS) or (part == _TAPE and not is_outside)):
                break
            if part == _TAPE:
                return None
            if part == _USER and not found and _REPLICAS in passed:
                return _OF_ALL
            if part == _USER and not is_outside:
                found.append(frame)
                # Then it has to be inside of another function that is traced.
                is_outside = _TRACING in passed
                if len(found) == _SHOWN:
                    break
            passed.add(part)
        else:
            if is_outside or not found:
                return None
        return _CALLED_IN.join(map(self._shown, found))

    def _shown(self, frame: Any) -> str:
        # AutoGraph leaves out what has no name.
        return f"{self._code.shown(frame.filename)}:{frame.lineno} in {frame.name or '<lambda>'}"

    def _part_of(self, file: str) -> int:
        path = file.replace("\\", "/")
        of_tensorflow = (part for piece, part in _PARTS.items() if piece in path)
        usual = _USER if self._code.is_user(file) else _LIBRARY
        return next(of_tensorflow, usual)


def _scopes(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name
