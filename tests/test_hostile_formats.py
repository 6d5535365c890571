"""In every form of a report and of a run a recorded name stays a name, and the same input gives the same bytes.

Documents are those of `DOCUMENTS`, exports those of `traceview export`: what is added there is tested here.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len

from scripts.scenarios.model import new_trace
from tests.command import Command
from tests.export.perfetto_reading import read
from tests.hostile import HOSTILE, trace_of_names, with_texts
from tests.html_page import parsed
from tests.reports import full_report
from traceview.api import analyze
from traceview.document import screen
from traceview.document.sanitize import MOST, encoded
from traceview.report.document import document_of, screen_of
from traceview.report.formats import DOCUMENTS
from traceview.report.model import Report
from traceview.report.redaction import redacted

MOST_BYTES = {"html": 1_500_000, "markdown": 60_000}
"""What a document may weigh with names of 100,000 characters in every place; JSON holds them all."""

CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that do something to the text around them, or that UTF-8 does not have."""
ESCAPES = re.compile(r"\x1b\[[\d;]*m")
PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
_OF_NAMES = ("code", "span", "wbr")
OWN_TAGS = re.compile(r"</?details>|<summary><b>[\w ,:.]+</b></summary>|</?code>")


def on_a_terminal(report: Report, *, color: bool = False) -> str:
    document = document_of(report, is_brief=True)
    return screen.render(document, width=80, color=color, most_lines=10**6)


FORMS: dict[str, Callable[[Report], str]] = {
    **DOCUMENTS,
    "terminal": on_a_terminal,
    "first screen": lambda report: screen.render_screen(screen_of(report), width=80, color=False),
}


def report_of(text: str) -> Report:
    """A report in which every name begins with `text`; names that differed still differ."""
    return with_texts(full_report(), lambda _, whole: f"{text}{whole}")


@pytest.mark.parametrize("text", [*HOSTILE, "表" * 500], ids=range(len(HOSTILE) + 1))
@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_name_is_text(form: str, text: str) -> None:
    render, report = FORMS[form], report_of(text)
    page = render(report)
    assert page == render(report)
    assert len(page.encode()) <= MOST_BYTES.get(form, 10**9)
    if form == "json":
        assert json.loads(page) == json.loads(encoded(report))
        return
    assert CONTROL.findall(page) == []
    usual = render(report_of("a/usual_name/" * (1 + len(text) // 13)))
    if form == "html":
        check_tags(page, usual)
    elif form == "markdown":
        check_markup(page, usual, text)
    else:
        # Only a command may be wider.
        assert all(cell_len(line) <= 80 or "traceview " in line for line in page.splitlines())
    if form == "terminal":
        assert ESCAPES.sub("", on_a_terminal(report, color=True)) == page


def check_tags(page: str, usual: str) -> None:
    """The tags and attributes are those with a usual name, and nothing is fetched or followed."""
    actual, expected = ([*parsed(text).below()] for text in (page, usual))
    # A long name has spans for its lines, and places where it may be broken.
    shapes = [
        [(one.tag, *sorted(one.attributes)) for one in each if one.tag not in _OF_NAMES]
        for each in (actual, expected)
    ]
    assert shapes[0] == shapes[1]
    for one in actual:
        for key in ("href", "src", "xlink:href"):
            assert one.attributes.get(key, "#").startswith("#")


def check_markup(page: str, usual: str, text: str) -> None:
    """Every name is text, and none moves a cell of a table or a fold."""
    tokens = [part for token in PARSER.parse(page) for part in (token, *(token.children or ()))]
    for token in tokens:
        assert token.type not in ("link_open", "image", "s_open", "code_block"), token.content
        if token.type in ("html_inline", "html_block"):
            assert OWN_TAGS.sub("", token.content).strip() == "", token.content
        if token.type == "text" and not text.startswith("&lt;"):
            assert not re.search(r"@\w|(?<!\w)#\d|https?:|www\.|:[a-z]\w*:", token.content)
    opened = sum(token.type == "html_block" and "<details>" in token.content for token in tokens)
    assert page.count("\n<details>\n") == page.count("\n</details>\n") == opened


NAMES = [
    *(name.encode(errors="replace").decode().replace("\x00", "") for name in HOSTILE),
    *("=cmd|' /C calc'!A0", "-1+1"),
]


@pytest.fixture(scope="module")
def hostile_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = tmp_path_factory.mktemp("hostile")
    trace_of_names(NAMES, "host0").write(logs, "run1", file_host="host0")
    return logs


def files_in(place: Path) -> dict[str, bytes]:
    if place.is_file():
        return {place.name: place.read_bytes()}
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def check_file(name: str, content: bytes) -> None:
    """What the ending promises is in it."""
    if name.endswith(".json"):
        json.loads(content)
    elif name.endswith(".csv"):
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
        assert len(rows) >= 1
        assert len({len(row) for row in rows}) == 1
        assert not [cell for row in rows for cell in row if re.match(r"[=+@\t\r\n]|-\D", cell)]
    elif name.endswith((".html", ".md")):
        assert CONTROL.findall(content.decode()) == []
    elif name.endswith(".pftrace"):
        found = read(content)
        texts = [found.track_name(track) for track in found.tracks]
        for part in found.slices:
            texts += [part.name, *map(str, part.arguments.values())]
        assert all(text.isprintable() for text in texts)
        # What is left of a longer one may stand there as escapes.
        assert MOST <= max(map(len, texts)) <= len("\\U0010ffff") * (MOST + 20)
    else:
        assert name.endswith(".parquet"), name
        frame = pd.read_parquet(io.BytesIO(content))
        if name == "device_events.parquet":
            assert set(NAMES) <= {*frame["name"], *frame["op"]}, "they are kept as they are"


OUTPUTS = {
    "report": "out",
    "export --to perfetto": "out.pftrace",
    "export --to parquet": "out",
    "export --to csv": "out",
}
"""The file or folder that a command writes."""


@pytest.mark.parametrize("line", OUTPUTS)
def test_a_run_with_hostile_names_is_written_the_same_twice(
    line: str, command: Command, hostile_logs: Path, tmp_path: Path
) -> None:
    written = []
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        out = tmp_path / place / OUTPUTS[line]
        done = command(*line.split(), str(hostile_logs), "-o", str(out))
        assert done.code == 0, done.err
        written.append(files_in(out))
    assert written[0]
    assert written[0] == written[1]
    for file, content in written[0].items():
        check_file(file, content)


@pytest.mark.parametrize("name", ["ops", "gaps", "steps", "copies", "devices", "balance"])
@pytest.mark.parametrize("ending", ["csv", "json", "txt"])
def test_a_table_with_hostile_names_is_a_table(
    name: str, ending: str, command: Command, hostile_logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"table.{ending}"
    done = command("show", name, str(hostile_logs), "-o", str(out))
    assert done.code == 0, done.err
    content = out.read_bytes()
    if ending == "txt":
        assert CONTROL.findall(content.decode()) == []
    else:
        check_file(out.name, content)


def test_a_long_number_in_messages_and_names_takes_no_longer_than_its_length(
    tmp_path: Path,
) -> None:
    """Tried from each of its digits, half a megabyte would take minutes."""
    digits = "9" * 500_000
    trace = new_trace()
    trace.warnings = [f"Detected GPU events dropped: {digits} events; 12 events dropped"]
    trace.host_event(digits, 10, 20)
    trace.write(tmp_path)
    report = analyze(tmp_path)
    assert "The tracer dropped 12 events on host0" in [row.title for row in report.findings]
    assert b"The tracer dropped 12 events" in encoded(redacted(report))
