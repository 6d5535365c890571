"""Threads start before the first call, which may need all memory that is left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread, get_ident
from typing import Any

import pytest

from traceview.xplane.read import started_threads


def refuse(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_no_thread_starts_with_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with started_threads() as start:
        monkeypatch.setattr(Thread, "start", refuse)
        results = [start(lambda number=number: (number, get_ident())) for number in range(20)]
        found = [result() for result in results]
    assert [number for number, _ in found] == [*range(20)]
    assert get_ident() not in {thread for _, thread in found}


@pytest.mark.parametrize("where", [(Thread, "start"), (ThreadPoolExecutor, "submit")])
def test_without_threads_calls_are_made_here(
    where: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*where, refuse)
    made: list[int] = []
    with started_threads() as start:
        result = start(made.append, 1)
        assert result() is result() is None
        assert start(get_ident)() == get_ident()
    assert made == [1]


def test_a_call_is_made_once_where_few_threads_may_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Thread.start
    started: list[Thread] = []
    made: list[int] = []

    def few(self: Thread) -> None:
        started.append(self)
        if len(started) > 1:
            refuse()
        begin(self)

    monkeypatch.setattr(Thread, "start", few)
    with started_threads() as start:
        results = [start(made.append, number) for number in range(200)]
        assert [result() for result in results] == [None] * 200
    assert sorted(made) == [*range(200)]


def test_an_error_of_a_call_is_raised_where_its_result_is_asked_for() -> None:
    with started_threads() as start:
        result = start(int, "none")
        with pytest.raises(ValueError, match="none"):
            result()
