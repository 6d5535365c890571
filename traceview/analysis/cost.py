"""States what something costs a step, and which share of the step that is (docs/method.md, "Cost")."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from traceview.document import numbers
from traceview.intervals import Int64Array

Statistic: TypeAlias = Literal["mean", "median"]
Bound: TypeAlias = Literal["upper", "lower"]


def mean_ps(of_steps: Int64Array) -> int:
    """The mean over the steps, rounded down."""
    return int(of_steps.sum()) // of_steps.size


def mean_of_steps(of_steps: Int64Array) -> int | None:
    """The same; None without steps."""
    return mean_ps(of_steps) if of_steps.size else None


class Cost(Struct, frozen=True):
    """What something costs.

    `ps_per_step`: picoseconds; None without steps. `ratio`: its share of the mean step where it is a mean, of the
    median step where it is a median, and of the window without steps; None where the step has no length. `statistic`:
    which of the two it is; None without steps. `bound`: upper where the true cost is at most this, lower where it is at
    least this; None where it is what was measured.
    """

    ps_per_step: int | None
    ratio: float | None
    statistic: Statistic | None
    bound: Bound | None = None

    def as_bound(self, bound: Bound) -> Cost:
        """The same, as a bound."""
        return replace(self, bound=bound)

    @classmethod
    def per_step(cls, statistic: Statistic, ps: int, step_ps: int) -> Cost:
        """A cost over the used steps, at most the step: an event may go on after its step, and steps of hosts differ."""
        ps = min(ps, step_ps)
        return cls(ps, ps / step_ps if step_ps else None, statistic)

    @property
    def words(self) -> str:
        """What it costs, so that a reader can divide: `15.8 ms of the mean 22.6 ms step`."""
        return cost_words(self.ps_per_step, self.ratio, self.statistic)

    @property
    def stated(self) -> str:
        """The same with the share: `15.8 ms of the mean 22.6 ms step (70.1%)`, `12.5% of the window`."""
        share = numbers.share(self.ratio)
        return f"{self.words} ({share})" if self.statistic is not None else f"{share} of the window"

    @classmethod
    def of_window(cls, ratio: float) -> Cost:
        """A share of the window, in a run without steps."""
        return cls(None, min(ratio, 1.0), None)


def cost_words(ps: int | None, ratio: float | None, statistic: Statistic | None) -> str:
    """What something costs of which step: `15.8 ms of the mean 22.6 ms step`; empty where the time is not known."""
    if ps is None:
        return ""
    if statistic is None or not ratio:
        return f"{numbers.time(ps)} per step"
    return f"{numbers.time(ps)} of the {statistic} {numbers.time(ps / ratio)} step"
