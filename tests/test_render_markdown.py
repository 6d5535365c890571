"""Is the Markdown one page that says the same everywhere, whatever the names in it are?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperGroup

import traceview
from scripts.scenarios import SCENARIOS
from tests.hostile import HOSTILE, with_texts
from tests.reports import MS, bare_report, device, finding, full_report, idle_of, timeline_of
from traceview.analysis.balance.what_if import WhatIf
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.idle.result import Idle
from traceview.analysis.utilization import Timeline
from traceview.cli.app import app
from traceview.document.code_in_prose import COMMANDS
from traceview.render.definitions import CAUSES
from traceview.render.markdown.document import MOST_BYTES, render
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report
from traceview.report.recoverable import Recoverable, recoverable
from traceview.trace.cause import Cause

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
OWN_TAGS = re.compile(r"</?details>|<summary><b>[\w ,:.]+</b></summary>|</?code>")
FIRST_SCREEN = re.compile(r"\A.*?(?=\n<details>)", re.DOTALL)


def tokens(text: str) -> Iterator[Token]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table, as a reader sees their text."""
    found: list[list[list[str]]] = []
    for token in PARSER.parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            found[-1][-1].append("".join(child.content for child in token.children or ()))
    return found


def of_hostile(text: str) -> Report:
    def change(field: str, _: str) -> str:
        return text

    return with_texts(full_report(), change)


def many_gpus(count: int) -> Report:
    report = full_report()
    names = [f"GPU:{n}" for n in range(count)]
    results = replace(
        report.results,
        device_time=DeviceTime(tuple(device(n) for n in range(count)), ()),
        timeline=Timeline(240, tuple(map(timeline_of, names))),
        idle=Idle(tuple(map(idle_of, names))),
    )
    return replace(report, results=results)


@pytest.mark.parametrize("name", ["full", "bare"])
def test_whole_output(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}_report.md", render({"full": full_report(), "bare": bare_report()}[name]))


def test_the_first_screen_says_what_matters() -> None:
    screen = FIRST_SCREEN.findall(render(full_report()))[0]
    report = full_report()
    for words in (
        "`worker0`",
        "6 × Tesla V100",
        report.verdict.headline,
        "24.0 ms",
        "16.0 ms, 66.7% of the step (`unused-gpu`)",
        prose(report.findings[0].advice),
        "confidence high",
        "traceview report logs --run 2026_01_02",
    ):
        assert words in screen
    assert len(screen.splitlines()) < 30


def test_recoverable_is_the_largest_cost_that_is_more_than_information() -> None:
    report = full_report()
    assert recoverable(report) == Recoverable(16 * MS, 2 / 3, "unused-gpu")
    dear = finding(severity="info", cost_ps_per_step=20 * MS, cost_ratio=0.9)
    assert recoverable(replace(report, findings=(dear, *report.findings))) == recoverable(report)
    bounded = replace(report, findings=(dear,))
    assert recoverable(bounded) == Recoverable(MS, MS / (24 * MS), "balanced_devices")
    nothing = replace(bounded, results=replace(report.results, balance=None))
    assert recoverable(nothing) is None
    assert "| recoverable |" in render(nothing)


def test_recoverable_is_no_looser_bound_where_a_finding_has_a_cost() -> None:
    report = full_report()
    balance = report.results.balance
    assert balance is not None
    wide = replace(balance, what_if=(WhatIf("no_input_wait", 4 * MS, 20 * MS, "a bound"),))
    with_bound = replace(report, results=replace(report.results, balance=wide))
    assert recoverable(with_bound) == Recoverable(16 * MS, 2 / 3, "unused-gpu")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    page = render(of_hostile(text))
    assert page.encode().decode() == page
    assert len(page.encode()) <= MOST_BYTES
    assert all(char.isprintable() or char == "\n" for char in page)
    for token in tokens(page):
        assert token.type not in ("link_open", "image", "s_open", "code_block"), token.content
        if token.type in ("html_inline", "html_block"):
            assert OWN_TAGS.sub("", token.content).strip() == "", token.content
        if token.type == "text" and text not in ("&lt;&amp;&#60;",):
            assert not re.search(r"@\w|(?<!\w)#\d|https?:|www\.|:\w+:(?!\d)", token.content)
    opened = sum(
        token.type == "html_block" and "<details>" in token.content for token in tokens(page)
    )
    assert page.count("\n<details>\n") == page.count("\n</details>\n") == opened


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_move_no_cell(text: str) -> None:
    usual, hostile = (
        [[len(row) for row in table] for table in tables(render(report, most_bytes=10**6))]
        for report in (of_hostile("name"), of_hostile(text))
    )
    assert hostile == usual
    rows = [line for line in render(of_hostile(text)).splitlines() if line.startswith("|")]
    assert all(row.count("|") - row.count("\\|") >= 2 for row in rows)


@pytest.mark.parametrize("text", [one for one in HOSTILE if len(one) < 100 and one.isprintable()])
def test_a_name_is_shown_as_it_is(text: str) -> None:
    for shown in (code(text), prose(text)):
        (block,) = (token for token in PARSER.parse(f"x {shown}") if token.type == "inline")
        content = "".join(
            child.content for child in block.children or () if child.type != "html_inline"
        )
        assert content == f"x {text}".replace("  ", " ") or content == f"x {text}"
    cells = tables(f"| a | b |\n| --- | --- |\n| {code(text)} | c |")[0][1]
    assert re.sub("</?code>", "", cells[0]).strip() == text.strip()
    assert cells[1] == "c"


def test_words_of_a_sentence_stay_words() -> None:
    assert prose("GPU:0 waits 7.1 ms (12%) of 'a' step.") == "GPU:0 waits 7.1 ms (12%) of 'a' step."
    assert prose("Use tf.function(jit_compile=True), or AUTOTUNE.") == (
        "Use `tf.function(jit_compile=True)`, or AUTOTUNE."
    )
    assert prose("see traceview gaps, tf.device and 1.5 ms, e.g. here") == (
        "see `traceview gaps`, `tf.device` and 1.5 ms, e.g. here"
    )
    assert prose("1. first") == "1\\. first"
    assert prose("- item") == "\\- item"
    assert plain("a_b | <c>") == "a\\_b \\| &lt;c&gt;"


@pytest.mark.parametrize(
    ("call", "rest"),
    [
        ("dataset = dataset.map(f, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)", "."),
        ("tf.profiler.experimental.Trace('train', step_num=step, _r=1)", ": around next"),
        ("@tf.function(jit_compile=True)", ", or larger"),
        ("if step % 100 == 0: print(float(loss))", "."),
        ("traceview capture --steps A:B", ". If so"),
        ("traceview analyze LOGDIR --baseline LOGDIR_OF_ONE", "; try"),
        ("traceview explain input-bound", " says"),
    ],
)
def test_a_call_or_command_is_one_piece_of_code(call: str, rest: str) -> None:
    assert prose(f"Use {call}{rest}") == f"Use `{call}`{rest}"


@pytest.mark.parametrize(
    "text", ["f(x", "a#f(x)", "f(x)_b", "x.f(y)`", "the function(s) here", "traceview is fast"]
)
def test_what_is_no_whole_call_is_words(text: str) -> None:
    (block,) = (token for token in PARSER.parse(f"x {prose(text)}") if token.type == "inline")
    shown = "".join(one.content for one in block.children or () if one.type != "html_inline")
    assert shown == f"x {text}"


def test_every_command_is_known_in_sentences() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) <= set(COMMANDS)


def test_what_ran_between_steps_has_its_part() -> None:
    page = render(full_report())
    between = next(one for one in tables(page) if one[0][0] == "what ran")
    assert between[1:] == [
        ["saving or restoring", "1.67 ms", "55.6%", "EagerLocalExecute: SaveV2"],
        ["in Python", "1.33 ms", "44.4%", ""],
    ]


def test_seldom_parts_have_a_column_only_if_there_are_any() -> None:
    def headings(report: Report) -> list[str]:
        return next(one for one in tables(render(report)) if "kernels" in one[0])[0]

    assert {"h2d", "d2h", "d2d"} <= {*headings(full_report())}
    nothing = {f"exposed_{part}_ps": 0 for part in ("h2d", "d2h", "d2d")}
    results = replace(full_report().results, device_time=DeviceTime((device(0, **nothing),), ()))
    assert not {"h2d", "d2h", "d2d"} & {*headings(replace(full_report(), results=results))}


@pytest.mark.parametrize("count", [1, 8, 64, 512])
def test_many_devices_fit(count: int) -> None:
    page = render(many_gpus(count))
    assert len(page.encode()) <= MOST_BYTES
    assert "Cut at" not in page
    assert "`GPU:0`" in page
    assert (f"`GPU:{count - 1}`" in page) == (count <= 16)
    rows = next(one for one in tables(page) if "kernels" in one[0])[1:]
    others = re.findall(r"(\d+) other devices: (busy 75|idle 25)\.0%", page)
    assert len(rows) + (int(others[0][0]) if others else 0) == count
    assert [told for _, told in others] == (["busy 75", "idle 25"] if count > 16 else [])


def test_a_page_of_many_devices_with_endless_names_is_a_page() -> None:
    def change(field: str, whole: str) -> str:
        return f"{'x' * 100_000}{whole}"

    page = render(with_texts(many_gpus(128), change))
    assert len(page.encode()) <= MOST_BYTES
    assert "## Devices" in page
    assert "## Why the devices waited" in page


def test_a_page_that_is_too_long_says_what_it_left_out() -> None:
    page = render(full_report(), most_bytes=5000)
    assert len(page.encode()) <= 5000
    last = page.splitlines()[-1]
    assert last.startswith("**Cut at 5 kB**, left out: ")
    titles = last.partition("left out: ")[2].partition(". The")[0].split(", ")
    assert titles
    assert not any(f"<b>{title}</b>" in page or f"## {title}" in page for title in titles)
    assert full_report().verdict.headline in page
    assert "Cut at" not in render(full_report())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_is_a_page(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    page = render(report)
    assert page == render(report)
    assert len(page.encode()) <= MOST_BYTES
    assert "\n\n\n" not in page
    for table in tables(page):
        assert len({len(row) for row in table}) == 1
    assert all(token.type not in ("link_open", "image") for token in tokens(page))
    assert all(one.code in page for one in report.findings[:5])


def test_every_result_has_its_part(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path)
    page = render(traceview.analyze(tmp_path))
    for title in ("Transfers", "Collectives", "Balance", "Launches and precision", "Steps"):
        assert f"<b>{title}</b>" in page


def test_every_cause_is_defined() -> None:
    assert list(CAUSES) == [cause.key for cause in Cause]
