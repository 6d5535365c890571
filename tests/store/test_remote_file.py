"""A file of a store reads as one on disk, in ranges, and says so when it changes meanwhile; here without any store."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pytest

from traceview.base.errors import StoreError
from traceview.store import remote
from traceview.store.service import Entry, SilentError

DATA = random.Random(1).randbytes(4321)


class Held:
    """A store that holds one file."""

    def __init__(self) -> None:
        self.data, self.version = DATA, "1"
        self.ranges: list[tuple[int, int]] = []

    def entry(self, _path: str) -> Entry:
        return Entry(len(self.data), self.version)

    def read(self, _path: str, begin: int, end: int) -> bytes:
        self.ranges.append((begin, end))
        return self.data[begin:end]

    def shown(self, path: str) -> str:
        return f"s3://bucket{path}"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[Held, io.BufferedReader]:
    monkeypatch.setattr(remote, "RANGE_BYTES", 1000)
    store: Any = Held()
    return store, io.BufferedReader(remote.RemoteFile(store, "/f", store.entry("/f")), 100)


def test_it_reads_as_a_file_on_disk(opened: tuple[Held, io.BufferedReader]) -> None:
    (_, file), like, chance = opened, io.BytesIO(DATA), random.Random(2)
    for _ in range(300):
        place, count = chance.randrange(4500), chance.choice([0, 1, 99, 100, 101, 2500, 9999, -1])
        assert file.seek(place) == like.seek(place)
        assert file.read(count) == like.read(count)
        assert file.tell() == like.tell()
    assert file.seek(-5, io.SEEK_END) == like.seek(-5, io.SEEK_END)
    assert file.read() == like.read()


def test_a_whole_file_is_asked_for_once_in_ranges(opened: tuple[Held, io.BufferedReader]) -> None:
    store, file = opened
    assert file.read() == DATA
    # One byte more than there should be shows that it has grown.
    assert sorted(store.ranges) == [*((at, at + 1000) for at in range(0, 4000, 1000)), (4000, 4322)]


def grow(store: Held) -> None:
    store.data += b"x"


def shrink(store: Held) -> None:
    store.data = store.data[:-1]


def replace(store: Held) -> None:
    store.version = "2"


@pytest.mark.parametrize("change", [grow, shrink, replace])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_file_that_changes_is_not_read(
    opened: tuple[Held, io.BufferedReader], change: Callable[[Held], None], is_begun: bool
) -> None:
    store, file = opened
    if is_begun:
        file.read(10)
    change(store)
    with pytest.raises(StoreError, match=r"^s3://bucket/f: the file changed while it was read"):
        file.read()


def test_a_part_is_of_the_same_file_as_the_one_before(
    opened: tuple[Held, io.BufferedReader],
) -> None:
    store, file = opened
    file.read(10)
    replace(store)
    file.seek(2000)
    with pytest.raises(StoreError, match="changed"):
        file.read(10)


@pytest.mark.parametrize("error", [StoreError("denied"), SilentError("silent")])
def test_what_the_store_says_of_a_file_that_is_the_same_is_passed_on(
    opened: tuple[Held, io.BufferedReader], error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = opened

    def fails(*_: Any) -> bytes:
        raise error

    monkeypatch.setattr(store, "read", fails)
    if isinstance(error, SilentError):
        # One that is silent is not asked again.
        monkeypatch.setattr(store, "entry", None)
    with pytest.raises(type(error), match=str(error)):
        file.read()
