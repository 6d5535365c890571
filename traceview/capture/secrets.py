"""Masks what looks like a credential in command lines and environment variables.

When in doubt it masks: a masked word costs a reader little, a leaked credential may cost an account.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"

_SECRET_WORDS: Final = frozenset({
    "apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "creds", "dsn", "key",
    "keys", "pass", "passphrase", "passwd", "password", "passwords", "pat", "pw", "pwd", "secret", "secrets",
    "sig", "signature", "token", "webhook",
})  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+")
_ASSIGNED: Final = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.\-]*)=(?P<value>.*)", re.DOTALL)
_PAIR: Final = re.compile(
    r"""(?P<name>[A-Za-z_][\w.\-]*)(?P<between>["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s"',;&}]+)"""
)
_USER: Final = re.compile(r"(?P<scheme>[A-Za-z][\w+.\-]*://)[^/\s]*@")
_SCHEME: Final = re.compile(r"\b(?P<scheme>bearer|basic)\s+[^\s\"']+", re.IGNORECASE)
_KEY_BLOCK: Final = re.compile(r"-----BEGIN .*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"\b(?:sk-[\w\-]{12,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w\-]{12,}|hf_\w{16,}|"
    r"(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w\-]{20,}|xox[a-z]-[\w\-]{8,}|eyJ[\w\-]+\.[\w\-]+(?:\.[\w\-]+)?|"
    r"(?=[A-Za-z0-9+]*\d)(?=[A-Za-z0-9+]*[A-Za-z])[A-Za-z0-9+]{32,}=*)"
)


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask the values of arguments whose option looks secret, and secrets of known form."""
    result = []
    is_value = False
    for argument in arguments:
        if is_value and not _is_option(argument):
            result.append(MASK)
            is_value = False
            continue
        result.append(masked(argument))
        is_value = (
            _is_option(argument) and "=" not in argument and is_secret_name(argument.lstrip("-"))
        )
    return result


def masked_variable(name: str, value: str) -> str:
    """The value of an environment variable, masked if its name or value looks secret."""
    return MASK if is_secret_name(name) else masked(value)


def masked(text: str) -> str:
    """Mask credentials in a text: `name=value`, users in URLs, tokens of known form."""
    whole = _ASSIGNED.fullmatch(text)
    if whole and is_secret_name(whole["name"]):
        return f"{whole['name']}={MASK}"
    text = _KEY_BLOCK.sub(MASK, text)
    text = _SCHEME.sub(rf"\g<scheme> {MASK}", text)
    text = _USER.sub(rf"\g<scheme>{MASK}@", text)
    return _TOKEN.sub(MASK, _PAIR.sub(_masked_pair, text))


def is_secret_name(name: str) -> bool:
    """Whether the name of an option, variable or field says that its value is a credential.

    Only whole words count: `--hub-token` is secret, `--tokenizer` and `--max-tokens` are not.
    """
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))


def _is_option(argument: str) -> bool:
    return argument.startswith("-")


def _masked_pair(match: re.Match[str]) -> str:
    rest = match["value"] + match.string[match.end() :]
    if not is_secret_name(match["name"]) or _SCHEME.match(rest):
        return match[0]
    return f"{match['name']}{match['between']}{MASK}"
