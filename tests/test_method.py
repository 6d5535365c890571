"""Comments cite sections of docs/method.md and docs/xplane.md that exist; these pages name limits and constants that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traceview.analysis.registry import RULES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("method.md", "xplane.md")
CONSTANT = re.compile(r"`(_?[A-Z]+(?:_[A-Z]+)+|SLICES)`")
LIMIT = re.compile(r"`([a-z0-9-]+)\.(\w+)`")
NOT_OURS = {"TF_CONFIG", "CUDA_VISIBLE_DEVICES", "TF_GPU_THREAD_MODE"}
CITATION = re.compile(r'docs/(method\.md|xplane\.md), "([^"]+)"')


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def sources(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for pattern in ("*.py", "*.pyx")
        for path in sorted((ROOT / folder).rglob(pattern))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_constant_that_a_page_names_is_in_the_code(page: str) -> None:
    named = set(CONSTANT.findall(text(page))) - NOT_OURS
    assert named
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources("traceview"))
    assert [name for name in sorted(named) if not re.search(rf"^{name}\b.*=", code, re.M)] == []


def test_every_limit_that_the_method_names_is_in_its_rule() -> None:
    named = [(code, limit) for code, limit in LIMIT.findall(text("method.md")) if code in RULES]
    assert len(named) >= 5
    assert [(code, limit) for code, limit in named if limit not in RULES[code].limits] == []


def test_every_section_that_a_comment_cites_exists() -> None:
    headings = {page: set(re.findall(r"^#+ (.+)$", text(page), re.M)) for page in PAGES}
    missing = [
        (path.relative_to(ROOT).as_posix(), page, title)
        for path in sources("traceview", "tests", "scripts")
        if path != Path(__file__).resolve()
        for page, title in CITATION.findall(path.read_text(encoding="utf-8"))
        if title not in headings[page]
    ]
    assert missing == []
