"""Checks that a line of code that AutoGraph wrote is shown as the line of the script that it stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from traceview.capture.hang.watch import python_threads
from traceview.capture.process.python_code import SHOWN_FILE, CodePlaces

SCRIPT, GENERATED = "/home/me/job/train.py", "/tmp/__autograph_generated_filex1.py"
LINES = {4: 31, 6: 32, 9: 30}
"""Of the generated file, and those of the script."""

PLACES = CodePlaces([Path("/home/me/job")])
SOURCE = "\n" * 5 + "def tf__train_step(look):\n    return (\n\n        look())\n"


def generated_code(file: str = GENERATED) -> CodeType:
    space: dict[str, Any] = {}
    exec(compile(SOURCE, file, "exec"), space)
    code: CodeType = space["tf__train_step"].__code__
    return code


def converted(monkeypatch: pytest.MonkeyPatch, transpiler: object) -> None:
    """TensorFlow, as far as it keeps what it has converted."""
    name = "tensorflow.python.autograph.impl.api"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(_TRANSPILER=transpiler))


def transpiler(script: str = SCRIPT) -> object:
    written: dict[str, Any] = {}
    exec(compile("\n" * 29 + "def train_step(look):\n    return look()\n", script, "exec"), written)
    source_map = {
        SimpleNamespaceKey(GENERATED, line): SimpleNamespace(loc=SimpleNamespace(lineno=of_script))
        for line, of_script in LINES.items()
    }
    other = SimpleNamespace(module=SimpleNamespace(__file__="/tmp/other.py"), source_map={})
    factory = SimpleNamespace(module=SimpleNamespace(__file__=GENERATED), source_map=source_map)
    cache = {written["train_step"].__code__: {"eager": other, "graph": factory}}
    return SimpleNamespace(_cache=SimpleNamespace(_cache=cache))


class SimpleNamespaceKey:
    """A place in a file, as a key."""

    def __init__(self, filename: str, lineno: int) -> None:
        self.filename, self.lineno = filename, lineno


def test_a_line_is_that_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    converted(monkeypatch, transpiler())
    origin = PLACES.origin_of(generated_code())
    assert (origin.file, origin.kind, origin.function) == ("train.py", "user", "train_step")
    # Between two lines of the map it is the one before, and before the first the first.
    assert [origin.line_of(line) for line in (1, 4, 5, 6, 8, 9, 70)] == [31, 31, 31, 32, 32, 30, 30]


@pytest.mark.parametrize(
    "kept", [None, SimpleNamespace(), SimpleNamespace(_cache=SimpleNamespace(_cache={}))]
)
def test_without_the_map_the_function_is_known(
    monkeypatch: pytest.MonkeyPatch, kept: object
) -> None:
    """As in a version of TensorFlow that keeps it elsewhere."""
    converted(monkeypatch, kept)
    origin = PLACES.origin_of(generated_code())
    assert (origin.file, origin.kind) == (SHOWN_FILE, "package")
    assert (origin.function, origin.line_of(9)) == ("train_step", 9)


def run(look: Any, file: str = GENERATED) -> Any:
    """Call a function from generated code."""
    space: dict[str, Any] = {}
    exec(compile(SOURCE, file, "exec"), space)
    return space["tf__train_step"](look)


def test_a_stack_of_a_hang_names_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    converted(monkeypatch, transpiler())
    places = CodePlaces([Path("/home/me/job")])
    (main, *_) = run(lambda: list(python_threads(places)))
    assert "train.py:30 in train_step" in main.frames
    assert "autograph" not in " ".join(main.frames)
