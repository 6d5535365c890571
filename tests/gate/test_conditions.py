"""Conditions are read exactly, or refused with the names that are near; a budget is a TOML file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports import full_report
from traceview.base.errors import TraceFormatError, TraceNotFoundError, TraceviewError, UsageError
from traceview.comparison.gate import (
    QUERIES,
    asked_conditions,
    condition_of,
)

MS = 10**9


@pytest.mark.parametrize(
    ("text", "key", "sign", "limit"),
    [
        ("step_time_ms <= 120", "step_time", "<=", 120 * MS),
        ("step_time_s<0.12", "step_time", "<", 120 * MS),
        ("  step_time_us   >=   .5 ", "step_time", ">=", 500_000),
        ("busy_ratio > 80 %", "busy_ratio", ">", 0.8),
        ("busy_ratio >= 1", "busy_ratio", ">=", 1),
        ("memory_peak_gb <= 15.5", "memory_peak", "<=", 15_500_000_000),
        ("finding:input-bound <= 5%", "finding:input-bound", "<=", 0.05),
        ("finding: WARNING  absent", "finding:warning", "absent", 0.5),
        ("busy_ratio : -2.5 %", "busy_ratio", "-", 0.025),
        ("step_time_ms:+3", "step_time", "+", 3 * MS),
    ],
)
def test_a_limit(text: str, key: str, sign: str, limit: float) -> None:
    read = condition_of(text)
    assert (read.key, read.sign, read.limit) == (key, sign, limit)
    assert read.is_relative == ("%" in text and sign in "+-")


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("step_time:5%", "no key with a limit", ""),
        ("busy_ratio absent", "only a finding can be absent", ""),
        ("step_time <= 3 ms", "no key with a limit", "step_time_ms <= 120"),
        ("examples_per_second >= 3%", "is no share", ""),
        ("step_time <= 120", "step_time has no unit", "step_time_ms"),
        ("step_tme_ms <= 3", "no key is called step_tme_ms", "did you mean step_time"),
        ("step_time_kb <= 1", "no key is called", ""),
        ("finding:unusd-gpu absent", "no finding is called unusd-gpu", "unused-gpu"),
        ("finding:unused-gpu:+5%", "a limit and no change", ""),
        ("state.input_ratio <= 5", "5 is more than all, and a share is at most 100%", "write 5%"),
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


# Budgets


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "budget.toml"


@pytest.mark.parametrize(
    ("content", "error", "problem"),
    [
        (b'requires = ["x"]', UsageError, "unknown field `requires`"),
        (b"baseline = 1", UsageError, "Expected `str"),
        (b"require = [", TraceFormatError, "not TOML"),
        (b"\xff\xfe", TraceFormatError, "not TOML"),
    ],
)
def test_what_is_no_budget(
    file: Path, content: bytes, error: type[TraceviewError], problem: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(error, match=problem):
        asked_conditions([], file, None)
    with pytest.raises(TraceNotFoundError, match="directory"):
        asked_conditions([], file.parent, None)


def test_what_is_asked_for(file: Path) -> None:
    file.write_text('require = ["finding:warning absent"]\nbaseline = "main"\n')

    def asked(*arguments: Any) -> tuple[list[str], str | None]:
        conditions, baseline = asked_conditions(*arguments)
        return [condition.text for condition in conditions], baseline

    own = ["finding:warning absent", "busy_ratio >= 0.5", "step_time:+5%"]
    assert asked(["busy_ratio >= 0.5"], file, "other") == (own, "other")
    assert asked(["busy_ratio:-5%"], None, "main") == (["busy_ratio:-5%"], "main")
    assert asked([], file, None)[1] == "main"
    assert asked([], None, "main") == (["step_time:+5%"], "main")
    file.write_text('require = ["step_tme <= 1"]')
    with pytest.raises(UsageError, match="no key is called step_tme"):
        asked_conditions([], file, None)
    with pytest.raises(UsageError, match="there is no condition"):
        asked_conditions([], None, None)
    with pytest.raises(UsageError, match="'step_time:\\+3%' needs a baseline"):
        asked_conditions(["step_time:+3%"], None, None)
