"""Watches for the import of modules without importing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any


class ImportWatch(MetaPathFinder):
    """Calls `imported` with each of the modules `names` as soon as the other finders have found and loaded it, once."""

    def __init__(self, names: Collection[str], imported: Callable[[ModuleType], None]) -> None:
        self._names = set(names)
        self._imported = imported
        self._searching: set[int] = set()

    def install(self) -> None:
        """Call for the modules that are loaded already, and watch for the others."""
        for module in [*filter(None, map(sys.modules.get, self._names))]:
            if not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self._loaded(module)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders return, whose loader calls back once."""
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
        loader: Any = spec and spec.loader
        if hasattr(loader, "exec_module") and not isinstance(loader, type):
            # Another hook may have put one of its own there.
            own = getattr(loader, "__dict__", {}).get("exec_module")

            def exec_module(module: ModuleType) -> None:
                if own is None:
                    del loader.exec_module
                else:
                    loader.exec_module = own
                loader.exec_module(module)
                self._loaded(module)

            # A loader that lets nobody do that is left alone.
            with suppress(AttributeError, TypeError):
                loader.exec_module = exec_module
        return spec

    def _loaded(self, module: ModuleType) -> None:
        if module.__name__ in self._names:
            self._names.discard(module.__name__)
            self._imported(module)
