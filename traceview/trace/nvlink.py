"""How many bytes per second do the NVLinks of a GPU carry in one direction?

Per link and direction: 20 GB/s on Pascal, 25 GB/s on Volta, Turing, A100 and Hopper, 14.0625 GB/s on GA102, 50 GB/s
on Blackwell (NVIDIA's architecture whitepapers). Which it is, the compute capability tells.
"""

from __future__ import annotations

from typing import Final

_LINK_BYTES_PER_SECOND: Final = {
    (6, 0): 20_000_000_000,
    (7, 0): 25_000_000_000,
    (7, 5): 25_000_000_000,
    (8, 0): 25_000_000_000,
    (8, 6): 14_062_500_000,
    (9, 0): 25_000_000_000,
    (10, 0): 50_000_000_000,
    (10, 3): 50_000_000_000,
}


def nvlink_bytes_per_second(capability: tuple[object, object], links: int | None) -> int | None:
    """Of all `links` of a GPU together; None without links and for a compute capability not listed."""
    major, minor = capability
    if not isinstance(major, int) or not isinstance(minor, int) or not links:
        return None
    speed = _LINK_BYTES_PER_SECOND.get((major, minor))
    return None if speed is None else speed * links
