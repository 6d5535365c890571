"""Shows a gate: as a section of a document, as annotations for GitHub Actions, and as JUnit XML for other services."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

from traceview.base.text import encodable, lazy_pattern
from traceview.comparison.model import GateResult, JudgedRow, JudgedSide, Judgement, Outcome
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import QUALITIES, Look, look_of

OUTCOMES: Final = {
    "fails": Look("fails", "FAIL", "critical", "bold red"),
    "unknown": Look("unknown", "not judged", "warning", "yellow"),
    "no_verdict": Look("no_verdict", "no verdict", "warning", "yellow"),
    "holds": Look("holds", "ok", "ok", "green"),
}
MOST_ROWS: Final = 8
"""Rows of one condition that are listed."""


def headline(result: GateResult) -> str:
    """The verdict in one sentence."""
    count = len(result.judgements)
    if result.outcome == "passed":
        return f"Gate passed: {'the condition holds' if count == 1 else f'all {count} conditions hold'}."
    decisive: dict[str, Outcome] = {"failed": "fails", "no_verdict": "no_verdict"}
    number = len(result.with_outcome(decisive.get(result.outcome, "unknown")))
    which = f"{number} of {count} conditions"
    if result.outcome == "no_verdict":
        return f"No verdict: these runs differ too much to judge {which}."
    return f"Gate {'failed' if result.outcome == 'failed' else 'not judged'}: {which}."


def gate_section(result: GateResult) -> doc.Section:
    """The conditions as a table: those that fail first."""
    baseline = result.baseline
    rows = [
        (judgement, row)
        for judgement in result.judgements
        for row in judgement.rows[: 1 if judgement.outcome == "holds" else MOST_ROWS]
    ]
    facts = doc.facts(
        f"run {result.subject.run}{_more(result.subject)}",
        f"baseline {baseline.name}{_more(baseline)}" if baseline else None,
    )
    conditions = table("The conditions, what was measured, and the limits", rows, _COLUMNS)
    blocks: tuple[doc.Block, ...] = (*facts, *conditions, *doc.notes(*_notes(result)))
    return doc.Section("gate", headline(result), blocks, is_folded=False)


def _more(side: JudgedSide) -> str:
    more = side.capture_count - 1
    return f" and {numbers.plural(more, 'more capture')}" if more else ""


def _change_words(row: JudgedRow) -> str:
    """The change against the baseline: `+5.2%`; empty where there is none."""
    return "" if row.change_ratio is None else numbers.signed_share(row.change_ratio)


_COLUMNS: Final = (
    Shown("", lambda of: OUTCOMES[of[1].outcome], kind="look"),
    Shown("condition", lambda of: of[0].condition, kind="name"),
    Shown("device", lambda of: of[1].where, 1, "name"),
    Shown("value", lambda of: of[1].measured),
    Shown("limit", lambda of: of[1].allowed),
    Shown("change", lambda of: _change_words(of[1]), 2),
)
"""Of a condition and one of its rows."""


def _notes(result: GateResult) -> Iterator[str]:
    conditions: dict[str, list[str]] = {}
    for judgement in result.judgements:
        hidden = len(judgement.rows) - MOST_ROWS
        if hidden > 0 and judgement.outcome != "holds":
            yield f"{judgement.condition}: {numbers.plural(hidden, 'more row')} not listed."
        for reason in dict.fromkeys(row.reason for row in judgement.rows if row.reason):
            conditions.setdefault(reason, []).append(judgement.condition)
    for reason, of_reason in conditions.items():
        yield f"{', '.join(of_reason)}: {numbers.sentence(reason)}"
    if result.capture_quality != "ok":
        yield f"Capture: {look_of(QUALITIES, result.capture_quality).words}."
    reasons = {row.reason for judgement in result.judgements for row in judgement.rows}
    if result.outcome == "failed" and result.headline.rstrip(".") not in reasons:
        yield f"What costs most: {result.headline}"


# GitHub

_DATA: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY: Final = (*_DATA, (":", "%3A"), (",", "%2C"))


def annotation_lines(result: GateResult) -> Iterator[str]:
    """The lines that make GitHub mark the run: errors fail, warnings cannot be judged."""
    for judgement in result.with_outcome("fails", "unknown", "no_verdict"):
        level = "error" if judgement.outcome == "fails" else "warning"
        title = _escaped(f"traceview gate: {judgement.condition}", _PROPERTY)
        yield f"::{level} title={title}::{_escaped('; '.join(lines_of(judgement)), _DATA)}"
    if result.outcome == "passed":
        yield f"::notice title=traceview gate::{_escaped(headline(result), _DATA)}"


def lines_of(judgement: Judgement) -> list[str]:
    """The rows that do not hold, each as a line: the value, or why there is none."""
    rows = [_row(row) for row in judgement.rows if row.outcome != "holds"]
    hidden = len(rows) - MOST_ROWS
    return [*rows[:MOST_ROWS], *([f"{hidden} more"] if hidden > 0 else [])]


def _row(row: JudgedRow) -> str:
    """`GPU:0: 41.2 ms (+5.2%), allowed <= 40.0 ms`."""
    where = f"{row.where}: " if row.where else ""
    if row.outcome == "unknown":
        return f"{where}cannot be judged: {row.reason}"
    change = f" ({_change_words(row)})" if _change_words(row) else ""
    verdict = ", no verdict" if row.outcome == "no_verdict" else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"{where}{row.measured}{change}, allowed {row.allowed}{verdict}{reason}"


def _escaped(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """As the runner of GitHub reads it back; control characters are made visible before that."""
    text = encodable(sanitize(text))
    for character, escape in replacements:
        text = text.replace(character, escape)
    return text


# JUnit

_FORBIDDEN: Final = lazy_pattern("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(result: GateResult) -> bytes:
    """The document: a condition that does not hold is a failure, one that cannot be judged or has no verdict an error."""
    counts = {
        "tests": len(result.judgements),
        "failures": len(result.with_outcome("fails")),
        "errors": len(result.with_outcome("unknown", "no_verdict")),
    }
    root = ET.Element("testsuites")
    attributes = {"name": "traceview gate", **{name: str(count) for name, count in counts.items()}}
    suite = ET.SubElement(root, "testsuite", attributes)
    for judgement in result.judgements:
        names = {"name": _text(judgement.condition), "classname": "traceview.gate"}
        case = ET.SubElement(suite, "testcase", names)
        if judgement.outcome != "holds":
            lines = list(map(_text, lines_of(judgement)))
            kind = "failure" if judgement.outcome == "fails" else "error"
            shown = ET.SubElement(case, kind, {"type": judgement.outcome, "message": lines[0]})
            shown.text = "\n".join(lines)
    ET.SubElement(suite, "system-out").text = _text(headline(result))
    ET.indent(root)
    whole: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return whole + b"\n"


def _text(text: str) -> str:
    """The text without what XML cannot hold; the writer escapes the rest."""
    return _FORBIDDEN.sub("\ufffd", encodable(sanitize(text)))
