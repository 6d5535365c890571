"""Reads which devices an instruction of an XLA program exchanges data among, and how much.

An instruction names them by their numbers in the program: as a list, as a reshaped and transposed count, or as the axes of a
mesh. With several replicas and several partitions the number is `replica * partitions + partition`; the program says which
device that is. Sources: openxla/xla `xla/service/hlo.proto` (fields 49, 52, 71, 87, 92, 93 of an instruction, 15 of a
module), `xla/xla_data.proto`, `xla/hlo/ir/collective_device_list.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.xplane.columns import Groups
from traceview.xplane.message import Message

GROUPS: Final = 49
PAIRS: Final = 52
DEVICE_LIST: Final = 87
COUNTED: Final = 92
MESH_AXES: Final = 93
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


def read_assignment(of: Message) -> Assignment:
    """The device of each replica and partition."""
    return Assignment(
        of.number(ASSIGNED_REPLICAS, 1),
        of.number(ASSIGNED_PARTITIONS, 1),
        tuple(tuple(each.numbers(ASSIGNED_DEVICES)) for each in of.messages(ASSIGNED)),
    )


def read_groups(instruction: Message, assignment: Assignment, *, is_global: bool) -> Groups:
    """The devices that exchange with each other in an instruction; none where that is not known.

    `is_global`: the numbers are of replicas and partitions together.
    """
    if not is_global and assignment.replicas > 1 and assignment.partitions > 1:
        return ()
    groups: list[Sequence[int]] = [of.numbers(GROUP_IDS) for of in instruction.messages(GROUPS)]
    for listed in instruction.messages(DEVICE_LIST):
        groups += [of.numbers(GROUP_IDS) for of in listed.messages(LIST_GROUPS)]
        groups += [group for of in listed.messages(LIST_COUNTED) for group in _counted(of)]
    groups += [group for of in instruction.messages(COUNTED) for group in _counted(of)]
    groups += [group for of in instruction.messages(MESH_AXES) for group in _along_axes(of)]
    pairs = instruction.messages(PAIRS)
    groups += _joined((of.number(PAIR_SOURCE), of.number(PAIR_TARGET)) for of in pairs)
    return tuple(tuple(map(assignment.device, group)) for group in groups if group)


def _counted(of: Message) -> Sequence[Sequence[int]]:
    """All numbers in order, reshaped, transposed, and divided into groups."""
    count, each = of.number(COUNTED_GROUPS), of.number(COUNTED_DEVICES)
    if not 0 < count * each <= _MOST_DEVICES:
        return ()
    shape, order = (of.numbers(field, _MOST_AXES + 1) for field in (COUNTED_SHAPE, COUNTED_ORDER))
    shape = shape or [count * each]
    return _divided(list(range(count * each)), shape, order or list(range(len(shape))), each)


def _along_axes(of: Message) -> Sequence[Sequence[int]]:
    """The devices of a mesh that differ in the place on some axes only."""
    mesh, axes = list(of.messages(AXES_MESH)), list(of.messages(AXES_AXES))
    sizes = [axis.number(AXIS_SIZE, 1) for each in mesh for axis in each.messages(MESH_AXES_OF)]
    devices = [device for each in mesh for device in each.numbers(MESH_DEVICES)]
    chosen = [axis.number(AXIS_INDEX) for axis in axes]
    if any(AXIS_PART in axis for axis in axes) or not all(
        0 <= axis < len(sizes) for axis in chosen
    ):
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
