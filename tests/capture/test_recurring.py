"""Windows repeat, and of the runs that they make the newest stay."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from traceview.base.errors import UsageError
from traceview.capture.api import keras_callback
from traceview.capture.recurring import Recurrence

HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("number", "count", "first"),
    [
        (0, 1, 10),
        (8, 1, 10),
        (9, 1, 110),
        (16, 1, 110),
        (108, 1, 110),
        (109, 1, 210),
        (100, 20, 210),
        (1000, 1, 1010),
    ],
)
def test_the_next_window(number: int, count: int, first: int) -> None:
    steps = Recurrence(range(10, 15), 100, 3).next_steps(number, count)
    assert steps == range(first, first + 5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 6}, "cannot begin so soon"),
        ({"every": 0}, "cannot begin so soon"),
        ({"every": 100, "keep": 0}, "at least one run"),
        ({"every": 100, "run": "mine"}, "names one run"),
    ],
)
def test_what_cannot_be_repeated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        keras_callback("logs", range(10, 15), keras=ModuleType("keras"), **options)


def record(
    out: Path, run: str, host: str = HERE, *, started: int | None, is_recurring: bool = True
) -> Path:
    folder = out / "plugins" / "profile" / run
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, Any] = {"process": {"host": host}, "clock": {}}
    if is_recurring:
        groups["recurring"] = {"every": 100}
    if started is not None:
        groups["clock"]["started"] = {"wall_ns": started}
    name = host if host != HERE else f"{HERE}_w0"
    (folder / f"{name}.traceview.json").write_text(json.dumps(groups))
    (folder / f"{name}.xplane.pb").write_bytes(b"trace")
    return folder


def runs_in(out: Path) -> set[str]:
    return {path.name for path in (out / "plugins" / "profile").iterdir()}


def test_the_newest_runs_stay(tmp_path: Path) -> None:
    for number, run in enumerate(("d", "a", "c", "b")):
        record(tmp_path, run, started=number)
    Recurrence(range(10, 15), 100, 2).remove_older(tmp_path)
    assert runs_in(tmp_path) == {"c", "b"}
    Recurrence(range(10, 15), 100, 1).remove_older(tmp_path)
    assert runs_in(tmp_path) == {"b"}
    assert len(list((tmp_path / "plugins" / "profile" / "b").iterdir())) == 2


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    record(tmp_path, "newest", started=9)
    record(tmp_path, "asked-for", started=1, is_recurring=False)
    record(tmp_path, "other-host", "elsewhere", started=2)
    record(tmp_path, "never-started", started=None)
    shared = record(tmp_path, "shared", started=3)
    record(tmp_path, "shared", "elsewhere", started=3)
    beside = record(tmp_path, "notes", started=4)
    (beside / "notes.txt").write_text("mine")
    (tmp_path / "plugins" / "profile" / "odd").mkdir()
    (tmp_path / "plugins" / "profile" / "odd" / "x.traceview.json").write_text("[")
    Recurrence(range(10, 15), 100, 1).remove_older(tmp_path)
    assert runs_in(tmp_path) == {
        *("newest", "asked-for", "other-host", "never-started", "shared", "notes", "odd")
    }
    assert sorted(path.name for path in shared.iterdir()) == [
        "elsewhere.traceview.json",
        "elsewhere.xplane.pb",
    ]
    assert [path.name for path in beside.iterdir()] == ["notes.txt"]
