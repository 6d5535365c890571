"""Where does a profiler server listen? `host:port`, several joined by commas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from traceview.errors import UsageError

_SCHEME: Final = "grpc://"
_ADDRESS: Final = re.compile(r"(?P<host>\[[^\[\]\s]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})", re.ASCII)
_NO_PORT: Final = re.compile(r"\[[^\[\]\s]+\]|[^\[\]:/\s]+")
_UNFIT_FOR_A_FILE: Final = re.compile(r"[^A-Za-z0-9.\-]")
_EXAMPLE: Final = "such as 10.0.0.2:6009,10.0.0.3:6009"


@dataclass(frozen=True)
class Address:
    """The address of one server. `host` of an IPv6 address keeps its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def file_stem(self) -> str:
        """`<host>_<port>`, as TensorFlow's own client names the files of remote captures."""
        return f"{_UNFIT_FOR_A_FILE.sub('_', self.host.strip('[]'))}_{self.port}"


def parse_addresses(texts: Sequence[str]) -> list[Address]:
    """The addresses of an option that may be repeated; raises `UsageError`."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    found = [_parse(part) for part in parts if part]
    if not found:
        raise UsageError("--remote: no address is given", hint=_EXAMPLE)
    stems: dict[str, Address] = {}
    for address in found:
        other = stems.setdefault(address.file_stem, address)
        if other is not address:
            raise UsageError(f"--remote: {other} and {address} are one server")
    return found


def _parse(text: str) -> Address:
    match = _ADDRESS.fullmatch(text.removeprefix(_SCHEME))
    if match is None:
        if _NO_PORT.fullmatch(text.removeprefix(_SCHEME)):
            raise UsageError(f"--remote {text}: the port is missing", hint=_EXAMPLE)
        raise UsageError(f"--remote {text}: not a host:port", hint=_EXAMPLE)
    port = int(match["port"])
    if not 0 < port < 1 << 16:
        raise UsageError(f"--remote {text}: ports are 1 to 65535")
    return Address(match["host"], port)
