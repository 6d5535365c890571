"""Defines `traceview analyze`: how busy every device was, and what to change."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from traceview.cli.hang import show_hangs
from traceview.cli.options import (
    Baseline,
    Devices,
    Force,
    Full,
    Ignore,
    Logdir,
    MaxMemory,
    Output,
    Redact,
    Run,
    Salvage,
    Scheduler,
    Select,
    Steps,
    Width,
    Window,
    WindowChoice,
    Workers,
    device_names,
    finding_codes,
    hosts_read_by,
    step_range,
)
from traceview.cli.output import Target, format_of
from traceview.cli.timings import Timings
from traceview.errors import TraceNotFoundError
from traceview.shell_quote import shell_word
from traceview.stages import stage

TERMINAL_TOP: Final = 5
"""Op rows per device on a terminal, where every row costs a line or two."""


class Format(str, Enum):
    """What a report can be written as."""

    terminal = "terminal"
    json = "json"


def analyze(
    logdir: Logdir,
    run: Run = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format", help="By default json for FILE.json, else terminal.", show_default=False
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Rows of the op table per device: 5 on a terminal, 10 in json. Implies --full.",
            show_default=False,
        ),
    ] = None,
    device: Devices = None,
    baseline: Baseline = None,
    select: Select = None,
    ignore: Ignore = None,
    salvage: Salvage = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    redact: Redact = False,
    full: Full = False,
    width: Width = None,
    max_memory: MaxMemory = None,
    timings: Timings = False,
) -> None:
    """Show how busy each device was, with what, and what to change.

    Example: traceview analyze logs/ --steps 5:10 -o report.json
    """
    with stage("importing"):
        from traceview.cli.progress import reading
        from traceview.trace.load import load

    target = Target.of(output, force=force, source=logdir)
    chosen_steps = step_range(steps)
    hosts = hosts_read_by(workers, scheduler, are_asked=True)
    select_codes, ignore_codes = finding_codes(select, ignore)
    format_ = format_ or format_of(target.path, {".json": Format.json}, Format.terminal)
    as_json = format_ is Format.json
    with hosts as readers:
        try:
            with reading(logdir, run, is_here=readers is None):
                trace = load(logdir, run=run, salvage=salvage, readers=readers)
        except TraceNotFoundError:
            # A job that hangs before its window has no trace, but says where it hangs.
            if show_hangs(target, logdir, width, as_json=as_json, is_redacted=redact):
                return
            raise
        with stage("importing"):
            from traceview.analysis.context import TOP_OPS
            from traceview.report.build import analyze as build

        rows = top if top is not None else TOP_OPS if as_json else TERMINAL_TOP
        with reading(logdir, run):
            report = build(
                trace,
                window=window.value,
                steps=chosen_steps,
                top=rows,
                select_codes=select_codes or None,
                ignore_codes=ignore_codes,
                baseline=baseline,
                readers=readers,
            )
    if device:
        from traceview.report.filtering import only_devices

        times = report.results.device_time
        known = [row.device for row in times.devices] if times else []
        report = only_devices(report, device_names(device, known))
    if redact:
        from traceview.report.redaction import redacted

        report = redacted(report)
    with stage("writing"):
        if as_json:
            from traceview.report.saved import to_json

            target.write(to_json(report).encode())
        else:
            from traceview.report.screen import Invocation

            options = "".join(f" --device {shell_word(key)}" for key in device or ())
            asked = Invocation(
                logdir="" if redact else str(logdir),
                is_salvaged=salvage,
                options=options + (" --redact" if redact else ""),
            )
            target.write_report(report, width, is_full=full or top is not None, invocation=asked)
