"""The name of an op in a trace leads to the line that made it, or to none; never to that of another op."""

from __future__ import annotations

import pytest

from traceview.trace.device.op_names import GraphLines
from traceview.trace.sidecar.sidecar import GraphValues

LINES = ("model.py:7 in call", "model.py:9 in call", "train.py:30 in step", "loss.py:4 in inner")
CALL, SECOND, STEP, INNER = LINES
LINE_OF = {
    "net/dense/": 0,
    "net/conv/Conv2D": 0,
    "net/conv/Relu": 1,
    "replica_1/net/conv/Conv2D": 1,
    "adam/": 2,
    "while": 2,
    "while/MatMul": 1,
    "cond/MatMul": 1,
    "MatMul_1": 2,
    "MatMul": None,
    "/MatMul": 2,
    "/StatefulPartitionedCall/MatMul": 3,
    "net/called/": 0,
    "Square": 3,
    "far": len(LINES),
}


def lines_of(*graphs: dict[str, int | None]) -> GraphLines:
    return GraphLines([GraphValues(lines=LINES, line_of=graph) for graph in graphs])


@pytest.mark.parametrize(
    ("op", "line"),
    [
        ("net/dense/MatMul:MatMul", CALL),
        ("net/conv/Conv2D:Conv2D", CALL),
        ("net/conv/BiasAdd:BiasAdd", ""),
        ("net/conv:Conv2D", ""),
        ("replica_1/net/conv/Conv2D:Conv2D", SECOND),
        ("StatefulPartitionedCall/net/conv/Relu:Relu", SECOND),
        ("StatefulPartitionedCall/StatefulPartitionedCall_2/net/conv/Relu:Relu", SECOND),
        # Around a call other ops are in the scope than in the function that is called.
        ("net/called/add:AddV2", CALL),
        ("net/called/PartitionedCall/Square:Square", INNER),
        ("net/called/PartitionedCall/Other:Other", ""),
        ("gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter", CALL),
        ("gradient_tape/replica_1/net/conv/Conv2D/Conv2DBackpropInput:X", SECOND),
        ("gradient_tape/net/conv/ReluGrad:ReluGrad", ""),
        # The gradient of another op has the name of an op of the graph.
        ("gradient_tape/MatMul_1:MatMul", ""),
        ("gradient_tape/MatMul_1/MatMul:MatMul", STEP),
        ("gradients/net/conv/Conv2D_grad/Conv2DBackpropFilter:X", CALL),
        ("PartitionedCall_1/gradients/MatMul_1_grad/MatMul:MatMul", STEP),
        # Of ops of one name in several functions the calls tell.
        ("MatMul:MatMul", STEP),
        ("StatefulPartitionedCall/MatMul:MatMul", INNER),
        ("PartitionedCall_7/MatMul:MatMul", ""),
        ("gradient_tape/MatMul/MatMul:MatMul", STEP),
        ("PartitionedCall_1/gradients/MatMul_grad/MatMul:MatMul", ""),
        ("while/body/_5/while/MatMul:MatMul", SECOND),
        # What a loop or a condition itself makes has its line.
        ("while/cond/_4/while/Less:Less", STEP),
        ("gradient_tape/while/while_grad/body/_8/gradient_tape/while/gradients/AddN_3:AddN", STEP),
        ("gradient_tape/other/other_grad/body/_8/gradient_tape/other/gradients/AddN:AddN", ""),
        ("cond/else/_17/cond/MatMul:MatMul", SECOND),
        ("gradient_tape/while/while_grad/body/_8/gradient_tape/while/gradients/while/MatMul_grad/Mul:Mul", SECOND),
        ("adam/update_0_1/Mul:Mul", STEP),
        ("net/conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose", CALL),
        ("net/conv/ArithmeticOptimizer/FoldTransposeIntoMatMul_Conv2D:_MklMatMul", CALL),
        ("gradient_tape/MatMul_1/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul:_MklMatMul", STEP),
        ("net/conv/ArithmeticOptimizer/HoistCommonFactor_Mul_Conv2D:AddN", CALL),
        ("net/dense/scale:Const", ""),
        ("far:Op", ""),
        ("net/dense/MatMul", ""),
        ("", ""),
        ("net/dense/" + "s/" * 40 + "MatMul:MatMul", ""),
        ("net/dense/" + "s" * 10_000 + ":MatMul", ""),
    ],
)  # fmt: skip
def test_the_line_of_an_op(op: str, line: str) -> None:
    assert lines_of(LINE_OF).of(op)[0] == line


def test_hosts_that_differ_have_no_line() -> None:
    lines = lines_of({"a": 0, "b": 1}, {"a": 0, "b": 2, "c": 3})
    assert [lines.of(f"{name}:Op")[0] for name in "abc"] == [CALL, "", INNER]


def test_who_calls_the_function_of_a_line() -> None:
    """Where hosts differ in that alone, the line is known."""
    other = GraphValues(lines=(CALL, STEP), callers=(SECOND,), line_of={"a": 0, "b": 1, "c": 0})
    same = GraphValues(lines=(CALL,), callers=(STEP,), line_of={"c": 0})
    lines = GraphLines([other, same])
    assert [lines.of(f"{name}:Op") for name in "abc"] == [(CALL, SECOND), (STEP, ""), (CALL, "")]


def test_without_a_capture_there_is_none() -> None:
    assert lines_of().of("net/dense/MatMul:MatMul") == ("", "")
