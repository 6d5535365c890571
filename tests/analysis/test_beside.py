"""Topics computed on a second thread give the same report, are computed once, and fail where they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import msgspec
import pytest

import traceview
from traceview.analysis import parallel
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Skipped
from traceview.report import build
from traceview.report.document import screen_of

FIXTURE = Path(__file__).resolve().parent.parent.parent / "fixtures" / "keras-fit-4"


@pytest.fixture
def threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_FEWEST_EVENTS", 0)
    monkeypatch.setattr(parallel, "FEWEST_PER_DEVICE", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def _context() -> Context:
    trace = traceview.load(FIXTURE)
    return Context(trace, select(trace))


def _topic(name: str, compute: Callable[[Context], Any]) -> Analysis[Any]:
    return Analysis[Any](name, compute)


def test_the_report_is_the_same(request: pytest.FixtureRequest) -> None:
    alone = msgspec.json.encode(build.analyze(FIXTURE))
    request.getfixturevalue("threaded")
    assert msgspec.json.encode(build.analyze(FIXTURE)) == alone


@pytest.mark.parametrize("name", ["keras-fit-4", "slow-input-2", "no-markers-2"])
def test_the_first_screen_of_a_report_made_for_it_is_that_of_the_whole_report(name: str) -> None:
    run = FIXTURE.with_name(name)
    whole, made = (build.analyze(run, is_for_screen=is_for) for is_for in (False, True))
    assert screen_of(made) == screen_of(whole)
    assert made.results.op_steps is None
    # Evidence is what no first screen shows.
    of_made, of_whole = (
        [msgspec.structs.replace(finding, evidence=()) for finding in report.findings]
        for report in (made, whole)
    )
    assert of_made == of_whole


@pytest.mark.usefixtures("threaded")
def test_a_topic_is_computed_on_the_second_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, begun = [], Event()

    def compute(_: Context) -> Skipped:
        threads.append(current_thread())
        begun.set()
        return Skipped("it was asked for")

    topic = _topic("slow", compute)
    monkeypatch.setattr(parallel, "_TOPICS", (topic,))
    context = _context()
    with parallel.computed_beside(context):
        assert begun.wait(20)
        assert context.result(topic) == Skipped("it was asked for")
    assert len(threads) == 1
    assert threads[0] is not main_thread()


@pytest.mark.usefixtures("threaded")
def test_a_failure_is_met_where_the_topic_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    failed, after = Event(), Event()

    def fail(_: Context) -> Skipped:
        failed.set()
        raise ValueError("no such number")

    def compute(_: Context) -> Skipped:
        after.set()
        return Skipped("")

    topic = _topic("fails", fail)
    monkeypatch.setattr(parallel, "_TOPICS", (topic, _topic("next", compute)))
    context = _context()
    with parallel.computed_beside(context):
        assert failed.wait(20)
        assert after.wait(20)
        with pytest.raises(ValueError, match="no such number"):
            context.result(topic)


def test_what_two_threads_ask_for_is_made_once() -> None:
    context = _context()
    asked, made = Event(), []

    def make(_: Context) -> int:
        made.append(current_thread())
        asked.wait(20)
        return len(made)

    found: list[int] = []
    threads = [Thread(target=lambda: found.append(context.once(make))) for _ in range(3)]
    for thread in threads:
        thread.start()
    asked.set()
    for thread in threads:
        thread.join(20)
    assert (found, len(made)) == ([1, 1, 1], 1)
