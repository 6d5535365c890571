"""How many bytes per second can a PCIe link carry in one direction?

Lanes times transfers per second times what the encoding leaves of them (PCI Express Base Specification 6.0,
section 1.2 and table of encodings): 8b/10b for generations 1 and 2, 128b/130b for 3 to 5, and 242 payload
bytes of each 256-byte flit for 6. Packet headers take some more, so that no copy reaches it.
"""

from __future__ import annotations

from typing import Final

_LANE_BYTES_PER_SECOND: Final = {
    1: 2_500_000_000 * 8 // 10 // 8,
    2: 5_000_000_000 * 8 // 10 // 8,
    3: 8_000_000_000 * 128 // 130 // 8,
    4: 16_000_000_000 * 128 // 130 // 8,
    5: 32_000_000_000 * 128 // 130 // 8,
    6: 64_000_000_000 * 242 // 256 // 8,
}


def pcie_bytes_per_second(generation: int | None, width: int | None) -> int | None:
    """Of a link of `width` lanes; None for what is not known, and for a generation that is not."""
    lane = _LANE_BYTES_PER_SECOND.get(generation or 0)
    return None if lane is None or width is None or width <= 0 else lane * width
