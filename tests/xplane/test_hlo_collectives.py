"""Which devices exchange what, in every way in which programs write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.xplane.hlo_messages import ModuleWriter
from tests.xplane.test_hlo import read
from traceview.xplane.columns import Exchange

PAIRS = ((0, 1), (2, 3))
ACROSS = ((0, 2), (1, 3))


def _groups(message: Any) -> None:
    for group in PAIRS:
        message.replica_groups.add(replica_ids=group)


def _counted(counted: Any, *, transposed: bool) -> None:
    counted.num_replica_groups = counted.num_devices_per_group = 2
    counted.iota_reshape_dims.extend((2, 2))
    counted.iota_transpose_perm.extend((1, 0) if transposed else (0, 1))


def _mesh(message: Any, axis: int) -> None:
    of = message.mesh_axes_replica_group_list
    for size in (2, 2):
        of.mesh.axes.add(name=b"x", size=size)
    of.axes.add(mesh_axis_index=axis)


def _ring(message: Any) -> None:
    for source, target in ((0, 1), (1, 0), (3, 2), (2, 3)):
        message.source_target_pairs.add(source=source, target=target)


def exchange_of(
    write: Callable[[Any], object], opcode: str = "all-reduce", devices: Any = ()
) -> Exchange:
    """Of a collective of 3 × 4 numbers of 4 bytes among partitions."""
    module = ModuleWriter()
    given = module.add("dot", "dot", scope="jit(f)/transpose(jvp(dense))/dot", shape=(3, 4))
    loss = module.add("loss", "reduce", scope="jit(f)/jvp()/sum")
    module.add("exchange", opcode, given, loss)
    write(module.last())
    if len(devices):
        assignment = module.message.device_assignment
        assignment.replica_count, assignment.computation_count = np.shape(devices)[::-1]
        for replicas in devices:
            assignment.computation_devices.add(replica_device_ids=replicas)
    found = read(module.message)["exchange"].exchange
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("write", "groups"),
    [
        (_groups, PAIRS),
        (lambda message: _groups(message.collective_device_list), PAIRS),
        (
            lambda message: _counted(
                message.collective_device_list.iota_replica_group_list, transposed=False
            ),
            PAIRS,
        ),
        (lambda message: _counted(message.iota_collective_device_list, transposed=True), ACROSS),
        (lambda message: _mesh(message, 1), PAIRS),
        (lambda message: _mesh(message, 0), ACROSS),
        (_ring, PAIRS),
        (lambda message: message.mesh_axes_replica_group_list.axes.add(mesh_axis_index=9), ()),
        (lambda message: None, ()),
    ],
)
def test_groups(write: Callable[[Any], object], groups: tuple[tuple[int, ...], ...]) -> None:
    exchange = exchange_of(write)
    assert sorted(exchange.groups) == sorted(groups)
    assert exchange.bytes == 3 * 4 * 4 + 4


@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 40), (0, 5), (3, 2), (-1, -4)])
def test_counts_that_do_not_fit_are_no_groups(sizes: tuple[int, int]) -> None:
    def write(message: Any) -> None:
        counted = message.iota_collective_device_list
        counted.num_replica_groups, counted.num_devices_per_group = sizes
        counted.iota_reshape_dims.extend((2, 2))

    assert exchange_of(write).groups == ()


def test_a_program_says_which_device_a_partition_is() -> None:
    assert exchange_of(_groups, devices=[[6], [4], [7], [5]]).groups == ((6, 4), (7, 5))


def test_replicas_and_partitions_are_numbered_together_only_where_it_is_said() -> None:
    """Two replicas of two partitions: number 1 is replica 0 of partition 1."""
    devices = [[0, 2], [1, 3]]
    assert exchange_of(_groups, devices=devices).groups == ()

    def write(message: Any) -> None:
        _groups(message)
        message.use_global_device_ids = True

    assert exchange_of(write, devices=devices).groups == ((0, 1), (2, 3))


def test_an_asynchronous_one_is_what_it_calls() -> None:
    module = ModuleWriter()
    inner = module.add("p", "parameter", computation=2, shape=(8,))
    module.add("scatter", "reduce-scatter", inner, computation=2)
    _groups(module.last(2))
    whole = module.add("mul", "multiply")
    module.add("reduce-scatter-start", "async-start", whole, calls=(2,))
    found = read(module.message)["reduce-scatter-start"].exchange
    assert found == Exchange(4, PAIRS)


def test_a_permutation_says_who_gives_to_whom() -> None:
    """In numbers of the devices, where these are known."""
    ring = ((0, 1), (1, 0), (3, 2), (2, 3))
    assert exchange_of(_ring, "collective-permute").pairs == ring
    assert exchange_of(_groups).pairs == ()
    divided = exchange_of(_ring, "collective-permute", [[6], [4], [7], [5]])
    assert divided.pairs == ((6, 4), (4, 6), (5, 7), (7, 5))
    assert exchange_of(_ring, "collective-permute", [[0, 2], [1, 3]]).pairs == ()
