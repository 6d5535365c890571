"""The events of a collective are matched on every device, whatever is cut, with the host's details."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.cuda_trace import NCCL_NAME, PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.trace.recordings import loaded
from traceview.trace.strategy.collectives import collective_kind, collectives_of


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("missing", [[0], [0, 1, 2], [11], [9, 10, 11], [0, 1, 11]])
def test_cut_at_either_end(tmp_path: Path, missing: list[int], marked: bool) -> None:
    """Three collectives a step of unlike lengths; without markers their ends alone tell which is which."""
    trace = new_trace()
    steps = marked_steps(trace)
    if not marked:
        trace.host_plane.lines.clear()
    for index, step in enumerate(steps):
        for place, length_ms in enumerate((1, 2, 3)):
            for ordinal in range(2):
                if ordinal and 3 * index + place in missing:
                    continue
                end_ms = 10 + 10 * place + length_ms + 0.01 * ordinal
                step.trace.kernel(
                    ordinal, step.at(10 + 10 * place), step.at(end_ms), name=NCCL_NAME, op=None
                )
    found = collectives_of(loaded(tmp_path, trace))
    assert found.count == 12
    assert np.flatnonzero(~found.is_complete).tolist() == missing
    whole = found.is_complete[found.collective]
    assert found.wait_ps[whole & (found.device == 0)].tolist() == [0] * (12 - len(missing))
    assert set(found.wait_ps[whole & (found.device == 1)].tolist()) == {ms(0.01)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "ALL_REDUCE"),
        (b"ncclDevKernel_AllGather_RING_LL(x)", "ALL_GATHER"),
        (b"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "REDUCE_SCATTER"),
        (b"ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", "BROADCAST"),
        (b"ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "REDUCE"),
        (b"ncclDevKernel_SendRecv(x)", "SEND_RECV"),
        (b"rcclGenericKernel<1>(x)", "UNKNOWN"),
        (b"adam/CollectiveReduceV2_3:CollectiveReduceV2", "ALL_REDUCE"),
        (b"adam/CollectiveGatherV2:CollectiveGatherV2", "ALL_GATHER"),
        (b"all-to-all.3", "ALL_TO_ALL"),
        (b"collective-permute.1", "SEND_RECV"),
    ],
)
def test_kinds(name: bytes, kind: str) -> None:
    assert collective_kind(name).name == kind


def test_steps_count_for_more_than_the_clocks_of_two_hosts(tmp_path: Path) -> None:
    """Host 1, whose clock is one collective ahead, missed the first of six and the last; its third takes 1 ms more."""
    traces = []
    for host, skew_ms in (("host0", 0), ("host1", 10)):
        trace = CudaTrace(host, start_ns=PROFILE_START_NS, stop_ns=PROFILE_START_NS + 250_000_000)
        for index, step in enumerate(marked_steps(trace, count=2, first_ms=20 + skew_ms)):
            for place, start_ms in enumerate((10, 20, 30)):
                longer_ms = 1 if (host, index, place) == ("host1", 1, 0) else 0
                if host == "host0" or (index, place) not in ((0, 0), (1, 2)):
                    step.kernel(0, start_ms - longer_ms, start_ms + 2, name=NCCL_NAME)
        traces.append(trace)
    found = collectives_of(loaded(tmp_path, *traces))
    assert found.device_count.tolist() == [1, 2, 2, 2, 2, 1]
    assert found.wait_ps.tolist() == [0, 0, 0, 0, 0, 0, ms(1), 0, 0, 0]
