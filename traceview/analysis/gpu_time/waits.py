"""Holds the rows of the ledger in which devices wait for the host, with the line, the gap and the steps that have most of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.python import PythonShare, python_of_rows
from traceview.analysis.gpu_time.host_wait_rules import HOST_BOUND
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import Gap, Idle
from traceview.analysis.measures.step_report import FEWEST_SLOW, distance_of
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import CRITICAL_LIMIT, Chosen, Rule
from traceview.analysis.rules.words import Argument, Line, Number, Ordinal, Time
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import Loss, totals

if TYPE_CHECKING:
    from typing_extensions import Unpack

CLEAR_RATIO: Final = 0.5
"""Of the sampled time: from here on a title names the line, for most of the loss is there."""

_AFFECTED_RATIO: Final = 0.2
"""A step with this share of the most that a state takes in any step is affected by it."""

_OF_AFFECTED_RATIO: Final = 0.8
"""Of the time of a state: where some steps have less of it, the others have it too, and nothing is said of how many."""

FEWEST_TO_COMPARE: Final = 3
"""Of fewer steps none counts as affected."""


def profiler_ratio(context: Context, host: int) -> float:
    """By how much of a step the profiler makes it longer, as the sidecar measured it; 0 where that is not known, or noise."""
    sidecar = context.trace.hosts[host].sidecar
    overhead = sidecar.environment.overhead if sidecar else None
    ratio = (overhead.ratio or 0.0) if overhead else 0.0
    return ratio if overhead and ratio > (overhead.spread_ratio or 0.0) else 0.0


class Waits(Struct, frozen=True, eq=False, dict=True):
    """The rows of some states: how much they are, on which host most, and the steps that have them if most have not."""

    context: Context
    result: Idle
    rows: BoolArray

    @cached_property
    def loss(self) -> Loss:
        """Their sum."""
        return self.context.ledger.loss(self.rows)

    @cached_property
    def device(self) -> int:
        """The device that loses most."""
        lost_ps = self.context.ledger.by_device(self.rows)
        return max(lost_ps, key=lambda device: lost_ps[device])

    @property
    def is_of_small_step(self) -> bool:
        """Whether a step loses much to what dispatch takes in any step: it is short without the profiler, or the loss is no longer
        than calling it and dispatching its ops takes wherever they are so many; not where most are tiny.
        """
        ledger, columns, limits = (
            self.context.ledger,
            self.context.ledger.columns,
            HOST_BOUND.limits,
        )
        if not ledger.has_steps or self.loss.share < CRITICAL_LIMIT:
            return False
        if self.loss.of_ps < limits["small_step_ps"] * (
            1 + profiler_ratio(self.context, self.host)
        ):
            return True
        own = ledger.rows_of(self.device)
        if (columns.activity[own][self.rows[own]] != IDLE).any():
            return False
        dispatch_ps = self._ops_per_step(self.device) * limits["dispatch_ps"]
        return self.loss.mean_ps <= limits["call_ps"] + dispatch_ps

    @property
    def has_many_ops(self) -> bool:
        """Whether to dispatch the ops of some device takes as long as to call the step."""
        most = max(map(self._ops_per_step, self.context.ledger.devices))
        return most * HOST_BOUND.limits["dispatch_ps"] >= HOST_BOUND.limits["call_ps"]

    def _ops_per_step(self, device: int) -> float:
        ledger, columns = self.context.ledger, self.context.ledger.columns
        own = ledger.rows_of(device)
        is_busy = ledger.counts[own] & (columns.activity[own] != IDLE)
        return unique_ids(columns.event[own][is_busy]).size / (ledger.steps_of_device[device] or 1)

    @property
    def host(self) -> int:
        """Its host."""
        return self.context.trace.device_list[self.device].host

    def python(self, state: State) -> PythonShare | None:
        """The line of Python that ran in them, in the state that they are in."""
        return python_of_rows(self.context.idle.python, self.context.ledger, self.rows, state)

    @property
    def line_of_calls(self) -> dict[str, Argument]:
        """The line whose calls of the framework are most of them, where a line is."""
        ledger, columns = self.context.ledger, self.context.ledger.columns
        rows = np.flatnonzero(self.rows & (columns.by_kind == By.PYTHON))
        of_line = totals(columns.by[rows], columns.duration_ps[rows], len(ledger.python))
        if not rows.size or of_line.max() < CLEAR_RATIO * columns.duration_ps[self.rows].sum():
            return {}
        return {"line": Line(ledger.python[int(of_line.argmax())])}

    def gap(self, state: State) -> tuple[str, Gap] | None:
        """The longest listed gap of a device that has most of its time in a state, with the key of the device."""
        named = [row for row in self.result.devices if row.device in self.loss.devices]
        gaps = [(row.device, gap) for row in named for gap in row.gaps if gap.state == state.key]
        return max(gaps, key=lambda pair: pair[1].duration_ps, default=None)

    def finding(
        self,
        rule: Rule,
        *,
        arguments: Mapping[str, Argument] | None = None,
        evidence: Sequence[Evidence] = (),
        notes: Sequence[str] = (),
        unsure: str = "",
        **words: Unpack[Chosen],
    ) -> Finding | None:
        """The finding by a rule, with the line of Python, the longest gap, and the steps that it is about if most have none of it.

        `unsure`: the key of the reason why it is little more than a guess. `words`: as of `Rule.finding`.
        """
        steps, arguments_of_steps = self._affected()
        return rule.of_rows(
            self.context,
            self.rows,
            arguments={**(arguments or {}), **arguments_of_steps},
            confidence=("low", unsure) if unsure else ("high", ""),
            evidence=(
                *evidence,
                *self._sampled(rule.states[0]),
                *self._longest_gap(rule.states[0]),
            ),
            steps=steps,
            notes=(*notes, *(("some",) if steps else ())),
            **words,
        )

    def _sampled(self, state: State) -> Iterator[Evidence]:
        python = self.python(state)
        # After a wait the next step is called; the line of the wait is the cause.
        if python is not None and not (state == State.SYNC and self.line_of_calls):
            yield python.evidence

    def _longest_gap(self, state: State) -> Iterator[Evidence]:
        longest = self.gap(state)
        if longest is None:
            return
        device, gap = longest
        where = "outside of steps" if gap.step is None else f"step {gap.step}"
        yield Evidence("longest_gap_ps", gap.duration_ps, None, device, where)
        if gap.host_event is not None:
            yield event_evidence("host_event", gap.host_event, gap)

    @cached_property
    def is_affected(self) -> BoolArray:
        """By used step of the host, whether it has about as much of it as the one with most; empty without steps."""
        ledger = self.context.ledger
        if not ledger.has_steps:
            return np.zeros(0, dtype=np.bool_)
        of_steps = ledger.by_step(self.rows, self.device)
        return of_steps >= max(int(_AFFECTED_RATIO * int(of_steps.max(initial=0))), 1)

    def _affected(self) -> tuple[tuple[int, ...], dict[str, Argument]]:
        """The numbers of the steps that take what most steps do not have, how many and how long, and how often they come."""
        affected = self.is_affected
        count = int(affected.sum())
        if affected.size < FEWEST_TO_COMPARE or not 0 < 2 * count <= affected.size:
            return (), {}
        used = self.context.selection.used_of(self.host)
        of_steps = self.context.ledger.by_step(self.rows, self.device)
        if of_steps[affected].sum() < _OF_AFFECTED_RATIO * of_steps.sum():
            return (), {}
        chosen = zip(used, affected.tolist(), strict=True)
        steps = tuple(step.number for step, is_affected in chosen if is_affected)
        period = distance_of(steps, [step.number for step in used], FEWEST_SLOW)
        return steps, {
            "affected": Number(count),
            **({"some": Number(count)} if period is None else {"period": Ordinal(period)}),
            "used": Number(len(used), "used step"),
            "each": Time(int(of_steps[affected].sum()) // count),
        }


def line_argument(python: PythonShare | None) -> dict[str, Argument]:
    """The argument that names a line, where most of the time was there."""
    return {"line": Line(python.line)} if python and python.ratio >= CLEAR_RATIO else {}


def event_evidence(metric: str, event: str, gap: Gap) -> Evidence:
    """An event of the thread that a gap is of."""
    return Evidence(metric, event, None, gap.thread or "", value_is="event", where_is="thread")
