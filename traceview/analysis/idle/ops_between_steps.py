"""Tells whether the Python between steps mostly runs TensorFlow's ops one by one, which a graph would run together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from traceview.analysis.base import Evidence
from traceview.analysis.cost import mean_ps
from traceview.analysis.idle.eager_ops import eager_calls, eager_ops
from traceview.analysis.idle.rules import CALLBACK_STALL, OPS_BETWEEN_STEPS
from traceview.analysis.idle.waiting_device import Waiting
from traceview.analysis.selection import Selection, step_bounds
from traceview.document import numbers
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.state_timeline import complement, intersection, without_holes
from traceview.units import PS_PER_US

_LEAST_COUNT: Final = 20
"""Fewer ops take less time than the call of a graph saves."""

_MOST_BETWEEN_PS: Final = 200 * PS_PER_US
"""Between two calls Python reads variables and checks arguments, which took 40 to 100 µs on two slow cores."""

_LEAST_RATIO: Final = 0.5
"""Of the idle time between steps, what is not the ops' own. Histograms of weights, whose ops take longer than Python does,
took as long in a graph; a moving average of 30 variables took 2 instead of 19 ms."""


class OpsBetweenSteps(Struct, frozen=True):
    """`count_per_step`: median. `ps_per_step`: mean time in which one op follows the other, of which the ops themselves take `own_ps_per_step`. `types`: the most frequent first."""

    count_per_step: int
    ps_per_step: int
    own_ps_per_step: int
    types: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What runs, for an explanation."""
        return (
            f"There Python runs {numbers.count(self.count_per_step)} ops per step one by one, outside of any tf.function, most "
            f"often {numbers.listed(self.types)}. That takes {numbers.time(self.ps_per_step)}, of which the ops themselves take "
            f"{numbers.time(self.own_ps_per_step)}."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        return CALLBACK_STALL.advice_where[OPS_BETWEEN_STEPS]

    def evidence(self, where: str) -> Iterator[Evidence]:
        """What was counted and measured."""
        yield Evidence("eager_ops_per_step", self.count_per_step, _LEAST_COUNT, where)
        yield Evidence("eager_dispatch_ps", self.ps_per_step - self.own_ps_per_step, None, where)


def ops_between_steps(
    trace: Trace, waiting: Waiting, states: HostStates, selection: Selection, host: int
) -> OpsBetweenSteps | None:
    """The ops that run one by one between the step markers of a host; None if a graph would not save most of the time."""
    idle_ps = waiting.idle_of(CALLBACK_STALL)
    if not idle_ps or not states.markers.start.size or not waiting.has_steps:
        return None
    between = complement(states.markers)
    calls = eager_calls(trace, selection, host, between)
    if calls is None or calls.count_per_step < _LEAST_COUNT:
        return None
    start, end = step_bounds(selection.used_of(host))
    ops, running = eager_ops(trace, selection, host), without_holes(calls.spans, _MOST_BETWEEN_PS)
    own_ps = mean_ps(intersection(ops.spans, between).within(start, end)) if ops else 0
    ps_per_step = mean_ps(running.within(start, end))
    if ps_per_step - own_ps < _LEAST_RATIO * idle_ps:
        return None
    return OpsBetweenSteps(calls.count_per_step, ps_per_step, own_ps, calls.types)
