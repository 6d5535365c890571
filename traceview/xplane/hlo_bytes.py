"""Counts the bytes that instructions of XLA programs read and write: what they are given and what they yield, each once.

That is the least that has to move between memory and the units that compute: caches may save what an instruction reads again,
and an instruction may read some of it several times. As `HloCostAnalysis` of XLA counts: a slice reads what it yields, an
update in place moves the update, and a fusion reads of its parameters what its slices take. Sources: openxla/xla
`xla/xla_data.proto` (types), `xla/service/hlo_cost_analysis.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from traceview.xplane.hlo_flops import LARGEST, MATRIX_CALLS, Shape

_BITS: Final = {
    **dict.fromkeys((30, 31), 1),
    **dict.fromkeys((26, 27), 2),
    **dict.fromkeys((21, 22, 32), 4),
    **dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8),
    **dict.fromkeys((3, 7, 10, 16), 16),
    **dict.fromkeys((4, 8, 11), 32),
    **dict.fromkeys((5, 9, 12, 15), 64),
    18: 128,
}
"""Bits of an element by the number of its type (`PrimitiveType`)."""

_NOTHING: Final = (14, 17)
"""Opaque values and tokens, which have no memory that is known of."""

SLICES: Final = frozenset(("slice", "dynamic-slice", "gather"))
UPDATES: Final = frozenset(("dynamic-update-slice",))
UNCHANGED: Final = frozenset(("bitcast", "reshape"))
"""Inside of a fusion no memory moves for these."""

_UNKNOWN: Final = frozenset(
    (
        "while", "conditional", "call", "async-start", "async-done", "infeed", "outfeed", "send", "recv", "parameter",
        "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "copy-start", "copy-done", "scatter", "sort",
    )
)  # fmt: skip
"""What runs other instructions, has no kernel of its own, or moves as much as its shapes do not tell."""

_SCRATCH: Final = (2, 6)
"""The types S8 and U8, which the scratch memory of a library has: it comes last in what a call yields."""


def size_of(shape: Shape) -> int | None:
    """The bytes of an array; None where the type or a dimension is not known."""
    if shape.element_type in _NOTHING:
        return 0
    bits = _BITS.get(shape.element_type)
    size = None if bits is None else (prod(shape.dimensions) * bits + 7) // 8
    return size if size is not None and 0 <= size < LARGEST else None


def whole(sizes: Sequence[int | None]) -> int | None:
    """Their sum; None where one is not known."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total if total < LARGEST else None


def bytes_of(
    opcode: str, target: str, result: Sequence[Shape], operands: Sequence[int | None]
) -> int | None:
    """What an instruction that is no fusion reads and writes; None where that is not known.

    `result`: the shapes that it yields. `operands`: the bytes of each of what it is given, once.
    """
    if opcode == "custom-call":
        if not target.startswith(MATRIX_CALLS):
            return None
        if len(result) > 1 and result[-1].element_type in _SCRATCH:
            result = result[:-1]
    written = whole([size_of(shape) for shape in result])
    if opcode in _UNKNOWN or written is None:
        return None
    if opcode in SLICES:
        indices = operands[1:2] if opcode == "gather" else ()
        return whole([2 * written, *indices])
    if opcode in UPDATES:
        return whole([*operands[1:2], *operands[1:2]]) if len(operands) > 1 else None
    return whole([written, *operands])
