"""Says what a run can be written as, and compresses it; light to import, for commands do so at their start."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Final

from traceview.base.errors import UsageError

_LEVEL: Final = 4
"""Traces repeat themselves: a higher level of compression hardly makes them smaller."""

_GZIP: Final = 16
"""Added to the size of the window: a gzip header, in which zlib writes no time, so that equal content has equal bytes."""


def check_pyarrow(what: str) -> None:
    """Raise `UsageError` if Parquet, which `what` needs, cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow", hint="pip install 'traceview[parquet]'")


def compressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts as a gzip file."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP + zlib.MAX_WBITS)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()
