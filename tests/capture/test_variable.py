"""The options in TRACEVIEW_CAPTURE are those of the command."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from traceview.base.errors import UsageError
from traceview.capture.record.settings import Settings, option_parser
from traceview.capture.window.step_window import StepRange
from traceview.cli.app import command_called

NOT_BELOW_A_LAUNCHER = {
    *("--module", "--demo", "--devices", "--slowdown", "--analyze", "--check", "--help"),
    *("-m", "-h"),
}
"""Options of the command that make no sense in a process that trains anyway."""


def test_the_variable_takes_the_options_of_the_command() -> None:
    command = command_called("capture")
    names = {
        name for option in command.params for name in (*option.opts, *option.secondary_opts)
    } - NOT_BELOW_A_LAUNCHER
    read = {name for action in option_parser()._actions for name in action.option_strings}
    assert {name for name in names if name.startswith("-")} == read - {"--launch"}


EVERYTHING = Settings(
    Path("/some where/lögs"),
    StepRange(100, 110),
    run="-a run",
    without=frozenset({"nvml", "python", "source"}),
    step_functions=("train step", "--other"),
    on_hang_s=0.25,
    launch="12-ab",
)


def test_what_is_written_is_read_again() -> None:
    assert Settings.read(EVERYTHING.written()) == EVERYTHING


def test_a_launcher_passes_absolute_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Settings(Path("logs"), StepRange(1, 2)).written()
    os.chdir("/")
    assert Settings.read(text).out == tmp_path / "logs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--step 10:15", "unrecognized arguments: --step 10:15"),
        ("--output 'logs", "no closing quotation"),
        ("--run ../x", "run '../x': give a plain name"),
        ("--on-hang soon", "--on-hang soon: not a length of time"),
        ("--on-hang 169h", "--on-hang 169h: must be between 1 ms and 168 hours"),
        ("--without sync", "--without sync: no such choice"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as raised:
        Settings.read(text)
    assert "\n" not in raised.value.message
