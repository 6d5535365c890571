"""The comparison says what differs and why, on any page, with any name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len

from scripts.crosscheck.comparison import Compared
from scripts.crosscheck.document import (
    LABELS,
    STATUSES,
    crosscheck_data,
    crosscheck_section,
)
from scripts.crosscheck.reasons import REASONS
from scripts.crosscheck.recount import KNOWN_VERSION
from scripts.xprof_answers import PINNED
from tests.hostile import HOSTILE
from traceview.base.version import VERSION
from traceview.document import markdown
from traceview.document.json_text import dumped
from traceview.document.terminal import render_section

MS = 1_000_000_000
ROWS = [
    Compared("device_count", "", 2, 2, 2, 2, "same", ()),
    Compared("step_ps", "", 50 * MS, 50 * MS, 38 * MS, 38 * MS, "reproduced", ("device-span",)),
    Compared(
        "compute_ps",
        "",
        5 * MS,
        40 * MS,
        40 * MS,
        40 * MS,
        "reproduced",
        ("merges-devices", "device-span"),
    ),
    Compared("d2h_ps", "", 0, 0, 0, 0, "same", ()),
    Compared("half_ratio", "", 1.0, 1.0, 0.0, None, "known", ("names-of-shapes",)),
    Compared("input_verdict", "", "high", "high", "none", "high", "unexplained", ()),
    Compared("kernel_count", "gemm", 8, 8, 8, 8, "same", ()),
    Compared("kernel_ps", "gemm", 80 * MS, 80 * MS, 81 * MS, 80 * MS, "unexplained", ()),
    Compared("kernel_count", "copy", None, None, 3, 3, "reproduced", ("only-details",)),
    Compared("kernel_ps", "copy", None, None, MS, MS, "reproduced", ("only-details",)),
]

PAGE = """\
traceview VERSION and XProf 2.24.2, run run1
mean per step, and totals           traceview    XProf  difference
devices                                     2        2  same
step time                             50.0 ms  38.0 ms  explained (1)
compute                    5.00 ms to 40.0 ms  40.0 ms  explained (2, 1)
compute in 16 bits                       100%       0%  known (3)
input-bound                              high     none  not explained
Zero in both: DtoH copies.

Kernels  by name, over all devices and the whole profile
kernel  traceview  count    XProf  count  difference
gemm      80.0 ms      8  81.0 ms      8  not explained
copy            –      –  1.00 ms      3  explained (4)

Reasons
"""


def tokens(text: str) -> list[Token]:
    """What Markdown makes of a text, down to the words."""
    found = MarkdownIt("commonmark").enable("table").parse(text)
    return [one for token in found for one in (token, *(token.children or ()))]


def rendered(
    rows: list[Compared],
    *,
    run: str = "run1",
    version: str = PINNED,
    width: int = 110,
    unicode: bool = True,
) -> str:
    section = crosscheck_section(run, version, rows)
    return render_section(section, width=width, color=False, unicode=unicode)


def as_markdown(rows: list[Compared], *, run: str = "run1", version: str = PINNED) -> str:
    return markdown.render_section(crosscheck_section(run, version, rows))


def test_the_page() -> None:
    page = rendered(ROWS)
    assert page.startswith(PAGE.replace("VERSION", VERSION))
    words = " ".join(page.split())
    codes = ["device-span", "merges-devices", "names-of-shapes", "only-details"]
    places = [words.index(f"({number}) {REASONS[code]}.") for number, code in enumerate(codes, 1)]
    assert places == sorted(places)
    assert "Explained: this trace, counted by XProf's rules" in words


def test_another_version_is_named_as_such() -> None:
    assert KNOWN_VERSION == PINNED
    for version, count in ((PINNED, 0), ("2.20.1", 1)):
        texts = rendered(ROWS, version=version), as_markdown(ROWS, version=version)
        assert [text.count("another version") for text in texts] == [count, count]


def test_every_status_and_metric_has_words() -> None:
    for status, look in STATUSES.items():
        row = Compared("step_ps", "", 1, 1, 2, None, status, ())
        assert look.words in rendered([row])
    for metric, label in LABELS.items():
        row = Compared(metric, "", 1, 1, 2, None, "known", ())
        assert f"\n{label} " in rendered([row])


@pytest.mark.parametrize("width", [40, 60, 80])
def test_narrow_pages(width: int) -> None:
    names = [f"very_long_kernel_name_{'x' * 80}_{number}" for number in range(3)]
    rows = [
        row
        for name in names
        for row in (
            Compared("kernel_count", name, 1_000_000, 1_000_000, 1, 1, "known", ("only-details",)),
            Compared("kernel_ps", name, 80 * MS, 80 * MS, MS, MS, "known", ("only-details",)),
        )
    ]
    lines = rendered(rows, width=width).splitlines()
    assert max(map(cell_len, lines)) <= max(width, 50)
    if width == 80:
        assert max(map(cell_len, lines)) <= width
        assert len({line.split()[0] for line in lines if line.startswith("very")}) == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    rows = [
        Compared("kernel_count", name, 8, 8, 8, 8, "same", ()),
        Compared("kernel_ps", name, MS, MS, MS, MS, "same", ()),
    ]
    run = f"run {name}"
    for unicode in (True, False):
        page = rendered(rows, run=run, width=80, unicode=unicode)
        assert all(line.isprintable() for line in page.splitlines())
        assert page.isascii() or unicode
        # The kernel has one line; the run in the title may need several.
        of_gemm = [replace(row, name="gemm") for row in rows]
        usual = len(rendered(of_gemm, run=run, width=80).splitlines())
        assert len(page.splitlines()) == usual
    text = as_markdown(rows, run=run)
    assert len(text) < 6000
    markup = {token.content for token in tokens(text) if token.type.startswith("html")}
    assert markup <= {"<code>", "</code>"}
    assert text.count("\n| ") == 3
    data = json.loads(dumped(crosscheck_data("logs", run, PINNED, rows)))
    assert len(data["rows"]) == 2


def test_json_holds_all_rows_and_the_sentences() -> None:
    data = json.loads(dumped(crosscheck_data("logs", "run1", PINNED, ROWS)))
    assert [row["metric"] for row in data["rows"]] == [row.metric for row in ROWS]
    assert data["rows"][2]["traceview_least"] == 5 * MS
    assert data["rows"][2]["reasons"] == ["merges-devices", "device-span"]
    assert set(data["reasons"]) == {code for row in ROWS for code in row.reasons}
    assert (data["run"], data["xprof_version"]) == ("run1", "2.24.2")


def test_markdown_tables_and_reasons() -> None:
    text = as_markdown(ROWS)
    assert "| step time | 50.0 ms | 38.0 ms | explained (1) |" in text
    assert "| `copy` | – | – | 1.00 ms | 3 | explained (4) |" in text
    assert f"\n- (1) {REASONS['device-span']}" in text
    assert "Zero in both: DtoH copies." in text
