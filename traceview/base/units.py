"""Picoseconds per unit of time, as integers."""

from __future__ import annotations

from typing import Final

PS_PER_NS: Final = 1_000
PS_PER_US: Final = 1_000_000
PS_PER_MS: Final = 1_000_000_000
PS_PER_S: Final = 1_000_000_000_000
