"""Are numbers written so that they are neither wrong nor longer than needed?"""

from __future__ import annotations

import pytest

from traceview.document.sanitize import sanitize
from traceview.render import numbers
from traceview.render.device_names import joined


@pytest.mark.parametrize(
    ("ps", "text"),
    [
        (None, "–"),
        (0, "0 ps"),
        (999, "999 ps"),
        (1000, "1.00 ns"),
        (9_994, "9.99 ns"),
        (9_996, "10.0 ns"),
        (999_949, "999.9 ns"),
        (999_950, "1.00 µs"),
        (668_866_125_000, "668.9 ms"),
        (10**12, "1.00 s"),
        (1234 * 10**12, "1,234.0 s"),
        (-1000, "-1.00 ns"),
    ],
)
def test_time(ps: int | None, text: str) -> None:
    assert numbers.time(ps) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"),
        (0.0, "0%"),
        (0.0004, "<0.1%"),
        (0.0005, "0.1%"),
        (0.125, "12.5%"),
        (0.9994, "99.9%"),
        (0.9996, ">99.9%"),
        (1.0, "100%"),
        (1.5, "150.0%"),
    ],
)
def test_share(ratio: float | None, text: str) -> None:
    assert numbers.share(ratio) == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("window_ps", 10**9, "1.00 ms"),
        ("profile_ns", 10**6, "1.00 ms"),
        ("memory_held_bytes", 256_000_000, "256.0 MB"),
        ("h2d_bytes", 36, "36 B"),
        ("busy_ratio", 0.5, "50.0%"),
        ("compute_ratio_to_busiest", 0.125, "12.5%"),
        ("used_count", 1367, "1,367"),
        ("status", "empty", "empty"),
        ("input_ps_per_step", 11_800_000_000, "11.8 ms"),
        ("h2d_bytes_per_step", 1_000_000, "1.00 MB"),
        ("bus_bytes_per_second", 22_200_000_000, "22.2 GB/s"),
        ("score", 3.14159, "3.142"),
        ("median_step_ps", None, "–"),
    ],
)
def test_measured_takes_the_unit_of_its_key(key: str, value: float | str | None, text: str) -> None:
    assert numbers.measured(key, value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "–"),
        ([None, 6_000_000_000], "6.00 ms"),
        ([6_000_000_000, 6_000_000_001], "6.00 ms"),
        ([6_000_000_000, 0], "0 ps to 6.00 ms"),
    ],
)
def test_times_between_which_all_lie(values: list[int | None], text: str) -> None:
    assert numbers.times(values) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, None),
        (0, "1970-01-01 00:00:00 UTC"),
        (1_767_312_000_000_000_000, "2026-01-02 00:00:00 UTC"),
        (2**63, "2262-04-11 23:47:16 UTC"),
        (10**21, None),
    ],
)
def test_date(ns: int | None, text: str | None) -> None:
    assert numbers.date(ns) == text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["GPU:0"], "GPU:0"),
        (["GPU:0", "GPU:2", "GPU:3", "GPU:5", "GPU:6", "GPU:7"], "GPU:0, 2, 3, 5–7"),
        (["a/GPU:0", "a/GPU:1", "b/GPU:0"], "a/GPU:0, 1; b/GPU:0"),
        (["replica:9", "replica:10", "replica:11"], "replica:9–11"),
        (["odd"], ":odd"),
    ],
)
def test_names_of_devices_are_joined(keys: list[str], text: str) -> None:
    assert joined(keys) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("model/dense:MatMul", "model/dense:MatMul"),
        ("a\nb\x1b[1m\u202e", r"a\nb\x1b[1m\u202e"),
        ("µ – é", r"u - \xe9"),
        ("\ud800", r"\ud800"),
    ],
)
def test_harmless_in_ascii(text: str, plain: str) -> None:
    assert sanitize(text, unicode=False) == plain


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = sanitize("a" * 5000 + "b" * 5000)
    assert (len(text), text[0], text[-1]) == (2001, "a", "b")
