"""Writes a gate for services that run it: annotations and a summary for GitHub Actions, JUnit XML for the others."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

from traceview.comparison.gate.result import (
    MOST_ROWS,
    GateResult,
    JudgedRow,
    Judgement,
    gate_section,
    headline,
    measured_words,
    notes_of,
)
from traceview.document.markdown import render_section
from traceview.document.sanitize import encodable, sanitize

MOST_ANNOTATIONS: Final = 10
"""GitHub shows ten errors of a step; the summary has all."""

_LEVELS: Final = {"fails": "error", "unknown": "warning", "holds": "warning"}
_DATA: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY: Final = (*_DATA, (":", "%3A"), (",", "%2C"))


def annotation_lines(result: GateResult) -> Iterator[str]:
    """The lines that make GitHub mark the run: errors fail, warnings cannot be judged or are past their limit within noise."""
    shown = [row for row in result.judgements if row.outcome != "holds" or row.is_let_pass]
    for judgement in shown[:MOST_ANNOTATIONS]:
        title = _escaped(f"traceview gate: {judgement.condition}", _PROPERTY)
        yield f"::{_LEVELS[judgement.outcome]} title={title}::{_escaped(message(judgement), _DATA)}"
    hidden = len(shown) - MOST_ANNOTATIONS
    if hidden > 0:
        yield f"::notice title=traceview gate::{hidden} more in the summary of the job"
    if result.outcome == "passed":
        yield f"::notice title=traceview gate::{_escaped(headline(result), _DATA)}"


def message(judgement: Judgement) -> str:
    """What was measured, row by row, and why a row has no value."""
    rows = [_row(row) for row in judgement.rows if row.outcome != "holds" or row.is_let_pass]
    hidden = len(rows) - MOST_ROWS
    return "; ".join([*rows[:MOST_ROWS], *([f"{hidden} more"] if hidden > 0 else [])])


def _row(row: JudgedRow) -> str:
    where = f"{row.where}: " if row.where else ""
    if row.outcome == "unknown":
        return f"{where}cannot be judged: {row.reason}"
    margin = f", {row.margin}" if row.margin else ""
    grace = f", {row.reason}" if row.is_let_pass and row.reason else ""
    return f"{where}{measured_words(row)}, allowed {row.allowed}{margin}{grace}"


def _escaped(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """As the runner of GitHub reads it back; control characters are made visible before that."""
    text = encodable(sanitize(text))
    for character, escape in replacements:
        text = text.replace(character, escape)
    return text


def summary(result: GateResult) -> str:
    """The section of the gate as Markdown, for `$GITHUB_STEP_SUMMARY` and for a comment."""
    return render_section(gate_section(result))


# JUnit

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLASS: Final = "traceview.gate"


def junit_xml(result: GateResult, *, timestamp: str, hostname: str) -> bytes:
    """The document. `timestamp`: when it was judged, `2026-11-22T14:00:00`; `hostname`: where.

    A condition that does not hold is a failure, one that cannot be judged an error.
    """
    counts = {
        "tests": str(len(result.judgements)),
        "failures": str(len(result.with_outcome("fails"))),
        "errors": str(len(result.with_outcome("unknown"))),
    }
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "package": _CLASS,
            "id": "0",
            "name": "traceview gate",
            "timestamp": timestamp,
            "hostname": _text(hostname) or "localhost",
            **counts,
            "time": "0",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("run", result.subject.run),
        ("baseline", result.baseline.name if result.baseline else ""),
        ("traceview_version", result.traceview_version),
    ):
        if value:
            ET.SubElement(properties, "property", {"name": name, "value": _text(value)})
    for judgement in result.judgements:
        _add_case(suite, judgement)
    ET.SubElement(suite, "system-out").text = _text(headline(result))
    ET.SubElement(suite, "system-err").text = ""
    ET.indent(root)
    whole: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return whole + b"\n"


def _add_case(suite: ET.Element, judgement: Judgement) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {"name": _text(judgement.condition), "classname": _CLASS, "time": "0"},
    )
    if judgement.outcome == "holds":
        return
    lines = [
        " · ".join(filter(None, (row.where, measured_words(row), row.allowed, row.margin)))
        for row in judgement.rows
        if row.outcome == "fails"
    ]
    lines += notes_of(judgement)
    kind = "failure" if judgement.outcome == "fails" else "error"
    shown = ET.SubElement(
        case, kind, {"type": judgement.outcome, "message": _text(lines[0] if lines else "")}
    )
    shown.text = "\n".join(map(_text, lines))


def _text(text: str) -> str:
    """The text without what XML cannot hold; the writer escapes the rest."""
    return _FORBIDDEN.sub("\ufffd", encodable(sanitize(text)))
