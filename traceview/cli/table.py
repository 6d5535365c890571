"""Makes commands of tables: a command says what its rows are, and has the options and formats that all of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec import Struct
from msgspec.structs import replace

from traceview.cli.options import (
    FORMAT_OPTION,
    Columns,
    Devices,
    Force,
    Logdir,
    MaxMemory,
    Output,
    Run,
    Salvage,
    Scheduler,
    Steps,
    Width,
    Window,
    WindowChoice,
    Workers,
    column_names,
    device_names,
    hosts_read_by,
    step_range,
    word_of,
)
from traceview.cli.output import Target, format_of
from traceview.errors import UsageError
from traceview.export.formats import check_pyarrow
from traceview.stages import stage

if TYPE_CHECKING:
    from traceview.analysis.context import Analysis, Context
    from traceview.analysis.selection import Selection
    from traceview.document.model import Section
    from traceview.record import Record
    from traceview.trace.model import Trace
    from traceview.trace.table import Table


class Format(str, Enum):
    """What a table can be written as."""

    terminal = "terminal"
    csv = "csv"
    parquet = "parquet"
    json = "json"


FormatChoice = Annotated[
    Format | None,
    FORMAT_OPTION,
]
_BY_SUFFIX: Final = {".csv": Format.csv, ".parquet": Format.parquet, ".json": Format.json}


class Request(Struct, frozen=True, dict=True):
    """What a table is asked of: a part of a trace, and the `devices` to show, by key.

    `has_chosen`: the devices were named. `is_terminal`: somebody reads the rows, so few of them do.
    """

    trace: Trace
    selection: Selection
    devices: frozenset[str]
    has_chosen: bool
    is_terminal: bool

    @cached_property
    def context(self) -> Context:
        """What topics are computed from."""
        from traceview.analysis.context import Context

        return Context(self.trace, self.selection)

    def others(self, *named: str) -> tuple[str, ...]:
        """Of very many devices those that are much alike; none of those that are `named` or that were chosen."""
        from traceview.analysis import device_time
        from traceview.analysis.outlier_devices import outlier_devices

        times = self.context.record(device_time.ANALYSIS)
        if self.has_chosen or times is None:
            return ()
        return outlier_devices(times.devices, named).others


class Answer(Struct, frozen=True):
    """The rows of a table command.

    `left_out_count`: rows that were not asked for. `sections`: what a terminal shows, without
    those that are None. `order`: how the rows are sorted. `remarks`: why rows are missing, for standard error.
    """

    rows: Table
    sections: Callable[[], Iterable[Section | None]]
    left_out_count: int = 0
    order: str = ""
    remarks: tuple[str, ...] = ()


def table_command(
    *, has_devices: bool = True
) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """Makes the command of a table from a function of a `Request` and of options of its own.

    `has_devices`: whether rows are about devices, of which `--device` chooses some.
    """

    def command_of(function: Callable[..., Answer]) -> Callable[..., None]:
        common = _parameters(_write_table)
        if not has_devices:
            common = [parameter for parameter in common if parameter.name != "device"]
        own = _parameters(function)
        place = next(at for at, parameter in enumerate(common) if parameter.name == "salvage")
        parameters = [*common[:place], *own, *common[place:]]

        def command(**options: Any) -> None:
            chosen = {parameter.name: options.pop(parameter.name) for parameter in own}
            _write_table(lambda request: function(request, **chosen), **options)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        # Typer reads both.
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return command_of


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function after its first, which the command line does not give."""
    _, *parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]


def _write_table(
    make: Callable[[Request], Answer],
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    columns: Columns = None,
    salvage: Salvage = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    width: Width = None,
    max_memory: MaxMemory = None,
) -> None:
    """Read a run and write the table that `make` makes of it. The parameters are the options of all tables."""
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    target = Target.of(output, force=force, source=logdir)
    step_numbers = step_range(steps)
    hosts = hosts_read_by(workers, scheduler)
    format_ = _checked_format(format_, target)
    names = _checked_columns(columns, format_)
    with hosts as readers, reading(logdir, run, is_here=readers is None):
        trace = load(logdir, run=run, salvage=salvage, readers=readers)
        request = Request(
            trace,
            select(trace, window.value, step_numbers),
            _chosen_devices(trace, device),
            has_chosen=bool(device),
            is_terminal=format_ is Format.terminal,
        )
        for damage in _damage(trace):
            typer.echo(f"traceview: {damage}", err=True)
        answer = make(request)
        if names:
            answer = replace(answer, rows=_with_columns(answer.rows, names))
        with stage("writing"):
            target.write_parts(_content(target, format_, request, answer, width))
    for remark in answer.remarks:
        typer.echo(f"traceview: {remark}", err=True)


def _damage(trace: Trace) -> Iterator[str]:
    """A line for each damaged place: the rows lack what was lost there."""
    from traceview.document.sanitize import sanitize

    for problem in trace.problems:
        if problem.code == "damaged-file":
            yield f"damaged, so events and whole devices may be lost: {sanitize(problem.text)}"


def _checked_format(format_: Format | None, target: Target) -> Format:
    """The format asked for, or that of the file's name; raises `UsageError` where it cannot be written."""
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    if format_ is Format.parquet:
        check_pyarrow("Parquet")
        if target.is_terminal:
            raise UsageError(
                "a terminal cannot show Parquet", hint="write it to a file: -o table.parquet"
            )
    return format_


def _checked_columns(columns: list[str] | None, format_: Format) -> list[str]:
    """The columns that `--columns` names, none without it; raises `UsageError` where a terminal chooses them."""
    if columns and format_ is Format.terminal:
        raise UsageError(
            "--columns needs --format csv, json or parquet: a terminal shows the columns that fit its width",
            hint="also -o FILE.csv, FILE.json or FILE.parquet",
        )
    return column_names(columns) if columns else []


def _with_columns(rows: Table, names: list[str]) -> Table:
    """The table with these columns alone; raises `UsageError` for one that it has not."""
    by_name = {column.name: column for column in rows.columns}
    known = word_of("--columns", by_name)
    return replace(rows, columns=tuple(by_name[known(name)] for name in names))


def _chosen_devices(trace: Trace, wanted: list[str] | None) -> frozenset[str]:
    """The device keys that `--device` names, all without it; raises `UsageError` for one that is not there."""
    known = [trace.device_key(index) for index in range(len(trace.device_list))]
    if not wanted:
        return frozenset(known)
    from traceview.report.filtering import chosen_devices

    return frozenset(chosen_devices(known, device_names(wanted, known)))


# Writing


def _content(
    target: Target, format_: Format, request: Request, answer: Answer, width: int | None
) -> Iterable[str | bytes]:
    """What is written, part by part."""
    if format_ is Format.parquet:
        from traceview.export import parquet

        return (parquet.written(answer.rows),)
    if format_ is Format.csv:
        from traceview.export import csv

        return csv.written(answer.rows, is_escaped=target.is_terminal)
    if format_ is Format.json:
        return _json(request, answer)
    from traceview.document.page import Page
    from traceview.document.terminal import add_section

    page = Page(target.width(width), target.has_color, target.has_unicode)
    page.facts(_head(request, answer))
    for section in answer.sections():
        if section is not None:
            add_section(page, section)
    return (page.render(),)


def _head(request: Request, answer: Answer) -> Iterator[str]:
    """What the rows are of, how many there are, and in which order."""
    from traceview.document import numbers

    yield f"run {request.trace.run}"
    windows = request.selection.windows.values()
    lengths = dict.fromkeys(numbers.time(window.length_ps) for window in windows)
    yield f"window {' and '.join(lengths)}" if lengths else "no window"
    left_out = f", {numbers.count(answer.left_out_count)} left out" if answer.left_out_count else ""
    yield f"{numbers.plural(answer.rows.count, 'row')}{left_out}"
    if answer.order:
        yield answer.order


def _json(request: Request, answer: Answer) -> Iterator[bytes]:
    """The rows with the keys that they have in the report."""
    from traceview.document.json_text import dumped_with_rows
    from traceview.version import VERSION

    trace = request.trace
    return dumped_with_rows(
        {
            "traceview_version": VERSION,
            "logdir": str(trace.logdir),
            "run": trace.run,
            "windows": [
                {
                    "host": trace.hosts[host].name,
                    "kind": window.kind,
                    "start_ps": window.start_ps,
                    "end_ps": window.end_ps,
                }
                for host, window in request.selection.windows.items()
            ],
            "rows": [],
            "left_out_count": answer.left_out_count,
        },
        answer.rows.rows(),
    )


# What topics say of their tables


def topic_sections(
    request: Request, topic: Analysis[Any], record: Record | None, *named: str
) -> Iterator[Section]:
    """The sections of a topic without limits on their rows; devices that were not chosen are a range.

    `record`: its result, None without one. `named`: devices that are shown, however many there are.
    """
    from traceview.analysis.context import View

    if record is None:
        return
    context, trace = request.context, request.trace
    if request.has_chosen:
        keys = (trace.device_key(index) for index in range(len(trace.device_list)))
        others = tuple(key for key in keys if key not in request.devices)
    else:
        others = request.others(*named)

    class ContextView(View, frozen=True):
        """Computes what a section asks for, and nothing else."""

        def result(self, analysis: Analysis[Any]) -> Any:
            """The result of a topic; None if there is none."""
            return self.results.get(analysis.name) or context.record(analysis)

    view = ContextView(
        results={topic.name: record},
        skipped={},
        findings=(),
        window_start_ps={
            trace.hosts[host].name: window.start_ps
            for host, window in request.selection.windows.items()
        },
        logdir=str(trace.logdir),
        run=trace.run,
        outliers=tuple(key for key in sorted(request.devices) if key not in others),
        others=others,
        most_rows=max(trace.device_columns.count, trace.host_columns.count, 1),
        other_runs=trace.other_runs,
    )
    for section_of in topic.sections:
        section = section_of(view, record)
        if section is not None:
            yield section
