"""Is a bar of idle time always as long as it should be, and every name sanitize?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reports import MS, full_report, idle_of
from traceview.analysis.idle.result import Idle, IdleRow
from traceview.document.page import Page
from traceview.render.idle import BAR_WIDTH, LOOKS, add_bars, add_idle
from traceview.trace.cause import Cause

LETTERS = {cause: look.letter for cause, look in LOOKS.items()}


def row_of(causes: dict[str, int]) -> IdleRow:
    known = {cause: length for cause, length in causes.items() if length}
    return replace(idle_of("GPU:0"), causes=known, idle_ps=sum(known.values()))


def bar(row: IdleRow, width: int = 100, *, unicode: bool = True) -> str:
    """The bar as it is shown."""
    page = Page(width, unicode=unicode)
    add_bars(page, [row], {"GPU:0": 100 * MS})
    line = page.render().splitlines()[1]
    return line.split()[-1]


causes_of_gaps = st.dictionaries(st.sampled_from(list(LOOKS)), st.integers(0, 10**13)).filter(
    lambda causes: any(causes.values())
)


@given(causes_of_gaps)
def test_a_bar_has_forty_letters_in_the_order_of_causes(causes: dict[str, int]) -> None:
    row = row_of(causes)
    shown = bar(row)
    assert len(shown) == BAR_WIDTH
    assert shown == "".join(LETTERS[cause] * shown.count(LETTERS[cause]) for cause in LOOKS)
    for cause in LOOKS:
        share = row.causes.get(cause, 0) * BAR_WIDTH / row.idle_ps
        assert abs(shown.count(LETTERS[cause]) - share) < 1


def test_equal_parts_are_shared_out() -> None:
    assert bar(row_of({"input": 1, "launch": 1, "peer": 1})) == "I" * 14 + "L" * 13 + "P" * 13


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits(width: int, *, unicode: bool) -> None:
    page = Page(width, unicode=unicode)
    add_idle(page, full_report())
    text = page.render()
    assert all(len(line) <= width for line in text.splitlines())
    assert unicode or text.isascii()
    assert "Idle" in text


def test_letters_tell_the_causes_apart() -> None:
    assert list(LOOKS) == [cause.key for cause in Cause]
    assert len(set(LETTERS.values())) == len(LETTERS)
    assert all(len(letter) == 1 and letter.isascii() for letter in LETTERS.values())
    assert len(bar(row_of({"input": 1}), unicode=False)) == BAR_WIDTH


def test_devices_that_were_never_idle_or_never_used_are_left_out() -> None:
    report = full_report()
    rows = (row_of({}), replace(row_of({"unused": MS}), device="GPU:7"))
    page = Page(100)
    add_idle(page, replace(report, results=replace(report.results, idle=Idle(rows))))
    assert page.render().strip() == ""
    page = Page(100)
    add_idle(page, replace(report, results=replace(report.results, idle=None)))
    assert page.render().strip() == ""


def test_hostile_names_do_no_harm() -> None:
    row = idle_of("GPU:0")
    (gap,) = row.gaps
    bad = "\x1b[2J[red]\n\x00"
    gap = replace(gap, before=bad, after=bad, thread=bad, host_event=bad)
    report = full_report()
    idle = Idle((replace(row, gaps=(gap,)),))
    page = Page(80, color=False)
    add_idle(page, replace(report, results=replace(report.results, idle=idle)))
    text = page.render()
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "[red]" in text
