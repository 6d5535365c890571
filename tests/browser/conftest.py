"""Opens pages in a browser without network, so that nothing it complains of goes unnoticed.

Playwright is imported inside functions: a plain run of the tests collects these files too, where it may not be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from scripts.dev import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page, Request

_ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # CI runs as root
)
_OWN_ADDRESSES = ("file:", "data:", "blob:", "about:")


class PageOf(Protocol):
    """Opens HTML as a file and returns the page."""

    def __call__(
        self, html: str, *, width: int = 1280, is_dark: bool = False, has_javascript: bool = True
    ) -> Page: ...


def wait_until(page: Page, condition: str) -> None:
    """Until an expression holds; raises after five seconds.

    Playwright's own waiting evaluates text inside the page, which the page's security policy refuses.
    """
    for _ in range(100):
        if page.evaluate(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"never true: {condition}")


def box_of(part: Locator) -> FloatRect:
    """Where something on the page is, which must be on it."""
    box = part.bounding_box()
    assert box is not None
    return box


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests, which share nothing in it."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    assert path is not None, "no Chromium on the PATH"
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield chrome
        chrome.close()


@pytest.fixture
def page_of(browser: Browser, tmp_path: Path) -> Iterator[PageOf]:
    """Opens pages; the test fails if one wrote to its console, raised an error or asked for anything."""
    complaints: list[str] = []
    closings: list[Callable[[], None]] = []

    def asked(request: Request) -> None:
        if not request.url.startswith(_OWN_ADDRESSES):
            complaints.append(f"asks for {request.url}")

    def open_(
        html: str, *, width: int = 1280, is_dark: bool = False, has_javascript: bool = True
    ) -> Page:
        path = tmp_path / f"page-{len(closings)}.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if is_dark else "light",
            java_script_enabled=has_javascript,
            reduced_motion="reduce",
        )
        closings.append(context.close)
        context.on("request", asked)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.goto(path.as_uri())
        if has_javascript and 'id="timeline-data"' in html:
            page.locator("figure.tv-live").wait_for(timeout=30_000)
        return page

    yield open_
    for close in closings:
        close()
    assert complaints == []
