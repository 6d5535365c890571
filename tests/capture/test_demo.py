"""Checks that the demo is captured like any run, and that reports name what slows it down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import CAPTURE, Captured, run_python
from tests.capture.in_process import Script, captured_scripts
from tests.command import Command
from traceview.base.errors import UsageError
from traceview.capture.window.step_window import StepRange
from traceview.demo import run as demo_run
from traceview.demo.run import Slowdown, demo_command

WINDOW = StepRange(10, 15)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ([Slowdown.retrace, Slowdown.input, Slowdown.launch], "launch and retrace"),
        ([Slowdown.straggler, Slowdown.one_gpu], "one-gpu and straggler"),
    ],
)
def test_slowdowns_that_exclude_each_other(chosen: list[Slowdown], names: str) -> None:
    with pytest.raises(UsageError, match=f"{names} cannot be combined"):
        demo_command(WINDOW.last, None, chosen)


def test_the_command_runs_two_steps_more_and_a_slowdown_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_run, "find_spec", lambda _: True)
    monkeypatch.setattr(os, "environ", {})
    slowdowns = [Slowdown.callback, Slowdown.one_gpu, Slowdown.callback]
    options = ["--steps=8", "--devices=3", "--slowdown=callback", "--slowdown=one-gpu"]
    assert demo_command(6, 3, slowdowns)[2:] == options
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"


def test_without_tensorflow_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="not installed") as raised:
        demo_command(WINDOW.last, None, [])
    assert "pip install" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--demo", "train.py"], "SCRIPT cannot be combined with --demo"),
        (["--demo", "--step-function", "f"], "--step-function cannot be combined with --demo"),
        (["--devices", "4", "train.py"], "--devices needs --demo"),
        (["--slowdown", "input", "train.py"], "--slowdown needs --demo"),
        (["--demo", "--devices", "0"], "'--devices'"),
        (["--demo", "--slowdown", "inptu"], "did you mean input?"),
        (["--demo", "--check"], "--demo cannot be combined with --check"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], message: str, command: Command
) -> None:
    done = command("capture", *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


SLOWED = [
    *(slowdown.value for slowdown in Slowdown if slowdown.value != "launch"),
    "input+callback",
]
STATE_OF = {
    "input": "input",
    "sync": "sync",
    "retrace": "compile",
    "checkpoint": "checkpoint",
    "callback": "between",
}
SLEPT_PS = {"input": 40 * 10**9, "sync": 30 * 10**9, "callback": 30 * 10**9}
"""For how long the host sleeps in each step."""
LEAST_PS = 5 * 10**9
"""For how long a slowdown holds up a step that does not sleep, at least."""
SHOWN = 0.8
"""The share of what was slept that has to be attributed to its state."""


@pytest.fixture(scope="module")
def slow_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    scripts = {}
    for name in SLOWED:
        slowdowns = [Slowdown(one) for one in name.split("+")]
        _, script, *arguments = demo_command(WINDOW.last, None, slowdowns)
        text = Path(script).read_text("utf-8")
        scripts[name] = Script(text, str(WINDOW), arguments=tuple(arguments))
    return captured_scripts(tmp_path_factory.mktemp("slow"), scripts, is_forked=True)


def states_of_replicas(run: Path) -> list[dict[str, int]]:
    """Idle picoseconds by state of each of the two replicas."""
    idle = traceview.analyze(run).results.idle
    assert idle is not None
    assert [row.device for row in idle.devices] == ["replica:0", "replica:1"]
    return [row.states for row in idle.devices]


@pytest.mark.tensorflow
@pytest.mark.parametrize("slowdown", STATE_OF)
def test_the_state_is_what_slows_it_down(slowdown: str, slow_runs: dict[str, Captured]) -> None:
    for states in states_of_replicas(slow_runs[slowdown].run):
        assert next(iter(states)) == STATE_OF[slowdown], states
        least_ps = SHOWN * SLEPT_PS.get(slowdown, LEAST_PS)
        assert states[STATE_OF[slowdown]] >= 5 * least_ps, states


@pytest.mark.tensorflow
def test_two_slowdowns_are_told_apart(slow_runs: dict[str, Captured]) -> None:
    slept_ps = {STATE_OF[name]: 5 * SLEPT_PS[name] for name in ("input", "callback")}
    slept_share = slept_ps["input"] / sum(slept_ps.values())
    for states in states_of_replicas(slow_runs["input+callback"].run):
        assert set(list(states)[:2]) == set(slept_ps), states
        assert all(states[state] >= SHOWN * ps for state, ps in slept_ps.items()), states
        share = states["input"] / sum(states[state] for state in slept_ps)
        assert share == pytest.approx(slept_share, abs=0.2), states


@pytest.mark.tensorflow
def test_a_straggler_computes_more_and_the_other_waits_for_it(
    slow_runs: dict[str, Captured],
) -> None:
    results = traceview.analyze(slow_runs["straggler"].run).results
    assert results.device_time is not None
    first, last = results.device_time.devices
    assert (last.compute_ps or 0) > (first.compute_ps or 0) > 0
    assert (first.waiting_ps or 0) > (last.waiting_ps or 0)


@pytest.mark.tensorflow
def test_one_of_two_devices_has_all_the_work(slow_runs: dict[str, Captured]) -> None:
    run = slow_runs["one-gpu"]
    results = traceview.analyze(run.run).results
    assert results.device_time is not None
    assert [row.device for row in results.device_time.devices] == ["replica:0"]
    assert run.sidecar["strategy"]["replicas"] == 2


@pytest.mark.tensorflow
def test_launching_op_by_op_from_the_command_line(tmp_path: Path) -> None:
    options = ["--demo", "--slowdown", "launch", "--devices", "3", "--steps", "3:5"]
    done = run_python(tmp_path, *CAPTURE, *options, code=0)
    # Nothing of the run is on stdout, and all of the report.
    assert done.out.startswith(f"run {done.run.name}")
    results = traceview.analyze(done.run).results
    assert results.steps is not None
    assert [step.number for step in results.steps.steps] == [3, 4]
