"""The check of the speed reads the ratios of docs/speed.md, and fails where one has become much worse."""

from __future__ import annotations

from scripts.bench import CHECKED_MB, PAGE, STEPS_OF_MB, Usage, published, table, worse

_OVERVIEW = "xprof get_overview"


def _usages(seconds: float) -> dict[str, Usage]:
    return {"traceview analyze": Usage(1.0, 100.0), _OVERVIEW: Usage(seconds, 500.0)}


def test_what_is_printed_is_what_is_read() -> None:
    page = f"# Speed\n\n{table('4 MB, median of 3', _usages(9.87))}\n\n| `{_OVERVIEW}` | 1 | 2 |\n"
    assert published(page) == {4.0: {_OVERVIEW: 9.87}}


def test_a_ratio_that_is_a_third_worse_fails() -> None:
    assert not list(worse({_OVERVIEW: 10.0}, _usages(7.1)))
    (line,) = worse({_OVERVIEW: 10.0}, _usages(6.9))
    assert "6.90" in line
    assert "10.00" in line


def test_the_page_has_the_ratios_of_every_size() -> None:
    ratios = published(PAGE.read_text("utf-8"))
    assert set(ratios) == {CHECKED_MB[0], *map(float, STEPS_OF_MB)}
    assert all(_OVERVIEW in of_size for of_size in ratios.values())
