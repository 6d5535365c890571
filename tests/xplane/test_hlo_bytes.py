"""What instructions read and write, against sums by hand of the sizes of their arrays."""

from __future__ import annotations

import json

import pytest

from tests.xplane.hlo_messages import BF16, F32, TUPLE, ModuleWriter
from tests.xplane.test_hlo import read

S8, S4, TOKEN = 2, 21, 17
OUTER = (4096, 256)
SIZE = 4096 * 256 * 4


def of(module: ModuleWriter, name: str = "op") -> int | None:
    return read(module.message)[name].bytes


def test_operands_once_and_the_result() -> None:
    module = ModuleWriter()
    x = module.add("x", "parameter", shape=(8, 16), element=BF16)
    module.add("op", "dot", x, x, shape=(8, 8), element=F32)
    assert of(module) == 8 * 16 * 2 + 8 * 8 * 4


@pytest.mark.parametrize(
    ("element", "size"), [(S4, 4), (S8, 7), (BF16, 14), (TOKEN, 0), (99, None)]
)
def test_types_of_elements(element: int, size: int | None) -> None:
    module = ModuleWriter()
    module.add("op", "iota", shape=(7,), element=element)
    assert of(module) == size


def test_a_slice_reads_what_it_yields_and_an_update_writes_the_update() -> None:
    module = ModuleWriter()
    x = module.add("x", "parameter", shape=OUTER)
    part = module.add("part", "parameter", shape=(1, 256))
    place = module.add("place", "parameter", shape=(), element=S8)
    module.add("op", "dynamic-slice", x, place, shape=(1, 256))
    module.add("update", "dynamic-update-slice", x, part, place, shape=OUTER)
    rows = module.add("rows", "parameter", shape=(32,))
    module.add("gather", "gather", x, rows, shape=(32, 256))
    assert of(module) == 2 * 256 * 4
    assert of(module, "update") == 2 * 256 * 4
    assert of(module, "gather") == 2 * 32 * 256 * 4 + 32 * 4


@pytest.mark.parametrize(
    ("opcode", "size"),
    [("negate", 2 * SIZE), ("dynamic-slice", None), ("dynamic-update-slice", None)],
)
def test_of_a_fusion_that_takes_a_part_it_is_not_known(opcode: str, size: int | None) -> None:
    module = ModuleWriter()
    inner = module.add("p0", "parameter", shape=OUTER, computation=2)
    module.add("inside", opcode, inner, shape=OUTER, computation=2)
    x = module.add("x", "parameter", shape=OUTER)
    module.add("op", "fusion", x, shape=OUTER, calls=(2,))
    assert of(module) == size


def test_libraries_have_scratch_memory_and_own_calls_are_not_known() -> None:
    module = ModuleWriter()
    x = module.add("x", "parameter", shape=(64, 64))
    module.add("op", "custom-call", x, x, element=TUPLE)
    message = module.last()
    message.shape.tuple_shapes.add(element_type=F32, dimensions=[64, 64])
    message.shape.tuple_shapes.add(element_type=S8, dimensions=[10**6])
    message.custom_call_target = b"__cublas$gemm"
    message.backend_config = json.dumps({}).encode()
    assert of(module) == 2 * 64 * 64 * 4
    message.custom_call_target = b"mine"
    assert of(module) is None


def test_what_is_not_known_stays_unknown() -> None:
    module = ModuleWriter()
    x = module.add("x", "parameter", shape=OUTER)
    module.add("op", "negate", x, 999, shape=OUTER)
    module.add("huge", "iota", shape=(1 << 62, 1 << 62))
    module.add("loop", "while", x, shape=OUTER)
    assert {of(module), of(module, "huge"), of(module, "loop")} == {None}
