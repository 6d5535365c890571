"""Every regular expression of the package takes time in proportion to the text, whatever a trace holds."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import astuple

import traceview
from traceview.base.text import LazyPattern

# Before Python 3.11 they have other names.
_IS_NEW: Final = sys.version_info >= (3, 11)
sre: Any = importlib.import_module("re._constants" if _IS_NEW else "sre_constants")
compiler: Any = importlib.import_module("re._compiler" if _IS_NEW else "sre_compile")
parser: Any = importlib.import_module("re._parser" if _IS_NEW else "sre_parse")

PACKAGE: Final = Path(traceview.__file__).parent
METHODS: Final = frozenset(
    ("search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split")
)
SMALL, LARGE = 1 << 11, 1 << 20
MOST_S: Final = 6.0
"""Of processor time; of a megabyte one that is quadratic takes from a minute on, one that is linear at most 1 s."""


def used_methods() -> dict[str, set[str]]:
    """The methods called on anything of a name, for a private name in its module; and all those called in a module."""
    methods: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = ast.unparse(node.value).rpartition(".")[2]
                methods[f"{path if name.startswith('_') else ''}:{name}"].add(node.attr)
                methods[str(path)].add(node.attr)
    return methods


def compiled_in(value: object) -> Iterator[re.Pattern[Any]]:
    """The patterns that a variable of a module holds, in whatever it is made of."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LazyPattern):
        yield re.compile(value.pattern, value.flags)
    elif isinstance(value, dict):
        yield from compiled_in(tuple(value.values()))
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from compiled_in(part)
    elif isinstance(value, Struct):
        yield from compiled_in(astuple(value))


def patterns() -> dict[tuple[str | bytes, int], set[str]]:
    """All patterns with their flags, and the methods that they are used by."""
    found: dict[tuple[str | bytes, int], set[str]] = defaultdict(set)
    methods = used_methods()
    for module in pkgutil.walk_packages([str(PACKAGE)], "traceview."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        try:
            variables = vars(importlib.import_module(module.name))
        except ImportError:
            # It needs TensorFlow or JAX; what stands in its source is below.
            continue
        for name, value in variables.items():
            place = f"{variables['__file__'] if name.startswith('_') else ''}:{name}"
            for pattern in compiled_in(value):
                used = methods.get(place) if isinstance(value, re.Pattern | LazyPattern) else None
                found[pattern.pattern, pattern.flags] |= (
                    used or methods.get(str(variables["__file__"])) or {"search"}
                )
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")):
                continue
            method = ast.unparse(node.func).removeprefix("re.")
            if method in METHODS and isinstance(node.args[0], ast.Constant):
                literal: Any = node.args[0].value
                found[literal, re.compile(literal).flags].add(method)
    return found


REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, getattr(sre, "POSSESSIVE_REPEAT", None))
LETTERS: Final = "a0 -b/.:\n\x00" + "".join(map(chr, range(1 << 16)))


@cache
def letter_of(op: Any, argument: Any) -> str:
    """A letter that one part of a pattern takes."""
    if op is sre.LITERAL:
        return chr(argument)
    part = parser.SubPattern(parser.State(), [(op, list(argument) if op is sre.IN else argument)])
    pattern = compiler.compile(part, 0)
    return next(letter for letter in LETTERS if pattern.fullmatch(letter))


def texts_of(parsed: Any, pumps: set[str]) -> str:
    """A text that a pattern takes; `pumps` gets its beginnings, and those of its repeated parts, alone and after these."""
    text = ""
    for op, argument in parsed:
        pumps.add(text)
        if op in REPEATS:
            least, most, body = argument
            part = texts_of(body, pumps)
            if most > 1:
                pumps.update((part, text + part))
                pumps.update(starmap(letter_of, leaves(body)))
            text += part * max(least, 1)
        elif op is sre.BRANCH:
            texts = [texts_of(branch, pumps) for branch in argument[1]]
            pumps.update(text + other for other in texts[:8])
            text += texts[0]
        elif op is sre.SUBPATTERN:
            text += texts_of(argument[3], pumps)
        elif op is getattr(sre, "ATOMIC_GROUP", None):
            text += texts_of(argument, pumps)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            texts_of(argument[1], pumps)
        elif op not in (sre.AT, sre.GROUPREF, sre.GROUPREF_EXISTS):
            text += letter_of(op, tuple(argument) if op is sre.IN else argument)
    if text:
        pumps.add(text)
        pumps.add(text[:-1])
    return text


def leaves(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a pattern that take one letter, and of a class one of each kind."""
    for op, argument in parsed:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY):
            yield op, argument
        elif op is sre.IN and argument[0][0] is not sre.NEGATE:
            yield from ((sre.IN, (part,)) for part in argument)
        elif op is sre.IN:
            yield op, tuple(argument)
        elif op in REPEATS:
            yield from leaves(argument[2])
        elif op is sre.SUBPATTERN:
            yield from leaves(argument[3])
        elif op is sre.BRANCH:
            for branch in argument[1]:
                yield from leaves(branch)


def worst_texts(pattern: str | bytes, flags: int) -> list[str]:
    """Short texts to be repeated: those that parts of the pattern take, without what would complete them."""
    pumps: set[str] = set()
    texts_of(parser.parse(pattern, flags & ~re.UNICODE), pumps)
    return sorted(pump for pump in pumps if pump)


def seconds(pattern: re.Pattern[Any], method: str, pump: str, size: int) -> float:
    """The processor time for a text of about this many letters that ends with what nothing takes."""
    text: Any = pump * (size // len(pump)) + "\x00\n\x00"
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1", "replace")
    arguments = (text[:0], text) if method.startswith("sub") else (text,)
    # The groups of many matches would make Python search all the objects of the process for garbage.
    gc.disable()
    try:
        begun = time.process_time()
        result = getattr(pattern, method)(*arguments)
        if method == "finditer":
            for _ in result:
                pass
        return time.process_time() - begun
    finally:
        gc.enable()


def stays_below(limit: float, pattern: re.Pattern[Any], method: str, pump: str, size: int) -> bool:
    """Whether one of five tries takes less: what else the machine does is in some, what the pattern does in all."""
    return any(seconds(pattern, method, pump, size) < limit for _ in range(5))


PATTERNS: Final = patterns()


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: str(pattern[0])[:40])
def test_time_grows_with_the_text_and_no_faster(pattern: tuple[str | bytes, int]) -> None:
    """A pattern that is quadratic takes 256 times as long for 16 times the text."""
    text: Any = pattern[0]
    compiled: re.Pattern[Any] = re.compile(text, pattern[1])
    for method in sorted(PATTERNS[pattern]):
        slowest = sorted(
            worst_texts(*pattern), key=lambda pump: -seconds(compiled, method, pump, SMALL)
        )
        for pump in slowest[:2]:
            for size in (SMALL, SMALL << 3, LARGE >> 3, LARGE):
                limit = MOST_S * max(size / LARGE, 0.2)
                assert stays_below(limit, compiled, method, pump, size), (method, pump, size)
