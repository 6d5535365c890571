"""The pages in docs/ say what the code says now."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from scripts.docs import DOCS, PAGES, notebook
from scripts.readme import current
from traceview.analysis.registry import RULES
from traceview.cli.app import app

ROOT = DOCS.parent
BY_HAND = sorted(path.name for path in DOCS.glob("*.md") if path.name not in PAGES)
PAGES_WITH_LINKS = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
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


@pytest.mark.parametrize("path", PAGES_WITH_LINKS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = without_blocks(path.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", PAGES_WITH_LINKS, ids=lambda path: path.name)
def test_every_command_and_option_exists(path: Path) -> None:
    for line in commands_in(path.read_text(encoding="utf-8")):
        command: Any = typer.main.get_command(app)
        known = {"--help", "--install-completion"}
        for word in shlex.split(line, comments=True)[1:]:
            if word in ("--", "|") or word.endswith((".py", ".ipynb")):
                break  # from here on words are a script's
            if isinstance(command, TyperGroup) and re.fullmatch("[a-z]+", word):
                assert word in command.commands, line
                command = command.commands[word]
                known |= {name for option in command.params for name in option.opts}
                known |= {name for option in command.params for name in option.secondary_opts}
            elif word.startswith("-") and word != "-":
                assert word in known, line


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    titles = re.findall(
        r"^#+ (.+)$", without_blocks(path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands_in(text: str) -> list[str]:
    """Lines of shell blocks, and code in sentences, that begin with traceview."""
    blocks = "\n".join(re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    lines = re.findall(r"^(?:\$ )?(traceview .+)$", blocks, re.MULTILINE)
    spans = re.findall(r"`(traceview [a-z][^`\n]*)`", without_blocks(text))
    return [*lines, *(span for span in spans if "…" not in span)]
