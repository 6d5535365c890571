"""What GitHub, JUnit readers and programs get; nothing in a name is taken for a command or for markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt
from msgspec import json, structs

from tests.gate.test_gate import judge, side
from tests.hostile import HOSTILE
from traceview.comparison.gate import condition_of, judged
from traceview.comparison.gate_document import annotation_lines, gate_section, headline, junit_xml
from traceview.comparison.model import GateResult
from traceview.document import markdown
from traceview.document.sanitize import dumped
from traceview.report.saved import schema_of

MIXED = judge(
    "step_time_ms <= 20", "finding:critical absent", "finding:few-steps <= 5%", "absent_hosts <= 0"
)


def hostile_result() -> GateResult:
    """Every text of a result that a trace or a user can choose is hostile."""
    row = MIXED.judgements[0].rows[0]
    judgements = tuple(
        structs.replace(
            MIXED.judgements[0],
            condition=text,
            rows=(structs.replace(row, where=text, measured=text, reason=text),),
        )
        for text in HOSTILE
    )
    side = structs.replace(MIXED.subject, name=HOSTILE[0], run=HOSTILE[5], logdir=HOSTILE[6])
    return structs.replace(
        MIXED, judgements=judgements, subject=side, baseline=side, headline=HOSTILE[5]
    )


def test_annotations() -> None:
    lines = list(annotation_lines(MIXED))
    assert lines[0] == (
        "::error title=traceview gate%3A step_time_ms <= 20::24.0 ms, allowed <= 20.0 ms"
    )
    assert lines[2].startswith("::warning title=traceview gate%3A finding%3Afew-steps <= 5%25::")
    assert len(lines) == 3
    assert list(annotation_lines(judge("step_time_ms <= 30"))) == [
        "::notice title=traceview gate::Gate passed: the condition holds."
    ]


def test_no_verdict_is_a_warning() -> None:
    condition = [condition_of("step_time:+5%"), condition_of("step_time_ms <= 200")]
    one, two = (judged(side(110), condition[:count], side(100)) for count in (1, 2))
    assert headline(one) == "No verdict: these runs differ too much to judge 1 of 1 conditions."
    assert headline(two) == "No verdict: these runs differ too much to judge 1 of 2 conditions."
    (warning,) = annotation_lines(two)
    assert warning.startswith(
        "::warning title=traceview gate%3A step_time%3A+5%25::110 ms (+10.0%25)"
    )
    assert ", no verdict: one capture of a side" in warning
    (suite,) = ET.fromstring(junit_xml(two))
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "1")


def test_no_name_becomes_an_annotation_of_its_own() -> None:
    for text in (*HOSTILE, "::add-mask::x", "a\n::error::b", "%0A::error::b", "x,file=/etc/passwd"):
        row = structs.replace(MIXED.judgements[0].rows[0], measured=text, where=text)
        changed = structs.replace(MIXED.judgements[0], condition=text, rows=(row,))
        (line,) = annotation_lines(structs.replace(MIXED, judgements=(changed,)))
        assert "\n" not in line
        assert "\r" not in line
        head, _, message = line.removeprefix("::").partition("::")
        assert head.startswith("error title=traceview gate%3A ")
        assert "," not in head
        assert head.count(":") == 0
        # What the runner reads back is what was meant: a % of ours is always an escape.
        assert not re.search(r"%(?!25|0A|0D|3A|2C)", line)
        assert message


def test_the_summary_is_one_section_of_markdown() -> None:
    text = markdown.render_section(gate_section(hostile_result()))
    assert text.startswith("## Gate failed: ")
    assert text.count("\n## ") == 0
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        assert token.type != "html_block"
        for child in token.children or ():
            assert child.type not in ("image", "link_open")
            assert child.type != "html_inline" or child.content in ("<code>", "</code>")
    rows = [line for line in text.splitlines() if "20.0 ms" in line]
    assert len(rows) == len(HOSTILE)


def test_json_is_what_its_schema_says() -> None:
    data = json.decode(dumped(MIXED))
    schema = json.decode(schema_of(GateResult, "traceview gate"))
    Draft202012Validator(schema).validate(data)
    Draft202012Validator(schema).validate(json.decode(dumped(hostile_result())))
    assert json.decode(dumped(MIXED), type=GateResult) == MIXED
    assert (data["outcome"], data["exit_code"]) == ("failed", 10)


def test_junit() -> None:
    (suite,) = ET.fromstring(junit_xml(MIXED))
    counts = [suite.attrib[name] for name in ("tests", "failures", "errors")]
    assert counts == ["4", "2", "1"]
    assert [[child.tag for child in case] for case in suite.findall("testcase")] == [
        ["failure"],
        ["failure"],
        ["error"],
        [],
    ]
    failure, error = suite.find("testcase/failure"), suite.find("testcase/error")
    assert failure is not None
    assert error is not None
    assert failure.attrib["message"] == "24.0 ms, allowed <= 20.0 ms"
    said = "cannot be judged: it costs no time"
    assert error.text == error.attrib["message"] == said
    (hostile,) = ET.fromstring(junit_xml(hostile_result()))
    assert len(hostile.findall("testcase/failure")) == len(HOSTILE)
