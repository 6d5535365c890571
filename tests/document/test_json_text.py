"""JSON in parts has the bytes of JSON made at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from traceview.document import json_text
from traceview.document.json_text import dumped, dumped_with_rows

ROWS = [
    {"name": 'a\n  "rows": []', "nested": {"empty": [], "pair": [1, None]}},
    {"name": "\ud800", "nested": {}},
    {"name": "µ", "nested": {}},
]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_rows_in_parts(count: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_ROWS_AT_ONCE", at_once)
    value = {"logdir": '/a\n  "rows": []', "windows": [], "rows": ROWS[:count], "left_out": 3}
    parts = list(dumped_with_rows({**value, "rows": []}, iter(ROWS[:count])))
    assert b"".join(parts) == dumped(value)
    assert len(parts) == -(-count // at_once) + 1


def test_rows_are_asked_for_when_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_ROWS_AT_ONCE", 1)
    asked = []

    def rows() -> Iterator[int]:
        for number in range(3):
            asked.append(number)
            yield number

    parts = dumped_with_rows({"rows": []}, rows())
    next(parts)
    assert asked == [0]
