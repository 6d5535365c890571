"""Shows the critical path: what made the steps as long as they were, by state."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.record import Count, Record, Share, Words
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import STATES, look_of
from traceview.ledger.states import State
from traceview.ledger.table import by_size, totals

_NAMED: Final = 3
"""States that the first sentence names."""


class CriticalPath(Record, frozen=True):
    """What made the used steps as long as they were.

    Attributes:
        states: Picoseconds by state, mean over the steps, rounded down, largest first.
        share_by_state: Share of all steps together, by state.
        step_count: Steps whose path was walked; in a run without used steps 0, and the window of each host is one.
    """

    states: dict[Words, Count]
    share_by_state: dict[Words, Share]
    step_count: Count


def compute(context: Context) -> CriticalPath | Skipped:
    """The path of every used step, and what it consists of."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    trace, ledger = context.trace, context.ledger
    path = ledger.path
    if not path.row.size:
        return Skipped("no device ran a kernel in the window")
    # Without steps, the window of each host is one.
    walks = path.step if ledger.has_steps else trace.host_of_device[ledger.device[path.row]]
    count = unique_ids(walks).size
    state = ledger.columns.state[path.row]
    total = totals(state, path.duration_ps, len(State))
    whole = int(total.sum())
    return CriticalPath(
        states=by_size(total // count),
        share_by_state={key: ps / whole for key, ps in by_size(total).items()},
        step_count=count if ledger.has_steps else 0,
    )


# The section


def section(view: View, result: CriticalPath) -> doc.Section:
    """What made the steps as long as they were."""
    brief = view.is_brief
    return doc.Section(
        "path",
        "Critical path",
        (
            *_by_state(view, result),
            *doc.remarks(
                None
                if brief
                else "From the end of a step backwards: where a device waits for another one, the path goes on there. "
                "Its parts sum to the step."
            ),
        ),
        lead=_lead(result),
    )


def _lead(result: CriticalPath) -> str:
    named = [
        f"{look_of(STATES, key).words} {numbers.percent(ratio)}"
        for key, ratio in list(result.share_by_state.items())[:_NAMED]
    ]
    return f"The steps consist of {numbers.listed(named)}."


def _by_state(view: View, result: CriticalPath) -> tuple[doc.Table, ...]:
    shown = (
        Shown("on the path", lambda row: look_of(STATES, row[0]), kind="look"),
        Shown("share", itemgetter(1), kind="share", meaning="of all steps together"),
        Shown("", lambda row: doc.Bar((doc.Part(look_of(STATES, row[0]), 1.0),), row[1]), 3, "bar"),
        Shown(
            "mean per step" if result.step_count else "mean",
            lambda row: result.states.get(row[0], 0),
            kind="time",
        ),
    )
    return table(
        "The critical path by state",
        list(result.share_by_state.items()),
        shown,
        most_rows=view.few_rows,
        rest=f"{view.command('report')} -o report",
    )


ANALYSIS: Final = Analysis[CriticalPath]("path", compute=compute, sections=(section,))
