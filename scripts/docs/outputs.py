"""Runs what a page shows, and puts the outputs that it gives now in their places.

A `console` block is a command after `$ ` and its output, or with `| head -N` the first lines of it. A `python` block
followed by a `text` block is a program and its output. Both run from the root of the checkout, 100 columns wide, without
colour.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WIDTH = 100
_CONSOLE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
_PYTHON = re.compile(
    r"```python\n(?P<code>.*?)```\n(?P<between>\s*)```text\n(?P<output>.*?)```", re.DOTALL
)


def current(text: str) -> str:
    """The text of a page with the outputs that its commands give now."""
    text = _CONSOLE.sub(_with_console_output, text)
    return _PYTHON.sub(_with_python_output, text)


def _with_console_output(match: re.Match[str]) -> str:
    command, _, shown = match["command"].partition(" | head -")
    program, *arguments = shlex.split(command)
    if program != "traceview":
        raise SystemExit(f"only traceview is run in console blocks, not {program!r}")
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
        raise SystemExit(f"{shlex.join(command)}: {done.stderr.decode()}")
    lines = [line.rstrip() for line in done.stdout.decode().splitlines()]
    return "".join(f"{line}\n" for line in lines)
