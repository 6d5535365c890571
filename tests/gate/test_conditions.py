"""A condition is read exactly, or refused with the names that are near."""

from __future__ import annotations

from fractions import Fraction

import pytest

from traceview.errors import UsageError
from traceview.gate.conditions import Absence, Change, Limit, NoFinding, condition_of
from traceview.gate.path import PathStep, path_at_start
from traceview.gate.schema_keys import schema_key, schema_paths
from traceview.gate.units import written

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
        ("idle.input_ratio <= 0.05", "<=", Fraction(1, 20)),
        ("idle.input_ms <= 3", "<=", Fraction(3 * MS)),
        ("activity.collective_wait <= 3 ms", "<=", Fraction(3 * MS)),
        ("path.input_ratio == 0", "==", Fraction(0)),
        ("examples_per_second != 1000", "!=", Fraction(1000)),
        ("results.steps.median_ps <= 7", "<=", Fraction(7)),
        ("steps.median_ms <= 7", "<=", Fraction(7 * MS)),
        ("device_time.devices[worker-0/GPU:1].busy_ps >= 1", ">=", Fraction(1)),
        ("device_time.devices.memory_peak_gb <= 15.5", "<=", Fraction(15_500_000_000)),
        ("idle.devices.causes.input <= 3 ms", "<=", Fraction(3 * MS)),
        ("idle.devices[GPU:0].causes[input] <= 3 ms", "<=", Fraction(3 * MS)),
        ('ops.rows["a]b"].total_ms < 1', "<", Fraction(MS)),
        ("capture.quality == ok", "==", "ok"),
        ("busy_ratio >= 1", ">=", Fraction(1)),
        ("busy_ratio <= 150%", "<=", Fraction(3, 2)),
        ("findings.cost_ratio <= 5", "<=", Fraction(5)),
        ("steps.steps.used == true", "==", True),
        ("collectives.algorithm_bytes_per_second >= 5 GB/s", ">=", Fraction(5 * 10**9)),
    ],
)
def test_a_limit(text: str, sign: str, limit: Fraction | str | bool) -> None:
    try:
        read = condition_of(text)
    except UsageError as error:
        pytest.fail(f"{error.message} {error.hint}")
    assert isinstance(read, Limit)
    assert (read.sign, read.limit) == (sign, limit)


def test_what_is_not_a_limit() -> None:
    assert condition_of("finding:unused-gpu absent") == NoFinding(
        "finding:unused-gpu absent", "unused-gpu"
    )
    assert condition_of("finding: WARNING  absent") == NoFinding(
        "finding: WARNING absent", "warning"
    )
    assert isinstance(condition_of("capture.problems absent"), Absence)
    rise = condition_of("step_time:+5%")
    assert isinstance(rise, Change)
    assert (rise.sign, rise.ratio, rise.amount) == ("+", Fraction(1, 20), None)
    fall = condition_of("busy_ratio : -2.5 %")
    assert isinstance(fall, Change)
    assert (fall.sign, fall.ratio) == ("-", Fraction(1, 40))
    absolute = condition_of("step_time:+3ms")
    assert isinstance(absolute, Change)
    assert (absolute.ratio, absolute.amount) == (None, Fraction(3 * MS))


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
        ("idle.devices.causes.input <= 3", "has no unit", "ms"),
        ("step_tme_ms <= 3", "no key is called step_tme_ms", "did you mean step_time_ms"),
        ("busyratio >= 1", "no key is called busyratio", "did you mean busy_ratio?"),
        ("idle.inptu_ratio < 1", "no key is called", "idle.input_ratio"),
        ("device_time.devices.busy_rtio > 1", "no key", "device_time.devices.busy_ratio"),
        ("device_tme.devices.busy_ratio > 1", "no key", "device_time.devices.busy_ratio"),
        ("idle.devices.causes.inpt < 1 ms", "no key", "idle.devices.causes.input"),
        ("steps.median_ps.x < 1", "no key", ""),
        ("steps.median_ps[3] < 1", "no key", ""),
        ("device_time >= 2", "holds several values", "KEY absent"),
        ("capture.quality >= ok", "compare it with == or !=", ""),
        ("steps.steps.used == yes", "is true or false", ""),
        ("capture.quality:+5%", "is no number", ""),
        ("step_time:5%", "is no comparison", ""),
        ("finding:unusd-gpu absent", "no finding is called unusd-gpu", "unused-gpu"),
        ("finding:unused-gpu present", "finding:CODE absent", ""),
        ("idle.input_ratio <= 5", "5 would be 500%, and this share is at most 100%", "write 5%"),
        ("busy_ratio[GPU:0] >= 1.5", "1.5 would be 150%", "write 1.5%"),
        ("path.share_by_cause.input <= 5", "5 would be 500%", "write 5%"),
        ("device_time.devices.busy_ratio >= 80", "80 would be 8000%", "write 80%"),
        ("busy_ratio:-5", "5 would be 500%", "write 5%"),
        ("3 <= step_time", "a key is expected", ""),
        ("steps. <= 1", "a key is expected", ""),
    ],
)
def test_what_is_no_condition(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        condition_of(text)
    assert problem in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")


def test_every_key_of_the_schema_can_be_asked_about() -> None:
    paths = [path for path, _ in schema_paths()]
    assert len(paths) > 500
    assert {"steps.median_ps", "capture.hosts.overhead_ratio", "findings.cost_ratio"} <= set(paths)
    for path in paths:
        steps, rest = path_at_start(path)
        assert rest == ""
        key = schema_key(steps)
        if key.unit is None:
            continue
        word = {
            "text": "x",
            "flag": "true",
            "time": "3 ms",
            "bytes": "3 MB",
            "rate": "3 GB/s",
            "ratio": "3%",
        }
        limit = word.get(key.unit.quantity, "3")
        condition_of(f"{path} == {limit}")


def test_quotes_keep_what_is_in_brackets() -> None:
    steps, rest = path_at_start(r'ops.rows["a\"]b"].count <= 1')
    assert steps[1] == PathStep("rows", 'a"]b')
    assert rest == " <= 1"
    assert path_at_start("a[*].b[]")[0] == (PathStep("a"), PathStep("b"))


def test_values_are_written_in_their_unit() -> None:
    assert written(Fraction(3, 2) * MS, "time") == "1.50 ms"
    assert written(0.5, "ratio") == "50.0%"
    assert written(3_000_000, "bytes") == "3.00 MB"
    assert written(5e9, "rate") == "5.00 GB/s"
    assert (written("ok", "text"), written(True, "flag")) == ("ok", "true")
