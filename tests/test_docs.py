"""The pages in docs/ say what the code says now."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from scripts.docs import DOCS, PAGES, notebook
from scripts.readme import current
from traceview.analysis.registry import RULES
from traceview.cli.app import app

ROOT = DOCS.parent
BY_HAND = sorted(path.name for path in DOCS.glob("*.md") if path.name not in PAGES)
RENEW = "if this is right: python -m scripts.docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_current(name: str) -> None:
    assert PAGES[name]() == (DOCS / name).read_text(encoding="utf-8"), RENEW


@pytest.mark.parametrize("name", BY_HAND)
def test_a_page_shows_current_outputs(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert current(text) == text, RENEW


def test_the_notebook_shows_current_outputs() -> None:
    stored = notebook.PATH.read_text(encoding="utf-8")
    assert notebook.can_run()
    assert notebook.executed() == stored, RENEW
    cells = [cell for cell in json.loads(stored)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    assert all(cell["outputs"] for cell in cells)


def test_every_command_and_finding_has_an_entry() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    commands = (DOCS / "commands.md").read_text(encoding="utf-8")
    findings = (DOCS / "findings.md").read_text(encoding="utf-8")
    assert [name for name in group.commands if f"\n## traceview {name}\n" not in commands] == []
    assert [code for code in RULES if f"\n## {code}\n" not in findings] == []


def test_most_findings_have_an_example_from_a_trace() -> None:
    findings = (DOCS / "findings.md").read_text(encoding="utf-8")
    assert findings.count("\nExample, from ") >= 0.7 * len(RULES)


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings(text)
    }
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", prose)
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        assert not file or (DOCS / file).exists(), link
        assert file or anchor in anchors, link


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)
