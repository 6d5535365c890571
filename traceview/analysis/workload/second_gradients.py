"""Finds ops of gradients that are differentiated again, such as those of a penalty on the size of a gradient.

A tape of TensorFlow names the gradient of `critic_1/dense/MatMul` `gradient_tape/critic_1/dense/MatMul/…`, and one around it puts
`gradient_tape/` before that once more (TensorFlow 2.21). JAX names what a gradient is differentiated to
`jvp(transpose(jvp(critic)))` (JAX 0.10).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import numpy as np

from traceview.analysis.facts.layers import instructions_that
from traceview.analysis.measures.context import Context
from traceview.base.intervals import BoolArray
from traceview.base.text import lazy_pattern
from traceview.trace.device.op_names import op_names

_TAPE: Final = "gradient_tape/"
_TWICE: Final = _TAPE * 2
_AGAIN: Final = lazy_pattern(r"jvp\((?:vmap\()*transpose\(")


def of_second_gradients(context: Context) -> BoolArray:
    """Which labels are ops of layers whose gradient is differentiated again, in that call of them: forward, backward, and again."""
    trace = context.trace
    ops, op_of_label = trace.once(op_names)
    names = [f"{name or ''}/" for name, _ in ops]
    calls = _outermost(_call_of(name) for name in names if _TWICE in name)
    marks = []
    for name in names:
        bare = name.rpartition(_TAPE)[2]
        place = bisect_right(calls, bare)
        marks.append(place > 0 and bare.startswith(calls[place - 1]))
    # An op of a program of XLA is named after one of those that it was made of.
    again = instructions_that(trace, lambda each: _AGAIN.search(each.scope) is not None)
    labels: BoolArray = np.array(marks, dtype=np.bool_)[op_of_label] | again
    return labels


def _call_of(name: str) -> str:
    """The layer, or the op outside of layers, whose gradient an op differentiates: `dense/` of `…/dense/MatMul/MatMul/`."""
    parts = name.rpartition(_TWICE)[2].split("/")[:-1]
    return "/".join(parts[:-2] or parts[:1]) + "/"


def _outermost(scopes: Iterable[str]) -> list[str]:
    """Those that are in no other, in order."""
    kept: list[str] = []
    for scope in sorted(set(scopes)):
        if not (kept and scope.startswith(kept[-1])):
            kept.append(scope)
    return kept
