"""Did TensorFlow honour the profiler options that were asked for?

TensorFlow 2.20 and 2.21 accept them and use their defaults. What was asked stands in the sidecar; what was in
force in the sidecar or, from 2.21 on, in the trace. Where neither says, the release may be known to take none,
or the Python tracer was asked for and left no event: names of its events start with `$`. Of a trace without a
sidecar nobody knows what was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from traceview.analysis.base import Evidence, Finding
from traceview.document import numbers
from traceview.ids import unique_ids
from traceview.trace.environment import TracerOptions
from traceview.trace.model import Trace

DEFAULT_LEVELS: Final = {"host_tracer_level": 2, "device_tracer_level": 1, "python_tracer_level": 0}
"""What TensorFlow records with where nothing is asked for (measured with 2.20 and 2.21)."""

_PYTHON_LEVEL: Final = "python_tracer_level"
_PYTHON_EVENT: Final = b"$"


@dataclass(frozen=True)
class IgnoredOption:
    """One option of one host. `in_force`: the level recorded; None where only `evidence` shows it."""

    host: str
    name: str
    asked: int
    in_force: int | None
    evidence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.asked} was asked for, {self.evidence}"


def ignored_options(trace: Trace, host: int) -> tuple[IgnoredOption, ...]:
    """The options of a host that provably had no effect; none where it is not known what was asked."""
    entry = trace.hosts[host]
    if entry.sidecar is None:
        return ()
    options = entry.sidecar.environment.options
    in_force = entry.tracer_levels if options.in_force is None else options.in_force
    found = []
    for name, asked in (options.asked or {}).items():
        level = (in_force or {}).get(name)
        if level is None:
            reason = _without_record(trace, host, options, name, asked)
        else:
            reason = None if level == asked else f"{level} was in force"
        if reason is not None:
            found.append(IgnoredOption(entry.name, name, asked, level, reason))
    return tuple(found)


def _without_record(
    trace: Trace, host: int, options: TracerOptions, name: str, asked: int
) -> str | None:
    """How an option shows to be ignored whose level in force is not recorded; None if it does not."""
    if options.is_ignored and asked != DEFAULT_LEVELS.get(name, asked):
        return "and this TensorFlow takes none"
    if name == _PYTHON_LEVEL and asked > 0 and not _has_python_events(trace, host):
        return "and there is no event of the Python tracer"
    return None


def _has_python_events(trace: Trace, host: int) -> bool:
    columns = trace.host_columns
    names = unique_ids(columns.name[columns.host == host]).tolist()
    return any(trace.names[name].startswith(_PYTHON_EVENT) for name in names)


def diagnose(trace: Trace) -> list[Finding]:
    """One finding for all hosts and options."""
    ignored = [one for host in range(len(trace.hosts)) for one in ignored_options(trace, host)]
    if not ignored:
        return []
    names = list(dict.fromkeys(one.name for one in ignored))
    is_recorded = all(one.in_force is not None for one in ignored)
    return [
        Finding(
            code="options-ignored",
            severity="info",
            title=f"TensorFlow ignored {numbers.plural(len(names), 'profiler option')}: {numbers.listed(names)}",
            explanation="The profile was recorded with other levels than were asked for, so what those "
            "would have added is not in this trace, and what they would have left out is.",
            advice="Leave the options at their defaults with TensorFlow 2.20 and 2.21, which ignore "
            "tf.profiler.experimental.ProfilerOptions; 2.19 honours them.",
            confidence="high" if is_recorded else "medium",
            confidence_reason="the options in force are recorded"
            if is_recorded
            else "the options in force are not recorded; the release and the events show it",
            evidence=tuple(
                Evidence(
                    one.name,
                    "not recorded" if one.in_force is None else one.in_force,
                    None,
                    f"{one.host}, {one.asked} asked",
                )
                for one in ignored
            ),
        )
    ]
