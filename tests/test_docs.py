"""The pages in docs/ say what the code says now."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts.docs import BY_HAND, DOCS, PAGES, notebook
from scripts.docs.outputs import current

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
