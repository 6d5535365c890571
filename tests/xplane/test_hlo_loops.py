"""What of a loop of a compiled program need not run in turn: what no turn hands to the next, and what no turn needs of the one before."""

from __future__ import annotations

import pytest

from tests.xplane.hlo_messages import ModuleWriter
from tests.xplane.test_hlo import read

S32 = 4
WIDE = (8, 4)
TAKEN = ("count", "hidden", "rows", "sums", "kept", "weights")
ALL = {"own", "of_rows", "slope", "summed", "score"}


def looped(
    *, new: str = "both", summed: str = "add", fuses: bool = False, is_read: bool = False
) -> ModuleWriter:
    """Each turn multiplies its row and what the last turn made with weights, adds up gradients, and keeps a score.

    `new`: what is made of: `both`, or the `row` alone. `summed`: how gradients are added up. `fuses`: within a fusion. `is_read`: whether
    a turn computes with the sum of those before.
    """
    module, body = ModuleWriter(), 2
    given = module.add("given", "parameter", computation=body)
    ids = {}
    for place, name in enumerate(TAKEN):
        shape = () if name == "count" else WIDE
        ids[name] = module.add(
            name,
            "get-tuple-element",
            given,
            computation=body,
            shape=shape,
            element=S32 if not shape else 11,
            tuple_index=place,
        )
    one = module.add("one", "constant", computation=body, element=S32)
    counted = module.add("counted", "add", ids["count"], one, computation=body, element=S32)

    def add(name: str, opcode: str, *operands: int) -> int:
        return module.add(name, opcode, *operands, computation=body, shape=WIDE)

    own = add("own", "dynamic-slice", ids["rows"], ids["count"])
    of_rows = add("of_rows", "dot", own, ids["weights"])
    of_hidden = add("of_hidden", "dot", ids["hidden"], ids["weights"])
    made = add("made", "add", of_rows, of_hidden if new == "both" else own)
    slope = add("slope", "dot", made, own)
    if fuses:
        of = module.add("of", "parameter", computation=3, shape=WIDE, parameter_number=1)
        other = module.add("other", "parameter", computation=3, shape=WIDE)
        module.computation(3).root_id = module.add(
            "root", summed, other, of, computation=3, shape=WIDE
        )
        added = module.add(
            "summed", "fusion", ids["sums"], slope, computation=body, shape=WIDE, calls=(3,)
        )
    else:
        added = add("summed", summed, ids["sums"], slope)
    score = add("score", "dot", ids["sums"] if is_read else made, ids["weights"])
    kept = add("updated", "dynamic-update-slice", ids["kept"], score, counted)
    result = [counted, made, ids["rows"], added, kept, ids["weights"]]
    module.computation(body).root_id = module.add("result", "tuple", *result, computation=body)
    module.add("loop", "while", module.add("start", "parameter"), calls=(body,))
    return module


@pytest.mark.parametrize(
    ("changes", "movable"),
    [
        ({}, ALL),
        ({"fuses": True}, ALL),
        # Where nothing is handed on, all turns can be at once.
        ({"new": "row"}, ALL | {"of_hidden", "made", "updated"}),
        ({"summed": "maximum"}, {"own", "of_rows", "score"}),
        ({"summed": "maximum", "fuses": True}, {"own", "of_rows", "score"}),
        ({"is_read": True}, {"own", "of_rows", "score"}),
    ],
)
def test_what_no_turn_has_to_wait_for(changes: dict[str, str], movable: set[str]) -> None:
    found = read(looped(**changes).message)  # type: ignore[arg-type]  # by keyword, of mixed types
    assert {name for name, each in found.items() if each.need == "turns"} == movable


@pytest.mark.parametrize(("line", "is_movable"), [(5, True), (6, False)])
def test_a_gradient_can_wait_where_what_it_is_of_can(line: int, is_movable: bool) -> None:
    """What no turn waits for is the product `of_rows` in line 5, and the gradient of a product in this line or another."""
    module = looped()
    scopes = {"of_rows": ("jvp(net)", 5), "slope": ("transpose(jvp(net))", line)}
    for computation in module.message.computations:
        for each in computation.instructions:
            if of := scopes.get(each.name.decode()):
                each.metadata.op_name = f"jit(step)/{of[0]}/while/body/dot_general".encode()
                each.metadata.source_file, each.metadata.source_line = b"train.py", of[1]
    found = read(module.message)
    assert found["of_rows"].need == "turns"
    assert (found["slope"].need == "turns") is is_movable
