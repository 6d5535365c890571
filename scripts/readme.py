"""Renews the README, and the comparison with XProf in docs/viewers.md: runs what they show and writes the outputs.

    python -m scripts.readme            writes the outputs
    python -m scripts.readme --check    says whether they are current

A `console` block is a command after `$ ` and its output, or with `| head -N` the first lines of it. A `python` block followed by a `text` block is a
program and its output. Both run from the root of the checkout, 100 columns wide, without colour. The table of
docs/viewers.md between the comments `xprof answers` and `end of xprof answers` is made by scripts/xprof_answers.py, and
left as it is where XProf is not installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from scripts import xprof_answers
from traceview.base.errors import TraceviewError

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
XPROF_PAGE = ROOT / "docs" / "viewers.md"
WIDTH = 100
_CONSOLE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
_PYTHON = re.compile(
    r"```python\n(?P<code>.*?)```\n(?P<between>\s*)```text\n(?P<output>.*?)```", re.DOTALL
)
_XPROF = re.compile(
    r"(?P<begin><!-- xprof answers -->\n\n)(?P<table>.*?)(?P<end>\n\n<!-- end of xprof answers -->)",
    re.DOTALL,
)


def with_xprof(text: str, table: str) -> str:
    """The page with this table of answers; raises `ValueError` if it has no place for one."""
    fresh, count = _XPROF.subn(lambda match: f"{match['begin']}{table}{match['end']}", text)
    if count != 1:
        raise ValueError(
            f"{XPROF_PAGE.name}: {count} places for the table of XProf's answers, not one"
        )
    return fresh


def current(text: str) -> str:
    """The README's text with the outputs that its commands give now."""
    text = _CONSOLE.sub(_with_console_output, text)
    return _PYTHON.sub(_with_python_output, text)


def _with_console_output(match: re.Match[str]) -> str:
    command, _, shown = match["command"].partition(" | head -")
    program, *arguments = shlex.split(command)
    if program != "traceview":
        raise SystemExit(f"README: only traceview is run in console blocks, not {program!r}")
    output = _output([sys.executable, "-m", "traceview", *arguments])
    if shown:
        output = "".join(output.splitlines(keepends=True)[: int(shown)])
    return f"```console\n$ {match['command']}\n{output}```"


def _with_python_output(match: re.Match[str]) -> str:
    output = _output([sys.executable, "-c", match["code"]])
    return f"```python\n{match['code']}```\n{match['between']}```text\n{output}```"


def _output(command: list[str]) -> str:
    settings = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"README: {shlex.join(command)}: {done.stderr.decode()}")
    lines = [line.rstrip() for line in done.stdout.decode().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    """Write or check; 1 if a page is not current."""
    parser = argparse.ArgumentParser(prog="python -m scripts.readme", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check: bool = parser.parse_args().check
    pages = {README: current(README.read_text(encoding="utf-8"))}
    try:
        table = xprof_answers.table(xprof_answers.answers())
    except TraceviewError as error:
        print(f"{XPROF_PAGE.name}: XProf's answers are left as they are: {error}", file=sys.stderr)
    else:
        pages[XPROF_PAGE] = with_xprof(XPROF_PAGE.read_text(encoding="utf-8"), table)
    stale = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.name} is not current: run python -m scripts.readme", file=sys.stderr)
        else:
            path.write_text(pages[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
