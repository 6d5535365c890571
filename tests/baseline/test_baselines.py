"""Baselines are small, are read back as they were saved, and compare as the whole report does."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.command import Command
from tests.reports import bare_report, full_report
from traceview.base.errors import TraceFormatError, TraceNotFoundError, TraceviewError, UsageError
from traceview.comparison.baselines import MOST_BYTES, checked_name, paths_called, reduced
from traceview.comparison.build import compare
from traceview.report import saved
from traceview.report.build import analyze
from traceview.report.saved import load_report

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default folder below a working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".traceview" / "baselines"


@pytest.mark.parametrize("name", ["slow-input-2", "keras-fit-4", "no-markers-2", "plain-1"])
def test_a_reduced_report_compares_as_the_whole_one(
    name: str, fixtures: Path, tmp_path: Path
) -> None:
    whole = analyze(fixtures / name, lanes=True)
    small = reduced(whole)
    assert len(small.content) <= MOST_BYTES
    assert small.report.reduced
    path = tmp_path / f"small{small.suffix}"
    path.write_bytes(small.content)
    again = load_report(path)
    assert again == small.report
    other = analyze(fixtures / "custom-loop-2")
    assert compare([again], [other], force=True) == compare([whole], [other], force=True)
    assert compare([other], [again], force=True) == compare([other], [whole], force=True)
    assert reduced(again).content == small.content


def test_128_gpus_fit_compressed(tmp_path: Path) -> None:
    SCENARIOS["sixteen_hosts_of_eight"]().write(tmp_path / "logs")
    small = reduced(analyze(tmp_path / "logs"))
    assert small.suffix == ".json.gz"
    assert len(small.content) <= MOST_BYTES
    path = tmp_path / "small.json.gz"
    path.write_bytes(small.content)
    assert load_report(path) == small.report
    assert reduced(small.report).content == small.content


def test_more_is_left_out_only_where_that_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    report = full_report()
    size = len(gzip.compress(reduced(report).content, mtime=0))
    monkeypatch.setattr("traceview.comparison.baselines.MOST_BYTES", size - 1)
    smaller = reduced(report)
    assert "ops" in smaller.report.reduced
    monkeypatch.setattr("traceview.comparison.baselines.MOST_BYTES", 500)
    with pytest.raises(UsageError, match="a baseline holds at most 500 B"):
        reduced(report)


def test_a_damaged_compressed_report_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzip.compress(reduced(full_report()).content)
    path = tmp_path / "r.json.gz"
    for damaged, problem in (
        (content[:-30], "ends too early"),
        (content[:20] + b"\xff" * 20 + content[40:], "cannot be decompressed"),
        (gzip.compress(b"{}"), "not a saved report"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(TraceFormatError, match=problem):
            load_report(path)
    path.write_bytes(content)
    monkeypatch.setattr(saved, "MOST_DECOMPRESSED_BYTES", 1000)
    with pytest.raises(TraceFormatError, match="is too large"):
        load_report(path)


def test_saving_listing_showing_and_removing(
    command: Command, fixtures: Path, folder: Path
) -> None:
    logs = str(fixtures / "slow-input-2")
    assert "No baseline" in command("gate", "--baselines").out
    done = command("gate", logs, "--save", "main")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("traceview: saved .traceview/baselines/main.json (")
    assert [path.name for path in folder.iterdir()] == ["main.json"]
    listed = command("gate", "--baselines").out
    assert re.search(r"main .* 2 × replica +65\.4 ms +5 ", listed)
    data = json.loads(command("gate", "--baselines", "--format", "json").out)
    assert [row["name"] for row in data["baselines"]] == ["main"]
    assert data["baselines"][0]["bytes"] == (folder / "main.json").stat().st_size
    assert "(63%)" in command("analyze", str(folder / "main.json")).out
    full = command("analyze", str(folder / "main.json"), "--full").out
    assert "A reduced report, as baselines are, without timeline, idle, " in full
    done = command("gate", logs, "--save", "main")
    assert (done.code, done.err.splitlines()[0]) == (
        6,
        "traceview: error: .traceview/baselines/main.json exists",
    )
    assert command("gate", logs, "--save", "main", "--force").code == 0
    assert (
        command("gate", "--remove", "main").err
        == "traceview: removed .traceview/baselines/main.json\n"
    )
    done = command("gate", "--remove", "main")
    assert (done.code, "no baseline is called main" in done.err) == (3, True)


def test_a_saved_report_becomes_a_baseline_without_its_trace(
    command: Command, fixtures: Path, folder: Path, tmp_path: Path
) -> None:
    logs = str(fixtures / "slow-input-2")
    assert command("analyze", logs, "-o", str(tmp_path / "report.json")).code == 0
    assert command("gate", str(tmp_path / "report.json"), "--save", "one").code == 0
    assert command("gate", logs, "--save", "two").code == 0
    assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()
    assert command("gate", logs, "--save", "three", "--redact").code == 0
    assert b"vm-" not in (folder / "three.json").read_bytes()


def test_a_baseline_in_the_other_form_is_replaced(
    command: Command, fixtures: Path, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "main.json.gz").write_bytes(b"old")
    assert command("gate", str(fixtures / "plain-1"), "--save", "main").code == 6
    assert command("gate", str(fixtures / "plain-1"), "--save", "main", "--force").code == 0
    assert [path.name for path in folder.iterdir()] == ["main.json"]


def test_two_files_of_one_name_are_an_error_until_both_are_removed_or_replaced(
    command: Command, fixtures: Path, folder: Path
) -> None:
    logs = str(fixtures / "plain-1")

    def save_both_forms() -> None:
        assert command("gate", logs, "--save", "main", "--force").code == 0
        content = (folder / "main.json").read_bytes()
        (folder / "main.json.gz").write_bytes(gzip.compress(content))

    save_both_forms()
    both = "traceview: error: .traceview/baselines/main.json and main.json.gz are both called main"
    for asked in (
        ("gate", "--baselines"),
        ("gate", "--baselines", "--format", "json"),
        ("gate", logs, "--baseline", "main"),
    ):
        done = command(*asked)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[0] == both
    assert command("gate", logs, "--save", "main").code == 6
    assert command("gate", logs, "--save", "main", "--force").code == 0
    assert [path.name for path in folder.iterdir()] == ["main.json"]
    save_both_forms()
    assert command("gate", "--remove", "main").err.splitlines() == [
        "traceview: removed .traceview/baselines/main.json",
        "traceview: removed .traceview/baselines/main.json.gz",
    ]
    assert list(folder.iterdir()) == []


def test_a_list_of_names_that_is_cut_says_so(folder: Path) -> None:
    folder.mkdir(parents=True)
    for count in range(1, 11):
        (folder / f"n{count}.json").write_text("{}")
        with pytest.raises(TraceNotFoundError) as caught:
            paths_called(folder, "other")
        # n10 sorts behind n1; a single further name is not cut.
        there = sorted(f"n{number}" for number in range(1, count + 1))
        shown = there if count <= 9 else [*there[:8], "…"]
        assert caught.value.hint == f"there is {', '.join(shown)}"


def test_what_cannot_be_read_is_listed_with_the_reason(
    command: Command, fixtures: Path, folder: Path
) -> None:
    assert command("gate", str(fixtures / "plain-1"), "--save", "main").code == 0
    (folder / "cut.json").write_text('{"schema_version": 1')
    (folder / "notes.txt").write_text("no baseline")
    done = command("gate", "--baselines")
    assert done.code == 0
    assert "cut cannot be read: byte 20: not JSON: the file ends too early" in done.out
    assert "notes" not in done.out
    assert command("analyze", str(folder / "cut.json")).code == 4


def test_a_run_without_steps_is_no_baseline(command: Command, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text(saved.to_json(bare_report()), encoding="utf-8")
    done = command("gate", str(path), "--save", "main")
    assert done.code == 7
    assert "no step times to compare with: no steps: nothing repeats" in done.err
    assert not folder.exists()


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", ".hidden", "-x", "a b", "x.json", "a" * 65, "é"]
)
def test_names_that_could_lead_elsewhere(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a baseline"):
        checked_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mian", "did you mean main?"),
        ("MAIN", "did you mean main?"),
        ("v1", "did you mean v1.2?"),
        ("else", "there is main, v1.2"),
        ("main.json", "its name is that of the file without the ending: main"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest(name: str, hint: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for known in ("main", "v1.2"):
        (folder / f"{known}.json").write_bytes(reduced(full_report()).content)
    with pytest.raises(TraceviewError) as caught:
        paths_called(folder, name)
    assert caught.value.hint == hint


def test_names() -> None:
    for name in ("main", "v1.2", "4-gpus", "a_b+c"):
        assert checked_name(name) == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gate", "--save", "main"], "missing argument 'LOGDIR'"),
        (["gate", "logs", "--remove", "main"], "LOGDIR and --remove exclude each other"),
        (["gate", "logs", "--save", "a", "--strict"], "--strict and --save exclude each other"),
        (["gate", "--baselines", "--remove", "a"], "--remove and --baselines exclude each other"),
        (["gate", "--baselines", "--format", "junit"], "--baselines writes no junit"),
        (["gate", "logs", "--redact", "--require", "busy_ratio >= 0"], "--redact needs --save"),
        (["gate", "--baselines", "--dir", "nowhere"], "nowhere is no folder"),
        (["gate", "--baselines", "--dir", ""], "the name of the folder is empty"),
        (["history", ""], "the name of the folder is empty"),
        (["compare", "", "logs"], "the path is empty"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], message: str, command: Command, folder: Path
) -> None:
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[0]
