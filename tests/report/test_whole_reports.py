"""Whole reports as text: each section with its rows, remarks and sentences, of runs in which they differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, full_report
from traceview.document import markdown, screen
from traceview.document.html import printer
from traceview.report.document import document_of
from traceview.report.model import Report

FIXTURES = ("custom-loop-4", "slow-input-2")
MADE = {"bare": bare_report, "full": full_report}
WHOLE = (*FIXTURES, *MADE, "every_fifth_step")
PARTS: dict[str, tuple[str, ...]] = {
    # Devices that are unused, marginal, slow, shared, or on many hosts, and none.
    "C": ("devices", "balance"),
    "seven_unused_hold_memory": ("devices", "memory"),
    "mixed_models": ("devices", "balance", "precision"),
    "throttled_gpu": ("balance", "nvml"),
    "gpu_held_by_another": ("nvml",),
    "sixty_four_healthy": ("timeline", "devices", "balance", "hosts"),
    "sixteen_skewed_clocks": ("hosts",),
    "missing_worker": ("hosts", "capture"),
    "parameter_servers": ("hosts",),
    "no_gpu_plane": ("devices", "capture"),
    # Steps, input and what the capture lacks.
    "no_steps": ("steps",),
    "one_step": ("steps",),
    "evaluation_between_steps": ("gaps", "steps", "input"),
    "host_runs_ahead": ("steps",),
    "dropped_events": ("capture",),
    "late_shard": ("input",),
    "stages_a_copy": ("transfers", "gaps"),
    # Collectives, compute and memory.
    "cut_collectives": ("collectives",),
    "cpu_bounce": ("transfers", "balance"),
    "several_packs": ("collectives",),
    "few_blocks": ("layers", "ops"),
    "memory_growing": ("memory",),
}
"""Of each the sections in which it differs from the whole ones, beside its summary and findings."""

BRIEF = ("bare", "full", "throttled_gpu")
PAGES = ("bare", "full")


def report_on(name: str, fixtures: Path, folder: Path) -> Report:
    """The report, as if the run was in the folder `logs`."""
    if name in MADE:
        return MADE[name]()
    if name in FIXTURES:
        folder = fixtures / name
    else:
        SCENARIOS[name]().write(folder)
    report = traceview.analyze(folder)
    command = tuple("logs" if word == str(folder) else word for word in report.command)
    return replace(report, source=replace(report.source, logdir="logs"), command=command)


@pytest.mark.parametrize("name", [*WHOLE, *PARTS])
def test_everything_that_differs(
    name: str, fixtures: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    document = document_of(report_on(name, fixtures, tmp_path))
    own = {row.id: row for row in document.sections if row.id != "states"}
    parts = [own[part] for part in ("findings", *PARTS[name])] if name in PARTS else own.values()
    text = markdown.render(replace(document, sections=tuple(parts)), most_bytes=10**6)
    golden(f"reports/{name}.md", text)


@pytest.mark.parametrize("name", BRIEF)
def test_what_a_terminal_has_room_for(
    name: str, fixtures: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    document = document_of(report_on(name, fixtures, tmp_path), is_brief=True)
    text = screen.render(document, width=100, color=False, most_lines=10**6)
    golden(f"reports/{name}.txt", text)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows(
    name: str, fixtures: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """All but the scripts and style sheets."""
    page = printer.render(lambda _: document_of(report_on(name, fixtures, tmp_path)))
    body = page[page.index("<body>") :]
    text = re.sub(r"(<script[^>]*>).*?</script>\n", "", body, flags=re.DOTALL)
    golden(f"reports/{name}.html", text)


@pytest.mark.parametrize("name", ["full", "hostile_names", "sixteen_hosts_of_eight"])
def test_no_line_is_wider_than_the_page(name: str, fixtures: Path, tmp_path: Path) -> None:
    document = document_of(report_on(name, fixtures, tmp_path))
    for width in (1, 40, 47, 60, 80, 100, 120, 250):
        page = screen.render(document, width=width, color=False, most_lines=10**6)
        # A command is never broken.
        wide = [line for line in page.splitlines() if cell_len(line) > max(width, 40)]
        assert [line for line in wide if "traceview " not in line] == []
        assert [line for line in page.splitlines() if line != line.rstrip()] == []


# A glance


def visible_lines(page: str) -> int:
    """Lines of Markdown that are shown while everything is folded; a fold is one line."""
    count = depth = 0
    for line in page.splitlines():
        depth -= line == "</details>"
        count += depth == 0 and line != "</details>"
        depth += line == "<details>"
    return count


def check_length(report: Report) -> None:
    """A page is read at a glance, and a terminal shows all of a report on a few screens."""
    assert visible_lines(markdown.render(document_of(report))) <= 60
    document = document_of(report, is_brief=True)
    for width in (80, 200):
        page = screen.render(document, width=width, color=False)
        assert len(page.splitlines()) <= screen.MOST_FULL_LINES
        for section in document.sections:
            assert section.is_empty or section.title in page
            assert f"\n{section.title}" in page or section.command in page


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
)
def test_a_recorded_run_is_read_at_a_glance(name: str, fixtures: Path) -> None:
    check_length(traceview.analyze(fixtures / name))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_eight_gpus_are_read_at_a_glance(name: str, shared_traces: Path) -> None:
    check_length(traceview.analyze(shared_traces / name))
