"""A condition is read exactly, or refused with the names that are near."""

from __future__ import annotations

from fractions import Fraction

import pytest

from traceview.base.errors import UsageError
from traceview.comparison.conditions import condition_of, key_at_start, schema, written

MS = 10**9


@pytest.mark.parametrize(
    ("text", "sign", "limit"),
    [
        ("step_time_ms <= 120", "<=", Fraction(120 * MS)),
        ("step_time <= 120 ms", "<=", Fraction(120 * MS)),
        ("step_time<0.12s", "<", Fraction(120 * MS)),
        ("  step_time_us   >=   .5 ", ">=", Fraction(500_000)),
        ("step_time_ms <= 120 s", "<=", Fraction(120_000 * MS)),
        ("busy_ratio >= 0.8", ">=", Fraction(4, 5)),
        ("busy_ratio >= 80%", ">=", Fraction(4, 5)),
        ("busy_ratio[GPU:0] > 80 %", ">", Fraction(4, 5)),
        ("state.input_ratio <= 0.05", "<=", Fraction(1, 20)),
        ("state.input_ms <= 3", "<=", Fraction(3 * MS)),
        ("state.device_wait <= 3 ms", "<=", Fraction(3 * MS)),
        ("path.input_ratio == 0", "==", Fraction(0)),
        ("examples_per_second != 1000", "!=", Fraction(1000)),
        ("results.steps.median_ps <= 7", "<=", Fraction(7)),
        ("steps.median_ms <= 7", "<=", Fraction(7 * MS)),
        ("device_time.devices[worker-0/GPU:1].busy_ps >= 1", ">=", Fraction(1)),
        ("device_time.devices.memory_peak_gb <= 15.5", "<=", Fraction(15_500_000_000)),
        ("ledger.devices.states.input <= 3 ms", "<=", Fraction(3 * MS)),
        ("ledger.devices[GPU:0].states.input <= 3 ms", "<=", Fraction(3 * MS)),
        ('ops.rows["a]b"].total_ms < 1', "<", Fraction(MS)),
        ("capture.quality == ok", "==", "ok"),
        ("busy_ratio >= 1", ">=", Fraction(1)),
        ("busy_ratio <= 150%", "<=", Fraction(3, 2)),
        ("findings.loss.gpu_time_ratio <= 5%", "<=", Fraction(1, 20)),
        ("steps.steps.used == true", "==", True),
        ("collectives.bus_bytes_per_second >= 5 GB/s", ">=", Fraction(5 * 10**9)),
    ],
)
def test_a_limit(text: str, sign: str, limit: Fraction | str | bool) -> None:
    try:
        read = condition_of(text)
    except UsageError as error:
        pytest.fail(f"{error.message} {error.hint}")
    assert (read.sign, read.limit) == (sign, limit)


def test_what_is_not_a_limit() -> None:
    absent = condition_of("finding:unused-gpu absent")
    assert (absent.key, absent.sign, absent.code) == (None, "absent", "unused-gpu")
    absent = condition_of("finding: WARNING  absent")
    assert (absent.text, absent.code) == ("finding: WARNING absent", "warning")
    assert condition_of("capture.problems absent").sign == "absent"
    for text, sign, limit, is_relative in (
        ("step_time:+5%", "+", Fraction(1, 20), True),
        ("busy_ratio : -2.5 %", "-", Fraction(1, 40), True),
        ("step_time:+3ms", "+", Fraction(3 * MS), False),
    ):
        change = condition_of(text)
        assert (change.sign, change.limit, change.is_relative) == (sign, limit, is_relative)
        assert change.is_change


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "it is empty", "step_time_ms <= 120"),
        ("busy_ratio", "says nothing about the key", ""),
        ("busy_ratio ~ 3", "'~ 3' is no comparison", ""),
        ("busy_ratio >= x", "'x' is no number", ""),
        ("busy_ratio >= 3 ms", "no such unit; units here: %", ""),
        ("examples_per_second >= 3 ms", "this key has no unit", ""),
        ("step_time <= 120", "'120' has no unit", "ms"),
        ("ledger.devices.states.input <= 3", "has no unit", "ms"),
        ("step_tme_ms <= 3", "no key is called step_tme_ms", "did you mean step_time_ms"),
        ("busyratio >= 1", "no key is called busyratio", "did you mean busy_ratio?"),
        ("state.inptu_ratio < 1", "no key is called", "state.input_ratio"),
        ("device_time.devices.busy_rtio > 1", "no key", "device_time.devices.busy_ratio"),
        ("device_tme.devices.busy_ratio > 1", "no key", "device_time.devices.busy_ratio"),
        ("ledger.devices.states.inpt < 1 ms", "no key", "ledger.devices.states.input"),
        ("steps.median_ps.x < 1", "no key", ""),
        ("steps.median_ps[3] < 1", "no key", ""),
        ("device_time >= 2", "holds several values", "KEY absent"),
        ("capture.quality >= ok", "compare it with == or !=", ""),
        ("steps.steps.used == yes", "is true or false", ""),
        ("capture.quality:+5%", "is no number", ""),
        ("step_time:5%", "is no comparison", ""),
        ("finding:unusd-gpu absent", "no finding is called unusd-gpu", "unused-gpu"),
        ("finding:unused-gpu present", "finding:CODE absent", ""),
        ("state.input_ratio <= 5", "5 would be 500%, and this share is at most 100%", "write 5%"),
        ("busy_ratio[GPU:0] >= 1.5", "1.5 would be 150%", "write 1.5%"),
        ("path.share_by_state.input <= 5", "5 would be 500%", "write 5%"),
        ("device_time.devices.busy_ratio >= 80", "80 would be 8000%", "write 80%"),
        ("busy_ratio:-5", "5 would be 500%", "write 5%"),
        ("3 <= step_time", "a key is expected", ""),
        ("steps. <= 1", "a key is expected", ""),
        ("device_time.devices.memory_peak_ms <= 1", "no key is called", ""),
        ('ops.rows["a].count <= 1', "is no comparison", ""),
        ("ledger.devices.states[input] <= 3 ms", "no key is called", "ledger.devices.states"),
        ("state[GPU:0].input_ms <= 1", "no key is called", ""),
        ("step_time[GPU:0] <= 1 ms", "no key is called", ""),
        ("steps[x].median_ms <= 3", "no key is called", ""),
        ("examples_per_second[GPU:0] <= 3", "no key is called", ""),
        ("ms <= 3", "no key is called", ""),
        ("step_time_kb <= 1", "no key is called", ""),
        ("state.input_mb <= 1", "no key is called", ""),
    ],
)
def test_what_is_no_condition(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        condition_of(text)
    assert problem in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")


def test_every_key_of_the_schema_can_be_asked_about() -> None:
    assert len(schema()) > 500
    words = {
        "text": "x",
        "flag": "true",
        "time": "3 ms",
        "bytes": "3 MB",
        "rate": "3 GB/s",
        "ratio": "3%",
    }
    for path, unit in schema().items():
        for written_path in (path, path.removeprefix("results.")):
            if unit.quantity == "several":
                condition_of(f"{written_path} absent")
            else:
                condition_of(f"{written_path} == {words.get(unit.quantity, '3')}")


def test_quotes_keep_what_is_in_brackets() -> None:
    key, rest = key_at_start('ops.rows["a[0]b"].count <= 1')
    assert (key.names, dict(key.rows), rest) == (
        ("results", "ops", "rows", "count"),
        {2: "a[0]b"},
        " <= 1",
    )
    assert not key_at_start("ops.rows[*].count")[0].rows
    assert not key_at_start("ops.rows[].count")[0].rows


def test_values_are_written_in_their_unit() -> None:
    assert written(Fraction(3, 2) * MS, "time") == "1.50 ms"
    assert written(0.5, "ratio") == "50.0%"
    assert written(3_000_000, "bytes") == "3.00 MB"
    assert written(5e9, "rate") == "5.00 GB/s"
    assert (written("ok", "text"), written(True, "flag")) == ("ok", "true")
