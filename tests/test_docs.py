"""The pages in docs/ say what the code says now; each command that they show, or traceview prints, exists with its options."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from scripts.docs import BY_HAND, DOCS, PAGES, notebook
from scripts.docs.outputs import current
from traceview.cli.app import app, command_called
from traceview.cli.commands.show import NAMES

ROOT = DOCS.parent
PAGES_WITH_LINKS = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
RENEW = "if this is right: python -m scripts.docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_current(name: str) -> None:
    assert PAGES[name]() == (DOCS / name).read_text(encoding="utf-8"), RENEW


@pytest.mark.parametrize("path", BY_HAND, ids=lambda path: path.name)
def test_a_page_shows_current_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.name != "README.md" or "```console\n$ traceview" in text
    assert current(text) == text, RENEW


def test_the_notebook_shows_current_outputs() -> None:
    stored = notebook.PATH.read_text(encoding="utf-8")
    assert notebook.can_run()
    assert notebook.executed() == stored, RENEW
    cells = [cell for cell in json.loads(stored)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    assert all(cell["outputs"] for cell in cells)


@pytest.mark.parametrize("path", PAGES_WITH_LINKS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = without_blocks(path.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    titles = re.findall(
        r"^#+ (.+)$", without_blocks(path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


# Commands


SOURCES = sorted(
    path
    for place, ending in (("traceview", "py"), ("docs", "md"), ("scripts", "py"))
    for path in (ROOT / place).rglob(f"*.{ending}")
)
SHOWN_IN = [*SOURCES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "action.yml"]

GROUP = typer.main.get_group(app)
PLACEHOLDER = re.compile(r"[A-Z{<…]")
"""How a word begins that somebody fills in."""

MARKED = re.compile(r"`(traceview [a-z-][^`\n]*)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("sh", "bash", "console", "yaml")
TYPED = re.compile(r"^(?:\$ |[ -]*run: | *)(traceview [a-z-][^\n#|&>]*)", re.MULTILINE)


def commands_in(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    blocks = [text] if path.suffix == ".yml" else []
    if path.suffix == ".md":
        blocks = [block for language, block in BLOCK.findall(text) if language in SHELLS]
    return MARKED.findall(text) + [line for block in blocks for line in TYPED.findall(block)]


def problem(line: str) -> str:
    """What is wrong with a command; empty for nothing."""
    try:
        words = shlex.split(line.rstrip("\\ "))[1:]
    except ValueError:
        return ""  # only the beginning of a command
    if not words or words[0] == "--version" or PLACEHOLDER.match(words[0]):
        return ""
    if words[0] not in GROUP.commands:
        return f"no command {words[0]}"
    command = command_called(words[0])
    if words[0] == "show" and len(words) > 1 and words[1] not in NAMES:
        return "" if PLACEHOLDER.match(words[1].strip("[")) else f"no table {words[1]}"
    known = {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}
    for word in words[1:]:
        if words[0] == "capture" and (word == "--" or re.search(r"\.py$|^SCRIPT$", word)):
            break
        name = word.partition("=")[0]
        if re.match(r"--?[a-z]", name) and name not in known:
            return f"no option {name} of {words[0]}"
    return ""


def test_commands_exist() -> None:
    wrong = [
        (path.relative_to(ROOT).as_posix(), line, problem(line))
        for path in SHOWN_IN
        for line in commands_in(path)
        if problem(line)
    ]
    assert wrong == []
