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
from traceview.document.terminal import render_section
from traceview.report.document import document_of
from traceview.report.model import Report

FIXTURES = ("custom-loop-4", "no-markers-2", "plain-1", "slow-input-2")
MADE = {"bare": bare_report, "full": full_report}
RUNS = (
    *FIXTURES,
    *MADE,
    # Devices that are unused, marginal, slow, shared, or on many hosts, and none.
    *("C", "memory_only", "seven_unused_hold_memory", "mixed_models", "throttled_gpu"),
    *("gpu_held_by_another", "two_hosts", "sixty_four_healthy", "sixteen_skewed_clocks"),
    *("missing_worker", "parameter_servers", "gradients_on_one", "no_gpu_plane"),
    # Steps, input and what the capture lacks.
    *("no_steps", "one_step", "every_fifth_step", "evaluation_between_steps"),
    *("host_runs_ahead", "dropped_events", "clock_inversion", "late_shard"),
    *("replicas_wait_for_input", "stages_a_copy", "small_copies"),
    # Collectives, compute and memory.
    *("collective_ring", "cpu_bounce", "several_packs", "cut_collectives"),
    *("few_blocks", "memory_headroom", "memory_growing"),
)
BRIEF = ("bare", "full", "slow-input-2", "sixty_four_healthy", "throttled_gpu", "late_shard")


PAGES = ("bare", "full", "every_fifth_step")


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


@pytest.mark.parametrize("name", RUNS)
def test_everything(
    name: str, fixtures: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    document = document_of(report_on(name, fixtures, tmp_path))
    own = tuple(section for section in document.sections if section.id != "states")
    text = markdown.render(replace(document, sections=own), most_bytes=10**6)
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


@pytest.mark.parametrize("is_brief", [False, True])
@pytest.mark.parametrize("name", ["full", "hostile_names", "sixteen_hosts_of_eight"])
def test_every_section_fits_every_width(
    name: str, is_brief: bool, fixtures: Path, tmp_path: Path
) -> None:
    for section in document_of(report_on(name, fixtures, tmp_path), is_brief=is_brief).sections:
        for width in (40, 60, 80, 120):
            lines = render_section(section, width=width, color=False).splitlines()
            # Only a command may be wider.
            assert all(cell_len(line) <= width or "traceview " in line for line in lines), (
                section.id
            )
