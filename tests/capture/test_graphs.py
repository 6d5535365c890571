"""What is read off graphs that real captures do not show; lines, ops and signatures of others: the `*_real.py` beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from traceview.base.errors import NoAnswerError
from traceview.capture.process.python_code import SHOWN_FILE, CodePlaces
from traceview.capture.sidecar.file import Sidecar
from traceview.capture.steps.op_lines import describe_lines
from traceview.capture.steps.placement import PlacementListener, what_differs
from traceview.capture.steps.step_inputs import StepInputs
from traceview.graphs.calls import training_loop
from traceview.graphs.zeros import gives_zeros

HERE, PACKAGES = "/home/u/job", "/venv/lib/python3.12/site-packages"
GEN = f"{PACKAGES}/tensorflow/python/ops/gen_math_ops.py"
THREAD = (
    f"{PACKAGES}/tensorflow/python/distribute/mirrored_run.py",
    f"{PACKAGES}/keras/src/layers/layer.py",
)


class Frame(NamedTuple):
    filename: str
    lineno: int
    name: str


@dataclass
class Op:
    """An op, and the files that made it, the outermost first."""

    type: str
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    traceback: tuple[Frame, ...] | None = None

    def get_attr(self, name: str) -> Any:
        return self.attributes[name]


@dataclass
class Graph:
    ops: Sequence[Op]
    functions: dict[str, Graph] = field(default_factory=dict)
    variables: tuple[Any, ...] = ()
    captures: tuple[Any, ...] = ()

    def get_operations(self) -> Sequence[Op]:
        return self.ops

    def _get_function(self, name: str) -> Any:
        return SimpleNamespace(graph=self.functions[name])


def call(name: str, function: str) -> Op:
    return Op("PartitionedCall", {"f": SimpleNamespace(name=function)}, name)


def made_by(name: str, *files: str) -> Op:
    return Op("Mul", {}, name, Stack(Frame(file, len(file), "f") for file in files) or None)


def lines(graph: Graph) -> dict[str, str | None]:
    described = describe_lines([graph])
    return {
        name: None if place is None else described["lines"][place].partition(":")[0]
        for name, place in described["line_of"].items()
    }


class Stack(tuple[Frame, ...]):
    """As TensorFlow's, which raises where it is compared with anything else."""

    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stack):
            raise TypeError("incompatible function arguments")
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def own(file: str) -> str:
    return f"{HERE}/{file}.py"


def test_endless_and_many_calls_end() -> None:
    first = call("call", "f")
    first.traceback = made_by("", *THREAD, own("a")).traceback
    itself = Graph([first])
    itself.functions["f"] = itself
    assert lines(itself) == {"call": "a.py"}
    itself.ops = [call(f"call_{n}", "f") for n in range(10)]
    with pytest.raises(NoAnswerError, match="more than 100,000 ops"):
        describe_lines([itself])


@pytest.mark.parametrize("is_wanted", [True, False])
def test_without_source_there_is_no_line(is_wanted: bool) -> None:
    class Function(SimpleNamespace):
        pass

    made = Graph([made_by("a", *THREAD, own("layer"))])
    function = Function(_name="train", _function_cache={0: SimpleNamespace(graph=made)})
    steps: Any = SimpleNamespace(functions_of=lambda _: [function], callees=(), inputs=StepInputs())
    sidecar = Sidecar()
    sidecar.add("window", {"calls": [{"function": "train", "count": 5}]})
    listener = PlacementListener(steps, is_source_wanted=is_wanted)
    listener.closed(sidecar, Path("trace"))
    assert ("line_of" in sidecar.groups["graphs"]) is is_wanted


def test_ops_of_a_graph_that_was_read_from_a_file_have_no_stack() -> None:
    step = (*THREAD, own("step"), GEN)
    assert lines(Graph([made_by("a", *step), made_by("read"), made_by("b", *step)])) == {
        "a": "step.py",
        "b": "step.py",
    }


UPDATE, GRADIENT = Op("AssignSubVariableOp"), Op("MatMul", name="replica_1/gradient_tape/MatMul")
BODY = {"body": SimpleNamespace(name="body"), "cond": SimpleNamespace(name="cond")}
STEP = {"f": SimpleNamespace(name="step")}


@pytest.mark.parametrize(
    ("ops", "body", "loop"),
    [
        ([Op("While", BODY)], [UPDATE, GRADIENT], "While"),
        ([Op("ReduceDataset", STEP)], [], "ReduceDataset"),
        ([Op("If", {"then_branch": BODY["body"], "else_branch": BODY["cond"]})], [], None),
        ([Op("While", BODY)], [Op("StatefulPartitionedCall", STEP)], "While"),
        (
            [Op("PartitionedCall", {"f": BODY["body"]})],
            [Op("ScanDataset", STEP)],
            "ScanDataset",
        ),
        # A loop in a layer, the loop of its gradients, and one over parts of a batch.
        ([UPDATE, GRADIENT, Op("While", BODY)], [UPDATE], None),
        ([UPDATE, GRADIENT, Op("While", BODY)], [GRADIENT], None),
        ([Op("StatefulPartitionedCall", STEP)], [], None),
    ],
)
def test_a_training_loop_is_one_that_updates_variables_from_gradients(
    ops: list[Op], body: list[Op], loop: str | None
) -> None:
    functions = {"body": Graph(body), "cond": Graph([]), "step": Graph([UPDATE, GRADIENT])}
    functions["body"].functions = functions
    assert training_loop(Graph(ops, functions)) == loop


def signed(**arguments: str) -> Any:
    parameters = {
        name: SimpleNamespace(type_constraint=constraint) for name, constraint in arguments.items()
    }
    return SimpleNamespace(function_type=SimpleNamespace(parameters=parameters))


def tensor(shape: str, dtype: str = "tf.float32") -> str:
    return f"TensorSpec(shape={shape}, dtype={dtype}, name=None)"


@pytest.mark.parametrize(
    ("graphs", "kinds"),
    [
        ([signed(x=tensor("(2, 3)"), rate="Literal[1.0]")], []),
        ([signed(rate="Literal[1.0]"), signed(rate="Literal[2.0]")], ["python"]),
        ([signed(mode="Literal['a]b']"), signed(mode="Literal['a]c']")], ["python"]),
        ([signed(x=tensor("(2, 3)")), signed(x=tensor("(1, 3)"))], ["shape"]),
        ([signed(x=tensor("()")), signed(x=tensor("<unknown>"))], ["shape"]),
        (
            [
                signed(x=f"Tuple[{tensor('(2, 3)')}, Literal[1]]"),
                signed(x=f"Tuple[{tensor('(4, 3)')}, Literal[2]]"),
            ],
            ["python", "shape"],
        ),
        ([signed(x=tensor("(2, 3)")), signed(x=tensor("(2, 3)", "tf.float64"))], ["other"]),
        ([signed(x=tensor("(2, 3)")), signed(x="Literal[1]")], ["python", "shape", "other"]),
        (
            [
                signed(x=f"List[{tensor('(2,)')}]"),
                signed(x=f"List[{tensor('(2,)')}, {tensor('(3,)')}]"),
            ],
            ["structure"],
        ),
    ],
)
def test_what_differs(graphs: list[Any], kinds: list[str]) -> None:
    assert what_differs(graphs) == kinds


@pytest.mark.parametrize(
    "kept", [None, SimpleNamespace(), SimpleNamespace(_cache=SimpleNamespace(_cache={}))]
)
def test_without_the_map_the_function_is_known(
    monkeypatch: pytest.MonkeyPatch, kept: object
) -> None:
    """As in a version of TensorFlow that keeps it elsewhere; with the map: `test_python_real.py`."""
    name = "tensorflow.python.autograph.impl.api"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(_TRANSPILER=kept))
    space: dict[str, Any] = {}
    source = "def tf__train_step(look):\n    return look()\n"
    exec(compile(source, "/tmp/__autograph_generated_filex1.py", "exec"), space)
    origin = CodePlaces([Path("/home/me/job")]).origin_of(space["tf__train_step"].__code__)
    assert (origin.file, origin.kind) == (SHOWN_FILE, "package")
    assert (origin.function, origin.line_of(2)) == ("train_step", 2)


# Zeros, in ops that are not built here: those of GPUs

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
