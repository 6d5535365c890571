"""Graphs of endless calls, of ops without a stack, and captures without source; lines of real graphs: `test_op_lines_real.py`."""

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
GEN = f"{PACKAGES}/tensorflow/python/ops/gen_math_ops.py"
THREAD = (
    f"{PACKAGES}/tensorflow/python/distribute/mirrored_run.py",
    f"{PACKAGES}/keras/src/layers/layer.py",
)


class Frame(NamedTuple):
    filename: str
    lineno: int
    name: str


def op(name: str, *files: str, calls: str = "") -> Any:
    """An op that files made, the outermost first."""
    frames = tuple(Frame(file, len(file), "f") for file in files)
    attribute = SimpleNamespace(name=calls)
    kind = "PartitionedCall" if calls else "Mul"
    return SimpleNamespace(
        name=name, type=kind, traceback=frames or None, get_attr=lambda _: attribute
    )


def graph(ops: Sequence[Any]) -> Any:
    return SimpleNamespace(get_operations=lambda: ops)


def lines(graph: Any) -> dict[str, str | None]:
    """By name the file that made it."""
    described = describe_lines([graph])
    return {
        name: None if place is None else described["lines"][place].partition(":")[0]
        for name, place in described["line_of"].items()
    }


def own(file: str) -> str:
    return f"{HERE}/{file}.py"


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
