"""Says in what the signatures of a function's graphs differ, which is why it was traced more than once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

_SHAPE: Final = re.compile(r"shape=(?:<unknown>|\([^)]*\)|None)")
_PYTHON: Final = re.compile(r"Literal\[(?:'[^']{0,999}'|\"[^\"]{0,999}\"|[^\]]{0,999})\]")
"""How the signature of a graph writes the shape of a tensor and a value of Python (TensorFlow 2.15 to 2.21)."""

_KINDS: Final = (("python", _PYTHON), ("shape", _SHAPE))


def what_differs(graphs: Sequence[Any]) -> list[str]:
    """`python`: a value of Python, `shape`: the shape of a tensor, `other`: anything else; empty for one graph.

    `graphs`: concrete functions.
    """
    if len(graphs) < 2:
        return []
    return list(_differences([_signature(graph) for graph in graphs]))


def _signature(graph: Any) -> list[str]:
    """The arguments of a graph, as text."""
    parameters = graph.function_type.parameters
    return [f"{name}: {parameter.type_constraint}" for name, parameter in parameters.items()]


def _differences(signatures: Sequence[Sequence[str]]) -> Iterator[str]:
    rests = [" ".join(signature) for signature in signatures]
    for kind, pattern in _KINDS:
        if len({" ".join(pattern.findall(rest)) for rest in rests}) > 1:
            yield kind
        rests = [pattern.sub("", rest) for rest in rests]
    if len(set(rests)) > 1:
        yield "other"
