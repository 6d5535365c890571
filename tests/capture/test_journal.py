"""A process whose environment lacks a library gets it from the launcher's, if both run the same Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.conftest import ROOT
from traceview.capture.launch.journal import Entry, Journal

BARE = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
from traceview.capture.launch.journal import Journal
assert not [path for path in sys.path if "site-packages" in path]
print(Journal(Path(sys.argv[2])).lend_libraries(), "msgspec" in sys.modules)
if "msgspec" in sys.modules:
    from msgspec import Struct, json
    print(json.encode({"a": 1}).decode())
"""


@pytest.mark.parametrize(
    ("python", "printed"), [(None, 'True True\n{"a":1}\n'), ("cpython-27", "False False\n")]
)
def test_a_library_is_lent_to_the_same_python(
    tmp_path: Path, python: str | None, printed: str
) -> None:
    Journal(tmp_path).offer_libraries()
    if python is not None:
        offer = json.loads((tmp_path / "libraries").read_text(encoding="utf-8"))
        (tmp_path / "libraries").write_text(
            json.dumps({**offer, "python": python}), encoding="utf-8"
        )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE, ROOT, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == printed


def test_entries_are_read_as_written_and_damaged_ones_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(Entry("running"))
    journal.write(Entry("ended", run="/logs/run"))
    (tmp_path / "other-1.entry").write_text("{", encoding="utf-8")
    (tmp_path / "other-2.entry").write_text('{"state": "ended", "unknown": 1}', encoding="utf-8")
    (entry,) = journal.entries()
    assert (entry.state, entry.run) == ("ended", "/logs/run")
    assert not journal.is_reached


def test_a_launcher_that_has_ended_is_no_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone")
    journal.write(Entry("running"))
    assert not journal.lend_libraries()
    assert not (tmp_path / "gone").exists()
