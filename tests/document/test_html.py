"""Tests that the page for a browser is one valid file that says what its document says, whatever the names in it are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from scripts.scenarios import SCENARIOS
from tests.charts import lanes_of
from tests.documents import bare_document, finding, full_document
from tests.hostile import HOSTILE
from tests.html_page import Element, parsed
from traceview.document.figures import Lanes, merged_sentence
from traceview.document.html.parts import LONGEST_NAME, LONGEST_TEXT, cut
from traceview.document.html.parts import name as cell_name
from traceview.document.html.printer import MOST_BYTES, render
from traceview.document.model import (
    Document,
    Findings,
    Link,
    Section,
    Span,
    Timeline,
    device_anchor,
    devices,
    links,
    spans,
    table,
)
from traceview.report.build import analyze
from traceview.report.formats import html

MS = 10**9


def page_of(document: Document) -> Element:
    return parsed(render(lambda _: document))


def full_page(device_count: int = 2) -> str:
    return render(lambda most: full_document(device_count=device_count, most_rows=most))


def with_sections(*sections: Section) -> Document:
    return structs.replace(full_document(), sections=sections)


def table_of(section: Element, label: str) -> list[list[str]]:
    """The texts of a table, its headings first."""
    box = section.one("div", role="region", **{"aria-label": label})
    return [[cell.text for cell in row.children] for row in box.all("tr")]


def targets(element: Element) -> list[str]:
    return [link.attributes["href"] for link in element.all("a")]


@pytest.mark.parametrize("document", [full_document, bare_document])
def test_whole_output(document: Callable[[], Document], golden: Callable[[str, str], None]) -> None:
    page = render(lambda _: document())
    body = page[page.index("<body>") :]
    golden(
        f"{document.__name__}.html",
        re.sub(r"(<script[^>]*>).*?</script>\n", "", body, flags=re.DOTALL),
    )


@pytest.mark.parametrize("document", [full_document(), bare_document()], ids=["full", "bare"])
def test_the_page_is_valid_and_complete_in_itself(document: Document) -> None:
    root = page_of(document)
    ids = {element.attributes["id"] for element in root.all("*") if "id" in element.attributes}
    for element in root.all("*"):
        for attribute, value in element.attributes.items():
            assert not attribute.startswith("on")
            if attribute in ("src", "href", "action"):
                assert value.startswith("#")
                assert value[1:] in ids, f"{value} leads nowhere"
            if attribute in ("aria-labelledby", "for"):
                assert set(value.split(" ")) <= ids
        assert element.tag not in ("base", "iframe", "img", "link", "object")
    for style in root.all("style"):
        assert not re.search(r"url\(|@import", style.text)
    levels = [
        int(element.tag[1]) for element in root.all("*") if re.fullmatch("h[1-6]", element.tag)
    ]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("document", [full_document(), bare_document()], ids=["full", "bare"])
def test_only_the_scripts_of_the_page_may_run(document: Document) -> None:
    root = page_of(document)
    (policy,) = (
        meta.attributes["content"]
        for meta in root.all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    scripts = [
        "".join(script.texts) for script in root.all("script") if "type" not in script.attributes
    ]
    digests = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    ]
    assert digests == rules["script-src"].split(" ")
    assert len(scripts) == (3 if document.sections[2].id == "devices" else 2)


def test_what_the_capture_lacks_comes_after_what_is_wrong() -> None:
    about_capture = finding(1, "info", code="few-steps", is_about_capture=True)
    block = Findings((about_capture, finding(2)))
    root = page_of(with_sections(Section("findings", "Findings", (block,), is_folded=False)))
    findings = root.one("section", id="findings")
    assert [box.attributes["id"] for box in findings.all("details")] == ["finding-2", "finding-1"]
    assert findings.one("h3").text == "About the capture"


def test_a_link_to_what_is_not_there_is_text() -> None:
    keys = ["GPU:0"]
    (block,) = table(
        "label",
        (
            devices("device", keys),
            links("see", [(Link("finding 9", "finding 9"), Link("steps", "steps"))]),
        ),
    )
    root = page_of(with_sections(Section("a", "A", (block,))))
    assert targets(root.one("table")) == []
    assert root.one("tbody").text.endswith("finding 9, steps")


def test_a_row_has_its_id_once() -> None:
    columns, anchors = (devices("device", ["GPU:0"]),), [device_anchor("GPU:0")]
    blocks = (*table("first", columns, anchors=anchors), *table("second", columns, anchors=anchors))
    root = page_of(with_sections(Section("a", "A", blocks)))
    assert [row.attributes.get("id") for row in root.all("tr")] == [None, "device-1", None, None]


def test_spans_need_a_timeline() -> None:
    (block,) = table("label", (devices("device", ["GPU:0"]), spans("", [Span("GPU:0", 0, MS)])))
    section = Section("a", "A", (block,))
    assert not page_of(with_sections(section)).all("a", class_="show")
    drawn = full_document().sections[0]
    (link,) = page_of(with_sections(drawn, section)).one("table").all("a", class_="show")
    assert link.attributes["data-at"] == f"0,0,{MS}"
    several = Span("GPU:1", 2, 3, ("GPU:0", "GPU:9"))
    (block,) = table("label", (devices("device", ["GPU:0"]), spans("", [several])))
    root = page_of(with_sections(drawn, Section("a", "A", (block,))))
    assert root.one("table").one("a", class_="show").attributes["data-at"] == "1,2,3,0"


def test_strips_stand_in_the_place_of_a_timeline() -> None:
    drawn = full_document().sections[0]
    # Below a timeline they are shown where no script may run.
    assert "█" in page_of(with_sections(drawn)).one("pre", class_="strips").text
    without = structs.replace(drawn, blocks=(Timeline(None), drawn.blocks[1]))
    root = page_of(with_sections(without))
    assert "█" in root.one("pre", class_="strips").text
    assert root.one("p", id="timeline").text == (
        "No timeline: the report was saved without it; traceview report LOGDIR -o DIR draws it."
    )


def data_of(root: Element) -> dict[str, Any]:
    text = "".join(root.one("script", id="timeline-data").texts)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


def test_the_figure_holds_its_data() -> None:
    data = data_of(page_of(full_document()))
    assert data["span"] == 100 * MS
    # Gap 7 has no row to lead to.
    assert data["gaps"] == [[0, 90 * MS, 100 * MS, 1]]
    assert data["folded"] == []
    assert data["states"]["latency"] == ["latency", "T", "launch latency", True]
    assert data["thread_states"]["latency"] == ["host", "T", "launch latency", False]
    assert data["activities"]["compute"] == ["compute", "", "compute", False]


def test_what_was_merged_is_stated() -> None:
    assert merged_sentence(lanes_of("GPU:0")) == (
        "Slices shorter than 20.0 ms are merged with their neighbours: "
        "13 slices show 24 events; times stay exact."
    )
    assert merged_sentence(Lanes((), (), 3, ())) == "3 more devices are not drawn."


def test_devices_that_are_no_outliers_are_listed_on_request() -> None:
    drawn = full_document().sections[0]
    (block, _) = drawn.blocks
    chosen = structs.replace(block, outliers=("GPU:1",))
    section = structs.replace(drawn, blocks=(chosen,))
    assert data_of(page_of(with_sections(section)))["folded"] == [0]


def is_of_two_lines(element: Element) -> bool:
    """A long name stands on two lines."""
    parent = element.parent.attributes if element.parent else {}
    return "lines" in (element.attributes.get("class"), parent.get("class"))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    page = render(lambda _: full_document(lambda recorded: f"{text}{recorded}"))
    assert page.encode().decode() == page
    assert len(page.encode()) <= MOST_BYTES
    shapes = [
        [
            (element.tag, sorted(element.attributes))
            for element in parsed(written).all("*")
            # Of a chart fewer long labels fit beside each other.
            if element.tag not in ("wbr", "code", "text") and not is_of_two_lines(element)
        ]
        for written in (page, full_page())
    ]
    assert shapes[0] == shapes[1]
    body = page[page.index("<body") : page.rindex("</main>")]
    assert all(character.isprintable() or character == "\n" for character in body)


def test_a_long_name_is_cut_and_its_length_stated() -> None:
    root = page_of(full_document(lambda _: "x" * 100_000))
    texts = [element.text for tag in ("td", "p", "dd") for element in root.all(tag)]
    assert max(map(len, texts)) < 3 * LONGEST_TEXT
    assert any("(100,000 characters)" in text for text in texts)


def test_cut() -> None:
    assert cut("a" * 10, 10) == "a" * 10
    assert cut("a" * 20 + "b" * 80, 30) == "a" * 20 + "…" + "b" * 10 + " (100 characters)"
    assert cut("\u202e\n", 10) == r"\u202e\n"
    assert str(cell_name("a/<b")) == "a/<wbr>&lt;b"


@pytest.mark.parametrize("device_count", [1, 8, 64, 512])
def test_many_devices_fit(device_count: int) -> None:
    page = full_page(device_count=device_count)
    assert len(page.encode()) <= MOST_BYTES
    section = parsed(page).one("section", id="devices")
    rows = section.one("tbody").children
    cut_notes = [note.text for note in section.all("p", class_="cut")]
    command = "traceview show devices logs --run 2026_01_02"
    hidden_count = device_count - len(rows)
    hidden = [f"{hidden_count} of {device_count} rows are not shown; all of them: {command}"]
    assert cut_notes == (hidden if len(rows) < device_count else [])
    assert bool(section.all("input")) == (device_count >= 10)
    assert section.one("div", role="region").attributes["class"] == (
        "scroll long" if device_count >= 25 else "scroll"
    )


def test_a_page_that_is_too_long_has_fewer_rows() -> None:
    def document(most_rows: int) -> Document:
        return full_document(
            lambda recorded: f"{'x' * LONGEST_NAME}{recorded}",
            device_count=512,
            most_rows=most_rows,
        )

    whole, small = render(document), render(document, most_bytes=600_000)
    assert len(small.encode()) <= 600_000 < len(whole.encode())
    root = parsed(small)
    ids = {element.attributes.get("id") for element in root.all("*")}
    assert all(target[1:] in ids for target in targets(root))
    (note,) = root.one("section", id="devices").all("p", class_="cut")
    assert re.fullmatch(
        r"\d+ of 512 rows are not shown; all of them: traceview show devices .*", note.text
    )


@pytest.mark.parametrize("scenario", ["two_hosts", "hostile_names", "slower_gpu", "no_steps"])
def test_scenarios_are_pages(scenario: str, tmp_path: Path) -> None:
    SCENARIOS[scenario]().write(tmp_path)
    report = analyze(tmp_path, lanes=True)
    page = html(report)
    root = parsed(page)
    assert page == html(report)
    assert len(page.encode()) <= MOST_BYTES
    for element in root.all("table"):
        assert len({len(row.children) for row in element.all("tr")}) == 1
    for number, found in enumerate(report.findings, start=1):
        assert found.code in root.one("details", id=f"finding-{number}").text
