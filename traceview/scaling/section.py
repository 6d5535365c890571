"""Shows runs on different numbers of devices: a sentence, a table, and three charts over the number of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import Trend, TrendPoint
from traceview.document.vocabulary import STATES, look_of
from traceview.scaling.result import Efficiency, ScaledRuns

_SHOWN_PARTS: Final = 3
_LEAST_GROWTH: Final = 0.01
"""Of the step: what a part has to grow by for a column."""


def headline(scaled: ScaledRuns) -> str:
    """The efficiency on the most devices, and which state grows."""
    fewest, most = scaled.rows[0], scaled.rows[-1]
    slower = "slower than" if most.speedup < 1 else ""
    words = (
        f"{most.device_count} devices are {slower or f'{most.speedup:.3g} times as fast as'} "
        f"{fewest.device_count}: efficiency {numbers.share(most.efficiency_ratio)}"
    )
    if not scaled.growing or not _is_shown(scaled, 0):
        return words
    part = scaled.growing[0]
    name = look_of(STATES, part.state).words
    return (
        f"{words}; {name} grows from {numbers.share(part.least_share_ratio)} of the step to "
        f"{numbers.share(part.most_share_ratio)}"
    )


def _is_shown(scaled: ScaledRuns, place: int) -> bool:
    part = scaled.growing[place]
    return part.most_share_ratio - part.least_share_ratio >= _LEAST_GROWTH


def scaling_section(scaled: ScaledRuns) -> doc.Section:
    """A row for each number of devices, with the states whose share grows most."""
    rows = scaled.rows
    shown = [
        part.state
        for place, part in enumerate(scaled.growing[:_SHOWN_PARTS])
        if _is_shown(scaled, place)
    ]
    columns = [
        doc.ordinals("devices", [row.device_count for row in rows]),
        doc.times("step", [row.step_ps for row in rows]),
        doc.numbers("examples/s", [row.examples_per_second for row in rows], priority=1),
        doc.numbers("speed-up", [row.speedup for row in rows], priority=2),
        doc.shares("efficiency", [row.efficiency_ratio for row in rows]),
        *(
            doc.shares(look_of(STATES, key).words, [_share(row, key) for row in rows])
            for key in shown
        ),
        doc.counts("batch", [row.batch_size for row in rows], priority=3),
        doc.names("runs", [numbers.listed(row.runs, 2) for row in rows], priority=4),
    ]
    remark = "Shares are of the mean step, over all devices." if shown else None
    return doc.Section(
        "scaling",
        "Scaling",
        (
            *_charts(scaled),
            *doc.table("Runs by number of devices", columns),
            *doc.notes(*scaled.remarks),
            *doc.remarks(remark),
        ),
        lead=f"{headline(scaled)}.",
        is_folded=False,
    )


def _share(row: Efficiency, key: str) -> float | None:
    return row.states_ps.get(key, 0) / row.step_ps if row.states_ps else None


def _charts(scaled: ScaledRuns) -> Iterator[doc.Block]:
    charts: tuple[
        tuple[str, Literal["time", "number", "share"], Callable[[Efficiency], float | None]], ...
    ] = (
        ("Step time by number of devices", "time", lambda row: row.step_ps),
        ("Examples per second by number of devices", "number", lambda row: row.examples_per_second),
        ("Efficiency by number of devices", "share", lambda row: row.efficiency_ratio),
    )
    for label, kind, value_of in charts:
        values = [value_of(row) for row in scaled.rows]
        points = tuple(
            TrendPoint(numbers.plural(row.device_count, "device"), value)
            for row, value in zip(scaled.rows, values, strict=True)
            if value is not None
        )
        if len(points) == len(values):
            yield Trend(label, kind, points)
