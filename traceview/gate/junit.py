"""Writes a gate as JUnit XML: a test case per condition, as GitLab, Jenkins and Azure read it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Final

from traceview.document.sanitize import encodable, sanitize
from traceview.gate.result import GateResult, Judgement
from traceview.gate.section import headline, measured_words, notes_of

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
