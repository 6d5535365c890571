"""The ledger accounts for every picosecond once: of recorded traces, of scenarios, and of random ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from scripts.cuda_trace import NCCL_NAME, US, CudaTrace
from scripts.scenarios import SCENARIOS
from tests import test_every_run
from tests.ledger.ledgers import FIXTURES, Run, folder_of, run_of
from traceview.ledger.columns import WAITS
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.model import WindowKind


@pytest.fixture(scope="module", params=[*FIXTURES, *sorted(SCENARIOS)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(folder_of(request.param, tmp_path_factory.mktemp("logs")))


def check_states(ledger: Ledger) -> None:
    """Sums by state and step are the same whichever way they are made."""
    every = ledger.rows()
    for device in ledger.devices:
        grid, own = ledger.states_of_steps(device), ledger.rows_of(device)
        assert grid.sum() == ledger.columns.duration_ps[own][ledger.columns.step[own] != NONE].sum()
        of_step = ledger.by_step(every, device)
        by_state = ledger.by_state(device)
        assert of_step.sum() == sum(by_state.values()) == ledger.gpu_ps_by_device[device]
        if ledger.has_steps:
            steps = ledger.steps[ledger.steps_of(device)]
            assert {step.host for step in steps} <= {ledger.trace.device_list[device].host}
            used = np.array([step.excluded is None for step in steps])
            assert grid[:, used].sum(axis=0).tolist() == of_step.tolist()
            total = grid[:, used].sum(axis=1).tolist()
            assert {state: ps for state, ps in zip(State, total, strict=True) if ps} == by_state


def check_losses(ledger: Ledger) -> None:
    """The losses of all states are all GPU time; shares and means are those of the sums."""
    whole = sum(ledger.gpu_ps_by_device.values())
    everything = ledger.loss(ledger.rows())
    assert everything.ps == everything.gpu_ps == whole
    masks = [ledger.rows(states=[state]) for state in State]
    assert (np.sum(masks, axis=0) == ledger.counts).all()
    losses = [ledger.loss(mask) for mask in masks]
    assert sum(loss.ps for loss in losses) == whole
    assert sum(loss.share for loss in losses) == pytest.approx(1 if whole else 0)
    assert (ledger.rows(states=[State.COMPUTE, State.INPUT]) == masks[0] | masks[State.INPUT]).all()
    path_ps = int(ledger.path.duration_ps.sum()) // (int(ledger.is_used.sum()) or 1)
    for state, mask, loss in zip(State, masks, losses, strict=True):
        sums = {device: int(ledger.by_step(mask, device).sum()) for device in ledger.devices}
        assert loss.ps == sum(sums.values())
        assert sums == {device: ledger.by_state(device).get(state, 0) for device in ledger.devices}
        most = max(sums.values(), default=0)
        named = [device for device, ps in sums.items() if ps and 2 * ps >= most]
        assert loss.devices == ledger.keys(named)
        assert loss.named_ps == sum(sums[device] for device in named)
        assert loss.named_gpu_ps == sum(ledger.gpu_ps_by_device[device] for device in named)
        assert 0 <= loss.mean_ps <= loss.of_ps
        assert 0 <= loss.share <= 1
        for device in named:
            alone = ledger.rows(states=[state], devices=[device])
            assert ledger.loss(alone).ps == sums[device]
        bound = ledger.bound_ps(mask)
        assert 0 <= bound <= (loss.of_ps if state in WAITS else path_ps)


def test_sums_agree(run: Run) -> None:
    for ledger in run.ledgers:
        check_states(ledger)
    check_losses(run.ledger)


# Random traces

TICK_PS = 10 * US


def random_trace(chance: Random) -> CudaTrace:
    """Events of three GPUs that overlap, touch and may have no length, collectives, and steps that may overlap."""
    trace = CudaTrace("host0")
    for number in range(chance.randint(0, 3)):
        start, ticks = chance.randint(0, 40), chance.randint(1, 10)
        trace.marker(number, start * TICK_PS, (start + ticks) * TICK_PS)
    for _ in range(chance.randint(1, 14)):
        kind, device = chance.choice(("kernel", "H2D", "D2H", "D2D", "fill")), chance.randint(0, 2)
        start, ticks, before = chance.randint(0, 40), chance.randint(0, 9), chance.randint(0, 3)
        begin, end = start * TICK_PS, (start + ticks) * TICK_PS
        launch = begin - before * TICK_PS if before and start >= before else None
        if kind == "kernel":
            # Streams of their own, so that events of a device may overlap.
            trace.kernel(device, begin, end, stream=20 + ticks, launch_ps=launch)
        elif kind == "fill":
            trace.device_event(device, "Memset", begin, end, stream=40, type_="Memset", stats={})
        else:
            trace.copy(device, kind, begin, end, size=8, stream=50 + before, launch_ps=launch)
    members = chance.randint(0, 3)
    for number in range(chance.randint(0, 4)):
        begin = (10 * number + 3) * TICK_PS
        for device in range(members):
            late_ps = chance.randint(0, 3) * TICK_PS
            trace.kernel(
                device,
                begin + late_ps,
                begin + 6 * TICK_PS,
                name=NCCL_NAME,
                stream=30,
                launch_ps=begin - TICK_PS,
            )
    return trace


RARE = [
    117,  # No step in the window.
    140,  # A window without length.
    479,  # Steps whose first events begin at once.
    823,  # Events launched at once end a gap.
    1839,  # Kernels of a repetition begin at once.
    2178,  # The host waits since before the window.
    3067,  # A copy and a collective of one length, launched at once, end a gap.
]


@pytest.mark.parametrize("seed", [*range(100), *RARE])
def test_random_traces_are_as_the_oracle_says(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    random_trace(chance).write(tmp_path)
    window: WindowKind = chance.choice(("auto", "trace", "devices"))
    run = test_every_run.Run("random", tmp_path, window=window)
    run.check()
    for ledger in run.made.ledgers:
        check_states(ledger)
        check_losses(ledger)
