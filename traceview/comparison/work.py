"""Compares the time of ops, and of the compute of layers and functions of Python, between two sides.

XLA names instructions anew with each change of a program: those of one kind that one function made are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from math import fsum
from statistics import fmean
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import asdict

from traceview.analysis.gpu_time.op_steps import OpInSteps, OpSteps, PartInSteps
from traceview.base.text import lazy_pattern
from traceview.comparison.model import OpDifference, WorkDifference
from traceview.comparison.noise import Difference, Level, RunSpread, most_chance, part_difference
from traceview.report.model import Report

_Name: TypeAlias = tuple[str, ...]
"""What tells work apart, last its function and its layer; numbers in names and layers may be others."""

Row = TypeVar("Row", OpInSteps, PartInSteps)


class _Work(NamedTuple, Generic[Row]):
    """What one name stands for on one side.

    `longest`: the row that takes longest. `levels`: time per step and device, by capture; what a side does not have is 0,
    with the degrees of freedom of what is no estimate. `calls`: events per step and device; `path_ps`: per step.
    """

    longest: Row
    levels: tuple[Level, ...] = (Level(0.0, 0.0, 1000.0),)
    calls: float = 0.0
    path_ps: float = 0.0

    @property
    def ps(self) -> float:
        """Time per step and device."""
        return fmean(level.value for level in self.levels)


def op_differences(
    before: Sequence[Report], after: Sequence[Report], spread: RunSpread
) -> tuple[OpDifference, ...]:
    """All ops of both sides, the largest difference first; empty where a side does not have them.

    An op that a side does not list may have run there as long as the longest that it leaves out: a shorter one is no
    difference.
    """
    maker = _maker([*before, *after])

    def named(row: OpInSteps) -> _Name:
        return row.class_, _own_name(row), *maker(row)

    made = _differences(
        before, after, spread, named, lambda table: (table.rows, table.left_out_ps_per_step)
    )
    return tuple(
        OpDifference(
            **asdict(work),
            class_=class_,
            op=None if name == row.kernel else name or None,
            kernel=row.kernel,
        )
        for (class_, name, *_), row, work in made
    )


def part_differences(
    before: Sequence[Report], after: Sequence[Report], spread: RunSpread
) -> tuple[WorkDifference, ...]:
    """The compute of all functions and layers, as ops are compared.

    Lines move with every change of a script: those of one function are one.
    """
    maker = _maker([*before, *after])
    made = _differences(
        before, after, spread, maker, lambda table: (table.parts, table.left_out_part_ps_per_step)
    )
    return tuple(work for *_, work in made)


def _maker(reports: Sequence[Report]) -> Callable[[OpInSteps | PartInSteps], _Name]:
    """Gives the function and the layer that made work, "" for what does not tell it from other work."""
    parts = [part for table in _tables(reports) for part in table.parts]
    functions_of = Counter(
        layer for layer, function in {(part.layer, _function(part)) for part in parts} if function
    )
    # Work of a model that several functions apply is named by the function.
    whole = {_function(part) for part in parts if part.layer and functions_of[part.layer] > 1}

    def maker(row: OpInSteps | PartInSteps) -> _Name:
        function = _function(row)
        return function, "" if function in whole else row.layer or ""

    return maker


_NUMBER_OF_XLA: Final = lazy_pattern(r"(?:\.(?:\d{1,9}|clone|remat\d?)){1,4}$")


def _own_name(row: OpInSteps) -> str:
    """The name of an op, else its kernel; of an instruction of XLA without its number."""
    is_instruction = row.op and not row.op_type and "/" not in row.op
    name = row.op or row.kernel or ""
    return _NUMBER_OF_XLA.sub("", name) if is_instruction else name


_NUMBER_OF_LINE: Final = lazy_pattern(r":\d+(?= in [^<])")


def _function(row: OpInSteps | PartInSteps) -> str:
    """The function, whatever line of it; the line where it has no name, "" where none was recorded."""
    return _NUMBER_OF_LINE.sub("", row.source_line or "")


def _differences(
    before: Sequence[Report],
    after: Sequence[Report],
    spread: RunSpread,
    named: Callable[[Row], _Name],
    rows_of: Callable[[OpSteps], tuple[Sequence[Row], int]],
) -> list[tuple[_Name, Row, WorkDifference]]:
    tables = [_tables(side) for side in (before, after)]
    old, new = (_by_name([(table, rows_of(table)[0]) for table in side], named) for side in tables)
    if not old or not new:
        return []
    renamed = _renumbered(old.keys(), new.keys())
    old = {renamed[name]: work for name, work in old.items()}
    left_out_ps = [max(rows_of(table)[1] for table in side) for side in tables]
    pairs = []
    for name in {**new, **old}:
        # What became less is looked for where it was.
        longest = max((of[name] for of in (new, old) if name in of), key=lambda work: work.ps)
        first, second = (of.get(name) or _Work(longest.longest) for of in (old, new))
        is_both = name in old and name in new
        if is_both or longest.ps > left_out_ps[name in old]:
            noise = part_difference(first.levels, second.levels, spread)
            # Of ops that replicas run beside each other one takes the time, in other steps another.
            calls = sorted(
                (first.calls if name in old else 1.0, second.calls if name in new else 1.0)
            )
            if spread.is_of_replicas and calls[0] != calls[1] and calls[0] < 1:
                noise = Difference(noise.value)
            pairs.append((name, longest.longest, first, second, noise))
    shown = most_chance(noise for *_, noise in pairs)
    rows = []
    for name, row, first, second, noise in pairs:
        status: Literal["slower", "faster", "new", "gone", "same"] = "same"
        if name not in old or name not in new:
            status = "new" if name in new else "gone"
        elif (noise.chance or 0.0) <= shown and noise.direction in ("slower", "faster"):
            status = "slower" if noise.direction == "slower" else "faster"
        work = WorkDifference(
            status=status,
            before_ps=round(first.ps),
            after_ps=round(second.ps),
            before_calls=first.calls,
            after_calls=second.calls,
            difference_ps=round(second.ps) - round(first.ps),
            path_ps=round(second.path_ps - first.path_ps),
            layer=row.layer if name[-1] else None,
            source_line=row.source_line,
        )
        rows.append((name, row, work))
    return sorted(rows, key=lambda row: (-abs(row[2].difference_ps), -abs(row[2].path_ps)))


_NUMBER: Final = lazy_pattern(r"_(\d+)(?=_|$)")


def _renumbered(old: Set[_Name], new: Set[_Name]) -> dict[_Name, _Name]:
    """The names of one side as the other has them, where parts of their paths differ in numbers alone, such as Keras gives
    to layers: in the order of these numbers, and only where as many have come as have gone.
    """
    sides = [
        {part for *texts, _, layer in names for text in (*texts, layer) for part in text.split("/")}
        for names in (old, new)
    ]
    kinds: dict[str, tuple[list[str], list[str]]] = {}
    for place, (own, other) in enumerate((sides, sides[::-1])):
        for part in sorted(own - other, key=_in_order):
            kinds.setdefault(_NUMBER.sub("", part), ([], []))[place].append(part)
    pairs = (zip(*both, strict=True) for both in kinds.values() if len(both[0]) == len(both[1]))
    now = dict(chain.from_iterable(pairs))

    def renamed(text: str) -> str:
        return "/".join(now.get(part, part) for part in text.split("/"))

    return {
        (*texts, function, layer): (*map(renamed, texts), function, renamed(layer))
        for *texts, function, layer in old
    }


def _in_order(part: str) -> tuple[list[tuple[int, str]], str]:
    return [(len(number), number) for number in _NUMBER.findall(part)], part


def _tables(side: Sequence[Report]) -> list[OpSteps]:
    tables = [table for report in side if (table := report.results.op_steps)]
    return tables if len(tables) == len(side) else []


def _by_name(
    tables: Sequence[tuple[OpSteps, Sequence[Row]]], named: Callable[[Row], _Name]
) -> dict[_Name, _Work[Row]]:
    captures: dict[_Name, dict[int, list[Row]]] = {}
    for place, (_, rows) in enumerate(tables):
        renamed = _renumbered(set(map(named, rows)), captures.keys())
        for row in rows:
            captures.setdefault(renamed[named(row)], {}).setdefault(place, []).append(row)
    of_table = [table for table, _ in tables]
    return {name: _work(of_table, of_name) for name, of_name in captures.items()}


def _work(tables: Sequence[OpSteps], captures: Mapping[int, Sequence[Row]]) -> _Work[Row]:
    of_all = [(tables[place], row) for place, rows in captures.items() for row in rows]
    calls = (
        row.count / (max(row.device_count, 1) * max(table.step_count, 1)) for table, row in of_all
    )
    path_ps = (row.path_ps / max(table.walked_count, 1) for table, row in of_all)
    return _Work(
        longest=max((row for _, row in of_all), key=lambda row: row.ps_per_step),
        levels=tuple(map(_level, captures.values())),
        calls=round(fsum(calls) / len(tables), 3),
        path_ps=fsum(path_ps) / len(tables),
    )


def _level(rows: Sequence[OpInSteps] | Sequence[PartInSteps]) -> Level:
    """The time per step and device in one capture of all rows of a name together."""
    value = fsum(row.ps_per_step / max(row.device_count, 1) for row in rows)
    errors = [
        (row.error_ps / max(row.device_count, 1), row.error_degrees)
        for row in rows
        if row.error_ps is not None and row.error_degrees is not None
    ]
    if len(errors) < len(rows):
        return Level(value)
    return Level(value, fsum(error**2 for error, _ in errors), min(free for _, free in errors))
