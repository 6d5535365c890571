"""Collects the words that traceview itself writes into reports: those that redaction leaves in a sentence.

They are the words of the string literals, without docstrings, in the packages whose texts end in a report or in a sidecar,
the keys of the records, and the words of their closed lists. The list is stored so that a change of it is reviewed.

python -m scripts.public_words            writes traceview/report/public_words.txt
python -m scripts.public_words --check    says which words are missing and which are too many
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from msgspec import inspect

from traceview.base.record import choices_of, records_of
from traceview.comparison.model import Comparison
from traceview.report.model import Report
from traceview.report.pseudonyms import is_plain
from traceview.report.public_words import AROUND, is_op_name, public_words

PACKAGE = Path(__file__).resolve().parent.parent / "traceview"
PATH = PACKAGE / "report" / "public_words.txt"
SOURCES = (
    "analysis",
    "capture",
    "comparison/build.py",
    "comparison/document.py",
    "comparison/model.py",
    "comparison/noise.py",
    "comparison/parts.py",
    "comparison/sides.py",
    "comparison/verdict.py",
    "document/numbers.py",
    "document/vocabulary.py",
    "report/command.py",
    "report/verdict.py",
    "trace",
    "xplane",
)
NOT_IN_REPORTS = tuple(
    PACKAGE / "capture" / name
    for name in (
        "check",
        "demo",
        "launch/command.py",
        "launch/launched.py",
        "launch/launched_capture.py",
        "launch/programs.py",
        "launch/variable.py",
        "sidecar/secrets.py",
    )
)
OF_TENSORFLOW = """
chief master worker ps evaluator
Profiler has collected driver events and device events. events dropped because total device(activity) events reaches
"""
"""Words that TensorFlow records and traceview does not write: tasks of a cluster, remarks of its profiler."""

WIDTH = 100
_NO_WORD = re.compile(r"[\\^$*?{}|<>#&;%\x00-\x1f]|\]\[|^__|\d+(\.\d+){3}|^[^a-z]*$")
"""Patterns, markup, formats and addresses, names of Python's own, and what has no letter."""


def collected() -> list[str]:
    """The words in lower case, sorted; numbers, device names and TensorFlow's ops need no entry."""
    texts = [OF_TENSORFLOW, *_literals(), *_words_of_records()]
    words = {
        core.lower() for text in texts for word in text.split() if (core := word.strip(AROUND))
    }
    return sorted(
        word
        for word in words
        if not _NO_WORD.search(word) and not is_plain(word) and not is_op_name(word)
    )


def _literals() -> Iterator[str]:
    for source in SOURCES:
        place = PACKAGE / source
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if not any(map(path.is_relative_to, NOT_IN_REPORTS)):
                yield from _literals_of(ast.parse(path.read_text(encoding="utf-8")))


def _literals_of(module: ast.Module) -> Iterator[str]:
    """Strings, and bytes, which are names of events; a string that is a statement is a docstring.

    The sentences of a rule are made again after redaction.
    """
    left_out = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _is_rule(node):
            left_out |= set(map(id, ast.walk(node)))
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and id(node) not in left_out:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode(errors="replace")


def _is_rule(call: ast.Call) -> bool:
    is_rule = isinstance(call.func, ast.Name) and call.func.id == "Rule"
    return is_rule and "action" in (keyword.arg for keyword in call.keywords)


def _words_of_records() -> Iterator[str]:
    for record in (*records_of(Report), *records_of(Comparison)):
        info = inspect.type_info(record)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            yield field.encode_name
            yield from choices_of(field.type)


def as_file(words: list[str]) -> str:
    """A paragraph for each first letter, so that a new word moves few others."""
    paragraphs = [
        textwrap.fill(" ".join(same), WIDTH, break_long_words=False, break_on_hyphens=False)
        for _, same in groupby(words, key=lambda word: word[0])
    ]
    return "\n\n".join(paragraphs) + "\n"


def main() -> int:
    """Write or check; 1 if the list is not current."""
    parser = argparse.ArgumentParser(prog="python -m scripts.public_words")
    parser.add_argument("--check", action="store_true", help="write nothing")
    words, stored = collected(), public_words()
    if not parser.parse_args().check:
        PATH.write_text(as_file(words), encoding="utf-8", newline="\n")
        return 0
    print("missing:", *sorted(set(words) - stored))
    print("too many:", *sorted(stored - set(words)))
    return int(set(words) != stored)


if __name__ == "__main__":
    sys.exit(main())
