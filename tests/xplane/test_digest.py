"""The digest of a file is that of its bytes, however long after reading it is asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from traceview.base.errors import TraceFormatError
from traceview.trace.reading.part import read_host
from traceview.xplane import read, source
from traceview.xplane.read import Start, begin_digest, started_threads
from traceview.xplane.source import partly_read

SHORTER = "the file became shorter while it was read"


@pytest.fixture
def start() -> Iterator[Start]:
    with started_threads() as start:
        yield start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that begins like a trace, of three blocks and a half."""
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(bytes([10, 3]) + os.urandom(7 << 19))
    return path


def expected(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_where_files_have_one_position(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_READS_ANYWHERE", False)
    with partly_read(path) as data:
        assert data.duplicate() is None
        digest = begin_digest(data, start)
    assert digest() == expected(path)


def test_reading_elsewhere_meanwhile_moves_nothing(path: Path, start: Start) -> None:
    with partly_read(path) as data:
        first = data[:4]
        assert begin_digest(data, start)() == expected(path)
        part = memoryview(bytearray(8))
        data.read_into(part, 1 << 20)
        content = path.read_bytes()
        assert bytes(part) == content[1 << 20 : (1 << 20) + 8]
        assert data[:4] == first == content[:4]
        assert data[2 << 20 : (2 << 20) + 9] == content[2 << 20 : (2 << 20) + 9]


def test_a_file_that_becomes_shorter(path: Path, start: Start) -> None:
    with partly_read(path) as data:
        os.truncate(path, 1 << 20)
        digest = begin_digest(data, start)
    for _ in range(2):
        with pytest.raises(TraceFormatError) as caught:
            digest()
        assert caught.value.reason == SHORTER


def test_a_host_whose_file_becomes_shorter_behind_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SCENARIOS["A"]().write(tmp_path)
    (path,) = tmp_path.rglob("*.xplane.pb")
    whole = read_host(path)
    assert whole.part is not None
    assert whole.part.sha256 == expected(path)

    def digest() -> str:
        raise TraceFormatError(path, SHORTER)

    monkeypatch.setattr(read, "begin_digest", lambda *_: digest)
    cut = read_host(path)
    assert cut.part is None
    assert cut.failure is not None
    assert cut.failure.reason == SHORTER
