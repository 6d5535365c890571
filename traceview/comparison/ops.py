"""Compares ops and kernels: those of the same op, without its replica, the same kernel, without types, and class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.op_steps import OpInSteps, OpSteps
from traceview.comparison.difference import (
    Difference,
    Level,
    RunSpread,
    level_of,
    most_chance,
    part_difference,
)
from traceview.comparison.model import OpDifference, interval_ps
from traceview.report.model import Report

Status = Literal["slower", "faster", "new", "gone", "reshaped", "same"]


class _Key(NamedTuple):
    """What makes ops of two runs the same."""

    class_: str
    op: str | None
    kernel: str | None


class _Op(Struct, frozen=True):
    """An op of one side; of a capture in which it does not run it is 0.

    `levels`: its time per step and device, by capture. `calls`: events per step and device; `path_ps`: per step. `shapes`: of
    its inputs.
    """

    levels: tuple[Level, ...] = ()
    calls: float = 0.0
    path_ps: float = 0.0
    shapes: tuple[str, ...] = ()

    @property
    def ps(self) -> float:
        """Time per step and device."""
        levels = self.levels
        return sum(level.value for level in levels) / len(levels) if levels else 0.0


_SURE: Final = 1000.0
"""Degrees of freedom of what is no estimate."""


def op_differences(
    before: Sequence[Report],
    after: Sequence[Report],
    step_difference_ps: int,
    spread: RunSpread | None,
) -> tuple[OpDifference, ...]:
    """All ops of both sides, the largest difference on the path first; empty where a side does not have them.

    `step_difference_ps`: what shares are of; 0 where the steps are not shown to differ.
    An op that a side does not list is new or gone if it is longer than what that side leaves out, beyond noise.
    """
    tables = [[report.results.op_steps for report in side] for side in (before, after)]
    old_tables, new_tables = ([table for table in side if table is not None] for side in tables)
    if len(old_tables) < len(before) or len(new_tables) < len(after):
        return ()
    old, new = _by_key(old_tables), _by_key(new_tables)
    if not old or not new:
        return ()
    rows = []
    for key, before_key in _pairs(old, new):
        first, second = old.get(before_key or key), new.get(key)
        left_out_ps = 0
        if first is None or second is None:
            left_out_ps = _longest_left_out(old_tables if first is None else new_tables)
        unlisted = _unlisted(left_out_ps)
        levels = (first or unlisted).levels, (second or unlisted).levels
        noise = part_difference(levels[0], levels[1], spread) if all(levels) else Difference(0.0)
        kernel = before_key.kernel if before_key else None
        row = _difference(key, kernel, first, second, left_out_ps, step_difference_ps, noise)
        rows.append((row, noise))
    shown = most_chance(noise for _, noise in rows)
    judged = [_judged(row, noise, shown) for row, noise in rows]
    return tuple(sorted(judged, key=lambda row: (-abs(row.path_ps), -abs(row.difference_ps))))


def _unlisted(left_out_ps: int) -> _Op:
    """An op that a side does not list: it runs there as long as the longest that is left out, at most."""
    return _Op((Level(float(left_out_ps), 0.0, _SURE),) if left_out_ps else ())


def _judged(row: OpDifference, noise: Difference, shown: float) -> OpDifference:
    """With how it changed, as far as that is shown among all."""
    if row.status == "reshaped":
        return row
    is_listed = row.status == "same"
    if not is_listed and not row.left_out_ps:
        return row
    if noise.chance is not None and noise.chance > shown:
        return replace(row, status="same")
    if not is_listed:
        is_longer = max(row.before_ps, row.after_ps) > row.left_out_ps
        return row if is_longer else replace(row, status="same")
    if noise.chance is None:
        return row
    return replace(row, status="slower" if row.difference_ps > 0 else "faster")


def _longest_left_out(tables: Iterable[OpSteps]) -> int:
    return max((table.left_out_ps_per_step for table in tables), default=0)


def _by_key(tables: Sequence[OpSteps]) -> dict[_Key, _Op]:
    rows: dict[_Key, list[tuple[OpSteps, OpInSteps]]] = {}
    for table in tables:
        for row in table.rows:
            rows.setdefault(_Key(row.class_, row.op, row.kernel), []).append((table, row))
    return {
        key: _Op(
            levels=tuple(_level(table, row) for table, row in of_key),
            calls=sum(row.count / _device_steps(table, row) for table, row in of_key) / len(tables),
            path_ps=sum(row.path_ps / max(table.walked_count, 1) for table, row in of_key)
            / len(tables),
            shapes=tuple(sorted({shape for _, row in of_key for shape in row.shapes})),
        )
        for key, of_key in rows.items()
    }


def _device_steps(table: OpSteps, row: OpInSteps) -> int:
    return max(row.device_count, 1) * max(table.step_count, 1)


def _level(table: OpSteps, row: OpInSteps) -> Level:
    devices = max(row.device_count, 1)
    error = None if row.error_ps is None else row.error_ps / devices
    return level_of(row.ps_per_step / devices, error, row.error_degrees, table.step_count)


def _pairs(old: dict[_Key, _Op], new: dict[_Key, _Op]) -> Iterable[tuple[_Key, _Key | None]]:
    """The key after, and the key before where that has another kernel.

    An op with one kernel on each side is the same op, whichever kernel the library chose for it.
    """
    gone = _only_kernels(key for key in old if key not in new)
    came = _only_kernels(key for key in new if key not in old)
    replaced = {came[op]: gone[op] for op in came if op in gone}
    for key in new:
        yield key, replaced.get(key)
    for key in old:
        if key not in new and key not in replaced.values():
            yield key, None


def _only_kernels(keys: Iterable[_Key]) -> dict[tuple[str, str], _Key]:
    """By class and op the key, where the op has one kernel alone."""
    kernels: dict[tuple[str, str], list[_Key]] = {}
    for key in keys:
        if key.op is not None and key.kernel is not None:
            kernels.setdefault((key.class_, key.op), []).append(key)
    return {op: of_op[0] for op, of_op in kernels.items() if len(of_op) == 1}


def _difference(
    key: _Key,
    before_kernel: str | None,
    old: _Op | None,
    new: _Op | None,
    left_out_ps: int,
    step_difference_ps: int,
    noise: Difference,
) -> OpDifference:
    status: Status = "new" if old is None else "gone" if new is None else "same"
    first, second = old or _Op(), new or _Op()
    if first.shapes and second.shapes and first.shapes != second.shapes:
        status = "reshaped"
    low, high = interval_ps(noise) if status in ("same", "reshaped") else (None, None)
    path_ps = round(second.path_ps - first.path_ps)
    return OpDifference(
        class_=key.class_,
        op=key.op,
        kernel=key.kernel,
        before_kernel=before_kernel,
        status=status,
        before_ps=round(first.ps),
        after_ps=round(second.ps),
        before_calls=round(first.calls, 3),
        after_calls=round(second.calls, 3),
        difference_ps=round(second.ps) - round(first.ps),
        low_ps=low,
        high_ps=high,
        left_out_ps=left_out_ps,
        path_ps=path_ps,
        share_ratio=path_ps / step_difference_ps if step_difference_ps else None,
        before_shapes=first.shapes,
        after_shapes=second.shapes,
    )
