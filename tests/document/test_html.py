"""Tests that the page for a browser is one valid file that says what its document says, whatever the names in it are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.documents import bare_document, full_document
from tests.hostile import HOSTILE
from tests.html_page import Element, parsed
from traceview.document.html.parts import LONGEST_NAME
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
            if element.tag not in ("wbr", "code") and not is_of_two_lines(element)
        ]
        for written in (page, full_page())
    ]
    assert shapes[0] == shapes[1]
    body = page[page.index("<body") : page.rindex("</main>")]
    assert all(character.isprintable() or character == "\n" for character in body)


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
