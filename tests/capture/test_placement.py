from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from traceview.capture.steps.graphs import count_ops, training_loop

GPU_0, GPU_1 = "/device:GPU:0", "/device:GPU:1"


@dataclass
class Op:
    type: str
    device: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def get_attr(self, name: str) -> Any:
        return self.attributes[name]


@dataclass
class Graph:
    ops: list[Op]
    functions: dict[str, Graph] = field(default_factory=dict)
    variables: tuple[Any, ...] = ()

    def get_operations(self) -> list[Op]:
        return self.ops

    def _get_function(self, name: str) -> Any:
        return SimpleNamespace(graph=self.functions[name])


def test_ops_are_counted_with_those_of_the_functions_that_are_called() -> None:
    branch = SimpleNamespace(name="branch")
    inner = Graph([Op("MatMul"), Op("Add", GPU_1)])
    outer = Graph(
        [
            Op("Const"),
            Op("If", GPU_0, {"then_branch": branch, "else_branch": branch}),
            Op("Case", "", {"branches": [branch]}),
        ],
        {"branch": inner},
    )
    assert count_ops(outer) == {GPU_0: 3, GPU_1: 3, "": 3}


UPDATE, GRADIENT = Op("AssignSubVariableOp"), Op("MatMul", name="replica_1/gradient_tape/MatMul")
BODY = {"body": SimpleNamespace(name="body"), "cond": SimpleNamespace(name="cond")}
STEP = {"f": SimpleNamespace(name="step")}


@pytest.mark.parametrize(
    ("ops", "body", "loop"),
    [
        ([Op("While", "", BODY)], [UPDATE, GRADIENT], "While"),
        ([Op("ReduceDataset", "", STEP)], [], "ReduceDataset"),
        ([Op("If", "", {"then_branch": BODY["body"], "else_branch": BODY["cond"]})], [], None),
        ([Op("While", "", BODY)], [Op("StatefulPartitionedCall", "", STEP)], "While"),
        (
            [Op("PartitionedCall", "", {"f": BODY["body"]})],
            [Op("ScanDataset", "", STEP)],
            "ScanDataset",
        ),
        # A loop in a layer, the loop of its gradients, and one over parts of a batch.
        ([UPDATE, GRADIENT, Op("While", "", BODY)], [UPDATE], None),
        ([UPDATE, GRADIENT, Op("While", "", BODY)], [GRADIENT], None),
        ([Op("StatefulPartitionedCall", "", STEP)], [], None),
    ],
)
def test_a_training_loop_is_one_that_updates_variables_from_gradients(
    ops: list[Op], body: list[Op], loop: str | None
) -> None:
    functions = {"body": Graph(body), "cond": Graph([]), "step": Graph([UPDATE, GRADIENT])}
    functions["body"].functions = functions
    assert training_loop(Graph(ops, functions)) == loop


def test_a_recursive_function_is_counted_once() -> None:
    itself = SimpleNamespace(name="itself")
    graph = Graph([Op("PartitionedCall", "", {"f": itself}), Op("Add", GPU_0)])
    graph.functions["itself"] = graph
    assert count_ops(graph) == {GPU_0: 2, "": 2}
