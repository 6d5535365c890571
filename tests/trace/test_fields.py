"""A JSON object is read as its struct says; a field of another type is left out and named."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct, structs

from traceview.trace.sidecar.environment import LARGEST, read_as


class Inner(Struct, frozen=True):
    size: int | None


class Outer(Struct, frozen=True):
    class_: str | None
    ratio: float | None
    is_on: bool | None
    numbers: tuple[int, ...]
    limits: tuple[int | None, ...] | None
    counts: dict[str, int] | None
    inner: Inner
    maybe: Inner | None
    many: tuple[Inner, ...]


NOTHING = Outer(None, None, None, (), None, None, Inner(None), None, ())


@pytest.mark.parametrize("fields", [{}, None, dict.fromkeys(Outer.__annotations__)])
def test_what_is_absent_or_null_is_nothing_and_not_wrong(fields: Any) -> None:
    wrong: list[str] = []
    assert read_as(Outer, fields, wrong) == NOTHING
    assert wrong == []


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("class", 1, "class"),
        ("class", ["a"], "class"),
        ("ratio", "1", "ratio"),
        ("ratio", True, "ratio"),
        ("ratio", float("nan"), "ratio"),
        ("ratio", float("inf"), "ratio"),
        pytest.param("ratio", 10**400, "ratio", id="beyond any float"),
        ("is_on", 1, "is_on"),
        ("numbers", [1, "2"], "numbers"),
        ("numbers", [True], "numbers"),
        ("numbers", [None], "numbers"),
        ("numbers", [1.5], "numbers"),
        ("numbers", {"0": 1}, "numbers"),
        ("numbers", [LARGEST + 1], "numbers"),
        ("limits", ["a"], "limits"),
        ("counts", {"a": "1"}, "counts"),
        ("counts", [1], "counts"),
        ("inner", 3, "inner"),
        ("inner", {"size": "x"}, "inner.size"),
        ("maybe", [], "maybe"),
        ("many", [{"size": []}], "many.size"),
    ],
)
def test_another_type_is_left_out_and_named(key: str, value: Any, path: str) -> None:
    wrong: list[str] = []
    read = read_as(Outer, {key: value}, wrong)
    assert wrong == [path]
    expected = {"many": (Inner(None),)} if path == "many.size" else {}
    assert read == Outer(**structs.asdict(NOTHING) | expected)


@pytest.mark.parametrize("value", [[], "text", 3, True])
def test_what_is_no_object_at_all_is_said(value: Any) -> None:
    wrong: list[str] = []
    assert read_as(Outer, value, wrong) == NOTHING
    assert wrong == ["the whole file"]
