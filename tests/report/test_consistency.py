"""A saved report whose parts contradict each other is refused by its place; any other one is shown."""

from __future__ import annotations

import copy
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.scenarios import SCENARIOS
from tests.reports import full_report
from traceview.document import terminal
from traceview.errors import TraceFormatError
from traceview.report.build import analyze
from traceview.report.consistency import first_disagreement
from traceview.report.document import document_of
from traceview.report.formats import DOCUMENTS, notebook
from traceview.report.saved import load_report, to_json

Place = tuple[str | int, ...]

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

CHANGES = 60
"""Reports of each kind, each changed at one place."""

_NUMBERS = (0, -1, 1, 10**6, (1 << 63) - 1, -(1 << 62))
_RATIOS = (0.0, -1.0, 1e308, 5e-324, 1.5)
_TEXTS = ("", "x", "GPU:99", "\x1b[31m|`")
_ANYTHING: tuple[Any, ...] = (None, 0, 1.5, "x", [], {}, True)


def in_file(data: Any, folder: Path) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def at(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data


def whole() -> Any:
    return json.loads(to_json(full_report()))


def twice(rows: list[Any]) -> None:
    rows.append(rows[0])


DISAGREEMENTS: dict[str, tuple[Place, Callable[[Any], object]]] = {
    "$.windows[0].end_ps: is before": (("windows", 0), lambda part: part.update(start_ps=10**17)),
    "$.results.device_time.devices[0]: compute, exposed": (
        ("results", "device_time", "devices", 0),
        lambda part: part.update(idle_ps=part["idle_ps"] + 1),
    ),
    "is there twice": (("results", "device_time", "devices"), twice),
    "$.results.steps.steps[0].devices[": (
        ("results", "steps", "steps", 0, "devices"),
        twice,
    ),
    "$.results.timeline.devices[1]: expected 240 slices": (
        ("results", "timeline", "devices", 1, "idle_ps"),
        lambda part: part.pop(),
    ),
    "$.results.timeline.devices[": (("results", "timeline", "devices"), twice),
    "$.results.idle.devices[0].causes: do not add up": (
        ("results", "idle", "devices", 0),
        lambda part: part.update(idle_ps=part["idle_ps"] + 1),
    ),
    "$.results.between_steps.hosts[0].count: is 0": (
        ("results", "between_steps", "hosts", 0),
        lambda part: part.update(count=0),
    ),
    "$.results.between_steps.hosts[0].parts_ps: do not": (
        ("results", "between_steps", "hosts", 0, "parts_ps"),
        lambda part: part.popitem(),
    ),
    "$.results.collectives.last_count: has other devices": (
        ("results", "collectives", "last_count"),
        lambda part: part.popitem(),
    ),
    "$.results.anatomy.devices[0]: activity and idle do not add up": (
        ("results", "anatomy", "devices", 0, "activity"),
        lambda part: part.update(d2h=1 + part.get("d2h", 0)),
    ),
    "$.results.anatomy.devices[0].step_ps: is not the mean": (
        ("results", "anatomy", "devices", 0),
        lambda part: (
            part.update(step_ps=part["step_ps"] + 1),
            part["activity"].update(d2h=1 + part["activity"].get("d2h", 0)),
        ),
    ),
    "$.results.anatomy.devices[0].activity: has other compute": (
        ("results", "anatomy", "devices", 0, "activity"),
        lambda part: part.update(compute=part["compute"] - 1, d2h=1 + part.get("d2h", 0)),
    ),
    "$.results.anatomy.devices[0].waits_for: is there without": (
        ("results", "anatomy", "devices", 0),
        lambda part: part.update(waits_for_ratio=None if part["waits_for_ratio"] else 1.0),
    ),
    "$.results.anatomy.devices[": (("results", "anatomy", "devices"), twice),
    "$.results.balance.devices[": (("results", "balance", "devices"), twice),
    "$.results.balance.gradients.is_single: is true": (
        ("results", "balance", "gradients"),
        lambda part: part.update(is_single=True),
    ),
    "$.results.lanes.devices[": (("results", "lanes", "devices"), twice),
    "$.results.lanes.devices[0].host: has no entry": (
        ("results", "lanes", "devices", 0),
        lambda part: part.update(host="another"),
    ),
    "$.results.lanes.hosts[0].end_ps: is before": (
        ("results", "lanes", "hosts", 0),
        lambda part: part.update(start_ps=10**17),
    ),
    "$.results.lanes.devices[0].lanes[0].classes: are not those of compute": (
        ("results", "lanes", "devices", 0, "lanes", 0),
        lambda part: part.update(classes=["input"]),
    ),
    "$.results.lanes.devices[0].lanes[0]: has columns of other lengths than length_ps": (
        ("results", "lanes", "devices", 0, "lanes", 0, "class"),
        lambda part: part.pop(),
    ),
    "$.results.lanes.devices[0].lanes[0]: has columns of other lengths than merged": (
        ("results", "lanes", "devices", 0, "lanes", 0, "merged_count"),
        lambda part: part.pop(),
    ),
    "$.results.lanes.devices[0].lanes[3]: has columns of other lengths than other_slice": (
        ("results", "lanes", "devices", 0, "lanes", 3, "other_ps"),
        lambda part: part.pop(),
    ),
    "$.results.lanes.devices[0].lanes[0]: has a class that": (
        ("results", "lanes", "devices", 0, "lanes", 0),
        lambda part: part["class"].__setitem__(0, 1),
    ),
    "$.results.lanes.devices[0].lanes[0].name: is not in names": (
        ("results", "lanes", "devices", 0, "lanes", 0, "name"),
        lambda part: part.__setitem__(0, 2),
    ),
    "$.results.lanes.devices[0].lanes[0]: refers to a slice": (
        ("results", "lanes", "devices", 0, "lanes", 0, "merged"),
        lambda part: part.__setitem__(0, 2),
    ),
    "$.results.lanes.hosts[0].lanes[1]: goes beyond the window": (
        ("results", "lanes", "hosts", 0, "lanes", 1, "before_ps"),
        lambda part: part.__setitem__(0, 1),
    ),
    "$.results.lanes.devices[0].lanes[0]: has a slice that is shorter": (
        ("results", "lanes", "devices", 0, "lanes", 0, "merged_hole_ps"),
        lambda part: part.__setitem__(0, 11 * 10**9),
    ),
    "$.results.steps.median_ps: expected `int` >= 0": (
        ("results", "steps"),
        lambda part: part.update(median_ps=-1),
    ),
    "$.results.device_time.devices[0].busy_ratio: expected `float` <= 1.0": (
        ("results", "device_time", "devices", 0),
        lambda part: part.update(busy_ratio=2),
    ),
}


@pytest.mark.parametrize("problem", DISAGREEMENTS)
def test_parts_that_do_not_fit_are_refused_by_their_place(problem: str, tmp_path: Path) -> None:
    data = whole()
    place, change = DISAGREEMENTS[problem]
    change(at(data, place))
    with pytest.raises(TraceFormatError) as caught:
        load_report(in_file(data, tmp_path))
    assert problem in caught.value.reason
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_what_traceview_makes_fits(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert first_disagreement(analyze(tmp_path, lanes=True)) is None


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_what_was_recorded_fits(name: str) -> None:
    assert first_disagreement(analyze(FIXTURES / name, lanes=True)) is None


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_traces_fit(name: str, shared_traces: Path) -> None:
    assert first_disagreement(analyze(shared_traces / name, lanes=True)) is None


def places(data: Any, place: Place = ()) -> Iterator[Place]:
    """Where every value stands, whole objects and lists too."""
    entries = data.items() if isinstance(data, dict) else ()
    for key, part in enumerate(data) if isinstance(data, list) else entries:
        yield (*place, key)
        yield from places(part, (*place, key))


def other_value(value: Any, chance: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((*_NUMBERS, value * 1000, -value, value + 1))
    if isinstance(value, float):
        return chance.choice((*_RATIOS, -value, value * 10))
    if isinstance(value, str):
        return chance.choice(_TEXTS)
    if isinstance(value, list):
        return chance.choice(([], value + value, value[:1], value[::-1], [*value, None]))
    if isinstance(value, dict):
        kept = dict(list(value.items())[:1])
        return chance.choice(({}, kept, {**value, "other": next(iter(value.values()), 1)}))
    return chance.choice(_ANYTHING)


def change_one(data: Any, place: Place, chance: random.Random) -> None:
    parent, key = at(data, place[:-1]), place[-1]
    way = chance.random()
    if way < 0.2:
        del parent[key]
    elif way < 0.4:
        parent[key] = chance.choice(_ANYTHING)
    else:
        parent[key] = other_value(parent[key], chance)


def show_changed(data: Any, seed: int, count: int, folder: Path) -> int:
    """Change the report at a place `count` times over, anew each time; how many of them could be shown."""
    chance = random.Random(seed)
    # Each key as often as any other, however many rows have it.
    of_key: dict[Place, list[Place]] = defaultdict(list)
    for place in places(data):
        of_key[tuple("*" if isinstance(key, int) else key for key in place)].append(place)
    groups = list(of_key.values())
    shown = 0
    for _ in range(count):
        changed = copy.deepcopy(data)
        place = chance.choice(chance.choice(groups))
        change_one(changed, place, chance)
        try:
            report = load_report(in_file(changed, folder))
        except TraceFormatError:
            continue
        try:
            terminal.render(document_of(report), width=100, color=False)
            notebook(report)
            for document in DOCUMENTS:
                document.render(report)
        except Exception as error:
            raise AssertionError(f"{place}: {at(changed, place[:-1])!r:.300}") from error
        shown += 1
    return shown


@pytest.mark.parametrize("name", ["hand-made", "collectives_of_two_hosts", "G"])
def test_a_report_changed_at_random_is_shown_or_refused(name: str, tmp_path: Path) -> None:
    data = whole()
    if name in SCENARIOS:
        SCENARIOS[name]().write(tmp_path)
        data = json.loads(to_json(analyze(tmp_path, lanes=True)))
    shown = show_changed(data, 20261121, CHANGES, tmp_path)
    assert 0.2 * CHANGES < shown < 0.9 * CHANGES
