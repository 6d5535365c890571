"""Tests that the timeline of the page zooms, pans, says what is under the pointer, and goes where a link leads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.browser.conftest import PageOf, box_of, wait_until
from tests.charts import HOST, WINDOW_PS, lane
from tests.documents import full_document
from tests.hostile import HOSTILE
from tests.reports import lanes_of
from traceview.document.figures import DeviceLanes, HostLanes, Lanes
from traceview.document.html.printer import render
from traceview.document.model import Document, Timeline

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

GUTTER = 150


def rendered(document: Document) -> str:
    return render(lambda _: document)


def with_lanes(lanes: Lanes, folded: tuple[str, ...] = ()) -> Document:
    first, *others = full_document().sections
    section = structs.replace(first, blocks=(Timeline(lanes, folded=folded),))
    return structs.replace(full_document(), sections=(section, *others))


def many(count: int, outliers: tuple[str, ...] = ()) -> Document:
    keys = [f"GPU:{number}" for number in range(count)]
    return with_lanes(
        lanes_of(*keys), tuple(key for key in keys if outliers and key not in outliers)
    )


def view(page: Page) -> str:
    # What is drawn is told a frame later.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return page.locator(".tv-tools output").inner_text()


def at(page: Page, ms: float, y: float) -> tuple[float, float]:
    """A point of the canvas that shows this moment of 100 ms, when nothing is zoomed."""
    page.evaluate("document.querySelector('.tv-canvas').scrollIntoView()")
    box = box_of(page.locator(".tv-canvas"))
    return box["x"] + GUTTER + (box["width"] - GUTTER - 12) * ms / 100, box["y"] + y


def test_it_is_drawn(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    assert view(page) == "0 – 100 ms, 100 ms wide"
    assert page.locator(".strips").is_hidden()
    pixels = """() => {
        const canvas = document.querySelector(".tv-canvas");
        const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let i = 0; i < bytes.length; i += 4) seen.add(bytes.slice(i, i + 3).join());
        const style = getComputedStyle(document.documentElement);
        const rgb = (name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/g).map((hex) => parseInt(hex, 16)).join();
        return ["compute", "communication", "h2d", "input", "launch", "step"]
            .filter((one) => !seen.has(rgb(`--tv-${one}`)));
    }"""
    assert page.evaluate(pixels) == []
    assert page.locator(".tv-axis span").all_text_contents()[:3] == ["ms", "0", "10"]


def test_search_goes_to_what_it_finds(page_of: PageOf) -> None:
    page = page_of(rendered(many(12, outliers=("GPU:0",))))
    box = page.get_by_role("searchbox", name="Search")
    status = page.get_by_role("status")
    box.fill("matmul")
    names = page.evaluate("() => document.querySelector('.tv-tools [role=status]').textContent")
    count = int(names.split(" ")[0])
    assert count > 12
    assert view(page) == "0 – 100 ms, 100 ms wide"
    box.press("Shift+Enter")
    assert status.first.inner_text() == f"{count} of {count}"
    assert view(page) != "0 – 100 ms, 100 ms wide"
    assert "MatMul" in page.locator(".tv-tip").inner_text()
    box.press("Enter")
    assert status.first.inner_text() == f"1 of {count}"
    box.fill("nothing of this name")
    assert status.first.inner_text() == "0 found"
    box.press("Enter")
    box.fill("step 1")
    box.press("Enter")
    assert "step 1" in page.locator(".tv-tip").inner_text()


def test_buttons_and_keys_zoom_and_pan(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    page.get_by_role("button", name="Zoom in").click()
    assert view(page) == "25.0 ms – 75.0 ms, 50.0 ms wide"
    page.get_by_role("button", name="Zoom out").click()
    assert view(page) == "0 – 100 ms, 100 ms wide"
    page.locator(".tv-canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("Shift+ArrowLeft")
    assert view(page) == "15.0 ms – 65.0 ms, 50.0 ms wide"
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert view(page) == "35.0 ms – 85.0 ms, 50.0 ms wide"
    page.keyboard.press("-")
    page.keyboard.press("Home")
    assert view(page) == "0 – 100 ms, 100 ms wide"


def test_the_wheel_turns_the_page_until_the_figure_has_focus(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    page.mouse.move(*at(page, 50, 60))
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, -100)
    wait_until(page, f"scrollY < {before}")
    assert view(page) == "0 – 100 ms, 100 ms wide"
    page.locator(".tv-canvas").focus()
    page.mouse.move(*at(page, 50, 60))
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, -300)
    wait_until(page, "!document.querySelector('.tv-tools output').textContent.startsWith('0 ')")
    assert page.evaluate("scrollY") == before


def test_dragging_pans(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(*at(page, 50, 60))
    page.mouse.down()
    page.mouse.move(*at(page, 30, 60), steps=4)
    page.mouse.up()
    assert view(page) == "35.0 ms – 85.0 ms, 50.0 ms wide"


def row_of(page: Page, text: str) -> float:
    """The middle of the first row whose tooltip, at 95 ms or 65 ms or 30 ms, holds a text."""
    for y in range(6, 400, 6):
        for ms in (30, 65, 72, 95):
            page.mouse.move(*at(page, ms, y))
            tip = page.locator(".tv-tip")
            if tip.is_visible() and text in tip.inner_text():
                return y
    raise AssertionError(f"no row says {text}")


def test_hovering_tells_what_a_slice_is(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    tip = page.locator(".tv-tip")
    page.mouse.move(*at(page, 85, row_of(page, "GPU:0, compute")))
    text = tip.inner_text()
    for words in (
        "IteratorGetNext and others",
        "GPU:0, compute, step 3",
        "from 80.0 ms, 10.0 ms long",
        "compute 2.50 ms",
        "stands for 12 events; shorter than 20.0 ms they are merged",
    ):
        assert words in text
    page.mouse.move(*at(page, 95, row_of(page, "GPU:0, idle")))
    assert "input 6.00 ms, kernel launches 4.00 ms" in tip.inner_text()
    page.mouse.move(0, 0)
    assert tip.is_hidden()


def test_a_gap_leads_to_its_row(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    y = row_of(page, "gap 1")
    page.mouse.click(*at(page, 95, y))
    wait_until(page, "location.hash === '#gap-1'")
    assert page.locator("#gap-1").is_visible()


def test_the_keyboard_goes_through_slices(page_of: PageOf) -> None:
    page = page_of(rendered(full_document()))
    page.locator(".tv-canvas").focus()
    tip = page.locator(".tv-tip")
    page.keyboard.press("ArrowDown")
    assert "step 0" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "step 1" in tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "step 0" in tip.inner_text()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    assert "GPU:0, idle" in tip.inner_text()
    page.keyboard.press("Enter")
    wait_until(page, "location.hash === '#gap-1'")
    page.locator(".tv-canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") != "tv-canvas"


def show(page: Page, **place: Any) -> None:
    """What a link to this place of a device does."""
    detail = json.dumps({"start_ps": 40e9, "end_ps": 50e9, "others": [], **place})
    event = f'new CustomEvent("traceview:show", {{detail: {detail}}})'
    page.evaluate(f"() => document.dispatchEvent({event})")


def test_a_link_shows_its_place(page_of: PageOf) -> None:
    page = page_of(rendered(many(64)))
    canvas = page.locator(".tv-canvas")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    folded = box_of(canvas)
    show(page, device=63, others=[62])
    assert view(page) == "37.5 ms – 52.5 ms, 15.0 ms wide"
    opened = box_of(canvas)
    assert opened["height"] > folded["height"]
    # The device is the last one: its lanes are on the screen.
    assert 0 < opened["y"] + opened["height"] < 900
    assert page.evaluate("document.activeElement.className") == "tv-canvas"


def test_many_devices_start_folded(page_of: PageOf) -> None:
    page = page_of(rendered(many(64)))
    heights, canvas = {}, page.locator(".tv-canvas")
    for name in ("Open all", "Fold all"):
        heights[name] = box_of(canvas)["height"]
        page.get_by_role("button", name="Open or fold").click()
    assert heights["Open all"] < 1500 < heights["Fold all"]
    page.mouse.click(*at(page, -5, 2 + 21 + 16 + 8 + 4))
    assert page.get_by_role("button", name="Open or fold").inner_text() == "Open all"
    assert heights["Open all"] < box_of(canvas)["height"] < heights["Open all"] + 120


def test_of_very_many_devices_those_that_stand_out_come_first(page_of: PageOf) -> None:
    page = page_of(rendered(many(24, outliers=("GPU:0", "GPU:7", "GPU:20"))))
    count, canvas = page.locator(".tv-tools > span"), page.locator(".tv-canvas")
    few = box_of(canvas)["height"]
    assert count.inner_text() == "3 of 24 devices: those that stand out, and one like the others"
    show(page, device=11)
    # What a link leads to is there.
    assert count.inner_text().startswith("4 of 24 devices")
    page.get_by_role("button", name="All 24 devices").press("Enter")
    assert count.inner_text() == "24 of 24 devices"
    assert box_of(canvas)["height"] > few + 20 * 19
    page.get_by_role("button", name="Those that stand out").click()
    assert count.inner_text().startswith("4 of 24 devices")


def test_paper_has_the_timeline_in_light_colours(page_of: PageOf) -> None:
    drawn = "document.querySelector('.tv-canvas').toDataURL()"
    light = page_of(rendered(full_document())).evaluate(drawn)
    page = page_of(rendered(full_document()), is_dark=True)
    dark = page.evaluate(drawn)
    assert dark != light
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {drawn}; }})")
    pdf = page.pdf(format="A4")
    assert page.evaluate("window.printed") == light
    # The tile of its hatching is the only image of the page.
    assert re.search(rb"/Subtype\s*/Image", pdf)
    wait_until(page, f"{drawn} === '{dark}'")
    page.emulate_media(media="print")
    for part in (".tv-tools", ".tv-tip", "#tv-hint", ".strips"):
        assert page.locator(part).is_hidden()
    # As wide as the paper, and as high as the rows then are.
    page.set_viewport_size({"width": 700, "height": 900})
    wait_until(page, "document.documentElement.scrollWidth === 700")


def test_hostile_names_are_text(page_of: PageOf) -> None:
    threads = tuple(
        lane("thread", (0, 50, "launch"), thread=text, name=(place,))
        for place, text in enumerate(HOSTILE)
    )
    compute = lane("compute", (0, 50, "compute"))
    devices = tuple(DeviceLanes(text, HOST, (compute,)) for text in HOSTILE)
    hosts = (HostLanes(HOST, 0, WINDOW_PS, threads),)
    page = page_of(rendered(with_lanes(Lanes(hosts, devices, 0, tuple(HOSTILE)))))
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog says {dialog.message}"))
    assert view(page) == "0 – 100 ms, 100 ms wide"
    for place in range(len(HOSTILE)):
        page.mouse.move(*at(page, 20, 8 + 16 * place))
        assert page.locator(".tv-tip").is_visible()
    assert page.locator(".tv-tip img, .tv-tip script, figure img").count() == 0
