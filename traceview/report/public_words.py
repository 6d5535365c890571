"""Which words identify nobody? Those of traceview's own sentences and lists, and the names of TensorFlow's ops.

Everything that this package says stands in its code, so a word that does not stand there came from a trace. That
is the safe side of the question: a word that is missing here is hidden, never shown.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.abc import InspectLoader
from importlib.resources import files
from importlib.util import find_spec
from itertools import chain
from types import CodeType
from typing import Final

_SOURCES: Final = (
    "traceview.analyses",
    "traceview.capture",
    "traceview.report",
    "traceview.trace",
    "traceview.xplane",
)
"""Packages whose strings end in a report."""

AROUND: Final = "()[]{}<>\"'`.,;:!?…=|"
"""Characters around a word that do not belong to it."""

_VERSION: Final = re.compile(r"(?:V\d+)?$")
_COUNTED: Final = re.compile(r"_\d+$")


@lru_cache(maxsize=1)
def own_words() -> frozenset[str]:
    """Every word of every string in the code that writes reports, and of the schema's closed lists, in lower case."""
    said = (text for package in _SOURCES for module in _modules(package) for text in _texts(module))
    return frozenset(
        core.lower()
        for text in chain(said, closed_words())
        for word in text.split()
        if (core := word.strip(AROUND))
    )


@lru_cache(maxsize=1)
def closed_words() -> frozenset[str]:
    """The words that a field of a report may be one of; code may make them from the names of an enumeration."""
    schema = json.loads(files("traceview.report").joinpath("schema.json").read_text("utf-8"))
    found: set[str] = set()
    stack = [schema]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            found.update(word for word in one.get("enum", ()) if isinstance(word, str))
            stack += one.values()
        elif isinstance(one, list):
            stack += one
    return frozenset(found)


@lru_cache(maxsize=1)
def op_types() -> frozenset[str]:
    """The ops that TensorFlow 2.21 registers (`TF_GetAllOpList`)."""
    text = files("traceview.report").joinpath("tensorflow_ops.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


@lru_cache(maxsize=1)
def stage_types() -> frozenset[str]:
    """Kinds of iterators of tf.data: the ops that make datasets, without `Dataset` and version, and its own."""
    ops = {_VERSION.sub("", one).replace("Dataset", "") for one in op_types() if "Dataset" in one}
    own = {"FiniteRepeat", "FiniteSkip", "FiniteTake", "ForeverRepeat", "Iterator", "Root"}
    return frozenset(ops | own | {"EmptyRepeat", "EmptySkip", "EmptyTake", "InfiniteSkip"})


def is_op_name(name: str) -> bool:
    """Whether a part of the name of an op is a type with or without a number: `MatMul`, `MatMul_1`."""
    return _COUNTED.sub("", name) in op_types()


def is_stage_name(name: str) -> bool:
    """Whether a part of the name of an iterator says its kind and nothing more: `Prefetch`, `FlatMap[0]`."""
    bare = re.sub(r"\[\d+\]$", "", name)
    return _VERSION.sub("", bare) in stage_types()


def _modules(package: str) -> Iterator[CodeType]:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return
    for found in pkgutil.iter_modules(spec.submodule_search_locations, f"{package}."):
        if found.ispkg:
            yield from _modules(found.name)
            continue
        module = find_spec(found.name)
        loader = None if module is None else module.loader
        code = loader.get_code(found.name) if isinstance(loader, InspectLoader) else None
        if code is not None:
            yield code


def _texts(code: CodeType) -> Iterator[str]:
    """The strings of a code object and of those in it; bytes, which are names of events, as text."""
    stack: list[object] = [code]
    while stack:
        one = stack.pop()
        if isinstance(one, CodeType):
            stack += one.co_consts
        elif isinstance(one, (tuple, frozenset)):
            stack += one
        elif isinstance(one, str):
            yield one
        elif isinstance(one, bytes):
            yield one.decode(errors="replace")
