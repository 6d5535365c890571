"""Each command that traceview prints, and that its pages show, is one that it has, with the options it has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer.main

from traceview.cli.app import app, command_called
from traceview.cli.commands.show import NAMES

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path
    for place, ending in (("traceview", "py"), ("docs", "md"), ("scripts", "py"))
    for path in (ROOT / place).rglob(f"*.{ending}")
)
PAGES = [*SOURCES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "action.yml"]

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
        for path in PAGES
        for line in commands_in(path)
        if problem(line)
    ]
    assert wrong == []
