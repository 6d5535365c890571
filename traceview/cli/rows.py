"""Makes the tables of `traceview show`: their rows, and what a terminal shows of them.

A table imports its topic when it is asked for: all topics take as long as reading a file of 10 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.selection import Selection
from traceview.analysis.measures.context import Context, Options, View
from traceview.analysis.measures.device_report import MOST_ROWS, outlier_devices, time_words
from traceview.analysis.rules.finding import Skipped
from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.cli.table import TABLES, Answer, Choice, TableKind, arranged
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown
from traceview.document.columns import table as shown_table
from traceview.document.phrase import Token, phrase
from traceview.report.tables import table_of, topic_of
from traceview.trace.device.table import (
    Table,
    flags,
    floats,
    integers,
    table,
    texts,
)
from traceview.trace.model import Trace
from traceview.trace.reading.locate import FileSummary, find_runs, newest_readable, summarize
from traceview.trace.windows import StepRange, WindowKind
from traceview.xplane.source import NOT_A_TRACE


class Request(Struct, frozen=True, dict=True):
    """The request for a table: a part of a trace, the `devices` to show, by key, and the rows to choose.

    `has_chosen`: the devices were named.
    """

    trace: Trace
    selection: Selection
    devices: frozenset[str]
    has_chosen: bool
    choice: Choice
    window: WindowKind
    steps: StepRange | None

    @cached_property
    def context(self) -> Context:
        """The context that topics are computed from."""
        return Context(self.trace, self.selection, Options(top=None))

    @cached_property
    def view(self) -> View:
        """The view that sections are made from, without limits on their rows.

        Of many devices only those that differ from the others have rows of their own, unless devices were named.
        """
        trace = self.trace
        others: tuple[str, ...] = ()
        if len(trace.device_list) > MOST_ROWS and not self.has_chosen:
            from traceview.analysis.gpu_time import device_time

            times = self.context.record(device_time.ANALYSIS)
            others = outlier_devices(times.devices).others if times else ()
        return View(
            results={},
            skipped={},
            findings=(),
            window_start_ps={},
            logdir=str(trace.logdir),
            run=trace.run,
            others=others,
            most_rows=max(trace.device_columns.count, 1 << 16),
            other_runs=trace.other_runs,
        )


_ORDERS: Final = {"input": "most work first", "copies": "longest exposed first"}


def _of_topic(name: str, request: Request) -> Answer:
    """The table of one topic: where nothing is chosen a terminal shows what the topic says of all devices."""
    topic = topic_of(name)
    rows, result = table_of(request.context, name), request.context.result(topic)
    if isinstance(result, Skipped):
        return Answer(rows, remark=result.reason)

    def sections(_: Table) -> Iterator[doc.Section | None]:
        return (section_of(request.view, result) for section_of in topic.sections)

    is_whole = not request.choice.is_made and not request.has_chosen
    return Answer(rows, sections if is_whole else None, order=_ORDERS.get(name, ""))


def answer_of(name: str, request: Request) -> Answer:
    """The rows of a table that are asked for."""
    kind, choice = TABLES[name], request.choice
    made = _ROWS[name](request) if name in _ROWS else _of_topic(name, request)
    every, sections = made.rows, made.sections
    if kind.state and choice.states:
        every = every.where(kind.state, choice.states)
    if any(column.name == "device" for column in every.columns):
        every = every.where("device", request.devices)
    # Unsorted steps are shown from both ends.
    has_ends = name == "steps" and not choice.sort and not choice.top
    rows = chosen = arranged(every, kind, choice, None if has_ends else choice.top_or(kind.top))
    if has_ends and choice.is_terminal:
        from traceview.analysis.gpu_time.step_tables import first_and_last

        rows = first_and_last(chosen)
    return replace(
        made,
        rows=rows,
        # Sections of steps say which are not shown.
        sections=None if sections is None else lambda _: sections(chosen),
        left_out_count=made.left_out_count + made.rows.count - rows.count,
        order="" if choice.sort else made.order,
    )


def _gaps(request: Request) -> Answer:
    """When a device did nothing, longest first, and what its launching thread was in."""
    from traceview.analysis.gpu_time.idle import gap_table_section
    from traceview.analysis.measures.idle_report import gap_table

    choice, trace, idle = request.choice, request.trace, request.context.idle
    # A row has a dozen texts, so only those that are shown are made.
    rows, left_out_count = gap_table(
        request.context,
        devices=request.devices,
        states=choice.states,
        least_ps=choice.least_ps,
        top=None if choice.sort else choice.top_or(TABLES["gaps"].top),
    )
    starts_ps = {
        trace.device_key(device): request.selection.windows[trace.device_list[device].host].start_ps
        for device in idle.gaps
    }
    return Answer(
        rows,
        lambda shown: [gap_table_section(shown, starts_ps, choice.states)],
        left_out_count,
        order="longest first",
        remark="" if idle.gaps else "the trace holds no device event",
    )


def _steps(request: Request) -> Answer:
    """How long each step took, and the states of each device in it."""
    from traceview.analysis.gpu_time.step_tables import step_sections, step_table
    from traceview.analysis.measures.step_report import NO_STEPS, step_rows

    steps = tuple(step_rows(request.context))
    rows = step_table(steps, request.devices)
    remark = "" if steps else NO_STEPS
    if steps and not rows.count:
        count = numbers.plural(len(steps), "step")
        remark = f"{count}, but no device was recorded; traceview analyze shows how long they took"
    return Answer(rows, lambda shown: step_sections(shown, request.view.others), remark=remark)


def _ops(request: Request) -> Answer:
    """Each op and kernel of each device with its times, the longest first."""
    from traceview.analysis.workload.ops import op_rows_section

    rows = table_of(request.context, "ops")
    return Answer(
        rows,
        lambda shown: (
            op_rows_section(device, shown.where("device", (device,)))
            for device in dict.fromkeys(shown["device"])
        ),
        order="share is of the device's compute time",
        remark="" if rows.count else "the trace holds no device event in the window",
    )


def _collectives(request: Request) -> Answer:
    """Each device in each collective: the shortest time in it is its transfer, the rest of the others is waiting."""
    from traceview.analysis.exchange import collectives

    choice, context = request.choice, request.context
    top = choice.top_or(TABLES["collectives"].top)
    is_ranked = choice.sort or choice.least_ps
    rows, left_out_count = collectives.collective_table(
        context, request.devices, None if is_ranked else top
    )
    result = context.result(collectives.ANALYSIS)

    def sections(rows: Table) -> Iterator[doc.Section | None]:
        view = request.view
        if not isinstance(result, Skipped) and not request.has_chosen:
            yield collectives.collectives_section(view, result)
        places = enumerate(zip(rows["device"], rows["is_last"], strict=True))
        shown = [at for at, (key, is_last) in places if is_last or key not in view.others]
        yield collectives.collective_rows_section(rows.at(shown))

    is_shortened = top is not None and left_out_count and not is_ranked
    return Answer(
        rows,
        sections,
        left_out_count,
        order="longest waiting first" if is_shortened else "",
        remark=result.reason if isinstance(result, Skipped) and not rows.count else "",
    )


def _findings(request: Request) -> Answer:
    """Each finding of the report, the one that costs most first."""
    from traceview.report.build import report_of

    report = report_of(
        request.context, window=request.window, steps=request.steps, is_for_screen=True
    )
    every, states = report.findings, set(request.choice.states)
    shown = [
        finding
        for finding in every
        if (not states or (finding.loss and not states.isdisjoint(finding.loss.states)))
        and (not finding.devices or not request.devices.isdisjoint(finding.devices))
    ]
    losses = [finding.loss for finding in shown]
    rows = table(
        "findings",
        texts("code", [finding.code for finding in shown]),
        texts("severity", [finding.severity for finding in shown]),
        floats("gpu_time_ratio", [loss.gpu_time_ratio if loss else None for loss in losses]),
        texts("title", [finding.title for finding in shown]),
        texts("devices", [", ".join(finding.devices) or None for finding in shown]),
        integers("ps_per_step", [loss.ps_per_step if loss else None for loss in losses]),
        texts("states", [", ".join(loss.states) if loss else None for loss in losses]),
        texts("confidence", [finding.confidence for finding in shown]),
        texts("action", [finding.action for finding in shown]),
    )
    time = time_words(report.results.device_time)
    left_out_count = len(every) - len(shown)
    return Answer(rows, lambda rows: _finding_sections(rows, time), left_out_count)


def _finding_sections(rows: Table, time: str) -> Iterator[doc.Section]:
    """A line per finding."""
    lines = []
    for row in rows.rows():
        ratio = row["gpu_time_ratio"]
        share = "" if ratio is None else f", {numbers.percent(ratio)} of the {time}"
        code = Token(row["code"], "code")
        lines.append(phrase(code, f" ({row['severity']}{share}): ", Token(row["title"])))
    hint = "`traceview explain CODE` says what one means." if lines else None
    blocks: tuple[doc.Block, ...] = (*doc.notes(*lines), *doc.remarks(hint))
    yield doc.Section("findings", "Findings", blocks, lead="" if lines else "No finding.")


_ROWS: Final[dict[str, Callable[[Request], Answer]]] = {
    "gaps": _gaps,
    "steps": _steps,
    "ops": _ops,
    "collectives": _collectives,
    "findings": _findings,
}


# The runs of a log directory


_RUNS: Final = TableKind("the files of each run", things=("run",))


def run_answer(logdir: Location, choice: Choice) -> Answer:
    """A row per host file of each run below a log directory; the exit code is that of an unreadable trace if none can be read."""
    every = [summarize(run) for run in find_runs(logdir)]
    newest = newest_readable(every)
    chosen = None if newest is None else every[newest].name
    files = [(run, file) for run in every for file in run.files]
    rows = table(
        "runs",
        texts("run", [run.name for run, _ in files]),
        flags("is_default", [run.name == chosen for run, _ in files], is_optional=False),
        texts("host", [file.host for _, file in files]),
        integers("started_ns", [file.profile_start_ns for _, file in files]),
        integers("duration_ns", [file.duration_ns for _, file in files]),
        texts("devices", [" ".join(file.device_names) for _, file in files]),
        texts("devices_with_events", [" ".join(f.device_names_with_lines) for _, f in files]),
        integers("bytes", [file.bytes for _, file in files]),
        texts("damage", [file.damage for _, file in files]),
    )
    shown = arranged(rows, _RUNS, choice, choice.top)
    names = list(dict.fromkeys(shown["run"]))
    of_names = [pair for name in names for pair in files if pair[0].name == name]
    return Answer(
        rows=shown,
        sections=lambda _: [_run_section([(run.name, file) for run, file in of_names], chosen)],
        left_out_count=rows.count - shown.count,
        about={"logdir": str(logdir)},
        code=TraceFormatError.exit_code if chosen is None else 0,
    )


def _run_section(files: Sequence[tuple[str, FileSummary]], chosen: str | None) -> doc.Section:
    """A row per file; `chosen`: the name of the run that `analyze` reads by default, None if none can be read."""
    first = dict(reversed([(run, file) for run, file in files]))

    def name_of(row: tuple[str, FileSummary]) -> str:
        """The name of a run in its first row, with a star if it is the one to read."""
        run, file = row
        return f"{'*' if run == chosen else ' '} {run}" if first[run] is file else ""

    def length_ps(row: tuple[str, FileSummary]) -> int | None:
        return None if row[1].duration_ns is None else row[1].duration_ns * 1000

    columns = (
        Shown("run", name_of, kind="name"),
        Shown("started", lambda row: numbers.date(row[1].profile_start_ns), 2),
        Shown("length", length_ps, 3, "time"),
        Shown("host", lambda row: row[1].host, 1, "name"),
        Shown("devices", lambda row: _devices_in(row[1])),
        Shown("size", lambda row: row[1].bytes, 4, "bytes"),
    )
    remark = (
        "No run can be read."
        if chosen is None
        else "* is the run that `traceview analyze` reads by default; `--run NAME` chooses another."
    )
    damage = [f"{run}, {file.host}: {file.damage}" for run, file in files if file.damage]
    return doc.Section(
        "runs",
        "Runs",
        (*shown_table("Runs", files, columns), *doc.notes(*damage), *doc.remarks(remark)),
    )


def _devices_in(file: FileSummary) -> str:
    if file.damage is not None:
        return NOT_A_TRACE if file.damage.startswith(NOT_A_TRACE) else "damaged"
    if not file.device_names:
        return "no GPU"
    kinds = [name.partition(":")[0] for name in file.device_names]
    counts = " + ".join(numbers.plural(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return f"{counts}, {len(file.device_names_with_lines)} with events"
