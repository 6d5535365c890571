"""How is the name of a folder printed on one line, so that a shell reads back the same name?"""

from __future__ import annotations

import os
from pathlib import Path


def is_plain(path: Path, encoding: str) -> bool:
    """Whether the name can stand as it is: one line, and every character in the encoding."""
    text = str(path)
    try:
        text.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return text.isprintable()


def quoted(path: Path) -> str:
    r"""The name as bash, zsh and ksh read it: `$'logs\012/run'`, in bytes, whatever encoding they use."""
    return f"$'{''.join(_byte(one) for one in os.fsencode(path))}'"


def _byte(value: int) -> str:
    character = chr(value)
    if not (character.isascii() and character.isprintable()) or character in "\\'":
        # Three digits at most belong to an octal escape; a hexadecimal one would take in the letters that follow.
        return f"\\{value:03o}"
    return character
