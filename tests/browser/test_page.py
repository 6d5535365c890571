"""Tests that the page can be read and used: sorted, filtered, printed, in the dark, in a narrow window, without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import traceview
from tests.browser.conftest import PageOf, box_of, wait_until
from tests.documents import bare_document, full_document
from tests.hostile import HOSTILE
from traceview.document.html.printer import render
from traceview.document.model import Document
from traceview.document.phrase import phrase, plain
from traceview.report import formats
from traceview.report.build import analyze

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser


def page_with(document: Document) -> str:
    return render(lambda _: document)


def hostile(text: str) -> Document:
    return full_document(lambda name: f"{text}{name}")


DOCUMENTS = {
    "full": full_document(),
    "bare": bare_document(),
    "many": full_document(device_count=64),
    "hostile": hostile(HOSTILE[0]),
    "long": hostile("x" * 100_000),
}


def open_sections(page: Page) -> None:
    page.evaluate(
        "document.querySelectorAll('details.fold').forEach((box) => { box.open = true; })"
    )


def first_column(table: Locator) -> list[str]:
    return table.locator("tbody tr:visible > :first-child").all_inner_texts()


def column(table: Locator, heading: str) -> list[str]:
    headings = [text.strip() for text in table.locator("thead tr > *").all_inner_texts()]
    place = headings.index(heading) + 1
    return table.locator(f"tbody tr:visible > :nth-child({place})").all_inner_texts()


def color(page: Page) -> str:
    background: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return background


def test_the_first_screen(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()))
    for selector in ("h1", "#anatomy", "#summary .chart"):
        box = box_of(page.locator(selector).first)
        assert box["y"] + box["height"] <= 900, f"{selector} is below the first screen"
    label, answer = full_document().summary.label, full_document().summary.answer
    assert label is not None
    assert page.locator("h1").inner_text() == f"{label.words} {plain(phrase(answer))}"


def test_sorting_by_a_heading(page_of: PageOf) -> None:
    page = page_of(page_with(full_document(device_count=4)))
    table = page.locator("#devices table")
    heading = table.locator("th", has_text="kernels")
    assert heading.get_attribute("aria-sort") is None
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(table, "kernels") == ["1,237", "1,236", "1,235", "1,234"]
    heading.get_by_role("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(table, "kernels") == ["1,234", "1,235", "1,236", "1,237"]
    table.locator("th", has_text="device").first.get_by_role("button").click()
    assert first_column(table) == ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]
    assert heading.get_attribute("aria-sort") is None
    # What was not measured comes last in either direction.
    table.locator("th", has_text="peak memory").get_by_role("button").click()
    assert column(table, "peak memory") == ["6.21 GB", "–", "–", "–"]


def test_filtering_rows(page_of: PageOf) -> None:
    page = page_of(page_with(DOCUMENTS["many"]))
    open_sections(page)
    section = page.locator("#gaps")
    count = section.locator("output")
    assert count.inner_text() == "64 of 64 rows"
    section.get_by_role("searchbox").fill("gpu:6")
    assert count.inner_text() == "5 of 64 rows"
    assert column(section.locator("table"), "device") == [f"GPU:{n}" for n in (6, 60, 61, 62, 63)]
    section.get_by_role("searchbox").fill("gpu:6 nothing")
    assert count.inner_text() == "0 of 64 rows"


def test_a_link_to_a_filtered_row_shows_it(page_of: PageOf) -> None:
    page = page_of(page_with(full_document(device_count=12)))
    devices = page.locator("#devices")
    devices.get_by_role("searchbox").fill("GPU:11")
    open_sections(page)
    link = page.locator("#gaps a", has_text="GPU:2").first
    target = link.get_attribute("href")
    row = page.locator(f"{target}")
    assert row.is_hidden()
    link.click()
    wait_until(page, f"location.hash === '{target}'")
    assert row.locator("th").inner_text() == link.inner_text()
    row.wait_for(timeout=30_000)
    assert devices.locator("output").inner_text() == "12 of 12 rows"


def test_an_address_opens_what_it_names(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()))
    finding = page.locator("#finding-1")
    assert finding.locator("dl").is_hidden()
    open_sections(page)
    page.goto(f"{page.url.partition('#')[0]}#finding-1")
    wait_until(page, "location.hash === '#finding-1'")
    assert finding.locator("dl").is_visible()
    assert 40 <= box_of(finding)["y"] < 500
    for part in ("#gap-2", "#capture .notes"):
        page.goto(f"{page.url.partition('#')[0]}{part.partition(' ')[0]}")
        page.locator(part).wait_for(timeout=30_000)


@pytest.mark.parametrize("section", ["#summary", "#findings", "#gaps", "#devices"])
def test_a_span_leads_to_the_timeline(page_of: PageOf, section: str) -> None:
    page = page_of(page_with(full_document()))
    open_sections(page)
    page.evaluate(
        "document.addEventListener('traceview:show', (event) => { window.shown = event.detail; })"
    )
    page.evaluate("document.querySelectorAll('.finding').forEach((box) => { box.open = true; })")
    link = page.locator(f"{section} a.show").first
    link.click()
    wait_until(page, "window.shown !== undefined")
    device, start, end, *others = map(int, (link.get_attribute("data-at") or "").split(","))
    shown = {"device": device, "start_ps": start, "end_ps": end, "others": others}
    assert page.evaluate("window.shown") == shown
    wait_until(
        page,
        "() => { const box = document.querySelector('#timeline').getBoundingClientRect();"
        " return box.top < innerHeight / 2 && box.bottom > 0; }",
    )


def test_back_and_escape_return_to_the_link(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()))
    page.locator("#finding-1 .title").click()
    link = page.locator("#finding-1 a.show")
    link.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    for leave in (page.go_back, lambda: page.keyboard.press("Escape")):
        link.click()
        wait_until(page, "location.hash.startsWith('#at=')")
        wait_until(page, "document.activeElement.className === 'tv-canvas'")
        leave()
        wait_until(page, "location.hash === ''")
        wait_until(page, f"Math.abs(scrollY - {before}) < 300")


@pytest.mark.parametrize("address", ["at=", "at=9,0,1", "at=0,x,1", "at=0,2,1", "%00", "device-99"])
def test_a_wrong_address_does_nothing(page_of: PageOf, address: str) -> None:
    page = page_of(page_with(full_document()))
    page.goto(f"{page.url}#{address}")
    page.reload()
    output = "document.querySelector('.tv-tools output')?.textContent"
    wait_until(page, f"{output} === '0 – 100 ms, 100 ms wide'")


def wide_tables(page: Page) -> list[str]:
    open_sections(page)
    wide: list[str] = page.evaluate(
        """[...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1)
        .map((box) => box.getAttribute("aria-label"))"""
    )
    return wide


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_pages_of_recorded_gpu_runs_can_be_read(
    page_of: PageOf, shared_traces: Path, name: str
) -> None:
    html = traceview.analyze(shared_traces / name, lanes=True).to_html()
    assert wide_tables(page_of(html)) == []
    for width in (800, 390):
        page = page_of(html, width=width)
        open_sections(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page_of(html, has_javascript=False).locator(".strips").is_visible()


@pytest.mark.parametrize("is_dark", [False, True])
def test_dark_and_light(page_of: PageOf, is_dark: bool) -> None:
    page = page_of(page_with(full_document()), is_dark=is_dark)
    before = color(page)
    assert (before == "rgb(255, 255, 255)") == (not is_dark)
    page.get_by_role("button", name="Show in").click()
    after = color(page)
    assert (after == "rgb(255, 255, 255)") == is_dark
    # A browser under load may write what is stored after it has answered.
    for _ in range(5):
        page.reload()
        if color(page) == after:
            return
    raise AssertionError(f"{color(page)} after a reload, {after} before it")


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_nothing_scrolls_sideways(page_of: PageOf, name: str, width: int) -> None:
    page = page_of(page_with(DOCUMENTS[name]), width=width)
    # Nor does a table inside the page, where there is room and names are short.
    assert wide_tables(page) == [] or width < 1280 or name in ("hostile", "long")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_who_cannot_see_the_page_can_use_it(
    page_of: PageOf, width: int, is_dark: bool, fixtures: Path
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    recorded = formats.html(analyze(str(fixtures / "slow-input-2"), lanes=True))
    assert "data-at" in recorded
    for html in (page_with(DOCUMENTS["full"]), recorded):
        page = page_of(html, width=width, is_dark=is_dark)
        open_sections(page)
        violations = Axe().run(page).response["violations"]
        assert [(row["id"], row["nodes"][0]["html"]) for row in violations] == []


def test_printing(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()), is_dark=True)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-")
    page.emulate_media(media="print")
    assert color(page) == "rgb(255, 255, 255)"
    for selector in (".contents", "#theme", "[data-copy]"):
        assert page.locator(selector).first.is_hidden()
    first = page.evaluate(
        "[...document.querySelectorAll('body *')].find((one) => one.checkVisibility() &&"
        " [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).closest('h1')?.id"
    )
    assert first == "headline"
    assert page.locator("#finding-1").is_visible()
    assert page.locator("#command").is_visible()
    # A bar of a chart leads into the timeline, and is no link that paper has no use for.
    assert page.locator("#summary .chart a .part").first.is_visible()
    # What is folded stays so, and paper says that it does; what a reader opened is printed.
    assert page.locator("#gap-1").is_hidden()
    assert page.get_by_text("Folded parts are not printed").is_visible()
    page.evaluate("document.getElementById('gaps').open = true")
    assert page.locator("#gap-1").is_visible()


def test_a_phone_shows_the_headline_first(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()), width=390)
    assert box_of(page.locator("h1"))["y"] < 120
    assert page.locator(".contents").is_hidden()


def test_without_javascript(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()), has_javascript=False)
    for selector in ("h1", "#anatomy", "#command", "#finding-3", "#devices table"):
        assert page.locator(selector).first.is_visible()
    page.locator("#gaps summary").first.click()
    assert page.locator("#gap-1").is_visible()
    for selector in ("#theme", "[data-copy]", ".filter"):
        for element in page.locator(selector).all():
            assert element.is_hidden()


def test_the_keyboard_reaches_everything(page_of: PageOf) -> None:
    page = page_of(page_with(full_document()))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    wait_until(page, "location.hash === '#main'")
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"
    boxes = page.locator(".scroll")
    assert {box.get_attribute("tabindex") for box in boxes.all()} == {"0"}
