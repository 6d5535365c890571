"""Watches for the import of modules without importing them.

A finder in front of all others lets the others find and load a module, and then calls back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any


class ImportWatch(MetaPathFinder):
    """Calls `imported` with each of the modules `names` as soon as it is loaded, once."""

    def __init__(self, names: Collection[str], imported: Callable[[ModuleType], None]) -> None:
        self._names = set(names)
        self._imported = imported
        self._searching: set[int] = set()
        """The threads in which the other finders search."""

    def install(self) -> None:
        """Call for the modules that are loaded already, and watch for the others."""
        for name in list(self._names):
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and not getattr(spec, "_initializing", False):
                self._loaded(module)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders return, with a watched loader."""
        thread = get_ident()
        if thread in self._searching or fullname not in self._names:
            return None
        self._searching.add(thread)
        try:
            finds = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
            found = (find(fullname, path, target) for find in finds if find is not None)
            spec: ModuleSpec | None = next((spec for spec in found if spec is not None), None)
        finally:
            self._searching.discard(thread)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchedLoader(spec.loader, self._loaded)
        return spec

    def _loaded(self, module: ModuleType) -> None:
        self._names.discard(module.__name__)
        self._imported(module)


class _WatchedLoader(Loader):
    """Replaces a loader until its module is loaded."""

    def __init__(self, loader: Loader, imported: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._imported = imported

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._imported(module)
