"""Can the page be read and used: sorted, filtered, printed, in the dark, in a narrow window, without JavaScript?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.browser.conftest import PageOf, wait_until
from tests.hostile import HOSTILE
from tests.reports import bare_report, full_report
from tests.test_render_html import many_gpus, of_hostile
from traceview.render.html.document import render
from traceview.render.html.shown import shown
from traceview.report.model import Report

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser


def first_column(table: Locator) -> list[str]:
    return table.locator("tbody tr:visible > :first-child").all_inner_texts()


def column(table: Locator, heading: str) -> list[str]:
    headings = [text.strip() for text in table.locator("thead tr > *").all_inner_texts()]
    place = headings.index(heading) + 1
    return table.locator(f"tbody tr:visible > :nth-child({place})").all_inner_texts()


def color(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_the_first_screen(page_of: PageOf) -> None:
    page = page_of(render(full_report()))
    for selector in ("h1", ".tiles", ".top-findings li:first-child", "#command"):
        box = page.locator(selector).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, f"{selector} is below the first screen"
    assert page.locator("h1").inner_text() == full_report().verdict.headline


def test_sorting_by_a_heading(page_of: PageOf) -> None:
    page = page_of(render(full_report()))
    table = page.locator("#steps table")
    heading = table.locator("th", has_text="time")
    assert heading.get_attribute("aria-sort") is None
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(table, "time") == ["28.0 ms", "25.0 ms", "24.0 ms", "23.0 ms"]
    heading.get_by_role("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(table, "time") == ["23.0 ms", "24.0 ms", "25.0 ms", "28.0 ms"]
    table.locator("th", has_text="step").first.get_by_role("button").click()
    assert first_column(table) == ["3", "2", "1", "0"] or first_column(table) == list("0123")
    assert heading.get_attribute("aria-sort") is None


def test_filtering_rows(page_of: PageOf) -> None:
    page = page_of(render(many_gpus(64)))
    section = page.locator("#devices")
    told = section.locator("output")
    assert told.inner_text() == "64 of 64 rows"
    section.get_by_role("searchbox").fill("gpu:6")
    assert told.inner_text() == "5 of 64 rows"
    assert first_column(section.locator("table")) == [f"GPU:{n}" for n in (6, 60, 61, 62, 63)]
    section.get_by_role("searchbox").fill("gpu:6 nothing")
    assert told.inner_text() == "0 of 64 rows"


def test_a_link_to_a_filtered_row_shows_it(page_of: PageOf) -> None:
    page = page_of(render(many_gpus(64)))
    devices = page.locator("#devices")
    devices.get_by_role("searchbox").fill("GPU:63")
    link = page.locator("#idle a", has_text="GPU:2").first
    target = link.get_attribute("href")
    row = page.locator(f"{target}")
    assert row.is_hidden()
    link.click()
    wait_until(page, f"location.hash === '{target}'")
    assert row.locator("th").inner_text() == link.inner_text()
    row.wait_for(timeout=5000)
    assert devices.locator("output").inner_text() == "64 of 64 rows"


def test_a_long_table_scrolls_below_its_headings(page_of: PageOf) -> None:
    page = page_of(render(many_gpus(64)))
    box = page.locator("#devices .scroll")
    row = page.locator("#device-64")
    row.scroll_into_view_if_needed()
    places = [one.bounding_box() for one in (box, box.locator("thead"), row)]
    outside, heading, last = (place["y"] if place else -1 for place in places)
    assert abs(heading - outside) < 5
    assert heading < last < outside + 600


def test_a_finding_leads_to_its_evidence(page_of: PageOf) -> None:
    page = page_of(render(full_report()))
    page.locator(".top-findings a", has_text="evidence").first.click()
    wait_until(page, "location.hash === '#finding-1'")
    box = page.locator("#finding-1").bounding_box()
    assert box is not None
    assert 40 <= box["y"] < 500
    page.locator("#finding-1 a", has_text="GPU:2").click()
    wait_until(page, "location.hash === '#device-3'")


@pytest.mark.parametrize("section", ["#summary", "#findings", "#gaps", "#steps", "#devices"])
def test_a_place_leads_to_the_timeline(page_of: PageOf, tmp_path: Path, section: str) -> None:
    SCENARIOS["waits_for_input"]().write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    page = page_of(render(report))
    page.evaluate(
        "document.addEventListener('traceview:show', (event) => { window.shown = event.detail; })"
    )
    link = page.locator(f"{section} a.show").first
    link.click()
    assert page.evaluate("window.shown") == {
        "device": link.get_attribute("data-device"),
        "start_ps": int(link.get_attribute("data-start") or ""),
        "end_ps": int(link.get_attribute("data-end") or ""),
    }
    wait_until(
        page,
        "() => { const box = document.querySelector('#timeline').getBoundingClientRect();"
        " return box.top < innerHeight / 2 && box.bottom > 0; }",
    )


@pytest.mark.parametrize("is_dark", [False, True])
def test_dark_and_light(page_of: PageOf, is_dark: bool) -> None:
    page = page_of(render(full_report()), is_dark=is_dark)
    before = color(page)
    assert (before == "rgb(255, 255, 255)") == (not is_dark)
    page.get_by_role("button", name="Show in").click()
    after = color(page)
    assert (after == "rgb(255, 255, 255)") == is_dark
    page.reload()
    assert color(page) == after


def test_every_text_has_contrast(page_of: PageOf) -> None:
    measure = """
        () => {
            const channels = (text) => text.match(/[\\d.]+/g).map(Number);
            const luminance = (rgb) => {
                const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255)
                    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const behind = (element) => {
                for (let one = element; one; one = one.parentElement) {
                    const rgb = channels(getComputedStyle(one).backgroundColor);
                    if (rgb.length === 3 || rgb[3] > 0) return rgb;
                }
                return [255, 255, 255];
            };
            return [...document.querySelectorAll("main :is(p, dd, dt, th, td, li, h1, h2, h3, a, span)")]
                .filter((one) => one.checkVisibility() && one.textContent.trim() && !one.closest("figure"))
                .map((one) => {
                    const [a, b] = [luminance(channels(getComputedStyle(one).color)), luminance(behind(one))];
                    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                    return [ratio, one.className + " " + one.textContent.trim().slice(0, 40)];
                })
                .filter(([ratio]) => ratio < 4.5);
        }
    """
    for is_dark in (False, True):
        assert page_of(render(full_report()), is_dark=is_dark).evaluate(measure) == []


REPORTS: dict[str, Callable[[], Report]] = {
    "full": full_report,
    "bare": bare_report,
    "many": lambda: many_gpus(64),
    "hostile": lambda: of_hostile(HOSTILE[0]),
    "long": lambda: of_hostile("x" * 100_000),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_nothing_scrolls_sideways(page_of: PageOf, name: str, width: int) -> None:
    page = page_of(render(REPORTS[name]()), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_printing(page_of: PageOf) -> None:
    page = page_of(render(full_report()), is_dark=True)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-")
    page.emulate_media(media="print")
    assert color(page) == "rgb(255, 255, 255)"
    for selector in (".contents", "#theme", "[data-copy]"):
        assert page.locator(selector).first.is_hidden()
    assert page.locator("#finding-1").is_visible()
    assert page.locator("#command").is_visible()


def test_without_javascript(page_of: PageOf) -> None:
    page = page_of(render(full_report()), has_javascript=False)
    for selector in ("h1", ".tiles", "#command", "#finding-3", "#steps table", "#gap-1"):
        assert page.locator(selector).first.is_visible()
    for selector in ("#theme", "[data-copy]", ".filter"):
        for one in page.locator(selector).all():
            assert one.is_hidden()
    help_ = page.locator("#devices details")
    help_.locator("summary").click()
    assert help_.locator("dd").first.is_visible()


@pytest.mark.parametrize("text", HOSTILE[:16], ids=range(16))
def test_hostile_names_do_nothing(page_of: PageOf, text: str) -> None:
    page = page_of(render(of_hostile(text)))
    assert page.title() == " ".join(f"traceview: {shown(text)}".split())
    assert page.locator("img").count() == 0
    assert page.locator("h1").count() == 1


def test_hostile_names_on_the_timeline_do_nothing(page_of: PageOf, tmp_path: Path) -> None:
    SCENARIOS["hostile_names"]().write(tmp_path)
    page = page_of(render(traceview.analyze(tmp_path, lanes=True)))
    assert page.locator("figure#timeline").count() == 1
    assert page.locator("img").count() == 0


def test_an_empty_report(page_of: PageOf) -> None:
    page = page_of(render(bare_report()))
    assert page.locator("h1").inner_text() == bare_report().verdict.headline
    assert "no steps: nothing repeats" in page.locator("#steps").inner_text()


def test_the_keyboard_reaches_everything(page_of: PageOf) -> None:
    page = page_of(render(full_report()))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    wait_until(page, "location.hash === '#main'")
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"
    boxes = page.locator(".scroll")
    assert {box.get_attribute("tabindex") for box in boxes.all()} == {"0"}


def test_copying_the_command(page_of: PageOf) -> None:
    page = page_of(render(full_report()))
    button = page.locator("[data-copy]")
    button.click()
    wait_until(page, "document.querySelector('[data-copy]').textContent !== 'Copy'")
    # Without the right to write to the clipboard the text is selected instead.
    selected = page.evaluate("String(getSelection())")
    if button.inner_text() == "Selected":
        assert selected == " ".join(full_report().command)
    else:
        assert button.inner_text() == "Copied"
