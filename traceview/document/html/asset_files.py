"""Reads the style sheets and scripts that a page carries inside it; each script is joined from small files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from traceview.document.vocabulary import COLOURS

ASSETS: Final = files("traceview.document.html") / "assets"

STYLES: Final = ("timeline.css", "page.css")
"""In the order of the page, after the colours."""

SCRIPTS: Final = ("theme", "page", "timeline")
"""Folders of files that make a script. A file uses the names of the others in its folder and of no other one."""

_LIGHT, _DARK = 0, 1


@cache
def asset(name: str) -> str:
    """The text of a file, by its path below `assets`."""
    return ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")


@cache
def script(name: str) -> str:
    """The files of a folder as one function that runs at once, so that they share their names with nothing else."""
    names = sorted(path.name for path in ASSETS.joinpath(name).iterdir())
    # What the others define is there when the last one runs.
    names.sort(key="main.js".__eq__)
    parts = "\n".join(asset(f"{name}/{part}") for part in names)
    return f'(() => {{\n"use strict";\n\n{parts}}})();\n'


@cache
def colours() -> str:
    """A style sheet with the colours of the vocabulary as variables, by the system or by the choice of the reader.

    Paper is light, whatever the reader chose.
    """
    light, dark = _variables(_LIGHT), _variables(_DARK)
    return (
        f":root {light}\n"
        f'@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {dark} }}\n'
        f'@media screen {{ :root[data-theme="dark"] {dark} }}\n'
    )


def _variables(ground: int) -> str:
    return "{ " + " ".join(f"--tv-{name}: {both[ground]};" for name, both in COLOURS.items()) + " }"


@cache
def bar_colours() -> str:
    """A style sheet that gives the pieces of bars their colours."""
    return "".join(f".part.{name} {{ background: var(--tv-{name}); }}\n" for name in COLOURS)
