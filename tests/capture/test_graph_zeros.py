"""Which ops give zeros for zeros, on stand-ins of ops that are not built here: those of GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from traceview.graphs.zeros import gives_zeros

BACK = "gradient_tape/lstm/"


@pytest.mark.parametrize(
    ("are", "names", "is_zero"),
    [
        ((True, True), (BACK + "of_output", BACK + "of_state"), True),
        # Nobody reads the last state.
        ((False, True), (BACK + "of_output", BACK + "of_state"), False),
        ((True, True), ("lstm/output", BACK + "of_state"), True),
        ((True, True), ("lstm/output", "lstm/state"), False),
    ],
)
def test_a_gradient_of_several_results_is_zero_where_those_of_all_are(
    are: tuple[bool, ...], names: tuple[str, ...], is_zero: bool
) -> None:
    inputs = [SimpleNamespace(name=name, dtype="float32") for name in names]
    op = SimpleNamespace(type="CudnnRNNBackpropV3", inputs=inputs, outputs=inputs[:1])
    assert gives_zeros(op, are) is is_zero
