"""Reads which devices an instruction of an XLA program exchanges data among, and how much.

An instruction names them by their numbers in the program: as a list, as a reshaped and transposed count, or as the axes of a
mesh. With several replicas and several partitions the number is `replica * partitions + partition`; the program says which
device that is. Sources: openxla/xla `xla/service/hlo.proto` (fields 49, 52, 71, 87, 92, 93 of an instruction, 15 of a
module), `xla/xla_data.proto`, `xla/hlo/ir/collective_device_list.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.xplane.columns import Buffer
from traceview.xplane.decode_reference import Field, read_fields, read_varint
from traceview.xplane.space import Groups

GROUPS: Final = 49
PAIRS: Final = 52
DEVICE_LIST: Final = 87
COUNTED: Final = 92
MESH_AXES: Final = 93
DEVICES_FIELDS: Final = frozenset((GROUPS, PAIRS, DEVICE_LIST, COUNTED, MESH_AXES))
"""Fields of an instruction that say which devices take part."""

LIST_GROUPS, LIST_COUNTED = 1, 2
GROUP_IDS: Final = 1
PAIR_SOURCE, PAIR_TARGET = 1, 2
COUNTED_GROUPS, COUNTED_DEVICES, COUNTED_SHAPE, COUNTED_ORDER = 1, 2, 3, 4
AXES_MESH, AXES_AXES = 1, 2
MESH_AXES_OF, MESH_DEVICES, AXIS_SIZE = 1, 2, 2
AXIS_INDEX, AXIS_PART = 1, 2
ASSIGNED_REPLICAS, ASSIGNED_PARTITIONS, ASSIGNED, ASSIGNED_DEVICES = 1, 2, 3, 1

COLLECTIVES: Final = frozenset(
    name + start
    for name in (
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
        "collective-broadcast",
    )
    for start in ("", "-start")
)  # fmt: skip

_VARINT, _CONTENT = 0, 2
_MOST_DEVICES: Final = 1 << 20
_MOST_AXES: Final = 32


class Assignment(Struct, frozen=True):
    """The devices of a program by partition and replica, none where it does not say them."""

    replicas: int = 1
    partitions: int = 1
    devices: tuple[tuple[int, ...], ...] = ()

    def device(self, number: int) -> int:
        """The device that has a number in the program."""
        replica, partition = divmod(number, max(self.partitions, 1))
        try:
            return self.devices[partition][replica]
        except IndexError:
            return number


def read_assignment(data: Buffer, begin: int, end: int) -> Assignment:
    """The device of each replica and partition."""
    replicas = partitions = 1
    devices = []
    for field in read_fields(data, begin, end):
        if field.number == ASSIGNED_REPLICAS:
            replicas = field.value
        elif field.number == ASSIGNED_PARTITIONS:
            partitions = field.value
        elif field.number == ASSIGNED and field.wire_type == _CONTENT:
            devices.append(tuple(_inner_ids(data, field, ASSIGNED_DEVICES)))
    return Assignment(replicas, partitions, tuple(devices))


def read_groups(
    data: Buffer, fields: Iterable[Field], assignment: Assignment, *, is_global: bool
) -> Groups:
    """The devices that exchange with each other, by the fields of an instruction; none where that is not known.

    `is_global`: the numbers are of replicas and partitions together.
    """
    if not is_global and assignment.replicas > 1 and assignment.partitions > 1:
        return ()
    groups: list[tuple[int, ...]] = []
    pairs = []
    for field in fields:
        if field.number == GROUPS:
            groups.append(tuple(_inner_ids(data, field, GROUP_IDS)))
        elif field.number == PAIRS:
            pairs.append(_pair(data, field))
        elif field.number == DEVICE_LIST:
            for inner in _contents(data, field):
                if inner.number == LIST_GROUPS:
                    groups.append(tuple(_inner_ids(data, inner, GROUP_IDS)))
                elif inner.number == LIST_COUNTED:
                    groups += _counted(data, inner)
        elif field.number == COUNTED:
            groups += _counted(data, field)
        elif field.number == MESH_AXES:
            groups += _along_axes(data, field)
    groups += _joined(pairs)
    return tuple(tuple(map(assignment.device, group)) for group in groups if group)


def _counted(data: Buffer, field: Field) -> Sequence[tuple[int, ...]]:
    """All numbers in order, reshaped, transposed, and divided into groups."""
    count, each = (
        next(_inner_ids(data, field, number), 0) for number in (COUNTED_GROUPS, COUNTED_DEVICES)
    )
    if not 0 < count * each <= _MOST_DEVICES:
        return ()
    shape, order = (
        list(islice(_inner_ids(data, field, number), _MOST_AXES + 1))
        for number in (COUNTED_SHAPE, COUNTED_ORDER)
    )
    shape = shape or [count * each]
    return _divided(list(range(count * each)), shape, order or list(range(len(shape))), each)


def _along_axes(data: Buffer, field: Field) -> Sequence[tuple[int, ...]]:
    """The devices of a mesh that differ in the place on some axes only."""
    sizes: list[int] = []
    devices: list[int] = []
    chosen: list[int] = []
    for inner in _contents(data, field):
        if inner.number == AXES_MESH:
            devices += _inner_ids(data, inner, MESH_DEVICES)
            axes = (axis for axis in _contents(data, inner) if axis.number == MESH_AXES_OF)
            sizes += [next(_inner_ids(data, axis, AXIS_SIZE), 1) for axis in axes]
        elif inner.number == AXES_AXES:
            if any(part.number == AXIS_PART for part in _contents(data, inner)):
                return ()
            chosen.append(next(_inner_ids(data, inner, AXIS_INDEX), 0))
    if not all(0 <= axis < len(sizes) for axis in chosen):
        return ()
    if len(sizes) > _MOST_AXES or not 0 < prod(sizes) <= _MOST_DEVICES:
        return ()
    rest = [axis for axis in range(len(sizes)) if axis not in chosen]
    each = prod(sizes[axis] for axis in chosen)
    return _divided(devices or list(range(prod(sizes))), sizes, rest + chosen, each)


def _divided(
    numbers: Sequence[int], shape: list[int], order: list[int], each: int
) -> Sequence[tuple[int, ...]]:
    """Numbers of this shape, with their axes in this order, in groups of `each`; none where these do not fit."""
    is_shape = 0 < len(shape) <= _MOST_AXES and sorted(order) == list(range(len(shape)))
    if not is_shape or prod(shape) != len(numbers) or each < 1 or len(numbers) % each:
        return ()
    place = np.arange(len(numbers)).reshape(shape).transpose(order).reshape(-1, each)
    return [tuple(numbers[at] for at in group) for group in place.tolist()]


def _pair(data: Buffer, field: Field) -> tuple[int, int]:
    numbers = {each.number: each.value for each in read_fields(data, field.begin, field.end)}
    return numbers.get(PAIR_SOURCE, 0), numbers.get(PAIR_TARGET, 0)


def _joined(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The numbers that pairs connect."""
    group_of: dict[int, set[int]] = {}
    for pair in pairs:
        first, second = (group_of.setdefault(number, {number}) for number in pair)
        if first is not second:
            small, large = sorted((first, second), key=len)
            large |= small
            group_of.update(dict.fromkeys(small, large))
    return [
        tuple(sorted(group)) for group in {id(each): each for each in group_of.values()}.values()
    ]


def _contents(data: Buffer, field: Field) -> Iterator[Field]:
    if field.wire_type == _CONTENT:
        for inner in read_fields(data, field.begin, field.end):
            if inner.wire_type == _CONTENT:
                yield inner


def _inner_ids(data: Buffer, field: Field, number: int) -> Iterator[int]:
    """The whole numbers of one field of a message, packed or one by one."""
    if field.wire_type == _CONTENT:
        for inner in read_fields(data, field.begin, field.end):
            if inner.number == number:
                yield from read_ids(data, inner)


def read_ids(data: Buffer, field: Field) -> Iterator[int]:
    """Numbers that are packed into one field, or the one that it holds."""
    if field.wire_type == _CONTENT:
        at = field.begin
        while at < field.end:
            value, at = read_varint(data, at, field.end)
            yield value
    elif field.wire_type == _VARINT:
        yield field.value
