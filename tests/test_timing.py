"""Does the time of a stage leave out the stages inside it, also beside a second thread?"""

from __future__ import annotations

from pathlib import Path
from threading import Thread, get_ident

import pytest

from traceview.base import timing
from traceview.base.timing import measured, measured_beside, stage

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


def test_stages_of_a_second_thread_stand_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5, 1.0, 2.0, 4.0, 9.0])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))

    def compute(first: int) -> None:
        with measured_beside(first), stage("shared"):
            pass

    with measured() as found, stage("shared"):
        thread = Thread(target=compute, args=(get_ident(),))
        thread.start()
        thread.join(20)
    assert found.beside == {"shared": 4.0 - 2.0}
    assert found.seconds == {"shared": 9.0 - 0.5}
    with stage("shared"):
        pass
    assert found.beside == {"shared": 2.0}
