"""Does the comparison say what differs and why, on any page, with any name?"""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len

from scripts.xprof_answers import PINNED
from tests.hostile import HOSTILE
from traceview.crosscheck.comparison import Compared
from traceview.crosscheck.reasons import REASONS
from traceview.crosscheck.recount import KNOWN_VERSION
from traceview.render.crosscheck import LABELS, STATUS_WORDS, render, render_csv, render_json
from traceview.render.markdown.crosscheck import render as render_markdown

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
run run1 · traceview VERSION · XProf 2.24.2

mean per step, and totals           traceview    XProf
devices                                     2        2  same
step                                  50.0 ms  38.0 ms  explained (1)
compute                    5.00 ms to 40.0 ms  40.0 ms  explained (2, 1)
compute in 16 bits                       100%       0%  known (3)
input-bound                              high     none  not explained
zero in both: copies to the host

Kernels  by name, over all devices and the whole recording
traceview  count    XProf  count                 kernel
  80.0 ms      8  81.0 ms      8  not explained  gemm
        –      –  1.00 ms      3  explained (4)  copy

 1  {device-span}
 2  {merges-devices}
 3  {names-of-shapes}
 4  {only-details}
"""


def tokens(text: str) -> list[Token]:
    """What Markdown makes of a text, down to the words."""
    found = MarkdownIt("commonmark").enable("table").parse(text)
    return [one for token in found for one in (token, *(token.children or ()))]


def rendered(rows: list[Compared], *, width: int = 110, unicode: bool = True) -> str:
    return render("run1", "2.24.2", rows, width=width, color=False, unicode=unicode)


def test_the_page() -> None:
    from traceview.version import VERSION

    wanted = PAGE.replace("VERSION", VERSION)
    for code, sentence in REASONS.items():
        wanted = wanted.replace(f"{{{code}}}", sentence)
    found = rendered(ROWS)
    assert found.startswith(wanted)
    assert found[len(wanted) :].startswith("explained: counted as XProf counts")


def test_another_version_is_said_to_be_another() -> None:
    assert KNOWN_VERSION == PINNED
    for version, words in ((PINNED, 0), ("2.20.1", 1)):
        page = render("run1", version, ROWS, width=110, color=False)
        markdown = render_markdown("run1", version, ROWS)
        assert [text.count("another version") for text in (page, markdown)] == [words, words]


def test_every_status_and_metric_has_a_word() -> None:
    for status in STATUS_WORDS:
        row = Compared("step_ps", "", 1, 1, 2, None, status, ())
        assert STATUS_WORDS[status] in rendered([row])
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
    assert max(map(cell_len, lines)) <= max(width, 63)
    if width == 80:
        assert max(map(cell_len, lines)) <= width
        assert len({line.split()[-1] for line in lines if "very" in line or "name" in line}) >= 3


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    rows = [
        Compared("kernel_count", name, 8, 8, 8, 8, "same", ()),
        Compared("kernel_ps", name, MS, MS, MS, MS, "same", ()),
    ]
    run = f"run {name}"
    for unicode in (True, False):
        page = render(run, "2.24.2", rows, width=80, color=False, unicode=unicode)
        assert all(line.isprintable() for line in page.splitlines())
        assert page.isascii() or unicode
        # The kernel has one line; the run may have one more than it would need.
        usual = len(rendered([replace(row, name="gemm") for row in rows], width=80).splitlines())
        assert len(page.splitlines()) - usual in (0, 1)
    markdown = render_markdown(run, "2.24.2", rows)
    assert len(markdown) < 2000
    markup = {token.content for token in tokens(markdown) if token.type.startswith("html")}
    assert markup <= {"<code>", "</code>"}
    assert markdown.count("\n| ") == 3
    data = json.loads(render_json("logs", run, "2.24.2", rows))
    assert len(data["rows"]) == 2
    table = list(csv.reader(render_csv(rows, escaped=False).splitlines(keepends=True)))
    assert [len(row) for row in table] == [8, 8, 8]
    assert all(line.isprintable() for line in render_csv(rows, escaped=True).splitlines())


def test_json_holds_all_rows_and_the_sentences() -> None:
    data = json.loads(render_json("logs", "run1", "2.24.2", ROWS))
    assert [row["metric"] for row in data["rows"]] == [row.metric for row in ROWS]
    assert data["rows"][2]["traceview_least"] == 5 * MS
    assert data["rows"][2]["reasons"] == ["merges-devices", "device-span"]
    assert set(data["reasons"]) == {code for row in ROWS for code in row.reasons}
    assert (data["run"], data["xprof_version"]) == ("run1", "2.24.2")


def test_csv_has_a_line_per_number() -> None:
    header, *lines = csv.reader(render_csv(ROWS, escaped=False).splitlines())
    assert header == [
        "metric",
        "name",
        "traceview_least",
        "traceview_most",
        "xprof",
        "expected",
        "status",
        "reasons",
    ]
    assert len(lines) == len(ROWS)
    assert lines[2][2:] == [
        str(5 * MS),
        str(40 * MS),
        str(40 * MS),
        str(40 * MS),
        "reproduced",
        "merges-devices device-span",
    ]
    assert lines[-1][2:5] == ["", "", str(MS)]


def test_markdown_tables_and_reasons() -> None:
    found = render_markdown("run1", "2.24.2", ROWS)
    assert "| step | 50.0 ms | 38.0 ms | explained (1) |" in found
    assert "| `copy` | – | – | 1.00 ms | 3 | explained (4) |" in found
    assert f"\n1. {REASONS['device-span']}" in found
    assert "Zero in both: copies to the host." in found
