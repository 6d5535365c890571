"""Quotes the name of a folder on one line, so that a shell reads back the same name."""

from __future__ import annotations

import os
from pathlib import Path


def is_plain(path: Path, encoding: str) -> bool:
    """Whether the name needs no quotes: one line, and every character in the encoding."""
    text = str(path)
    try:
        text.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return text.isprintable()


def shell_quote(path: Path) -> str:
    r"""The name as bash, zsh and ksh read it: `$'logs\012/run'`, in bytes, whatever encoding they use."""
    return f"$'{''.join(map(_escaped, os.fsencode(path)))}'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    if not (character.isascii() and character.isprintable()) or character in "\\'":
        # Three digits at most belong to an octal escape; a hexadecimal escape would take in the letters that follow.
        return f"\\{byte:03o}"
    return character
