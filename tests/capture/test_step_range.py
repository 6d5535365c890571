from __future__ import annotations

from typing import Any

import pytest

from traceview.base.errors import UsageError
from traceview.capture.window.step_window import StepRange


def test_a_window_is_half_open() -> None:
    window = StepRange.parse("10:15")
    assert window == StepRange(10, 15) == StepRange.of(range(10, 15))
    assert str(window) == "10:15"
    assert [n for n in range(20) if window.overlaps(n, 1)] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("0:5", "step 0 cannot be captured", "--steps 1:5"),
        (":5", "step 0 cannot be captured", "--steps 1:5"),
        ("0:1", "step 0 cannot be captured", "--steps 1:2"),
        ("5:", "not a range", "10:15"),
        ("5", "not a range", "for step 5 alone: --steps 5:6"),
        (" 07 ", "not a range", "--steps 7:8"),
        ("0", "not a range", "10:15"),
        (":", "not a range", "10:15"),
        ("", "not a range", "10:15"),
        ("5:5", "empty", "excluded"),
        ("7:5", "empty", "excluded"),
        ("-3:5", "not a range", "10:15"),
        ("a:b", "not a range", "10:15"),
        ("١:٣", "not a range", "10:15"),
        ("1" * 19 + ":", "not a range", "10:15"),
    ],
)
def test_what_is_no_window_is_refused_with_a_reason(text: str, reason: str, hint: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        StepRange.parse(text)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        (range(5, 5), "excluded"),
        (range(7, 5), "excluded"),
        (range(1, 9, 2), "range(10, 15)"),
        (range(-1, 3), "range(10, 15)"),
        (range(3), "range(1, 3)"),
        ((10, 15), "range(10, 15)"),
    ],
)
def test_a_range_that_is_no_window_is_refused(steps: Any, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        StepRange.of(steps)
    assert hint in (raised.value.hint or "")
