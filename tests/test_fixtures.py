"""The recorded traces are the files that fixtures/README.md describes, and hold what it says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def _tables() -> dict[str, dict[str, str]]:
    """One row per fixture, the columns of all tables of the README that start with `fixture`."""
    rows: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in (FIXTURES / "README.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not head:
            head = cells
        elif head[0] == "fixture" and not cells[0].startswith("---"):
            rows.setdefault(cells[0], {}).update(zip(head, cells, strict=True))
    return rows


ROWS = _tables()


def test_readme_lists_exactly_the_recorded_files() -> None:
    assert len(ROWS) == 8
    listed = sorted(row["path"] for row in ROWS.values())
    found = sorted(p.relative_to(FIXTURES).as_posix() for p in FIXTURES.rglob("*.xplane.pb"))
    assert found == listed


@pytest.mark.parametrize("name", ROWS)
class TestFixture:
    def test_size_and_hash(self, name: str) -> None:
        data = (FIXTURES / ROWS[name]["path"]).read_bytes()
        assert len(data) == int(ROWS[name]["bytes"])
        assert len(data) < 300_000
        assert hashlib.sha256(data).hexdigest() == ROWS[name]["sha256"]

    def test_no_path_of_the_recording_machine(self, name: str) -> None:
        data = (FIXTURES / ROWS[name]["path"]).read_bytes()
        for root in (b"/tmp/", b"/root/", b"/home/", b"/usr/", b"/var/"):
            assert root not in data
