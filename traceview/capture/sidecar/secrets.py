"""Shows of command lines and variables what can be no credential, and masks credentials in messages.

Of a command line these are names of options, numbers, booleans and names of scripts; every other value is masked. A message
is prose, of which anything may be needed: there masking looks for names, tokens and addresses that say what they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

MASK: Final = "***"

_OPTION: Final = re.compile(
    r"(?P<name>--[A-Za-z][\w.\-]{0,63}|-[A-Za-z])(?:=(?P<value>.*))?", re.DOTALL
)
_GLUED: Final = re.compile(r"(?P<name>-[A-Za-z])(?P<value>.+)", re.DOTALL)
"""A short option and its value in one word, `-j8`; or a long option with one dash, which looks the same."""

_SETTING: Final = re.compile(r"(?P<name>[+~]{0,2}[A-Za-z_][\w.\-]{0,63})=(?P<value>.*)", re.DOTALL)
_HARMLESS: Final = re.compile(
    r"|--?|[-+]?[\d.,:_]{1,20}(?:[eE][-+]?\d{1,3})?%?|true|false|yes|no|on|off|none|null",
    re.IGNORECASE,
)
"""A number, several, or a range; a boolean; nothing, or what ends the options."""

_SCRIPT: Final = re.compile(r"[\w./\\\-]+\.(?:pyz?|pyw|sh|bash|ipynb)")
_WORDS: Final = re.compile(r"[\w.:^\-]{1,20}(?:[,;][\w.:^\-]{1,20})*")
_DEVICE_IDS: Final = re.compile(r"(?:GPU|MIG)-[\da-f\-]+(?:,(?:GPU|MIG)-[\da-f\-]+)*")

_NAME: Final = re.compile(
    r"(?P<name>(?<![\w.])(?<![\w.]-)-{0,2}\w[\w.\-]*)"
    r"""(?:\]?\\*["']?\s*(?:[=:]|%3[ad])\s*|(?P<blank>["']?(?:\s*,\s*|\s+)(?=["']?[^\s\-"',])))""",
    re.IGNORECASE,
)
"""A name and what stands between it and its value; after a blank or a comma only an option has one."""

_VALUE: Final = re.compile(
    r"""(?<!\\)\\+(?P<mark>["']).*?(?<!\\)\\+(?P=mark)"""
    r"""|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?"""
    r"""|\[[^\]]*\]?|\{[^}]*\}?"""
    r"""|(?:(?![,;&](?:[\s"']|$|\\*["']?[\w.\-]+\\*["']?\s*[=:]))[^\s"'}\\])+""",
    re.DOTALL,
)
"""A value in quotes, in brackets, or up to a blank, a quote or the next `name=`."""

_REST_OF_HEADER: Final = re.compile(r"""["']?[^"'\n]*""")
_HEADERS: Final = re.compile(r"(?:.*-)?(?:authorization|cookie2?)", re.IGNORECASE)
"""Headers of HTTP whose whole value is a credential, blanks included."""

_HASH: Final = re.compile(r"sha(?:256|384|512):")
_USER: Final = re.compile(
    r"(?<![\w+.\-])(?P<scheme>[A-Za-z][\w+.\-]*://)"
    r"(?:[^/\s\"']{,999}@|[^/\s@:\"']{,999}:(?!\d+/)[^\s\"']{,999}@)"
)
_USER_ALONE: Final = re.compile(
    rf"(?<![\w/.@%+:\-])(?!mailto:)[\w.+%\-]+:[^\s:@\"'/][^\s@\"']{{,999}}@(?!{_HASH.pattern})(?=[\w\[])"
)
"""`user:password@host` without a scheme; the digest of a container image is none."""

_SCHEME: Final = re.compile(
    r"\b(?P<scheme>(?i:bearer)|(?i:basic)(?=\s+[a-z+/]*[\dA-Z=]))\s+[^\s\"']+"
)
_KEY_BLOCK: Final = re.compile(r"-----BEGIN .*", re.DOTALL)
_ADDRESS: Final = re.compile(
    r"(?P<place>hooks\.slack\.com/(?:services|workflows|triggers)/|/api/webhooks/|\.webhook\.office\.com/"
    r"|api\.telegram\.org/bot)[^\s\"']+"
)
"""Addresses that are credentials themselves."""

_TOKEN: Final = re.compile(
    r"\b(?:(?:sk|rk|pk)[-_][\w\-]{12,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt)-[\w\-]{12,}|hf_\w{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w\-]{20,}|ya29\.[\w\-]{16,}|xox[a-z]-[\w\-]{8,}|nvapi-[\w\-]{16,}"
    r"|npm_\w{20,}|pypi-[\w\-]{16,}|dckr_pat_[\w\-]{16,}|SG\.[\w\-]{16,}\.[\w\-]{16,}"
    r"|eyJ[\w\-]+\.[\w\-]+(?:\.[\w\-]+)?)"
)
_RANDOM: Final = re.compile(
    r"(?<![\w+])(?=[A-Za-z0-9+]*\d)(?=[A-Za-z0-9+]*[A-Za-z])[A-Za-z0-9+]{32,}=*"
    r"|(?<![\w/+.\-])(?=\S{0,39}\d)(?=\S{0,39}[a-z])(?=\S{0,39}[A-Z])[A-Za-z0-9/+]{40}(?![\w/+=.\-])"
)
"""A long random word, such as a key of Weights & Biases, or of AWS with its slashes; a checksum looks the same."""


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask all of a command line but the program, names of options, numbers, booleans, and names of scripts."""
    return [*map(masked, arguments[:1]), *map(_masked_argument, arguments[1:])]


def masked_variable(value: str) -> str:
    """Mask the value of a variable that is known to hold a setting or flags, where it is neither."""
    if _WORDS.fullmatch(value) or _DEVICE_IDS.fullmatch(value):
        return masked(value)
    try:
        return " ".join(map(_masked_argument, shlex.split(value)))
    except ValueError:
        return MASK


def masked(text: str) -> str:
    """Mask credentials in a text: `name=value`, users in URLs, tokens of known form, and long random words."""
    return _RANDOM.sub(MASK, masked_message(text))


def masked_message(text: str) -> str:
    """The same without long random words: in a message to the user these are parts of paths."""
    text = _KEY_BLOCK.sub(MASK, text)
    text = _ADDRESS.sub(rf"\g<place>{MASK}", text)
    text = _USER.sub(rf"\g<scheme>{MASK}@", text)
    text = _USER_ALONE.sub(f"{MASK}@", text)
    text = "".join(_with_masked_values(text))
    return _TOKEN.sub(MASK, _SCHEME.sub(rf"\g<scheme> {MASK}", text))


def _masked_argument(argument: str) -> str:
    option = _OPTION.fullmatch(argument) or _GLUED.fullmatch(argument)
    if _is_harmless(argument):
        return argument
    if option is not None:
        name, value = option["name"], option["value"]
        if value is None:
            return name
        between = "" if argument[len(name)] != "=" else "="
        return f"{name}{between}{value if _is_harmless(value) else MASK}"
    setting = _SETTING.fullmatch(argument)
    # The padding of a word in base64 looks like a setting to nothing.
    is_number = setting is not None and setting["value"] != "" and _is_harmless(setting["value"])
    return argument if is_number else MASK


def _is_harmless(value: str) -> bool:
    return bool(_HARMLESS.fullmatch(value) or (_SCRIPT.fullmatch(value) and masked(value) == value))


def _with_masked_values(text: str) -> Iterator[str]:
    """The parts of a text, with a mask for the value of every secret name."""
    begin = 0
    search_from = 0
    while match := _NAME.search(text, search_from):
        search_from = match.end()
        name = match["name"]
        if match["blank"] is not None and not name.startswith("-"):
            # In a sentence: the next word may be a name itself.
            search_from = match.end("name")
            continue
        if not is_secret_name(name):
            continue
        is_header = _HEADERS.fullmatch(name) is not None
        value = (_REST_OF_HEADER if is_header else _VALUE).match(text, match.end())
        if value is None or not value[0].strip():
            continue
        yield text[begin : match.end()]
        yield MASK
        begin = search_from = value.end()
    yield text[begin:]


_SECRET_NAME: Final = re.compile(
    r"pass(?!es|ing|ed)|pwd|passwort|secret|token|cred|auth|api.?key|access.?key|private.?key|^key$|cookie|signature|^sig$"
    r"|webhook|bearer|dsn|jwt",
    re.IGNORECASE,
)
"""Parts of names whose values are masked in a message; masking too much there costs a reader little."""


def is_secret_name(name: str) -> bool:
    """Whether the value after this name is masked in a message."""
    return _SECRET_NAME.search(name.strip("-")) is not None
