"""Of recordings as chance might have made them the report is that of the oracle too.

A recording on CPUs differs from the next one in when its threads ran: calls are still open where it ends, and so are not
recorded, though what ran inside is; events begin together, end together, or take no time on the clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import traceview
from scripts.xspace import XSpace
from tests.oracle import run_answer
from tests.test_every_run import same_report

Change = Callable[[random.Random, bytes, Any], bool]
"""Changes one event of this name; whether it stays."""


def _still_open(chance: random.Random, name: bytes, event: Any) -> bool:
    """The executor had not returned yet, but its ops had."""
    return name != b"ExecutorState::Process" or chance.random() > 0.05


def _on_a_coarse_clock(chance: random.Random, name: bytes, event: Any) -> bool:
    step = 10_000
    end = (event.offset_ps + event.duration_ps) // step * step
    event.offset_ps = event.offset_ps // step * step
    event.duration_ps = end - event.offset_ps
    return True


def _in_no_time(chance: random.Random, name: bytes, event: Any) -> bool:
    """Ops that end as they begin; a collective takes its time."""
    if b":" in name and b"::" not in name and b"Collective" not in name and chance.random() < 0.05:
        event.duration_ps = 0
    return True


def _lost(chance: random.Random, name: bytes, event: Any) -> bool:
    """Ops that were not recorded."""
    return b":" not in name or b"::" in name or b"Collective" in name or chance.random() > 0.02


def _without_markers(chance: random.Random, name: bytes, event: Any) -> bool:
    """What is between two markers looks like an evaluation where it calls a graph on input."""
    return name not in (b"train", b"Profiled batch") or chance.random() > 0.2


CHANGES: Final[tuple[Change, ...]] = (
    _still_open,
    _on_a_coarse_clock,
    _in_no_time,
    _lost,
    _without_markers,
)


def perturbed(recording: bytes, change: Change, seed: int) -> bytes:
    """The recording with one change wherever chance has it; nesting of each thread stays."""
    chance = random.Random(seed)
    space = XSpace.FromString(recording)
    (host,) = (plane for plane in space.planes if plane.name == b"/host:CPU")
    for line in host.lines:
        kept = [
            event
            for event in line.events
            if change(chance, host.event_metadata[event.metadata_id].name, event)
        ]
        del line.events[:]
        line.events.extend(kept)
    data: bytes = space.SerializeToString()
    return data


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["custom-loop-2", "keras-fit-2"])
def test_the_report_is_the_answer_of_the_oracle(
    name: str, change: Change, seed: int, fixtures: Path, tmp_path: Path
) -> None:
    (recorded,) = (fixtures / name).rglob("*.xplane.pb")
    path = tmp_path / "plugins" / "profile" / "run" / recorded.name
    path.parent.mkdir(parents=True)
    path.write_bytes(perturbed(recorded.read_bytes(), change, seed))
    same_report(traceview.analyze(tmp_path, top=None), run_answer([path]))
