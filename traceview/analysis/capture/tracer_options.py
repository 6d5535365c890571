"""Finds profiler options that TensorFlow ignored.

TensorFlow 2.20 and 2.21 accept options and use their defaults. The sidecar holds what was asked for; what was in
force is in the sidecar or, from 2.21 on, in the trace. Where neither holds it, the release may be known to ignore all
options, or the Python tracer was asked for and left no event: names of its events start with `$`. Without a sidecar
it is unknown what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from traceview.analysis.base import Evidence, Finding, Rule
from traceview.document import numbers
from traceview.ids import unique_ids
from traceview.trace.environment import TracerOptions
from traceview.trace.model import Trace

DEFAULT_LEVELS: Final = {"host_tracer_level": 2, "device_tracer_level": 1, "python_tracer_level": 0}
"""The levels that TensorFlow uses by default (measured with 2.20 and 2.21)."""

OPTIONS_IGNORED: Final = Rule(
    "options-ignored",
    starts_at="any tracer level in force that differs from the level asked for",
    severities=("info",),
    meaning=(
        "TensorFlow recorded with other tracer levels than the capture asked for: 2.20 and 2.21 accept profiler "
        "options and use their defaults."
    ),
    evidence=(
        "levels asked for in the sidecar, and those in force in the sidecar or the trace; where these are not "
        "recorded, a Python tracer that left no event"
    ),
    advice=(
        "Leave the options at their defaults with TensorFlow 2.20 and 2.21, which ignore "
        "tf.profiler.experimental.ProfilerOptions; 2.19 honours them."
    ),
    example="TensorFlow ignored 1 profiler option: python_tracer_level",
)

_PYTHON_LEVEL: Final = "python_tracer_level"
_PYTHON_EVENT: Final = b"$"


class IgnoredOption(Struct, frozen=True):
    """One option of one host. `in_force`: the level recorded; None where only `evidence` shows it."""

    host: str
    name: str
    asked: int
    in_force: int | None
    evidence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.asked} was asked for, {self.evidence}"


def ignored_options(trace: Trace, host: int) -> tuple[IgnoredOption, ...]:
    """The options of a host that provably had no effect; none where it is unknown what was asked for."""
    entry = trace.hosts[host]
    if entry.sidecar is None:
        return ()
    options = entry.sidecar.environment.options
    in_force = entry.tracer_levels if options.in_force is None else options.in_force
    ignored = []
    for name, asked in (options.asked or {}).items():
        level = (in_force or {}).get(name)
        if level is None:
            reason = _without_record(trace, host, options, name, asked)
        else:
            reason = None if level == asked else f"{level} was in force"
        if reason is not None:
            ignored.append(IgnoredOption(entry.name, name, asked, level, reason))
    return tuple(ignored)


def _without_record(
    trace: Trace, host: int, options: TracerOptions, name: str, asked: int
) -> str | None:
    """What shows that an option was ignored where the level in force is not recorded; None if nothing does."""
    if options.is_ignored and asked != DEFAULT_LEVELS.get(name, asked):
        return "and this TensorFlow takes none"
    if name == _PYTHON_LEVEL and asked > 0 and not _has_python_events(trace, host):
        return "and there is no event of the Python tracer"
    return None


def _has_python_events(trace: Trace, host: int) -> bool:
    columns = trace.host_columns
    names = unique_ids(columns.name[columns.host == host]).tolist()
    return any(trace.names[name].startswith(_PYTHON_EVENT) for name in names)


def diagnose(trace: Trace) -> Iterator[Finding]:
    """One finding for all hosts and options."""
    ignored = [
        option for host in range(len(trace.hosts)) for option in ignored_options(trace, host)
    ]
    if not ignored:
        return
    names = list(dict.fromkeys(option.name for option in ignored))
    is_recorded = all(option.in_force is not None for option in ignored)
    yield OPTIONS_IGNORED.finding(
        f"TensorFlow ignored {numbers.plural(len(names), 'profiler option')}: {numbers.listed(names)}",
        [
            Evidence(
                option.name,
                "not recorded" if option.in_force is None else option.in_force,
                None,
                f"{option.host}, {option.asked} asked",
            )
            for option in ignored
        ],
        confidence=("high", "the options in force are recorded")
        if is_recorded
        else (
            "medium",
            "the options in force are not recorded; the release and the events show it",
        ),
        explanation=(
            "The profile was recorded with other levels than the capture asked for: events of the levels asked for "
            "may be missing, and events of the levels in force may be in it unasked."
        ),
    )
