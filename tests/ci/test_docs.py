"""What docs/runs.md shows is read by the code that it is about."""

from __future__ import annotations

import re
from pathlib import Path

from tests.ci.action import ACTION, ROOT, read_yaml
from traceview.comparison.conditions import condition_of
from traceview.comparison.gate import budget_in

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


def test_the_workflow_gives_the_action_what_it_knows() -> None:
    lines = below("GitHub", "yaml").splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip() == "with:")
    given = [
        match[1] for line in lines[place + 1 :] if (match := re.match(r" {10}([\w-]+):", line))
    ]
    known = read_yaml(ACTION.read_text(encoding="utf-8"))["inputs"]
    assert given == ["capture", "budget", "require"]
    assert set(given) <= set(known)
    table = TEXT.partition("\n## GitHub\n")[2].partition("\n## ")[0]
    listed = {
        name
        for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert listed == set(known)
