"""How is a file compressed while it is written, and the same content always to the same bytes?"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

_LEVEL: Final = 4
"""Traces repeat themselves: more work hardly makes them smaller."""
_GZIP: Final = 16
"""Added to the size of the window: a gzip header, in which zlib writes no time."""


def compressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts as a gzip file."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP + zlib.MAX_WBITS)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()
