"""A watched import stays that of the script, whoever else watches it."""

from __future__ import annotations

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from traceview.capture.process.imports import ImportWatch


class Chained(Loader):
    """A loader of another tool, whose hook is an attribute of its own; all else is that of the loader before it."""

    def __init__(self, loader: Any, seen: list[str]) -> None:
        self.loader = loader

        def exec_module(module: ModuleType) -> None:
            loader.exec_module(module)
            seen.append("tool")

        vars(self)["exec_module"] = exec_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class Tool:
    """A finder of another tool."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        if name != "watched_module":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        spec.loader = Chained(spec.loader, self.seen)
        return spec


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "watched_module.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "watched_module", raising=False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return "watched_module"


@pytest.mark.parametrize("has_tool", [False, True])
def test_each_watch_and_the_hook_of_a_tool_are_called_once(has_tool: bool, module: str) -> None:
    seen: list[str] = []
    if has_tool:
        sys.meta_path.insert(0, Tool(seen))
    for _ in range(2):
        ImportWatch((module,), lambda _: seen.append("watch")).install()
    imported = __import__(module)
    assert imported.value == 7
    assert sorted(seen) == [*["tool"] * has_tool, "watch", "watch"]


def test_a_module_that_must_not_be_imported_is_not_loaded(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    seen: list[str] = []
    ImportWatch((module,), lambda _: seen.append("loaded")).install()
    assert seen == []
