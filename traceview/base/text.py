"""Puts names and commands into one line of text: enumerates the first of many, names what was meant, quotes for a shell, encodes; and searches it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, AnyStr, Final, cast


class LazyPattern:
    """Compiles a regular expression when it is first used: no command uses all, and a start would take 6 ms longer."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self.flags)
        # From now on they are attributes, and this is not called again.
        for method in ("match", "fullmatch", "search", "findall", "finditer", "split", "sub"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, for a variable of a module."""
    return cast("re.Pattern[AnyStr]", LazyPattern(pattern, flags))


_SURROGATE: Final = lazy_pattern("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """`text` with lone surrogates replaced: they come from file names and JSON, and fit in no encoding."""
    return _SURROGATE.sub("\ufffd", text)


ROOM_OF_MORE: Final = 16
"""Characters of a name that takes about as much room as `and 1 more`, and says more."""


def first_of(names: Sequence[str], most: int) -> tuple[Sequence[str], int]:
    """The first `most` names, and how many are left out; a single short one is not left out."""
    hidden_count = len(names) - most
    if hidden_count <= 0 or (hidden_count == 1 and len(names[-1]) <= ROOM_OF_MORE):
        return names, 0
    return names[:most], hidden_count


def enumerated(names: Sequence[str], most: int) -> str:
    """`a, b, c`, or of many `a, b and 3 more`."""
    shown, hidden_count = first_of(names, most)
    return ", ".join(shown) + (f" and {hidden_count} more" if hidden_count else "")


def did_you_mean(text: str, known: Iterable[str], otherwise: str = "", *, most: int = 2) -> str:
    """A hint at the known names that are nearest to a wrong one; `otherwise` where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(text, list(known), n=most)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


_PATH_PLACE: Final = 2
"""`traceview analyze LOGDIR …`"""


def is_plain(path: Path, encoding: str) -> bool:
    """Whether the name needs no quotes: one line, and every character in the encoding."""
    text = str(path)
    try:
        text.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return text.isprintable()


def in_bytes(path: str | Path) -> str:
    r"""The name as bash, zsh and ksh read it: `$'logs\012/run'`, in bytes, whatever encoding they use."""
    return f"$'{''.join(map(_escaped, os.fsencode(path)))}'"


def shell_word(text: str) -> str:
    """The text as one word of a command; with line breaks, escape sequences or invisible characters `in_bytes`."""
    return shlex.quote(text) if text.isprintable() else in_bytes(text)


def shell_path(path: object) -> str:
    """A path as one word that no program takes for an option: `./-logs`."""
    text = str(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def shell_command(words: Sequence[str]) -> str:
    """A command of traceview whose first argument is a path."""
    return " ".join(
        shell_path(word) if place == _PATH_PLACE else shell_word(word)
        for place, word in enumerate(words)
    )


def _escaped(byte: int) -> str:
    character = chr(byte)
    if not (character.isascii() and character.isprintable()) or character in "\\'":
        # Three digits at most belong to an octal escape; a hexadecimal escape would take in the letters that follow.
        return f"\\{byte:03o}"
    return character
