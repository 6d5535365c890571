"""Takes the picture of a report that the README shows.

    python -m scripts.screenshot [--chromium PATH]

Opens the HTML report of fixtures/slow-input-2 in a Chromium that is installed and writes what fits on the first screen,
1280 pixels wide, to docs/report.png. Playwright drives it (dependency group `browser`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import traceview

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "report.png"
WIDTH = 1280
HEIGHT = 1290
MOST_BYTES = 250_000
"""Of the file in the repository."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def picture(chromium: str) -> bytes:
    """The page as PNG, in light colours."""
    from playwright.sync_api import sync_playwright

    report = traceview.analyze("fixtures/slow-input-2", lanes=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        page_file.write_text(report.to_html(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_ARGUMENTS))
        try:
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"
            )
            page.goto(page_file.as_uri())
            page.locator("figure.tv-live").wait_for()
            return page.screenshot()
        finally:
            browser.close()


def main() -> int:
    """Take it; 1 if there is no browser, or the picture is too large for a repository."""
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshot")
    parser.add_argument("--chromium", help="the browser, by default the one on the path")
    chromium = parser.parse_args().chromium or next(filter(None, map(shutil.which, _NAMES)), None)
    if chromium is None:
        print(f"there is no {' or '.join(_NAMES)} on the path", file=sys.stderr)
        return 1
    # The page names the folder as it was given.
    os.chdir(ROOT)
    content = picture(chromium)
    if len(content) > MOST_BYTES:
        print(f"the picture has {len(content):,} bytes, more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    PICTURE.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
