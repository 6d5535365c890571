"""Idle time that is the wait for Python's lock is named where tables and bars show it as something else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.charts import MS
from tests.reports import finding
from traceview.analysis.base import Evidence
from traceview.analysis.python_lock import holds_lock_waits, lock_wait_sentence

LOCKED = finding(
    code="input-bound",
    cost_ps_per_step=5 * MS,
    cost_ratio=0.25,
    cost_statistic="mean",
    evidence=(Evidence("lock_cost_ratio", 0.25, 0.05, "replica:0"),),
    path_causes=("input", "python", "host_compute", "launch"),
)


@pytest.mark.parametrize(
    ("by_cause", "names"),
    [
        (
            {"host_compute": 90, "python": 10, "input": 900},
            "host work for ops and Python between calls",
        ),
        ({"host_compute": 90}, "host work for ops"),
    ],
)
def test_it_says_as_what_it_is_shown(by_cause: dict[str, int], names: str) -> None:
    assert lock_wait_sentence((finding(), LOCKED), by_cause) == (
        "Idle time while another thread keeps Python's lock, 5.00 ms of the mean 20.0 ms step, is shown as "
        f"{names} (input-bound)."
    )


def test_it_may_be_a_part_of_the_cost() -> None:
    partly = replace(LOCKED, evidence=(Evidence("lock_wait_ps", 2 * MS, None, "replica:0"),))
    assert lock_wait_sentence((partly,), {"python": 9}) == (
        "Waiting for Python's lock, 2.00 ms in the mean step, is shown as Python between calls (input-bound)."
    )


def test_without_such_a_wait_nothing_is_said() -> None:
    waits = replace(LOCKED, evidence=(Evidence("idle_input_ratio", 0.25, 0.05, "replica:0"),))
    assert lock_wait_sentence((waits,), {"host_compute": 90}) is None
    assert lock_wait_sentence((LOCKED,), {"input": 90}) is None


def test_a_cause_may_hold_the_wait() -> None:
    assert holds_lock_waits((finding(), LOCKED), "host_compute")
    assert not holds_lock_waits((LOCKED,), "peer")
    assert not holds_lock_waits((finding(path_causes=("host_compute",)),), "host_compute")
