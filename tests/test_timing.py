"""Does the time of a stage leave out the stages inside it, and does --timings say all of it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command
from traceview.analysis import parallel
from traceview.base import timing
from traceview.base.timing import measured, stage
from traceview.cli import progress

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "custom-loop-2"


def test_a_stage_leaves_out_those_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
    with measured() as found:
        with stage("outer"):
            assert found.current == "outer"
            with stage("inner", "1 of 2"):
                assert (found.current, found.detail) == ("inner", "1 of 2")
        with stage("outer"):
            pass
    assert found.seconds == {"outer": 2.0 + 4.0 + 6.0, "inner": 3.0}
    with stage("nobody asks"):
        pass
    assert "nobody asks" not in found.seconds


@pytest.mark.parametrize(
    "words", [("analyze",), ("export", "-o", "-"), ("report", "--format", "json")]
)
def test_timings_of_a_command(words: tuple[str, ...], command: Command) -> None:
    name, *options = words
    done = command("--timings", name, str(FIXTURE), *options)
    assert done.code == 0, done.err
    head, *rows = done.err.strip().splitlines()
    total = float(head.removeprefix("traceview: ").partition(" ")[0])
    seconds = [float(row.split()[0]) for row in rows]
    assert sum(seconds) == pytest.approx(total, abs=0.02)
    assert "causes of idle time" in done.err


def test_timings_show_the_second_thread_apart(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_FEWEST_EVENTS", 0)
    monkeypatch.setattr(parallel, "FEWEST_PER_DEVICE", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(progress, "_LEAST_SECONDS", 0.0)
    done = command("--timings", "analyze", str(FIXTURE))
    assert done.code == 0, done.err
    head, *rows = done.err.strip("\n").splitlines()
    first = [row for row in rows if not row.endswith(", meanwhile in a second thread")]
    assert 0 < len(first) < len(rows)
    total = float(head.removeprefix("traceview: ").partition(" ")[0])
    assert sum(float(row.split()[0]) for row in first) == pytest.approx(total, abs=0.05)
