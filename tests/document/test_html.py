"""Tests that the page for a browser is one valid file that says what its document says, whatever the names in it are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from itertools import pairwise
from typing import Any

import pytest

from tests.documents import bare_document, full_document
from tests.html_page import Element, parsed
from traceview.analysis.measures.idle_report import MOST_GAPS
from traceview.document.html.printer import (
    MOST_BYTES,
    SCRIPTS,
    STYLES,
    asset,
    bar_colours,
    colours,
    render,
    script,
)
from traceview.document.model import Document
from traceview.document.vocabulary import COLOURS

MS = 10**9


def page_of(document: Document) -> Element:
    return parsed(render(lambda _: document))


def full_page(device_count: int = 2) -> str:
    return render(lambda most: full_document(device_count=device_count, most_rows=most))


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


def data_of(root: Element) -> dict[str, Any]:
    text = "".join(root.one("script", id="timeline-data").texts)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


def test_the_figure_holds_its_data() -> None:
    data = data_of(page_of(full_document()))
    assert data["span"] == 100 * MS
    assert data["gaps"] == [[0, 90 * MS, 100 * MS, 1], [1, 90 * MS, 100 * MS, 2]]
    assert data["folded"] == []
    assert data["states"]["latency"] == ["latency", "T", "launch latency", True]
    assert data["thread_states"]["latency"] == ["host", "T", "launch latency", False]
    assert data["activities"]["compute"] == ["compute", "", "compute", False]


@pytest.mark.parametrize("device_count", [8, 512])
def test_many_rows_fit(device_count: int) -> None:
    """Each device has 17 gaps, one of which is in the report."""
    page = full_page(device_count=device_count)
    assert len(page.encode()) <= MOST_BYTES
    section = parsed(page).one("details", id="gaps")
    rows = section.one("tbody").children
    assert len(rows) == min(device_count, MOST_GAPS)
    count = 17 * device_count
    assert section.one("p", class_="cut").text == (
        f"{count - len(rows):,} of {count:,} rows are not shown; all of them: "
        "traceview show gaps logs --run 2026_01_02 -o gaps.csv"
    )
    assert bool(section.all("input")) == (device_count >= 10)
    assert section.one("div", role="region").attributes["class"] == (
        "scroll long" if device_count >= 25 else "scroll"
    )


def test_a_page_that_is_too_long_has_fewer_rows() -> None:
    whole = full_page(device_count=512)
    most = len(whole.encode()) - 1
    small = render(lambda rows: full_document(device_count=512, most_rows=rows), most_bytes=most)
    assert len(small.encode()) <= most
    root = parsed(small)
    ids = {element.attributes.get("id") for element in root.all("*")}
    assert all(link.attributes["href"][1:] in ids for link in root.all("a"))
    assert len(root.one("details", id="gaps").one("tbody").children) == 64


# Scripts and style sheets


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_two_parts_of_a_script_give_the_same_name(name: str) -> None:
    # JavaScript would take the later of two functions without a word.
    given = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", script(name), re.MULTILINE)
    assert len(given) == len(set(given))


def test_every_colour_that_is_used_is_defined() -> None:
    scripts = list(map(script, SCRIPTS))
    sheets = [bar_colours(), *map(asset, STYLES)]
    used = set(re.findall(r"var\(--tv-([\w-]+)\)", "".join((*sheets, *scripts))))
    assert used
    assert used <= set(COLOURS)
    assert (
        colours().count("--tv-compute:") == 3
    )  # on light, and on dark by the system or the reader
