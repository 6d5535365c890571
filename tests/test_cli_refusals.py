"""What a command refuses it says in one line and a hint, with an exit code, before it writes anything."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.command import Command
from tests.reports import full_report
from traceview.cli.output import MOST_WIDTH
from traceview.report.saved import to_json
from traceview.report.tables import TABLES

pytestmark = pytest.mark.usefixtures("no_terminal")

LONG = "x" * 300
NOT_A_RANGE = "2:5 is steps 2, 3 and 4"
BACKWARDS = "B is the first step left out"

REFUSED = [
    ("xyzzy", 2, "error: no such command 'xyzzy'\nhint: see traceview --help\n"),
    ("--foo", 2, "error: no such option: --foo\nhint: see traceview --help\n"),
    ("analyze", 2, "error: missing argument 'LOGDIR'\nhint: see traceview analyze --help\n"),
    (
        "analyze . --window step",
        2,
        "--window step: no such choice\nhint: did you mean steps? one of auto, steps, devices, trace",
    ),
    # What is read
    ("analyze missing", 3, "error: missing"),
    ("analyze empty", 3, "error: empty"),
    ("analyze broken.xplane.pb", 4, "error: broken.xplane.pb"),
    *(
        (f"{name} ''", 2, "error: the path is empty\n")
        for name in ("analyze", "show ops", "show runs")
    ),
    *((f"{name} {{loop}}/{LONG}", 3, LONG) for name in ("analyze", "show gaps", "show runs")),
    ("show hang empty", 3, "error: no report of a hang below empty\n"),
    ("show hang . --format csv", 2, "error: show hang writes no csv"),
    ("watch missing --once --every 10ms", 3, "no such file"),
    ("watch empty --once --every 10ms", 3, "no *.xplane.pb below it"),
    ("history missing", 3, "no such folder"),
    ("history empty", 3, "no saved report in it"),
    ("history damaged", 4, "not a saved report: Input data was truncated"),
    ("history other", 4, "schema_version is 3; this version reads 2"),
    ("history file", 3, "a file, where a folder of files is needed"),
    ("history empty --keep 0", 2, "--keep"),
    # What is written
    *(
        (f"{line} -o {LONG}", 2, "too long")
        for line in (
            "analyze broken.xplane.pb",
            "report broken.xplane.pb",
            "show gaps broken.xplane.pb --format csv",
            "export broken.xplane.pb",
            "export broken.xplane.pb --to csv",
        )
    ),
    ("report report.json -o file/out.md", 2, "error: cannot write "),
    ("compare {loop} {loop} -o file/out.md", 2, "error: cannot write "),
    ("gate {slow} --require 'step_time_ms <= 500' -o file/out.json", 2, "error: cannot write "),
    ("gate {slow} --save main --dir file/baselines", 2, "error: cannot write "),
    ("history . -o file/out.csv", 2, "error: cannot write "),
    ("report {loop}", 2, "no output is named"),
    ("report {loop} --format yaml", 2, "--format yaml: no such choice"),
    ("report {loop} --format markdwon", 2, "did you mean markdown?"),
    ("report {loop} -o no/such/folder/out", 2, "there is no directory no/such/folder"),
    ("export {loop} -o no/such/folder/x", 2, "there is no directory"),
    ("export {loop} --to parquet -o -", 2, "tables need a folder"),
    ("export {loop} --to csv -o file", 2, "is a file"),
    ("export {loop} --to svg", 2, "svg"),
    ("export {loop} -o x.json", 2, "a trace has another format"),
    ("export {loop} -o x.pftrace.gz", 2, "a trace has another format"),
    ("export {loop} -o x.csv", 2, "--to csv"),
    ("export {loop} -o x.parquet", 2, "--to parquet"),
    *(
        (
            f"{line} -o x.{ending}",
            2,
            f"no format has the ending .{ending}\nhint: known endings: {known};",
        )
        for line, ending, known in (
            ("analyze {loop}", "csv", ".json, .txt"),
            ("analyze {loop}", "html", ".json, .txt"),
            ("show ops {loop}", "xlsx", ".csv, .json, .parquet, .txt"),
        )
    ),
    *((f"analyze {{loop}} --width {width}", 2, "--width") for width in (10**9, MOST_WIDTH + 1)),
    # Steps
    ("analyze {loop} --steps=5", 2, "hint: for step 5 alone: --steps 5:6"),
    *(
        (f"analyze {{loop}} --steps={text}", 2, f"hint: {NOT_A_RANGE}")
        for text in (":", "a:b", "1:2:3", "-2:", "٣:", "9" * 30 + ":")
    ),
    *((f"analyze {{loop}} --steps={text}", 2, f"hint: {BACKWARDS}") for text in ("5:5", "6:4")),
    ("report {loop} --steps 100: -o out", 2, "step"),
    ("export {loop} --steps 900:901 -o x", 2, "the trace has none of them"),
    # What does not go together
    ("report {loop} --open report -o out", 2, "--output cannot be combined with --open report"),
    ("report {loop} --port 1 -o out", 2, "--port needs --open"),
    ("report {loop} --open xprof --redact", 2, "--redact cannot be combined with --open xprof"),
    ("report report.json --open perfetto", 2, "--open perfetto needs a trace"),
    *(
        (f"{name} report.json {option}", 2, f"{option.split()[0]} needs a trace")
        for name in ("analyze", "report")
        for option in ("--steps 1:2", "--run a", "--salvage")
    ),
    ("compare {loop} {slow} {loop}", 2, "error: compare takes BEFORE and AFTER, not 3 runs"),
    (
        "compare {loop} {slow} --scaling --redact",
        2,
        "error: --redact cannot be combined with --scaling",
    ),
    ("compare {loop} {slow} --scaling", 7, "error: scaling needs runs on two or more numbers"),
    ("compare --scaling", 7, "error: scaling needs runs on two or more numbers"),
    # Tables
    ("show gap .", 2, "error: TABLE gap: no such choice\nhint: did you mean gaps? "),
    ("show gaps . --state compute", 2, "error: --state compute: no such choice"),
    ("show gaps . --workers 0", 2, "error: --workers 0: not an address"),
    ("show gaps . --min 50", 2, "error: --min 50: not a length of time"),
    ("show gaps . --top 0", 2, "error: invalid value for '--top'"),
    ("show gaps . --format xml", 2, "error: --format xml: no such choice"),
    ("show gaps {slow} --by durations", 2, "error: --by durations: no such choice"),
    *(
        (f"show gaps {{slow}} --device {name}", 2, "device")
        for name in ("''", "' , '", "nonsense", "7")
    ),
    *(
        (
            f"show {table} {{slow}} {option}",
            2,
            f"error: {option.split()[0]} has no meaning for show {table}\nhint: it works with {others}",
        )
        for table, option, others in (
            (
                "input",
                "--device 0",
                "gaps, steps, devices, ops, layers, efficiency, memory, copies",
            ),
            ("steps", "--state input", "gaps, ops, copies, findings"),
            ("devices", "--min 1us", "gaps, steps, ops, layers, input, copies, collectives"),
            ("runs", "--steps 1:2", ", ".join(TABLES)),
            ("hang", "--sort pid", ", ".join((*TABLES, "runs"))),
        )
    ),
    # Gates and alarms
    ("gate {slow}", 2, "nothing is asked for: there is no condition"),
    (
        "gate {slow} --require 'step_tme <= 3'",
        2,
        "condition 'step_tme <= 3': no key is called step_tme",
    ),
    ("gate {slow} --baseline ''", 2, "the baseline has an empty name"),
    (
        "gate {slow} --baseline '' --require 'step_time_ms <= 3'",
        2,
        "the baseline has an empty name",
    ),
    ("gate {slow} --budget ''", 2, "the path is empty"),
    ("gate {slow} --baseline main --dir ''", 2, "the name of the folder is empty"),
    ("gate {slow} --baseline main~2", 2, "'main~2' cannot name a baseline"),
    ("gate {slow} --budget nowhere.toml", 3, "nowhere.toml: No such file"),
    ("gate {slow} --baseline main", 3, "no baseline is called main in .traceview/baselines"),
    ("gate {slow} --baseline damaged/a.json", 4, "damaged/a.json: not a saved report: "),
    ("gate {slow} --baseline other/newer.json", 4, "schema_version is 3; this version reads 2"),
    (
        "watch {slow} --once --on-finding no-such-code true",
        2,
        "no finding is called 'no-such-code'",
    ),
    ("watch {slow} --once --on-finding input-bound ' '", 2, "the command is empty"),
    ("watch {slow} --once --on-finding input-bound", 2, "requires 2 arguments"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: files that are no traces, and one report."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "damaged", "other"):
        (tmp_path / name).mkdir()
    for name, text in {
        "file": "",
        "broken.xplane.pb": "<!DOCTYPE html>",
        "damaged/a.json": "{",
        "other/newer.json": '{"schema_version": 3, "source": 0, "results": 0}',
        "report.json": to_json(full_report()),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("line", "code", "said"), REFUSED)
def test_a_refusal_is_a_line_and_a_hint(
    line: str, code: int, said: str, command: Command, folder: Path, loop: str, slow: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = command(*shlex.split(line.format(loop=loop, slow=slow)))
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.startswith("traceview: ")
    assert done.err.count("\n") <= 2
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
