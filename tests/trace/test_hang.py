"""Reports of hangs are read as they were written, and anything else is refused with its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hangs import STEP, hang, worker
from traceview.analysis.machine.hang import content_of, write_up
from traceview.base.errors import TraceFormatError
from traceview.trace.sidecar.hang import hang_files, hang_of_stacks, read_hang, stack_files

STACKS = """Timeout (0:01:00)!
Thread 0x00007f3805ffb6c0 (most recent call first):
  File "/lib/python3.11/threading.py", line 331 in wait
  File "/home/zebra/traceview/capture/hang/watch.py", line 109 in _run

Thread 0x00007f380f0c1740 (most recent call first):
  File "/home/zebra/job/train.py", line 13 in on_batch_end
  File "/home/zebra/job/train.py", line 25 in <module>
"""


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = hang(STEP, workers=(worker(),))
    path = tmp_path / "gpu1_w0.hang2.json"
    path.write_bytes(write_up(content_of(written))[0][".json"])
    assert read_hang(path) == written


def test_only_reports_of_hangs_are_taken_for_such(tmp_path: Path) -> None:
    for name in ("a.hang.json", "a.hang12.json", "a.traceview.json", "hang.json", "a.hang.md"):
        (tmp_path / name).touch()
    assert [path.name for path in hang_files(tmp_path)] == ["a.hang.json", "a.hang12.json"]


def changed(**changes: Any) -> str:
    return json.dumps({**content_of(hang(STEP)), **changes})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no report of a hang"),
        ("[1]", "no report of a hang"),
        ("[" * 100_000, "no report of a hang"),
        ('{"schema_version": 1}', "missing required field"),
        (changed(schema_version=2), None),
        (changed(waited_ns=-1), None),
        (changed(noticed_ns=1 << 70), None),
        (changed(state="gone"), None),
        (changed(threads=[{"name": 1}]), None),
        (changed(cores="many"), None),
    ],
)
def test_anything_else_is_refused(content: str, reason: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.hang.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TraceFormatError, match=reason) as raised:
        read_hang(path)
    assert raised.value.path == path


def test_stacks_of_a_process_in_which_no_python_could_run(tmp_path: Path) -> None:
    path = tmp_path / ".traceview-stacks-gpu-1-4242-x8_y.txt"
    path.write_text(STACKS, encoding="utf-8")
    (tmp_path / ".traceview-stacks-gpu-1-4243-empty.txt").touch()
    assert list(stack_files(tmp_path)) == [path]
    found = hang_of_stacks(path)
    assert (found.host, found.pid, found.is_lock_held) == ("gpu-1", 4242, True)
    assert [(thread.name, thread.frames) for thread in found.threads] == [
        ("main thread", ("train.py:13 in on_batch_end", "train.py:25 in <module>")),
        ("thread", ("threading.py:331 in wait",)),
    ]
    assert "zebra" not in str(found)
