"""Shows of command lines, variables and names of threads what can be no credential.

Of a command line these are names of options, numbers, booleans and names of scripts; every other value is masked. Messages of
exceptions may hold anything, so the sidecar has their class alone (`file.reason_of`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"

_OPTION: Final = re.compile(
    r"(?P<name>--[A-Za-z][\w.\-]{0,63}|-[A-Za-z])(?:=(?P<value>.*))?", re.DOTALL
)
_GLUED: Final = re.compile(r"(?P<name>-[A-Za-z])(?P<value>.+)", re.DOTALL)
"""A short option and its value in one word, `-j8`; or a long option with one dash, which looks the same."""

_SETTING: Final = re.compile(r"(?P<name>[+~]{0,2}[A-Za-z_][\w.\-]{0,63})=(?P<value>.*)", re.DOTALL)
_HARMLESS: Final = re.compile(
    r"|--?|[-+]?[\d.,:_]{1,20}(?:[eE][-+]?\d{1,3})?%?|true|false|yes|no|on|off|none|null"
    r"|[\w./\\\-]+\.(?:pyz?|pyw|sh|bash|ipynb)",
    re.IGNORECASE,
)
"""A number, several, or a range; a boolean; a script; nothing, or what ends the options."""

_WORDS: Final = re.compile(r"[\w.:^\-]{1,20}(?:[,;][\w.:^\-]{1,20})*")
_DEVICE_IDS: Final = re.compile(r"(?:GPU|MIG)-[\da-f\-]+(?:,(?:GPU|MIG)-[\da-f\-]+)*")
_THREAD: Final = re.compile(r"[\w .:()<>\-]{1,60}")


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask all of a command line but the program, names of options, numbers, booleans, and names of scripts."""
    return [*arguments[:1], *map(_masked_argument, arguments[1:])]


def masked_variable(value: str) -> str:
    """Mask the value of a variable that is known to hold a setting or flags, where it is neither."""
    if _WORDS.fullmatch(value) or _DEVICE_IDS.fullmatch(value):
        return value
    try:
        return " ".join(map(_masked_argument, shlex.split(value)))
    except ValueError:
        return MASK


def masked_thread(name: str) -> str:
    """Mask the name of a thread that is more than words."""
    return name if _THREAD.fullmatch(name) else MASK


def _masked_argument(argument: str) -> str:
    option = _OPTION.fullmatch(argument) or _GLUED.fullmatch(argument)
    if _HARMLESS.fullmatch(argument):
        return argument
    if option is not None:
        name, value = option["name"], option["value"]
        if value is None:
            return name
        between = "" if argument[len(name)] != "=" else "="
        return f"{name}{between}{value if _HARMLESS.fullmatch(value) else MASK}"
    setting = _SETTING.fullmatch(argument)
    # The padding of a word in base64 looks like a setting to nothing.
    is_shown = setting is not None and setting["value"] and _HARMLESS.fullmatch(setting["value"])
    return argument if is_shown else MASK
