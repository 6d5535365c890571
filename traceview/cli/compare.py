"""Defines `traceview compare`: whether the step became slower or faster, by how much, how sure that is, and why."""

from __future__ import annotations

import shlex
from enum import Enum
from typing import Annotated, Final

import typer

from traceview.cli.options import Full, Output, Redact, Width
from traceview.cli.output import Target, format_of
from traceview.errors import UsageError
from traceview.location import Location
from traceview.store.address import location_of


class Format(str, Enum):
    """What a comparison can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    html = "html"
    json = "json"


_BY_SUFFIX: Final = {
    ".md": Format.markdown,
    ".html": Format.html,
    ".json": Format.json,
}

_ARGUMENT: Final = "Log directory, a run in it, or a saved report.json."


def compare(
    before: Annotated[
        Location | None,
        typer.Argument(
            metavar="[BEFORE]",
            parser=location_of,
            help=f"Capture before the change. {_ARGUMENT}",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        Location | None,
        typer.Argument(
            metavar="[AFTER]",
            parser=location_of,
            help="Capture after it.",
            show_default=False,
        ),
    ] = None,
    more_before: Annotated[
        list[Location] | None,
        typer.Option(
            "--before",
            metavar="PATH",
            parser=location_of,
            help="Another capture before the change. May be repeated.",
            show_default=False,
        ),
    ] = None,
    more_after: Annotated[
        list[Location] | None,
        typer.Option(
            "--after",
            metavar="PATH",
            parser=location_of,
            help="Another capture after it. May be repeated.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format", help="By default what FILE ends with, else terminal.", show_default=False
        ),
    ] = None,
    output: Output = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compare runs on other devices or of another batch, too. Replace FILE if it exists.",
        ),
    ] = False,
    redact: Redact = False,
    full: Full = False,
    width: Width = None,
) -> None:
    """Show whether a change made the step faster, and why.

    The difference has an interval, so that noise is not called a change. Several captures of each side also show how much runs differ without a change. Runs on other devices or of another
    batch are not compared: exit code 7.

    Example: traceview compare logs/before logs/after
    """
    from traceview.cli.progress import reading
    from traceview.comparison.build import compare as build
    from traceview.comparison.median_steps import aligned_steps
    from traceview.comparison.sides import reports_of

    sides = [
        [*([first] if first is not None else []), *(more or [])]
        for first, more in ((before, more_before), (after, more_after))
    ]
    for name, side in zip(("BEFORE", "AFTER"), sides, strict=True):
        if not side:
            raise UsageError(
                f"{name} is missing", hint="traceview compare BEFORE AFTER, each a log directory"
            )
    targets = [Target.of(output, force=force, source=place) for side in sides for place in side]
    target = targets[0]
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    reports = []
    for side in sides:
        with reading(side[0], None):
            reports.append(reports_of(side, lanes=format_ is Format.html))
    comparison = build(reports[0], reports[1], force=force)
    steps = aligned_steps(reports[0], reports[1]) if format_ is Format.html else None
    if redact:
        from traceview.report.redaction import redacted_record

        comparison = redacted_record(comparison)
    if format_ is Format.terminal:
        from traceview.comparison.document import screen_of, section_of

        places = [] if redact else sides
        if full or target.path is not None:
            target.write_section(section_of(comparison), width)
        else:
            target.write_section(screen_of(comparison, _command(places)), width)
        return
    from traceview.comparison import formats

    if format_ is Format.html:
        target.write(formats.html(comparison, steps).encode())
    else:
        render = formats.json if format_ is Format.json else formats.markdown
        target.write(render(comparison).encode())


def _command(sides: list[list[Location]]) -> str:
    """What shows everything."""
    if not sides:
        return "traceview compare BEFORE AFTER --redact --full"
    first = [shlex.quote(str(side[0])) for side in sides]
    more = [
        f" {option} {shlex.quote(str(place))}"
        for option, side in zip(("--before", "--after"), sides, strict=True)
        for place in side[1:]
    ]
    return f"traceview compare {' '.join(first)}{''.join(more)} --full"
