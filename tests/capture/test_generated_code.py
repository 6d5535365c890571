"""Code that AutoGraph wrote is known as such where TensorFlow does not say which line of the script it stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from traceview.capture.process.python_code import SHOWN_FILE, CodePlaces

SOURCE = "def tf__train_step(look):\n    return look()\n"


def generated_code() -> CodeType:
    space: dict[str, Any] = {}
    exec(compile(SOURCE, "/tmp/__autograph_generated_filex1.py", "exec"), space)
    code: CodeType = space["tf__train_step"].__code__
    return code


@pytest.mark.parametrize(
    "kept", [None, SimpleNamespace(), SimpleNamespace(_cache=SimpleNamespace(_cache={}))]
)
def test_without_the_map_the_function_is_known(
    monkeypatch: pytest.MonkeyPatch, kept: object
) -> None:
    """As in a version of TensorFlow that keeps it elsewhere; with the map: `test_python_real.py`."""
    name = "tensorflow.python.autograph.impl.api"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(_TRANSPILER=kept))
    origin = CodePlaces([Path("/home/me/job")]).origin_of(generated_code())
    assert (origin.file, origin.kind) == (SHOWN_FILE, "package")
    assert (origin.function, origin.line_of(2)) == ("train_step", 2)
