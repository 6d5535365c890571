"""Separates code from words in a sentence.

Code is a call, a command line, and every word that is more than a word: `dataset.map(f, num_parallel_calls=4)`,
`traceview gaps LOGDIR`, `model/dense`, `tf.data.AUTOTUNE`, `@someone`, `#1`. Devices, times of day, numbers and units
are words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

COMMANDS: Final = (
    "analyze|balance|capture|collectives|compare|crosscheck|devices|doctor|explain|export|gaps|input|open|ops|render|report|runs"
    "|schema|steps|transfers|version|watch|baseline|gate|history"
)
"""What may stand after `traceview` in a sentence for the two to be a command line."""

LONGEST_CALL: Final = 300
"""Characters of a call or command in a sentence; a longer one is taken for words."""

_MORE_THAN_A_WORD: Final = re.compile(r"[\\`*_{}\[\]<>#|!~@&$^/=:]")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w*)+")
_CALL_START: Final = re.compile(
    r"(?<![^ (\"'])(?:if [\w %=<>]{1,30}: )?(?:[A-Za-z_]\w* = )?@?[A-Za-z_][\w.]*\((?!s\))"
)
_CALL_GOES_ON: Final = re.compile(r"\.[A-Za-z_][\w.]*\(")
_QUOTED: Final = r"'[^']*'(?:\"'\"'[^']*')*|\$'(?:[^'\\]|\\.)*'"
"""A word as `traceview.shell_quote` writes it."""

_COMMAND: Final = re.compile(
    rf"(?<![^ (\"'])(?:traceview (?:{COMMANDS})(?![\w.:/-])"
    rf"(?: (?:{_QUOTED}|--run (?:{_QUOTED}|[\w@%+=:,./-]*\w)|[\w@%+=:.-]*/(?:[\w@%+=:,./-]*\w)?/?"
    r"|--(?:cause|format|window) [a-z\d_]+|--on-hang \d+s?|--[a-z][a-z-]*|(?:CPU|GPU|TPU|replica):\d+|[A-Z][A-Z_]*(?::[A-Z]+)?|\d+:\d+|[a-z]+(?:-[a-z]+)+|[\w/-]+\.json)(?![\w/:(]))*"
    r"|--window [a-z]+|--steps \d+:\d+|nvidia-smi(?: -[a-z]+(?: [A-Z_]+(?:,[A-Z_]+)*)?)+|py-spy record(?: --[a-z]+| PID)+"
    r"|pip install '[^' ]+'|numactl --[a-z]+|export [A-Z_]+=[\w/:$-]+)"
)
"""A command line of traceview or of a program that advice names, or an option with its value."""
_END_OF_WORD: Final = re.compile(r"[.,;:)\"'?!]*(?: |$)")
_WORD_WITH_SIGNS: Final = re.compile(
    r"(?:CPU|GPU|TPU|replica):\d+(?:–\d+)?"  # a device, or several
    r"|\d\d?(?::\d\d){1,2}"  # the time of day
    r"|[<>~]?[+-]?\d[\d.,]*%?"
    r"|[kMGT]?B/s|I/O"
)
_BEFORE: Final = "(\"'"
_AFTER: Final = ".,;:)\"'?!"


class Piece(Struct, frozen=True):
    """A part of a sentence: words as they are, or code, either one name or a whole call or command line."""

    text: str
    is_code: bool = False
    is_whole: bool = False


def pieces(text: str) -> Iterator[Piece]:
    """The parts of a sentence, which together are the sentence."""
    done = 0
    for start, end in _calls(text):
        yield from _words(text[done:start])
        yield Piece(text[start:end], is_code=True, is_whole=True)
        done = end
    yield from _words(text[done:])


def commands_in(text: str) -> list[tuple[int, int]]:
    """Where the command lines of traceview in a sentence begin and end."""
    if "traceview " not in text:
        return []
    return [match.span() for match in _COMMAND.finditer(text) if match[0].startswith("traceview ")]


def _calls(text: str) -> Iterator[tuple[int, int]]:
    """Where the calls and command lines in a sentence begin and end."""
    calls = [
        (match.start(), _end_of_call(text, match.end())) for match in _CALL_START.finditer(text)
    ]
    commands = [match.span() for match in _COMMAND.finditer(text)]
    done = 0
    for start, stop in sorted(
        [*((start, stop) for start, stop in calls if stop is not None), *commands]
    ):
        is_apart = _END_OF_WORD.match(text, stop) is not None
        if start >= done and is_apart and stop - start <= LONGEST_CALL:
            done = stop
            yield start, stop


def _end_of_call(text: str, inside: int) -> int | None:
    """Where the call ends whose opening parenthesis is left of `inside`, with calls of its result; None if it does not."""
    depth = 1
    for place in range(inside, min(len(text), inside + LONGEST_CALL)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            further = _CALL_GOES_ON.match(text, place + 1)
            return _end_of_call(text, further.end()) if further else place + 1
    return None


def _words(text: str) -> Iterator[Piece]:
    for place, word in enumerate(text.split(" ")):
        if place:
            yield Piece(" ")
        yield from _word(word)


def _word(word: str) -> Iterator[Piece]:
    core = word.lstrip(_BEFORE)
    before = word[: len(word) - len(core)]
    after = ""
    while core and core[-1] in _AFTER and not (core[-1] == ")" and _is_balanced(core)):
        core, after = core[:-1], core[-1] + after
    is_name = any(c.isalnum() for c in core) and (
        _MORE_THAN_A_WORD.search(core) is not None
        or _DOTTED.fullmatch(core) is not None
        or core.startswith("--")
        or core.lower().startswith("www.")
    )
    is_code = is_name and not _WORD_WITH_SIGNS.fullmatch(core)
    yield from (
        piece for piece in (Piece(before), Piece(core, is_code), Piece(after)) if piece.text
    )


def _is_balanced(text: str) -> bool:
    return text.count("(") >= text.count(")")
