"""Lines of ops are kept once, of scopes where one suffices, and never for what another line may have made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from traceview.capture.sidecar.file import NoAnswerError, Sidecar
from traceview.capture.steps.placement import PlacementListener, describe_lines
from traceview.capture.steps.step_inputs import StepInputs

HERE, PACKAGES = "/home/u/job", "/venv/lib/python3.12/site-packages"
KERAS = f"{PACKAGES}/keras/src/layers/layer.py"
GEN = f"{PACKAGES}/tensorflow/python/ops/gen_math_ops.py"
TRACING = f"{PACKAGES}/tensorflow/python/eager/polymorphic_function/polymorphic_function.py"
TAPE = f"{PACKAGES}/tensorflow/python/eager/backprop.py"
REPLICAS = f"{PACKAGES}/tensorflow/python/distribute/mirrored_run.py"
FIT = (f"{HERE}/train.py", KERAS, TRACING)
THREAD = (REPLICAS, KERAS)


class Frame(NamedTuple):
    filename: str
    lineno: int
    name: str


def op(name: str, *files: str, type_: str = "Mul", calls: str = "") -> Any:
    """An op that files made, the outermost first."""
    frames = tuple(Frame(file, len(file), "f") for file in files)
    attribute = SimpleNamespace(name=calls)
    kind = "PartitionedCall" if calls else type_
    return SimpleNamespace(
        name=name, type=kind, traceback=frames or None, get_attr=lambda _: attribute
    )


def graph(ops: Sequence[Any], **functions: Any) -> Any:
    return SimpleNamespace(
        get_operations=lambda: ops,
        _get_function=lambda name: SimpleNamespace(graph=functions[name]),
    )


def lines(*graphs: Any) -> dict[str, str | None]:
    """By name the file that made it."""
    described = describe_lines(graphs)
    assert len(set(described["lines"])) == len(described["lines"])
    return {
        name: None if place is None else described["lines"][place].partition(":")[0]
        for name, place in described["line_of"].items()
    }


def own(file: str) -> str:
    return f"{HERE}/{file}.py"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((*FIT, KERAS, own("layer"), KERAS, GEN), "layer.py"),
        ((*FIT, own("outer"), KERAS, own("inner"), GEN), "inner.py"),
        ((own("train"), TRACING, own("outer"), TRACING, KERAS, GEN), "outer.py"),
        # A line with `fit` makes all that is made.
        ((*FIT, KERAS, GEN), None),
        ((*THREAD, own("layer"), GEN), "layer.py"),
        ((*THREAD, own("step"), TRACING, KERAS, GEN), "step.py"),
        ((*THREAD, KERAS, GEN), None),
        ((*THREAD, own("step"), TAPE, GEN), None),
        ((*THREAD, own("step"), TAPE, own("gradient"), GEN), "gradient.py"),
        # What replicas do together.
        ((own("train"), TRACING, own("step"), REPLICAS, KERAS, GEN), None),
        ((*THREAD, "/tmp/__autograph_generated_file1.py", GEN), None),
        ((), None),
    ],
)
def test_the_line_is_that_of_the_innermost_frame_that_is_traced(
    files: tuple[str, ...], found: str | None
) -> None:
    assert lines(graph([op("a", *files)])) == ({} if found is None else {"a": found})


def test_a_scope_stands_for_its_ops_where_all_have_one_line() -> None:
    a, b, library = (*THREAD, own("a")), (*THREAD, own("b")), (*THREAD, KERAS)
    ops = [
        op("net/one/x", *a),
        op("net/one/deep/y", *a),
        op("net/two/x", *a),
        op("net/two/y", *b),
        op("net/three/x", *a),
        op("net/three/y", *library),
        op("sgd/x", *b),
        # Constants, updates and gradients say nothing of their scope.
        op("net/one/c", *b, type_="Const"),
        op("sgd/update_0_1/x", *a),
        op("sgd/all", own("train"), TRACING, own("a"), REPLICAS, KERAS),
        op("gradient_tape/net/one/x", *b),
    ]
    assert lines(graph(ops)) == {
        "net/one/": "a.py",
        "net/two/x": "a.py",
        "net/two/y": "b.py",
        "net/three/x": "a.py",
        "sgd/": "b.py",
    }


def test_ops_of_one_name_are_told_apart_by_calls() -> None:
    a, b = (*THREAD, own("a")), (*THREAD, own("b"))
    inner = graph([op("x", *b), op("y", *b)])
    outer = graph([op("x", *a), op("s/call", *a, calls="f"), op("call", *a, calls="f")], f=inner)
    assert lines(outer) == {
        "x": None,
        "/x": "a.py",
        "/s/call/x": "b.py",
        "/call/x": "b.py",
        "y": "b.py",
        "s/": "a.py",
        "call": "a.py",
    }
    # Both branches of a condition have the same path.
    assert lines(outer, graph([op("x", *b)]))["/x"] is None


def test_endless_and_many_calls_end() -> None:
    itself = graph([op("call", *THREAD, own("a"), calls="f")])
    itself._get_function = lambda _: SimpleNamespace(graph=itself)
    assert lines(itself) == {"call": "a.py"}
    itself.get_operations = lambda: [op(f"call_{n}", calls="f") for n in range(10)]
    with pytest.raises(NoAnswerError, match="more than 100,000 ops"):
        describe_lines([itself])


@pytest.mark.parametrize("is_wanted", [True, False])
def test_without_source_there_is_no_line(is_wanted: bool) -> None:
    class Function(SimpleNamespace):
        pass

    made = graph([op("a", *THREAD, own("layer"))])
    made.variables = made.captures = ()
    function = Function(_name="train", _function_cache={0: SimpleNamespace(graph=made)})
    steps: Any = SimpleNamespace(functions_of=lambda _: [function], callees=(), inputs=StepInputs())
    sidecar = Sidecar()
    sidecar.add("window", {"calls": [{"function": "train", "count": 5}]})
    listener = PlacementListener(steps, is_source_wanted=is_wanted)
    listener.closed(sidecar, Path("trace"))
    assert ("line_of" in sidecar.groups["graphs"]) is is_wanted


class Stack(tuple[Frame, ...]):
    """As TensorFlow's, which raises where it is compared with anything else."""

    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stack):
            raise TypeError("incompatible function arguments")
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def test_ops_of_a_graph_that_was_read_from_a_file_have_no_stack() -> None:
    made = [op("a", *THREAD, own("step"), GEN), op("read"), op("b", *THREAD, own("step"), GEN)]
    for each in made:
        each.traceback = each.traceback and Stack(each.traceback)
    assert lines(graph(made)) == {"a": "step.py", "b": "step.py"}
