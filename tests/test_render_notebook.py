"""Is what a notebook shows of a report a sanitize fragment that says what matters?"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import traceview
from tests.hostile import HOSTILE, with_texts
from tests.reports import bare_report, device, finding, full_report
from traceview.analysis.device_time.result import DeviceTime
from traceview.render.html.notebook import SHOWN, render
from traceview.report.model import Report

ROOT = Path(__file__).resolve().parent.parent
TAGS = {
    *("div", "style", "p", "span", "strong", "code", "i", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class Reading(HTMLParser):
    """Tags that were opened and closed, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reading:
    reading = Reading()
    reading.feed(page)
    reading.close()
    assert reading.open == []
    return reading


def hostile(text: str) -> Report:
    def change(field: str, _: str) -> str:
        return text

    return with_texts(full_report(), change)


def test_it_says_what_matters() -> None:
    report = full_report()
    text = read(render(report)).text
    for words in (
        report.verdict.headline,
        "24.0 ms",
        "16.0 ms",
        report.findings[0].title,
        report.findings[0].advice,
        "confidence high",
        f"traceview explain {report.findings[0].code}",
        "GPU:0",
        "75.0%",
    ):
        assert words in text
    assert "No finding" in read(render(bare_report())).text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    page = render(hostile(text))
    assert page.encode().decode() == page
    reading = read(page)
    assert reading.tags <= TAGS
    assert reading.attributes <= {"class", "style", "title", "open"}
    assert len(page) < 60_000
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", page)


def test_its_style_holds_for_nothing_else() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", render(full_report()), re.DOTALL)
    selectors = re.findall(r"^(.*?) \{", style.strip(), re.MULTILINE)
    assert len(selectors) > 10
    for one in ", ".join(selectors).split(", "):
        assert one.startswith(".traceview-report")
    assert "url(" not in style


def test_of_many_devices_and_findings_it_shows_some() -> None:
    report = full_report()
    rows = tuple(device(n) for n in range(200))
    results = replace(report.results, device_time=DeviceTime(rows, ()))
    many = replace(report, results=results, findings=(finding(),) * 50)
    page = render(many)
    assert len(page) < 60_000
    assert page.count("<details") == SHOWN
    assert "30 more" in page
    assert re.search(r"\d+ more devices", page)


def test_a_report_shows_itself_without_knowing_how() -> None:
    report = full_report()
    assert report._repr_html_() == render(report)
    program = (
        "import sys, traceview, traceview.report.model\n"
        "assert not [name for name in sys.modules if name.startswith(('traceview.render', 'jinja2'))]"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_report_is_written_and_read(tmp_path: Path) -> None:
    report = full_report()
    path = tmp_path / "report.json"
    path.write_text(report.to_json(), encoding="utf-8")
    assert traceview.load_report(path) == report
    assert report.to_markdown().startswith("# traceview: run")
    assert report.to_html().startswith("<!DOCTYPE html>")


def test_the_legend_has_the_colours_of_the_bars() -> None:
    """Soft text is half transparent; a sample of colour in it would be another colour."""
    (legend,) = re.findall(r'<p class="([^"]*legend[^"]*)">', render(full_report()))
    assert legend.split() == ["legend"]
