from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from traceview.capture.sidecar.file import Sidecar
from traceview.capture.steps.graphs import count_ops, training_loop
from traceview.capture.steps.placement import PlacementListener, describe_steps
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.steps.step_objects import StepObjects
from traceview.capture.steps.strategy import find_strategies

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


class Container:
    """Mirrors variables."""

    def __init__(self, strategy: Any) -> None:
        self._distribute_strategy = strategy


def variable(device: str, elements: int, container: Any = None, **more: Any) -> Any:
    fields = {"name": f"v{elements}:0", "trainable": True, "kind": "float", "size": 4, **more}
    is_float = fields["kind"] == "float"
    dtype = SimpleNamespace(is_floating=is_float, is_complex=False, size=fields["size"])
    made = SimpleNamespace(
        name=fields["name"],
        device=device,
        trainable=fields["trainable"],
        dtype=dtype,
        shape=SimpleNamespace(num_elements=lambda: elements),
    )
    if container is not None:
        made.handle = SimpleNamespace(_distributed_container=ref(container))
    return made


class Function(SimpleNamespace):
    """Can be referred to weakly, as TensorFlow's can."""


def function(name: str, graph: Graph, **more: Any) -> Any:
    trace = SimpleNamespace(graph=graph)
    return Function(_name=name, _function_cache={0: trace}, **more)


def steps_of(name: str, thing: Any) -> StepObjects:
    steps = StepObjects()
    steps.add(name, thing)
    return steps


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
    assert count_ops(outer).as_json() == {
        "op_count": 9,
        "ops_per_device": {GPU_0: 3, GPU_1: 3},
        "ops_without_device": 3,
        "ops_per_type": {"MatMul": 3, "Add": 3, "Const": 1, "If": 1, "Case": 1},
    }


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


def test_a_call_that_makes_more_steps_than_it_counts_for_is_noted() -> None:
    made = function("epoch", Graph([Op("While", "", BODY)]))
    graphs = {"body": Graph([UPDATE, GRADIENT]), "cond": Graph([])}
    made._function_cache[0].graph.functions = graphs
    sidecar = Sidecar()
    for count, notes in ((5, set()), (1, {"steps"})):
        sidecar.add("window", {"calls": [{"function": "epoch", "count": count}]})
        PlacementListener(steps_of("epoch", made), StepInputs()).closed(sidecar, Path("trace"))
        assert sidecar.groups.get("notes", {}).keys() == notes
    (line,) = sidecar.groups["notes"]["steps"]
    assert line.startswith("one call of epoch counts as one step, but")
    assert sidecar.groups["placement"]["functions"][0]["training_loop"] == "While"


def test_a_recursive_function_is_counted_once() -> None:
    itself = SimpleNamespace(name="itself")
    graph = Graph([Op("PartitionedCall", "", {"f": itself}), Op("Add")])
    graph.functions["itself"] = graph
    assert count_ops(graph).types["Add"] == 2


def test_variables_per_device_and_what_is_trained() -> None:
    extended = SimpleNamespace(worker_devices=(GPU_0, GPU_1), parameter_devices=(GPU_0, GPU_1))
    strategy = SimpleNamespace(extended=extended, num_replicas_in_sync=2)
    kernel = Container(strategy)
    parts = [variable(GPU_0, 6, kernel), variable(GPU_1, 6, kernel)]
    others = [
        variable(GPU_0, 3, name="loose:0"),
        variable(GPU_0, 1, name="steps:0", kind="int", size=8),
        variable(GPU_0, 2, name="mean:0", trainable=False),
    ]
    graph = Graph([Op("MatMul", GPU_0)], variables=(*parts, *others))
    made = function("train", graph)
    found = describe_steps(["train"], steps_of("train", made), StepInputs())
    (described,) = found["placement"]["functions"]
    assert described["variables"]["per_device"] == {
        GPU_0: {"count": 4, "bytes": 52, "mirrored": 1, "trainable": 2},
        GPU_1: {"count": 1, "bytes": 24, "mirrored": 1, "trainable": 1},
    }
    assert described["variables"]["not_mirrored"] == {
        "count": 3,
        "trainable": 1,
        "names": ["loose:0", "mean:0", "steps:0"],
    }
    assert found["training"]["parameters"] == 9
    assert found["training"]["gradient_bytes"] == 36
    assert found["strategy"]["found_by"] == "variables"
    assert found["strategy"]["missing"] == {
        "cross_device_ops": "this strategy has no cross-device ops so far"
    }


def test_a_function_that_is_gone_and_a_graph_that_cannot_be_read() -> None:
    class Broken(Graph):
        def get_operations(self) -> list[Op]:
            raise RuntimeError("the graph is gone")

    made = function("train", Broken([]))
    steps = steps_of("train", made)
    steps.add("other", function("other", Graph([])))  # held by nobody
    found = describe_steps(["train", "other"], steps, StepInputs())["placement"]
    assert "no graph of it was recorded" in found["missing"]["other"]
    assert found["functions"][0]["missing"] == {"ops": "RuntimeError: the graph is gone"}


def test_several_strategies_are_not_chosen_from() -> None:
    owners = [Container(SimpleNamespace()), Container(SimpleNamespace())]
    variables = tuple(variable(GPU_0, 1, owner) for owner in owners)
    made = function("train", Graph([], variables=variables))
    strategy = describe_steps(["train"], steps_of("train", made), StepInputs())["strategy"]
    assert strategy["missing"]["class"].startswith("several strategies")


def test_a_model_is_found_by_its_training() -> None:
    frozen = variable(GPU_0, 5)
    graph = Graph([Op("Add")], variables=(frozen, variable(GPU_0, 2)))

    class Model:
        name = "net"
        non_trainable_variables = (SimpleNamespace(_value=frozen),)

        def __init__(self) -> None:

            def one_step() -> Any:
                return self

            self.step = function("multi_step", graph, _python_function=one_step)
            step = Callable(self.step)

            def train_function() -> Any:
                return step

            self.train_function = train_function

    model = Model()
    found = describe_steps(["net"], steps_of("net", model), StepInputs())
    assert [f["name"] for f in found["placement"]["functions"]] == ["multi_step"]
    assert found["training"]["parameters"] == 2


class Callable:
    """A traced function that can be called, as TensorFlow's can."""

    def __init__(self, made: Any) -> None:
        self._name, self._function_cache = made._name, made._function_cache

    def __call__(self) -> None: ...


def test_without_tensorflow_nothing_is_found() -> None:
    assert find_strategies() == []


def test_the_listener_asks_for_the_functions_of_the_window() -> None:
    sidecar, listener = Sidecar(), PlacementListener(StepObjects(), StepInputs())
    call = {"function": "train", "count": 1}
    sidecar.add("window", {"calls": [call, call]})
    listener.opening(sidecar)
    listener.opened(sidecar)
    listener.closed(sidecar, Path("trace"))
    assert list(sidecar.groups["placement"]["missing"]) == ["train"]
    assert sidecar.groups["listener_cost_ns"]["placement"] > 0
