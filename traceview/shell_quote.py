"""Quotes words of commands so that a shell reads back the same text, on one line, and runs nothing in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
