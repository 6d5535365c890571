"""Checks what is said to differ between the graphs of a function, by signatures as TensorFlow writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceview.capture.steps.placement import what_differs


def graph(**arguments: str) -> Any:
    parameters = {
        name: SimpleNamespace(type_constraint=constraint) for name, constraint in arguments.items()
    }
    return SimpleNamespace(function_type=SimpleNamespace(parameters=parameters))


def tensor(shape: str, dtype: str = "tf.float32") -> str:
    return f"TensorSpec(shape={shape}, dtype={dtype}, name=None)"


@pytest.mark.parametrize(
    ("graphs", "kinds"),
    [
        ([graph(x=tensor("(2, 3)"), rate="Literal[1.0]")], []),
        ([graph(rate="Literal[1.0]"), graph(rate="Literal[2.0]")], ["python"]),
        ([graph(flag="Literal[True]"), graph(flag="Literal[False]")], ["python"]),
        ([graph(mode="Literal['a]b']"), graph(mode="Literal['a]c']")], ["python"]),
        ([graph(x=tensor("(2, 3)")), graph(x=tensor("(1, 3)"))], ["shape"]),
        ([graph(x=tensor("()")), graph(x=tensor("<unknown>"))], ["shape"]),
        (
            [
                graph(x=f"Tuple[{tensor('(2, 3)')}, Literal[1]]"),
                graph(x=f"Tuple[{tensor('(4, 3)')}, Literal[2]]"),
            ],
            ["python", "shape"],
        ),
        ([graph(x=tensor("(2, 3)")), graph(x=tensor("(2, 3)", "tf.float64"))], ["other"]),
        ([graph(x=tensor("(2, 3)")), graph(x="Literal[1]")], ["python", "shape", "other"]),
    ],
)
def test_what_differs(graphs: list[Any], kinds: list[str]) -> None:
    assert what_differs(graphs) == kinds


def test_a_single_graph_need_not_be_read() -> None:
    assert what_differs([SimpleNamespace()]) == []
