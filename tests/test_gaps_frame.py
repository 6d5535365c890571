"""The DataFrame of gaps accounts for every idle picosecond of every device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from traceview.ledger.states import IDLE_STATES

STATES = [f"{state.key}_ps" for state in IDLE_STATES]
NAMES = ["B", "D", "input_and_callbacks", "no_steps"]


def loaded(name: str, tmp_path: Path) -> traceview.Trace:
    SCENARIOS[name]().write(tmp_path)
    return traceview.load(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_gaps_and_states_add_up_to_the_report(name: str, tmp_path: Path) -> None:
    trace = loaded(name, tmp_path)
    gaps = trace.table("gaps")
    assert (gaps[STATES].sum(axis=1) == gaps["duration_ps"]).all()
    assert (gaps["duration_ps"] > 0).all()
    results = traceview.analyze(trace).results
    assert results.idle is not None
    for row in results.idle.devices:
        mine = gaps[gaps["device"] == row.device]
        assert (len(mine), mine["duration_ps"].sum()) == (row.gap_count, row.idle_ps)
        assert mine["duration_ps"].max() == row.longest_gap_ps
        known = {state.key: int(mine[f"{state.key}_ps"].sum()) for state in IDLE_STATES}
        assert {key: length for key, length in known.items() if length} == row.states
        assert (np.diff(mine["duration_ps"]) <= 0).all()


def test_what_a_gap_says(tmp_path: Path) -> None:
    trace = loaded("G", tmp_path)
    gaps, events = trace.table("gaps"), trace.device_events
    (longest,) = (
        gaps[(gaps["device"] == "GPU:0") & (gaps["step"] == 1)].nlargest(1, "input_ps").index
    )
    gap = gaps.loc[longest]
    assert (gap["state"], gap["input_ps"], gap["thread"]) == ("input", 30_000_000_000, "python3")
    own = events[events["device"] == "GPU:0"]
    before = own[own["start_ps"] + own["duration_ps"] == gap["start_ps"]]
    after = own[own["start_ps"] == gap["start_ps"] + gap["duration_ps"]]
    assert gap["before"] in {*before["op"], *before["name"]}
    assert gap["after"] in {*after["op"], *after["name"]}
