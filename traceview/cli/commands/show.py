"""Defines `traceview show`, one table of a run with the same options for all, and `traceview explain`, what words mean."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.text import did_you_mean
from traceview.base.timing import stage
from traceview.base.units import picoseconds
from traceview.cli.options import (
    Devices,
    Force,
    Output,
    Width,
    argument,
    choice,
    chosen_devices,
    format_option,
    given_options,
    listed,
    option,
    place_argument,
    reads_run,
    word_of,
)
from traceview.cli.output import Target, say
from traceview.cli.report_source import Source
from traceview.cli.table import FORMATS, Choice, checked_format, content
from traceview.report.tables import TABLES

if TYPE_CHECKING:
    from traceview.trace.model import Trace


RUNS: Final = "runs"
HANG: Final = "hang"
WITHOUT_TRACE: Final = {
    RUNS: "the runs below a log directory: hosts, devices and sizes",
    HANG: "where a job hangs: the reports of capture --on-hang",
}
"""Tables that need no trace."""

NAMES: Final = (*TABLES, *WITHOUT_TRACE)

_OF_FILES: Final = ("sort", "top")
_OF_ALL: Final = ("table", "logdir", "format_", "output", "force", "width")


@reads_run
def show(
    context: typer.Context,
    table: Annotated[
        str,
        argument(
            "TABLE",
            f"{', '.join(NAMES[:-1])} or {NAMES[-1]}.",
            parser=word_of("TABLE", NAMES),
            autocompletion=lambda: list(NAMES),
        ),
    ],
    logdir: Annotated[Location, place_argument("LOGDIR", "Log directory, run or .xplane.pb.")],
    device: Devices = None,
    state: Annotated[
        list[str] | None, option("STATE", "Only gaps, ops, copies or findings with this state.")
    ] = None,
    least: Annotated[
        str,
        option(
            "TIME",
            "Minimum length of a row, before --by: 50us.",
            "--min",
            show_default=True,
        ),
    ] = "0us",
    by: Annotated[
        list[str] | None,
        option("COLUMNS", "Sum up rows that agree in these columns: python,step."),
    ] = None,
    sort: Annotated[str, option("COLUMN", "Largest first by this column: self_ps.")] = "",
    top: Annotated[
        int | None, option("N", "Only N rows, steps or collectives; N ops per device.", min=1)
    ] = None,
    format_: Annotated[str | None, format_option(*FORMATS)] = None,
    output: Output = None,
    force: Force = False,
    width: Width = None,
) -> None:
    """Show a table of a run: gaps, steps, devices, ops and others.

    A terminal shows what fits; csv, json and parquet have all rows and columns.

    Example: traceview show gaps logs/ --device GPU:0 --by python,state
    """
    target = Target.of(output, logdir, force=force, width=width)
    _check_options(context, table)
    format_ = checked_format(format_, target)
    choice = Choice(
        states=_states(table, state),
        least_ps=picoseconds("--min", least),
        by=tuple(dict.fromkeys(listed(by))),
        sort=sort,
        top=top,
        is_terminal=format_ == "terminal",
    )
    if table == HANG:
        _show_hang(target, logdir, format_)
        return
    if table == RUNS:
        from traceview.cli.rows import run_answer

        answer = run_answer(logdir, choice)
        target.write_parts(content(target, format_, answer))
    else:
        source = Source.of(context, logdir)
        needed = ["traceview.cli.rows"]
        if choice.is_terminal:
            needed.append("traceview.document.terminal")
        with source.context(needed=needed) as of_run:
            from traceview.cli.rows import answer_of
            from traceview.trace.device.table import device_keys

            trace = of_run.trace
            _warn(trace)
            devices = chosen_devices(device, device_keys(trace))
            chosen = replace(choice, devices=devices, names_devices=bool(device))
            answer = answer_of(table, of_run, chosen)
            with stage("writing"):
                target.write_parts(content(target, format_, answer))
    if answer.remark:
        say(answer.remark)
    if answer.code:
        raise typer.Exit(answer.code)


def _check_options(context: typer.Context, table: str) -> None:
    for name, shown in given_options(context).items():
        if not _has_meaning(table, name):
            tables = [other for other in NAMES if _has_meaning(other, name)]
            raise UsageError(
                f"{shown} has no meaning for show {table}",
                hint=f"it works with {', '.join(tables)}",
            )


def _has_meaning(table: str, option: str) -> bool:
    kind = TABLES.get(table)
    if option in _OF_ALL:
        return True
    if kind is None:
        return table == RUNS and option in _OF_FILES
    needed = {
        "state": kind.states,
        "least": kind.length,
        "device": kind.has_devices,
        "by": kind.sums,
    }
    return bool(needed.get(option, True))


def _states(table: str, given: list[str] | None) -> tuple[str, ...]:
    """The keys of the states that `--state` names; raises `UsageError` for one that the table does not have."""
    kind = TABLES.get(table)
    if kind is None or not given:
        return ()
    return tuple(map(word_of("--state", kind.states), listed(given)))


def _warn(trace: Trace) -> None:
    """Say on standard error what the rows lack because a file is damaged."""
    for problem in trace.problems:
        if problem.code == "damaged-file":
            say(
                f"damaged, so events and whole devices may be lost: {problem.host}: {problem.sentence}"
            )


def _show_hang(target: Target, logdir: Location, format_: str) -> None:
    from traceview.base.errors import TraceNotFoundError
    from traceview.cli.report_source import show_hangs

    if format_ not in ("terminal", "json"):
        raise UsageError(
            f"show hang writes no {format_}", hint="--format terminal or --format json"
        )
    as_json = format_ == "json"
    if not show_hangs(target, logdir, as_json=as_json, is_redacted=False):
        raise TraceNotFoundError(
            f"no report of a hang below {logdir}",
            hint="traceview capture --on-hang 10m writes one",
        )


_RECORDS: Final = {
    "report": "traceview.report.model.Report",
    "comparison": "traceview.comparison.model.Comparison",
    "gate": "traceview.comparison.model.GateResult",
    "history": "traceview.comparison.history.History",
}
"""The records that have a schema."""


def explain(
    code: Annotated[
        str | None,
        argument(
            "[CODE|STATE]", "Code of a finding, or a state of a device; without it all are listed."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        choice(
            "|".join(_RECORDS),
            "Print the JSON Schema of this instead.",
            "--schema",
            tuple(_RECORDS),
        ),
    ] = None,
    width: Width = None,
) -> None:
    """Explain a finding or a state: meaning, evidence, and advice.

    Example: traceview explain unused-gpu
    """
    from traceview.analysis.registry import RULES
    from traceview.document.vocabulary import STATES
    from traceview.report.document import explain_list, explain_section, explain_state

    if schema is not None:
        if code is not None:
            raise UsageError("--schema and CODE exclude each other")
        from traceview.report.saved import schema_of

        module, _, name = _RECORDS[schema].rpartition(".")
        record = getattr(import_module(module), name)
        Target(None).write(schema_of(record, f"traceview {schema}").encode())
        return
    names = {look.words.lower(): key for key, look in STATES.items()}
    asked = None if code is None else names.get(code.lower(), code.lower())
    if asked is None:
        section = explain_list(RULES.values(), STATES.values())
    elif asked in RULES:
        section = explain_section(RULES[asked])
    elif asked in STATES:
        section = explain_state(STATES[asked])
    else:
        hint = did_you_mean(asked, [*RULES, *STATES], "traceview explain lists them")
        raise UsageError(f"no finding or state is called {code!r}", hint=hint)
    Target(None, columns=width).write_sections([section])
