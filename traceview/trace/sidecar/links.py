"""The bytes per second that the NVLink and PCIe links of a GPU carry in one direction.

NVLink, per link and direction: 20 GB/s on Pascal, 25 GB/s on Volta, Turing, A100 and Hopper, 14.0625 GB/s on GA102,
50 GB/s on Blackwell (NVIDIA's architecture whitepapers). The compute capability identifies the architecture.

PCIe: lanes × transfers per second × efficiency of the encoding (PCI Express Base Specification 6.0, section 1.2 and
table of encodings): 8b/10b for generations 1 and 2, 128b/130b for 3 to 5, and 242 payload bytes of each 256-byte flit
for 6. Packet headers cost some more, so that no copy reaches this rate.
"""

from __future__ import annotations

from typing import Final

_NVLINK_BYTES_PER_SECOND: Final = {
    (6, 0): 20_000_000_000,
    (7, 0): 25_000_000_000,
    (7, 5): 25_000_000_000,
    (8, 0): 25_000_000_000,
    (8, 6): 14_062_500_000,
    (9, 0): 25_000_000_000,
    (10, 0): 50_000_000_000,
    (10, 3): 50_000_000_000,
}
_LANE_BYTES_PER_SECOND: Final = {
    1: 2_500_000_000 * 8 // 10 // 8,
    2: 5_000_000_000 * 8 // 10 // 8,
    3: 8_000_000_000 * 128 // 130 // 8,
    4: 16_000_000_000 * 128 // 130 // 8,
    5: 32_000_000_000 * 128 // 130 // 8,
    6: 64_000_000_000 * 242 // 256 // 8,
}


def nvlink_bytes_per_second(capability: tuple[object, object], links: int | None) -> int | None:
    """The rate of all `links` of a GPU together; None without links and for an unknown compute capability."""
    major, minor = capability
    if not isinstance(major, int) or not isinstance(minor, int) or not links:
        return None
    speed = _NVLINK_BYTES_PER_SECOND.get((major, minor))
    return None if speed is None else speed * links


def pcie_bytes_per_second(generation: int | None, width: int | None) -> int | None:
    """The rate of a link of `width` lanes; None if the generation or the width is unknown."""
    lane = _LANE_BYTES_PER_SECOND.get(generation or 0)
    return None if lane is None or width is None or width <= 0 else lane * width
