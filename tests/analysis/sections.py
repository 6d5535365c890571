"""Makes the view of a report, and searches the sections of topics."""

from __future__ import annotations

from typing import Any

from traceview.analysis.measures.context import View
from traceview.analysis.rules.sentences import RunCommands
from traceview.document.model import Notes, Remark, Section, Subheading
from traceview.document.phrase import plain

HOST = "host0"


def view_of(**changes: Any) -> View:
    """The view of a report without any result or finding; the window of `HOST` starts at 0."""
    fields: dict[str, Any] = {
        "results": {},
        "skipped": {},
        "findings": (),
        "window_start_ps": {HOST: 0},
        "commands": RunCommands("logs", "run1", is_only=True),
    }
    return View(**fields | changes)


def sentences_of(section: Section | None) -> list[str]:
    """The notes, remarks and subheadings of a section."""
    sentences: list[str] = []
    for block in section.blocks if section else ():
        match block:
            case Notes(items):
                sentences += map(plain, items)
            case Remark(text, command):
                sentences.append(f"{plain(text)} {command}" if command else plain(text))
            case Subheading(text, remark):
                sentences += [plain(text), plain(remark)] if remark else [plain(text)]
    return sentences
