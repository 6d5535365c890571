"""Is the page for a browser one valid file that says what the report says, whatever the names in it are?"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.hostile import HOSTILE, with_texts
from tests.html_page import Element, parsed
from tests.reports import (
    HOST,
    MS,
    bare_report,
    device,
    finding,
    full_report,
    idle_of,
    step,
    timeline_of,
)
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.idle.result import Idle
from traceview.analysis.utilization import Timeline
from traceview.analysis.balance.what_if import WhatIf
from traceview.render.asset_files import ASSETS, SCRIPTS, asset, script
from traceview.render.definitions import CAUSES, TERMS
from traceview.render.html.document import MOST_BYTES, render
from traceview.render.html.places import Place, findings_of, numbered_gaps, place_of
from traceview.render.html.shown import LONGEST_NAME, LONGEST_TEXT, breakable, cut, prose
from traceview.report.model import Report, ReportWindow, VerdictNumber

ORDER = (
    "summary",
    "timeline-section",
    "findings",
    "environment",
    "devices",
    "steps",
    "idle",
    "gaps",
    "input",
    "transfers",
    "launches",
    "precision",
    "collectives",
    "balance",
    "placement",
    "ops",
    "outside-view",
    "capture",
    "definitions",
)


def of_hostile(text: str) -> Report:
    return with_texts(full_report(), lambda _, __: text)


def many_gpus(count: int, name: str = "") -> Report:
    report = full_report()
    names = [f"{name}GPU:{n}" for n in range(count)]
    results = replace(
        report.results,
        device_time=DeviceTime(tuple(device(n, device=name) for n, name in enumerate(names)), ()),
        timeline=Timeline(240, tuple(map(timeline_of, names))),
        idle=Idle(tuple(map(idle_of, names))),
    )
    return replace(report, results=results)


def with_input_finding(start_ps: int = 0) -> Report:
    """The window starts at `start_ps`; finding 1 is about the gaps of GPU:1 that are due to input."""
    bound = finding(code="input-bound", devices=("GPU:1",), steps=())
    window = ReportWindow(HOST, "steps", start_ps, start_ps + 100 * MS)
    return replace(full_report(), findings=(bound,), windows=(window,))


def table_of(section: Element, label: str) -> list[list[str]]:
    """The texts of a table, its headings first."""
    box = section.one("div", role="region", **{"aria-label": label})
    return [[cell.text for cell in row.children] for row in box.all("tr")]


@pytest.mark.parametrize("report", [full_report(), bare_report()], ids=["full", "bare"])
def test_the_page_is_valid_and_complete_in_itself(report: Report) -> None:
    page = render(report)
    root = parsed(page)
    ids = {one.attributes["id"] for one in root.all("*") if "id" in one.attributes}
    for element in root.all("*"):
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "action"):
                assert value.startswith("#")
                assert value[1:] in ids, f"{value} leads nowhere"
            if name in ("aria-labelledby", "for"):
                assert set(value.split(" ")) <= ids
        assert element.tag not in ("base", "iframe", "img", "link", "object")
    for style in root.all("style"):
        assert not re.search(r"url\(|@import", style.text)
    levels = [int(one.tag[1]) for one in root.all("*") if re.fullmatch("h[1-6]", one.tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_only_our_scripts_may_run() -> None:
    root = parsed(render(full_report()))
    (policy,) = (
        one.attributes["content"]
        for one in root.all("meta")
        if one.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    allowed = rules["script-src"].split(" ")
    scripts = ["".join(one.texts) for one in root.all("script") if "type" not in one.attributes]
    digests = [
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'"
        for one in scripts
    ]
    assert digests == allowed


def test_every_file_is_a_part_of_one_script() -> None:
    parts = [part for parts in SCRIPTS.values() for part in parts]
    folders = ("page", "timeline")
    files = [f"{folder}/{path.name}" for folder in folders for path in (ASSETS / folder).iterdir()]
    assert sorted(parts) == sorted(files)
    assert all(asset(part).startswith("// ") for part in parts)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_two_parts_of_a_script_give_the_same_name(name: str) -> None:
    # JavaScript would take the later of two functions without a word.
    given = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", script(name), re.MULTILINE)
    assert len(given) == len(set(given))


def test_the_first_screen_says_what_matters() -> None:
    report = full_report()
    screen = parsed(render(report)).one("section", id="summary")
    assert screen.one("h1").text == report.verdict.headline
    assert not screen.all("p", class_="verdict")
    tiles = [one.text for one in screen.one("dl", class_="tiles").children]
    assert tiles[0].startswith("Step time 24.0 ms")
    assert tiles[1].startswith("Busy 75.0%")
    assert "75.0% mean of devices in use" in tiles[1]
    assert tiles[2].startswith("Recoverable 16.0 ms per step at most, 66.7% of the step")
    assert "unused-gpu" in tiles[2]
    first = screen.one("ol").children[0].text
    for words in (
        report.findings[0].title,
        "critical",
        "costs 16.0 ms per step, 66.7% of the median step",
        "confidence high",
        report.findings[0].advice,
    ):
        assert words in first
    job = screen.one("p", class_="job").text
    for words in (HOST, "6 × Tesla V100", "4 steps found by explicit markers"):
        assert words in job
    assert screen.one("code", id="command").text == " ".join(report.command)


def test_the_answer_is_what_costs_most() -> None:
    report = full_report()
    title = "GPU:1 waits 16.0 ms of each 24.0 ms step for input (67%)"
    bound = finding(code="input-bound", title=title, devices=("GPU:1",))
    verdict = replace(report.verdict, largest_cost=title)
    screen = parsed(render(replace(report, verdict=verdict, findings=(bound,)))).one(
        "section", id="summary"
    )
    assert screen.one("h1").text == title
    assert screen.one("p", class_="verdict").text == report.verdict.headline
    # The title says what it costs.
    assert "costs" not in screen.one("ol").text


@pytest.mark.parametrize(
    ("title", "answer"),
    [
        ("collectives take 8.0% of the step", "Collectives take 8.0% of the step"),
        ("host-a waits", "host-a waits"),
        ("replica:1 waits", "replica:1 waits"),
    ],
)
def test_the_answer_begins_like_a_heading(title: str, answer: str) -> None:
    report = full_report()
    told = replace(report, verdict=replace(report.verdict, largest_cost=title))
    assert parsed(render(told)).one("h1").text == answer


@pytest.mark.parametrize(
    ("mean", "status", "answer"),
    [
        (
            0.499,
            "active",
            "The 2 devices are busy 49.9% of the time on average; most of the rest: ",
        ),
        (0.5, "active", ""),
        (0.499, "copy_only", ""),
        (None, "active", ""),
    ],
)
def test_devices_that_are_mostly_idle_are_the_answer(
    mean: float | None, status: str, answer: str
) -> None:
    report = full_report()
    rows = (device(0), device(1, status=status))
    verdict = replace(
        report.verdict, numbers=(VerdictNumber("mean_busy_ratio", "busy, mean of all 2", mean),)
    )
    results = replace(
        report.results,
        device_time=DeviceTime(rows, ()),
        idle=Idle(tuple(map(idle_of, ("GPU:0", "GPU:1")))),
    )
    root = parsed(render(replace(report, verdict=verdict, results=results, findings=())))
    told = answer and f"{answer}input."
    assert root.one("h1").text == (told or report.verdict.headline)


def test_what_is_recoverable_is_told_in_words() -> None:
    report = full_report()
    balance = report.results.balance
    assert balance is not None
    bounded = replace(balance, what_if=(WhatIf("no_input_wait", 4 * MS, 20 * MS, "a bound"),))
    results = replace(report.results, balance=bounded)
    for findings, words, target in (
        ((), "by one change: no waiting for input", "#balance"),
        ((finding(),), "by one change: unused-gpu", "#finding-1"),
    ):
        page = render(replace(report, results=results, findings=findings))
        tile = parsed(page).one("dl", class_="tiles").children[2]
        assert tile.text.endswith(words)
        assert tile.one("a").attributes["href"] == target
        assert "no_input_wait" not in page.partition("<body")[2]


def test_calls_and_commands_are_set_as_code() -> None:
    advice = "Use dataset.map(f, num_parallel_calls=4).prefetch(2); traceview input tells more."
    root = parsed(render(replace(full_report(), findings=(finding(advice=advice),))))
    for place in (root.one("section", id="summary"), root.one("section", id="findings")):
        codes = [one.text for one in place.all("code")]
        assert "dataset.map(f, num_parallel_calls=4).prefetch(2)" in codes
        assert "traceview input" in codes
        assert advice in place.text
    assert str(prose("<b>.c(d)")) == "<code>&lt;b&gt;.c(d)</code>"


def test_replicas_on_the_host_are_counted_in_words() -> None:
    report = full_report()
    for count, words in ((1, "1 × CPU"), (2, "2 replicas on the host")):
        rows = tuple(device(n, kind="replica", model=None) for n in range(count))
        results = replace(report.results, device_time=DeviceTime(rows, ()))
        root = parsed(render(replace(report, results=results)))
        assert words in [one.text for one in root.one("p", class_="job").all("span")]


def test_of_very_many_devices_those_that_stand_out_come_first() -> None:
    report = many_gpus(24)
    found = report.results.device_time
    assert found is not None
    rows = list(found.devices)
    rows[20] = replace(rows[20], status="copy_only")
    results = replace(report.results, device_time=DeviceTime(tuple(rows), ()))
    root = parsed(render(replace(report, results=results, findings=())))
    section = root.one("section", id="devices")
    assert section.one("p", class_="lead").text.endswith("Those that stand out come first.")
    usual = [f"GPU:{n}" for n in range(1, 24) if n != 20]
    for id_, label in (("devices", "Time of each device"), ("idle", "Idle time by cause")):
        _, *told = table_of(root.one("section", id=id_), label)
        assert [row[0] for row in told] == ["GPU:0", "GPU:20", *usual]
    (link,) = (one for one in root.one("section", id="idle").all("a") if one.text == "GPU:20")
    assert root.one("tr", id=link.attributes["href"][1:]).children[0].text == "GPU:20"


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(0.2, "20.0%"), (0.03, "too small to measure"), (-0.386, "too small to measure")],
)
def test_an_overhead_within_the_spread_of_steps_is_no_number(ratio: float, told: str) -> None:
    report = full_report()
    assert report.results.environment is not None
    host = replace(report.capture.hosts[0], overhead_ratio=ratio)
    known = report.results.environment.hosts[0]
    known = replace(known, host=host.host, overhead=replace(known.overhead, spread_ratio=0.03))
    results = replace(
        report.results, environment=replace(report.results.environment, hosts=(known,))
    )
    capture = replace(report.capture, hosts=(host,))
    root = parsed(render(replace(report, capture=capture, results=results)))
    headings, row = table_of(root.one("section", id="capture"), "Hosts")
    assert dict(zip(headings, row, strict=True))["profiler overhead"] == told


def test_a_table_that_would_hold_names_alone_is_left_out(tmp_path: Path) -> None:
    SCENARIOS["no_steps"]().write(tmp_path)
    root = parsed(render(traceview.analyze(tmp_path)))
    assert not root.one("section", id="balance").all("table")


def test_the_parts_come_in_their_order(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path)
    for report in (full_report(), traceview.analyze(tmp_path)):
        root = parsed(render(report))
        found = [one.attributes["id"] for one in root.one("main").children if one.tag == "section"]
        assert found == [one for one in ORDER if one in found]
        assert len(found) >= len(ORDER) - 3
        contents = [one.attributes["href"][1:] for one in root.one("nav").all("a")]
        assert contents == found


def test_every_finding_is_told_whole() -> None:
    report = full_report()
    root = parsed(render(report))
    for number, one in enumerate(report.findings, start=1):
        told = root.one("article", id=f"finding-{number}").text
        for words in (one.title, one.severity, one.code, one.explanation, one.advice):
            assert words in told
        assert f"{one.confidence}: {one.confidence_reason}" in told
    assert "threshold 256.0 MB" in root.one("article", id="finding-2").text


def test_findings_and_gaps_lead_to_each_other() -> None:
    report = with_input_finding()
    root = parsed(render(report))
    card = root.one("article", id="finding-1")
    targets = [one.attributes["href"] for one in card.all("a")]
    (gap,) = (one for one in numbered_gaps(report) if one.place.device == "GPU:1")
    assert f"#gap-{gap.number}" in targets
    assert "#device-2" in targets
    row = root.one("tr", id=f"gap-{gap.number}")
    assert "#finding-1" in [one.attributes["href"] for one in row.all("a")]
    other = root.one("tr", id=f"gap-{3 - gap.number}")
    assert "#finding-1" not in [one.attributes["href"] for one in other.all("a")]
    assert root.one("tr", id="device-2").children[0].text == "GPU:1"


def test_a_place_counts_from_the_start_of_the_window() -> None:
    report = with_input_finding(start_ps=10 * MS)
    gaps = numbered_gaps(report)
    assert [one.place for one in gaps] == [
        Place("GPU:0", 20 * MS, 29 * MS),
        Place("GPU:1", 20 * MS, 29 * MS),
    ]
    assert place_of(report.findings[0], report, gaps) == gaps[1].place
    assert findings_of(report, gaps) == {2: [1]}


def test_the_place_of_a_finding_without_gaps() -> None:
    report = full_report()
    gaps = numbered_gaps(report)
    slow = finding(code="unsteady-steps", devices=(), steps=(2,))
    steps = report.results.steps
    assert steps is not None
    second = replace(step(2, 23 * MS, ("GPU:0",), None), start_ps=52 * MS)
    results = replace(report.results, steps=replace(steps, steps=(steps.steps[0], second)))
    report = replace(report, results=results)
    assert place_of(slow, report, gaps) == Place("GPU:0", 52 * MS, 75 * MS)
    of_device = replace(slow, devices=("GPU:4",), steps=())
    assert place_of(of_device, report, gaps) == Place("GPU:4", 0, 100 * MS)
    both = replace(slow, code="input-bound", devices=("GPU:1", "GPU:0"), steps=())
    assert place_of(both, report, gaps) == Place("GPU:1", 30 * MS, 39 * MS)
    assert place_of(replace(slow, devices=(), steps=()), report, gaps) is None
    assert place_of(replace(slow, devices=("GPU:9",), steps=()), report, gaps) is None


def test_numbers_sort_by_what_they_are() -> None:
    root = parsed(render(full_report()))
    steps = root.one("section", id="steps")
    rows = steps.one("tbody").children
    headings = [one.text for one in steps.one("thead").one("tr").children]
    place = headings.index("time")
    assert [row.children[place].attributes["data-value"] for row in rows] == [
        str(n * MS) for n in (28, 24, 23, 25)
    ]
    assert [row.children[place].text for row in rows][:2] == ["28.0 ms", "24.0 ms"]


def test_a_row_of_devices_adds_up() -> None:
    section = parsed(render(full_report())).one("section", id="devices")
    headings, *rows = table_of(section, "Time of each device")
    first = dict(zip(headings, rows[0], strict=True))
    assert (first["device"], first["busy"], first["idle"]) == ("GPU:0", "75.0%", "25.0%")
    parts = section.one("tr", id="device-1").all("i")
    widths = [float(one.attributes["style"].split(":")[1].rstrip("%")) for one in parts]
    assert sum(widths) == pytest.approx(100)
    assert "fills" not in headings  # nothing was filled on any device


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    page = render(of_hostile(text))
    assert page.encode().decode() == page
    assert len(page.encode()) <= MOST_BYTES
    usual, hostile = parsed(render(of_hostile("name"))), parsed(page)
    shapes = [
        [
            (one.tag, sorted(one.attributes))
            for one in root.all("*")
            if one.tag not in ("wbr", "code")
        ]
        for root in (usual, hostile)
    ]
    assert shapes[0] == shapes[1]
    body = page[page.index("<body") : page.rindex("</main>")]
    assert all(char.isprintable() or char == "\n" for char in body)


def test_a_long_name_is_cut_and_its_length_stated() -> None:
    root = parsed(render(of_hostile("x" * 100_000)))
    texts = [one.text for one in root.all("td") + root.all("p") + root.all("dd")]
    assert max(map(len, texts)) < 3 * LONGEST_TEXT
    assert any("(100,000 characters)" in text for text in texts)


def test_cut() -> None:
    assert cut("a" * 10, 10) == "a" * 10
    assert cut("a" * 20 + "b" * 80, 30) == "a" * 20 + "…" + "b" * 10 + " (100 characters)"
    assert cut("\u202e\n", 10) == r"\u202e\n"
    assert str(breakable("a/<b")) == "a/<wbr>&lt;b"


@pytest.mark.parametrize("count", [1, 8, 64, 512])
def test_many_devices_fit(count: int) -> None:
    page = render(many_gpus(count))
    assert len(page.encode()) <= MOST_BYTES
    root = parsed(page)
    rows = root.one("section", id="devices").one("tbody").children
    cut_notes = [one.text for one in root.one("section", id="devices").all("p", class_="cut")]
    if len(rows) < count:
        assert cut_notes == [
            f"{len(rows)} of {count}; all of them: traceview devices logs --run 2026_01_02"
        ]
    else:
        assert cut_notes == []
    assert bool(root.one("section", id="devices").all("input")) == (count > 8)


def test_a_page_that_is_too_long_has_fewer_rows() -> None:
    report = many_gpus(512, "x" * LONGEST_NAME)
    whole, small = render(report), render(report, most_bytes=500_000)
    assert len(small.encode()) <= 500_000 < len(whole.encode())
    root = parsed(small)
    ids = {one.attributes.get("id") for one in root.all("*")}
    assert all(one.attributes["href"][1:] in ids for one in root.all("a"))
    (note,) = root.one("section", id="devices").all("p", class_="cut")
    assert re.fullmatch(
        r"\d+ of 512; all of them: traceview devices logs --run 2026_01_02", note.text
    )
    assert full_report().verdict.headline in small


def test_the_same_report_makes_the_same_page() -> None:
    assert render(full_report()) == render(full_report())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_is_a_page(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    page = render(report)
    root = parsed(page)
    assert len(page.encode()) <= MOST_BYTES
    for table in root.all("table"):
        widths = {len(row.children) for row in table.all("tr")}
        assert len(widths) == 1
    for number, one in enumerate(report.findings, start=1):
        assert one.code in root.one("article", id=f"finding-{number}").text


def test_words_are_defined_where_they_are_used() -> None:
    root = parsed(render(full_report()))
    told = root.one("section", id="definitions").text
    for _, meaning in TERMS:
        assert meaning in told
    for meaning in CAUSES.values():
        assert meaning in told
    help_ = root.one("section", id="devices").one("details").text
    assert "the union over its streams, never a sum" in help_
