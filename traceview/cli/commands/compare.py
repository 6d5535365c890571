"""Defines `traceview compare`: whether the step became slower or faster, by how much, how sure that is, and why."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.cli.commands.gate import History
from traceview.cli.options import (
    Output,
    Redact,
    Width,
    check_mode,
    flag,
    format_option,
    place,
    place_argument,
)
from traceview.cli.output import TERMINAL, Target, format_of
from traceview.cli.report_source import redacted_alike, reports_at

_FORMATS: Final = ("terminal", "markdown", "html", "json")
_ARGUMENT: Final = "Log directory, a run in it, or a saved report.json."


_OF_SCALING: Final = (
    *("before", "after", "further", "scaling"),
    *("format_", "output", "force", "width"),
)
"""Options that `--scaling` takes."""


def compare(
    context: typer.Context,
    before: Annotated[
        Location | None, place_argument("[BEFORE]", f"Capture before the change. {_ARGUMENT}")
    ] = None,
    after: Annotated[Location | None, place_argument("[AFTER]", "Capture after it.")] = None,
    further: Annotated[
        list[Location] | None, place_argument("[RUN]...", "Further runs, with --scaling.")
    ] = None,
    more_before: Annotated[
        list[Location] | None,
        place("PATH", "Another capture before the change. Repeatable.", "--before"),
    ] = None,
    more_after: Annotated[
        list[Location] | None, place("PATH", "Another capture after it. Repeatable.", "--after")
    ] = None,
    scaling: Annotated[
        bool, flag("Compare runs on different numbers of devices instead.", "--scaling")
    ] = False,
    history: History = None,
    format_: Annotated[str | None, format_option(*_FORMATS)] = None,
    output: Output = None,
    force: Annotated[
        bool, flag("Compare other devices or batches, too. Replace FILE.", "--force")
    ] = False,
    redact: Redact = False,
    width: Width = None,
) -> None:
    """Show whether a change made the step faster, and why.

    A change within the noise of runs is none; three captures of each side show that noise. Runs on other devices or of
    another batch are not compared: exit code 7.

    Example: traceview compare logs/before logs/after -o comparison.html
    """
    if scaling:
        check_mode(context, "--scaling", _OF_SCALING)
        runs = [run for run in (before, after, *(further or ())) if run is not None]
        target = Target.of(output, *runs, force=force, width=width)
        from traceview.comparison.scaling import scaled_runs, scaling_section

        scaled = scaled_runs(reports_at(runs))
        format_ = format_of(format_, target.path, _FORMATS)
        target.write_record(scaled, [scaling_section(scaled)], format_, title="scaling")
        return
    if further:
        raise UsageError(
            f"compare takes BEFORE and AFTER, not {2 + len(further)} runs",
            hint="--before PATH and --after PATH for more captures of a side; --scaling for other numbers of devices",
        )
    from traceview.comparison.build import compare as build
    from traceview.comparison.document import screen_of, sections_of, to_html
    from traceview.comparison.history import earlier_levels

    sides = [
        [*([first] if first is not None else []), *(more or [])]
        for first, more in ((before, more_before), (after, more_after))
    ]
    for name, side in zip(("BEFORE", "AFTER"), sides, strict=True):
        if not side:
            raise UsageError(
                f"{name} is missing", hint="traceview compare BEFORE AFTER, each a log directory"
            )
    target = Target.of(output, *sides[0], *sides[1], force=force, width=width)
    format_ = format_of(format_, target.path, _FORMATS)
    reports = reports_at([*sides[0], *sides[1]])
    earlier = earlier_levels(history, reports) if history else ()
    if redact:
        reports = redacted_alike(reports)
    count = len(sides[0])
    comparison = build(reports[:count], reports[count:], earlier=earlier, force=force)
    is_screen = format_ == TERMINAL and target.path is None
    sections = screen_of(comparison) if is_screen else sections_of(comparison)
    target.write_record(comparison, sections, format_, page=lambda: to_html(comparison))
