"""Masks what looks like a credential in command lines, environment variables and messages.

When in doubt it masks: a masked word costs a reader little, a leaked credential may cost an account.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

MASK: Final = "***"

_ASSIGNED: Final = re.compile(r"(?P<name>[-+~]{0,2}[A-Za-z_][\w.\-\[\]]*)=(?P<value>.*)", re.DOTALL)
_OPTION: Final = re.compile(r"--?[A-Za-z].*|-", re.DOTALL)
_HEADER_NAME: Final = re.compile(r"(?P<name>[A-Za-z_][\w.\-]*)\s*[:=]\s*")
_NAME: Final = re.compile(
    r"(?P<name>(?<![\w.])(?<![\w.]-)-{0,2}\w[\w.\-]*)"
    r"""(?:\]?\\*["']?\s*(?:[=:]|%3[ad])\s*|(?P<blank>["']?(?:\s*,\s*|\s+)(?=["']?[^\s\-"',])))""",
    re.IGNORECASE,
)
"""A name and what stands between it and its value; after a blank or a comma only an option has one."""

_VALUE: Final = re.compile(
    r"""\\+(?P<mark>["']).*?\\+(?P=mark)"""
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

_SCHEMES: Final = ("basic", "bearer", "digest", "negotiate", "token")
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
    """Mask the values of arguments whose option looks secret, and secrets of known form."""
    result = []
    name = ""
    for argument in arguments:
        if name and not _OPTION.fullmatch(argument):
            is_shown = not is_secret_name(name, argument)
            result.append(argument if is_shown else MASK)
            if argument.lower() not in _SCHEMES and not takes_several(name):
                name = ""
            continue
        result.append(masked(argument))
        name = _name_before_value(argument)
    return result


def masked_variable(name: str, value: str) -> str:
    """The value of an environment variable, masked if its name or value looks secret."""
    return MASK if value and is_secret_name(name, value) else masked(value)


def masked(text: str) -> str:
    """Mask credentials in a text: `name=value`, users in URLs, tokens of known form, and long random words."""
    return _RANDOM.sub(MASK, masked_message(text))


def masked_message(text: str) -> str:
    """The same without long random words: in a message to the user these are parts of paths."""
    whole = _ASSIGNED.fullmatch(text)
    if whole and whole["value"] and is_secret_name(whole["name"], whole["value"]):
        return f"{whole['name']}={MASK}"
    text = _KEY_BLOCK.sub(MASK, text)
    text = _ADDRESS.sub(rf"\g<place>{MASK}", text)
    text = _USER.sub(rf"\g<scheme>{MASK}@", text)
    text = _USER_ALONE.sub(f"{MASK}@", text)
    text = "".join(_with_masked_values(text))
    return _TOKEN.sub(MASK, _SCHEME.sub(rf"\g<scheme> {MASK}", text))


def _name_before_value(argument: str) -> str:
    """The name of a secret option or header whose value is the next argument; else empty."""
    header = _HEADER_NAME.fullmatch(argument)
    name = header["name"] if header else argument if _OPTION.fullmatch(argument) else ""
    return name if "=" not in name and is_secret_name(name) else ""


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
        if value is None or not value[0].strip() or not is_secret_name(name, value[0]):
            continue
        yield text[begin : match.end()]
        yield MASK
        begin = search_from = value.end()
    yield text[begin:]


_WORD: Final = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]+")

_CREDENTIAL: Final = re.compile(
    r"(?P<before>.*?)(?P<stem>password|passwd|passphrase|passcode|passwort|pwd|secret|token|credential|signature|webhook"
    r"|bearer|authorization|key)(?P<plural>s?)"
)
_NO_KEYS: Final = frozenset({
    "donkey", "hockey", "hotkey", "jockey", "monkey", "publickey", "pubkey", "turkey", "turnkey", "whiskey",
})  # fmt: skip
_SHORT: Final = re.compile(
    r"(?P<before>.*?)(?P<stem>pass|pw|auth|cred|cookie|dsn|sig|pat)(?P<plural>(?<=cred)s|(?<=cookie)s|)"
)
"""Words that are the end of many others (`compass`, `sacred`): secret alone, or after the name of an account."""

_ACCOUNTS: Final = frozenset({
    "access", "account", "admin", "api", "app", "auth", "aws", "azure", "basic", "bot", "cert", "client", "comet", "db",
    "docker", "email", "ftp", "gcp", "gcs", "git", "github", "gitlab", "hf", "http", "https", "hub", "imap", "jupyter",
    "kaggle", "key", "keystore", "ldap", "login", "mail", "mongo", "my", "mysql", "neptune", "netrc", "ngc", "o", "pg",
    "postgres", "proxy", "redis", "registry", "root", "s", "server", "service", "session", "sftp", "smtp", "sql", "ssh",
    "sudo", "truststore", "user", "usr", "vault", "wandb", "web",
})  # fmt: skip

_OF_MODELS: Final = {
    "token": frozenset({
        "begin", "bos", "class", "cls", "draft", "end", "eos", "image", "mask", "masked", "max", "min", "multi", "n", "new",
        "next", "num", "number", "oov", "pad", "padding", "patch", "per", "pre", "prev", "register", "sep", "sos", "special",
        "start", "stop", "sub", "total", "unk", "word",
    }),
    "key": frozenset({
        "column", "dict", "feature", "features", "field", "foreign", "group", "id", "image", "index", "json", "jump", "label",
        "labels", "lookup", "max", "min", "n", "num", "number", "partition", "primary", "prng", "query", "random", "rng",
        "sort", "target", "weight",
    }),
    "pass": frozenset({
        "all", "band", "by", "backward", "first", "forward", "high", "low", "max", "min", "multi", "n", "num", "one",
        "second", "single", "two",
    }),
    "signature": frozenset({"default", "function", "input", "model", "output", "serving"}),
    "auth": frozenset({"disable", "no", "skip", "without"}),
}  # fmt: skip
"""What stands before such a word where it is none of an account."""

_MEASURES: Final = frozenset({
    "accuracy", "algorithm", "axis", "batch", "bias", "bucket", "budget", "cache", "class", "classes", "column", "count",
    "counts", "def", "defs", "dim", "dimension", "dims", "dir", "directory", "disabled", "dropout", "dtype", "embed",
    "embedding", "embeddings", "enabled", "env", "error", "expiry", "file", "filename", "files", "folder", "format", "frame",
    "frames", "frequency", "hash", "head", "heads", "id", "ids", "index", "init", "initializer", "interval", "kernel",
    "label", "labels", "len", "length", "lengths", "level", "lifetime", "limit", "loss", "manager", "mask", "masking",
    "merging", "mixing", "mode", "model", "name", "names", "norm", "num", "number", "order", "padding", "path", "point",
    "points", "policy", "position", "positions", "prob", "probability", "projection", "provider", "rate", "ratio",
    "regularizer", "required", "rotation", "second", "seconds", "shape", "shuffle", "size", "sizes", "sort", "space",
    "step", "steps", "strength", "threshold", "through", "timeout", "ttl", "type", "types", "user", "username", "version",
    "vocab", "weight", "weights",
})  # fmt: skip
"""Last words of names whose value is no credential: sizes, kinds and places of something."""

_SWITCH: Final = re.compile(r"true|false|yes|no|on|off|none|null|", re.IGNORECASE)
_COUNT: Final = re.compile(r"[\d.,_]+(?:e[+-]?\d+)?[kmbt]?", re.IGNORECASE)


def is_secret_name(name: str, value: str | None = None) -> bool:
    """Whether the value of an option, variable or field of this name is a credential.

    `value`, where it is known: a switch is no credential, nor is a number for tokens or keys in the plural.
    """
    if value is not None and _SWITCH.fullmatch(value.strip("\"'")):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _MEASURES:
        return False
    return any(_is_secret(words, place, value) for place in range(len(words)))


def takes_several(name: str) -> bool:
    """Whether an option of this name may have several values."""
    return name.lower().endswith("s") and not name.lower().endswith("pass")


def _is_secret(words: list[str], place: int, value: str | None) -> bool:
    word = words[place]
    if word.removesuffix("s") in _NO_KEYS:
        return False
    match = _CREDENTIAL.fullmatch(word)
    if match is None:
        match = _SHORT.fullmatch(word)
        if match is None or match["before"] not in {"", *_ACCOUNTS}:
            return False
    before = match["before"] or (words[place - 1] if place else "")
    if before in _OF_MODELS.get(match["stem"], ()):
        return False
    return not (match["plural"] and value is not None and _COUNT.fullmatch(value.strip("\"'")))
