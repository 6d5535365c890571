from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from traceview.capture.steps.graphs import training_loop


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
