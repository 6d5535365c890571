"""The digest of a file is that of its bytes, whether it was read in parts or whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from traceview.trace.reading.part import read_host
from traceview.xplane import read


@pytest.mark.parametrize("read_in_parts_from", [0, 1 << 40])
def test_the_digest_of_a_host_is_that_of_its_file(
    read_in_parts_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_THREADED_BYTES", read_in_parts_from)
    SCENARIOS["A"]().write(tmp_path)
    (path,) = tmp_path.rglob("*.xplane.pb")
    part = read_host(path).part
    assert part is not None
    assert part.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
