"""Tells addresses such as `gs://bucket/logs` from paths, without importing what opens them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.store.schemes import SCHEMES

if TYPE_CHECKING:
    from traceview.store.remote import RemotePath

_ADDRESS: Final = lazy_pattern(
    r"\s*(?P<scheme>[A-Za-z][A-Za-z\d+.\-]+):/(?P<second>/?)(?P<rest>.*)", re.DOTALL
)
"""`gs://bucket`, or `gs:/bucket` after `Path`; no drive of Windows, whose name is one letter."""

_WORD: Final = lazy_pattern(r"\S+")


def location_of(text: str | os.PathLike[str] | Location) -> Location:
    """The place that a path or an address names; raises `UsageError` for an address of an unknown kind and an empty text."""
    if not isinstance(text, str | os.PathLike):
        return text
    name = os.fspath(text)
    if not name:
        raise UsageError("the path is empty", hint="the current directory is .")
    match = _ADDRESS.fullmatch(name)
    scheme = match["scheme"].lower() if match else ""
    if match is None or not (match["second"] or scheme in SCHEMES):
        return Path(text)
    if scheme == "file":
        return Path(f"/{match['rest'].lstrip('/')}")
    if scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise UsageError(f"{scheme}://: no such kind of store", hint=f"known kinds: {known}")
    from traceview.store.remote import remote_path

    return remote_path(scheme, match["rest"])


def without_credentials(text: str) -> str:
    """A text for users that may repeat an address which they typed: `s3://…@bucket` for `s3://KEY:SECRET@bucket`."""
    return _WORD.sub(lambda match: _without_credentials(match[0]), text)


def _without_credentials(word: str) -> str:
    scheme, mark, rest = word.partition(":/")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{mark}/…@{place}" if at else word


def is_remote(location: object) -> TypeGuard[RemotePath]:
    """Whether a place is in a store, without importing what opens stores."""
    return not isinstance(location, Path) and hasattr(location, "scheme")
