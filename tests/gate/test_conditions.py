"""A condition is read exactly, or refused with the names that are near."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.reports import full_report
from traceview.base.errors import UsageError
from traceview.comparison.gate import QUERIES, condition_of, written

MS = 10**9


@pytest.mark.parametrize(
    ("text", "key", "sign", "limit"),
    [
        ("step_time_ms <= 120", "step_time", "<=", Fraction(120 * MS)),
        ("step_time <= 120 ms", "step_time", "<=", Fraction(120 * MS)),
        ("step_time<0.12s", "step_time", "<", Fraction(120 * MS)),
        ("  step_time_us   >=   .5 ", "step_time", ">=", Fraction(500_000)),
        ("step_time_ms <= 120 s", "step_time", "<=", Fraction(120_000 * MS)),
        ("busy_ratio >= 0.8", "busy_ratio", ">=", Fraction(4, 5)),
        ("busy_ratio >= 80%", "busy_ratio", ">=", Fraction(4, 5)),
        ("busy_ratio[GPU:0] > 80 %", "busy_ratio", ">", Fraction(4, 5)),
        ("busy_ratio >= 1", "busy_ratio", ">=", Fraction(1)),
        ("state.input_ratio <= 0.05", "state.input_ratio", "<=", Fraction(1, 20)),
        ("state.input_ms <= 3", "state.input", "<=", Fraction(3 * MS)),
        ("state.device_wait <= 3 ms", "state.device_wait", "<=", Fraction(3 * MS)),
        ("examples_per_second > 1000", "examples_per_second", ">", Fraction(1000)),
        ("memory_peak_gb <= 15.5", "memory_peak", "<=", Fraction(15_500_000_000)),
        ("absent_hosts <= 0", "absent_hosts", "<=", Fraction(0)),
        ("finding:input-bound <= 5%", "finding:input-bound", "<=", Fraction(1, 20)),
        ("finding: WARNING  absent", "finding:warning", "absent", Fraction(1, 2)),
        ("step_time:+5%", "step_time", "+", Fraction(1, 20)),
        ("busy_ratio : -2.5 %", "busy_ratio", "-", Fraction(1, 40)),
        ("step_time:+3ms", "step_time", "+", Fraction(3 * MS)),
    ],
)
def test_a_limit(text: str, key: str, sign: str, limit: Fraction) -> None:
    read = condition_of(text)
    assert (read.key, read.sign, read.limit) == (key, sign, limit)
    assert read.is_relative == ("%" in text and sign in "+-")


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "no key with a limit", "step_time_ms <= 120"),
        ("busy_ratio", "no key with a limit", ""),
        ("busy_ratio == 3", "no key with a limit", ""),
        ("3 <= step_time", "no key with a limit", ""),
        ("step_time:5%", "no key with a limit", ""),
        ("busy_ratio absent", "only a finding can be absent", ""),
        ("busy_ratio >= x", "'x' is no number", ""),
        ("busy_ratio >= 3 ms", "no such unit; units here: %", ""),
        ("examples_per_second >= 3 ms", "this key has no unit", ""),
        ("step_time <= 120", "'120' has no unit", "ms"),
        ("step_tme_ms <= 3", "no key is called step_tme_ms", "did you mean step_time"),
        ("busyratio >= 1", "no key is called busyratio", "did you mean busy_ratio"),
        ("state.inptu_ratio < 1", "no key is called", "state.input_ratio"),
        ("step_time_kb <= 1", "no key is called", ""),
        ("step_time[GPU:0] <= 1 ms", "step_time is of the run", ""),
        ("finding:unusd-gpu absent", "no finding is called unusd-gpu", "unused-gpu"),
        ("finding:unused-gpu present", "no key with a limit", ""),
        ("finding:unused-gpu:+5%", "no device and no change", ""),
        ("state.input_ratio <= 5", "5 would be 500%, and a share is at most 100%", "write 5%"),
        ("busy_ratio:-5", "5 would be 500%", "write 5%"),
    ],
)
def test_what_is_no_condition(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        condition_of(text)
    assert problem in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")


def test_every_key_has_a_value_in_a_full_report() -> None:
    report = full_report()
    for key, query in QUERIES.items():
        values = query.values(report)
        assert any(value.value is not None for value in values), key
        assert all(bool(value.where) == query.is_of_devices for value in values), key


def test_values_are_written_in_their_unit() -> None:
    assert written(Fraction(3, 2) * MS, "time") == "1.50 ms"
    assert written(0.5, "ratio") == "50.0%"
    assert written(3_000_000, "bytes") == "3.00 MB"
    assert written(1487.0, "number") == "1,487"
