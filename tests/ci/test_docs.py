"""What docs/runs.md shows is read by the code that it is about."""

from __future__ import annotations

import re
from pathlib import Path

from tests.ci.action import ROOT
from traceview.comparison.gate import budget_in, condition_of

TEXT = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")


def below(heading: str, language: str) -> str:
    """The first block of a language below a heading."""
    return (
        TEXT.partition(f"\n## {heading}\n")[2].partition(f"```{language}\n")[2].partition("```")[0]
    )


def test_every_condition_is_one() -> None:
    section = TEXT.partition("\n## Conditions\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(shown) >= 10
    for text in shown:
        assert condition_of(text).text == text
    for text in re.findall(r"--require '([^']+)'", TEXT):
        condition_of(text)


def test_the_budget_is_one(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(below("A budget in a file", "toml"), encoding="utf-8")
    budget = budget_in(path)
    assert (len(budget.require), budget.baseline) == (4, "main")
