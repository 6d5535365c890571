"""Calls the functions of the timeline's script that draw nothing: times, and decoding of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from traceview.document.html.printer import asset

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

Call = Callable[[str], Any]

PARTS = ("time", "model")
LANE = {
    "kind": "compute",
    "classes": ["compute", "h2d"],
    "before_ps": [0, 5, 10],
    "length_ps": [10, 20, 30],
    "class": [0, 1, 0],
    "name": [0, -1, 1],
    "merged": [1],
    "merged_count": [3],
    "merged_hole_ps": [4],
    "other_slice": [2],
    "other_class": [1],
    "other_ps": [7],
}
DATA = {
    "span": 200,
    "hosts": [{"name": "host", "offset": 100, "lanes": []}],
    "devices": [{"key": "GPU:0", "name": "GPU:0", "host": 0, "lanes": [LANE, LANE]}],
    "folded": [],
    "names": ["MatMul", "Conv2D"],
    "gaps": [[0, 0, 10, 1]],
    "activities": {"compute": ["compute", "c", "compute"], "h2d": ["h2d", "h", "copy to device"]},
    "states": {},
    "thread_states": {},
}


@pytest.fixture
def call(browser: Browser) -> Call:
    """The value of a JavaScript expression, in which `model` is decoded from DATA."""
    source = "\n".join(asset(f"timeline/{part}.js") for part in PARTS)
    page = browser.new_page()
    return lambda expression: page.evaluate(
        f"(data) => {{ {source}\nconst model = decodeModel(data); return {expression}; }}", DATA
    )


def test_slices_are_decoded_on_the_clock_of_all_hosts(call: Call) -> None:
    slices = call("model.devices[0].lanes[0].slices")
    assert [(piece["startPs"], piece["endPs"], piece["count"]) for piece in slices] == [
        (100, 110, 1),
        (115, 135, 3),
        (145, 175, 1),
    ]
    assert [piece["parts"] for piece in slices] == [[[0, 10]], [[1, 16]], [[0, 23], [1, 7]]]
    assert call("model.devices[0].gaps") == [
        {"startPs": 100, "endPs": 110, "number": 1, "python": None}
    ]
