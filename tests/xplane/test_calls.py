"""A large file is read on threads, which start before the first call, for that may need all memory that is left."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from random import Random
from threading import Barrier, Event, Thread, Timer, get_ident
from typing import Any

import pytest

from scripts.scenarios import SCENARIOS
from tests.xplane import wire
from traceview.base.errors import TraceFormatError
from traceview.base.sweeping import made_ahead, make_calls
from traceview.trace.reading.part import read_host
from traceview.xplane import read
from traceview.xplane.read import partly_read, read_file


@pytest.mark.parametrize("can_start", [0, 1, 3])
def test_each_call_is_made_once_by_as_many_threads_as_may_be_started(
    can_start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, started = Thread.start, list[Thread]()
    made: list[int] = []
    idents: set[int] = set()
    meeting = Barrier(can_start + 1)

    def few(self: Thread) -> None:
        if len(started) == can_start:
            raise RuntimeError("can't start new thread")
        assert not made
        started.append(self)
        begin(self)

    def call(number: int) -> None:
        made.append(number)
        if get_ident() not in idents:
            idents.add(get_ident())
            meeting.wait()

    monkeypatch.setattr(Thread, "start", few)
    make_calls([partial(call, number) for number in range(200)], 3)
    assert sorted(made) == [*range(200)]
    assert len(idents) == can_start + 1


@pytest.mark.parametrize("threads", [0, 2])
def test_the_first_error_is_raised_and_no_call_begins_after_it(threads: int) -> None:
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number == 1:
            raise ValueError("none")

    with pytest.raises(ValueError, match="none"):
        make_calls([partial(call, number) for number in range(1000)], threads)
    assert 1 in made
    assert len(made) < 1000 or threads


@pytest.mark.parametrize("threads", [0, 1])
def test_what_is_made_ahead_comes_in_order_and_an_error_in_its_place(threads: int) -> None:
    makers = set[int]()

    def make(number: int) -> int:
        makers.add(get_ident())
        if number == 60:
            raise ValueError("none")
        return number

    taken: list[int] = []
    with pytest.raises(ValueError, match="none"):
        taken.extend(made_ahead(make, range(100), threads))
    assert taken == [*range(60)]
    assert makers.isdisjoint({get_ident()}) == bool(threads)


def test_what_is_made_ahead_is_made_here_where_no_thread_may_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    assert list(made_ahead(str, range(3), 1)) == ["0", "1", "2"]


def test_nothing_is_made_ahead_for_who_has_gone() -> None:
    made, may_go_on = list[int](), Event()

    def make(number: int) -> int:
        made.append(number)
        if number:
            may_go_on.wait()
        return number

    ahead = made_ahead(make, range(100), 1)
    assert next(ahead) == 0
    Timer(0.05, may_go_on.set).start()
    ahead.close()
    assert len(made) <= 2


@pytest.mark.parametrize("threaded_bytes", [0, 1 << 24])
def test_the_digest_is_that_of_the_file(
    threaded_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_THREADED_BYTES", threaded_bytes)
    (path,) = SCENARIOS["A"]().write(tmp_path)
    part = read_host(path).part
    assert part is not None
    assert part.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_becomes_shorter_behind_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = SCENARIOS["A"]().write(tmp_path)
    path.write_bytes(path.read_bytes() + wire.content(15, bytes(1 << 20)))
    monkeypatch.setattr(read, "_THREADED_BYTES", 0)
    planes = read._Reader.planes

    def cut(self: Any) -> list[tuple[int, int]]:
        os.truncate(path, 100)
        return planes(self)

    monkeypatch.setattr(read._Reader, "planes", cut)
    with pytest.raises(TraceFormatError, match="the file became shorter while it was read"):
        read_file(path, with_digest=True)


def test_parts_of_a_file_are_those_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    content = wire.content(1, os.urandom(3 << 16))
    path.write_bytes(content)
    choice = Random(1)
    with partly_read(path) as data:
        for most in (9, 1 << 16, 1 << 17) * 20:
            begin = choice.randrange(len(content))
            end = min(begin + choice.randrange(most), len(content))
            assert data[begin:end] == content[begin:end]
            buffer = bytearray(end - begin)
            data.read_into(memoryview(buffer), begin)
            assert buffer == content[begin:end]
        with pytest.raises(TraceFormatError, match="the file became shorter while it was read"):
            data.read_into(memoryview(bytearray(2)), len(content) - 1)
