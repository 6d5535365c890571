"""Makes the tables of `traceview show`: their rows, and what a terminal shows of them.

A table imports its topic when it is asked for: all topics take as long as reading a file of 10 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from traceview.analysis.measures.context import Context, View
from traceview.analysis.measures.device_report import MOST_ROWS, time_words, usual_devices
from traceview.analysis.rules.finding import Skipped
from traceview.analysis.rules.sentences import RunCommands
from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.cli.table import Answer, Choice, arranged, grouped, section_of
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown
from traceview.document.columns import table as shown_table
from traceview.document.phrase import Token, phrase
from traceview.report.tables import TABLES, TableKind, findings_table, table_of, topic_of
from traceview.trace.device.table import Table, flags, integers, table, texts
from traceview.trace.reading.locate import find_runs, newest_readable, summarize
from traceview.xplane.read import NOT_A_TRACE


def _view(context: Context, choice: Choice) -> View:
    """The view that sections are made from, without limits on their rows.

    Of many devices only those that differ from the others have rows of their own, unless devices were named.
    """
    trace = context.trace
    others: tuple[str, ...] = ()
    if len(trace.device_list) > MOST_ROWS and not choice.names_devices:
        from traceview.analysis.gpu_time import device_time

        times = context.record(device_time.ANALYSIS)
        others = usual_devices(times.devices) if times else ()
    return View(
        results={},
        skipped={},
        findings=(),
        window_start_ps={},
        commands=RunCommands(str(trace.logdir), trace.run, not trace.other_runs),
        others=others,
        most_rows=max(trace.device_columns.count, 1 << 16),
    )


_ORDERS: Final = {"input": "longest calls first", "copies": "longest exposed first"}


def _of_topic(name: str, context: Context, choice: Choice) -> Answer:
    """The table of one topic: where nothing is chosen a terminal shows what the topic says of all devices."""
    topic = topic_of(name)
    rows, result = table_of(context, name), context.result(topic)
    if isinstance(result, Skipped):
        return Answer(rows, remark=result.reason)
    order = _ORDERS.get(name, "")
    if choice.states or choice.least_ps or choice.sort or choice.top or choice.names_devices:
        return Answer(rows, order=order)
    view = _view(context, choice)
    return Answer(rows, lambda _: (each(view, result) for each in topic.sections), order=order)


def answer_of(name: str, context: Context, choice: Choice) -> Answer:
    """The rows of a table that are asked for."""
    kind, top = TABLES[name], choice.top_or(TABLES[name].top)
    made = _ROWS[name](context, choice) if name in _ROWS else _of_topic(name, context, choice)
    every, sections = made.rows, made.sections
    if kind.state and choice.states:
        every = every.where(kind.state, choice.states)
    if any(column.name == "device" for column in every.columns):
        nothing = () if choice.names_devices else (None,)
        every = every.where("device", (*choice.devices, *nothing))
    if choice.by:
        every = arranged(every, kind, Choice(least_ps=choice.least_ps), None)
        # A column that is asked for has to be there.
        is_short = choice.is_terminal and not choice.sort
        groups = grouped(every, kind.sums, choice.by, with_zeros=not is_short)
        made = Answer(
            groups,
            lambda shown: [section_of(shown, len(choice.by))],
            order="sums of all rows, largest first",
            remark=made.remark,
        )
        rows = arranged(groups, TableKind("", sort=kind.sums[0]), choice, top)
    elif name == "steps" and choice.top and not choice.sort:
        rows = arranged(every, kind, replace(choice, sort=kind.length or ""), top)
        made = replace(made, order="longest first")
    elif name == "steps" and not choice.sort:
        from traceview.analysis.gpu_time.steps import first_and_last

        chosen = arranged(every, kind, choice, None)
        rows = first_and_last(chosen) if choice.is_terminal else chosen
        # The section says which are not shown.
        made = replace(made, sections=sections and (lambda _: sections(chosen)))
    else:
        rows = arranged(every, kind, choice, top)
    trace, selection = context.trace, context.selection
    lengths = dict.fromkeys(numbers.time(of.length_ps) for of in selection.windows.values())
    window = f"window {' and '.join(lengths)}" if lengths else "no window"
    return replace(
        made,
        rows=rows,
        left_out_count=made.left_out_count + made.rows.count - rows.count,
        order="" if choice.sort else made.order,
        about={
            "logdir": str(trace.logdir),
            "run": trace.run,
            "windows": selection.shown(trace),
        },
        head=(f"run {trace.run}", window),
    )


def _gaps(context: Context, choice: Choice) -> Answer:
    """When a device did nothing, longest first, and what its launching thread was in."""
    from traceview.analysis.gpu_time.idle import gap_table_section
    from traceview.analysis.measures.idle_report import gap_table

    # A row has a dozen texts, so only those that are shown are made.
    rows, left_out_count = gap_table(
        context,
        devices=choice.devices,
        states=choice.states,
        least_ps=choice.least_ps,
        top=None if choice.sort or choice.by else choice.top_or(TABLES["gaps"].top),
    )
    trace, windows, gaps = context.trace, context.selection.windows, context.idle.gaps
    starts_ps = {
        trace.device_key(device): windows[trace.device_list[device].host].start_ps
        for device in gaps
    }
    return Answer(
        rows,
        lambda shown: [gap_table_section(shown, starts_ps, choice.states)],
        left_out_count,
        order="most of that first" if choice.states else "longest first",
        remark="" if gaps else "the trace holds no device event",
    )


def _steps(context: Context, choice: Choice) -> Answer:
    """How long each step took, and the states of each device in it."""
    from traceview.analysis.gpu_time.steps import step_blocks, step_table
    from traceview.analysis.measures.step_report import step_rows, why_no_steps

    steps = tuple(step_rows(context))
    rows = step_table(steps, choice.devices)

    def sections(shown: Table) -> list[doc.Section]:
        blocks = step_blocks(_view(context, choice), shown)
        return [doc.Section("steps", "Steps", blocks)] if shown.count else []

    return Answer(rows, sections, remark="" if steps else why_no_steps(context.trace))


def _ops(context: Context, _: Choice) -> Answer:
    """Each op and kernel of each device with its times, the longest first."""
    from traceview.analysis.workload.ops import op_rows_section

    rows = table_of(context, "ops")
    return Answer(
        rows,
        lambda shown: (
            op_rows_section(device, shown.where("device", (device,)))
            for device in dict.fromkeys(shown["device"])
        ),
        remark="" if rows.count else "the trace holds no device event in the window",
    )


def _collectives(context: Context, choice: Choice) -> Answer:
    """Each device in each collective: the shortest time in it is its transfer, the rest of the others is waiting."""
    from traceview.analysis.exchange import collectives

    kind = TABLES["collectives"]
    rows, top = table_of(context, "collectives"), choice.top_or(kind.top)
    is_cut = (
        not (choice.sort or choice.by) and top is not None and len(set(rows["collective"])) > top
    )
    if is_cut:
        rows = arranged(rows, kind, Choice(sort="wait_ps"), None)
    result = context.result(collectives.ANALYSIS)

    def sections(rows: Table) -> Iterator[doc.Section | None]:
        view = _view(context, choice)
        if not isinstance(result, Skipped) and not choice.names_devices:
            yield collectives.collectives_section(view, result)
        places = enumerate(zip(rows["device"], rows["is_last"], strict=True))
        shown = [at for at, (key, is_last) in places if is_last or key not in view.others]
        yield collectives.collective_rows_section(rows.at(shown))

    reason = result.reason if isinstance(result, Skipped) else ""
    order = "longest waiting first" if is_cut else ""
    return Answer(rows, sections, order=order, remark="" if rows.count else reason)


def _findings(context: Context, choice: Choice) -> Answer:
    from traceview.report.build import report_of

    report = report_of(context, window="auto", steps=None, is_for_screen=True)
    every, states = report.findings, set(choice.states)
    shown = [
        finding
        for finding in every
        if (not states or (finding.loss and not states.isdisjoint(finding.loss.states)))
        and (not finding.devices or not choice.devices.isdisjoint(finding.devices))
    ]
    left_out_count = len(every) - len(shown)

    def sections(rows: Table) -> Iterator[doc.Section]:
        time, lines = time_words(report.results.device_time), []
        for row in rows.rows():
            ratio = row["gpu_time_ratio"]
            share = "" if ratio is None else f", {numbers.percent(ratio)} of the {time}"
            code = Token(row["code"], "code")
            lines.append(phrase(code, f" ({row['severity']}{share}): ", Token(row["title"])))
        hint = "`traceview explain CODE` says what one means." if lines else None
        nothing = "No such finding." if left_out_count else "No finding."
        blocks: tuple[doc.Block, ...] = (*doc.notes(*lines), *doc.remarks(hint))
        yield doc.Section("findings", "Findings", blocks, lead="" if lines else nothing)

    return Answer(findings_table(shown), sections, left_out_count)


_ROWS: Final[dict[str, Callable[[Context, Choice], Answer]]] = {
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
    return Answer(
        rows=shown,
        sections=lambda shown: [_run_section(list(shown.rows()), can_read=chosen is not None)],
        left_out_count=rows.count - shown.count,
        about={"logdir": str(logdir)},
        code=TraceFormatError.exit_code if chosen is None else 0,
    )


def _run_section(rows: Sequence[Mapping[str, Any]], *, can_read: bool) -> doc.Section:
    """A row per file; a star marks the run that `analyze` reads by default."""
    first = {row["run"]: row for row in reversed(rows)}

    def name_of(row: Mapping[str, Any]) -> str:
        """The name of a run in its first row."""
        mark = "*" if row["is_default"] else " "
        return f"{mark} {row['run']}" if first[row["run"]] is row else ""

    def length_ps(row: Mapping[str, Any]) -> int | None:
        return None if row["duration_ns"] is None else row["duration_ns"] * 1000

    columns = (
        Shown("run", name_of, kind="name"),
        Shown("started", lambda row: numbers.date(row["started_ns"]), 2),
        Shown("length", length_ps, 3, "time"),
        Shown("host", itemgetter("host"), 1, "name"),
        Shown("devices", _devices_in),
        Shown("size", itemgetter("bytes"), 4, "bytes"),
    )
    remark = (
        "* is the run that `traceview analyze` reads by default; `--run NAME` chooses another."
        if can_read
        else "No run can be read."
    )
    damage = [f"{row['run']}, {row['host']}: {row['damage']}" for row in rows if row["damage"]]
    return doc.Section(
        "runs",
        "Runs",
        (*shown_table("Runs", rows, columns), *doc.notes(*damage), *doc.remarks(remark)),
    )


def _devices_in(row: Mapping[str, Any]) -> str:
    if row["damage"] is not None:
        return NOT_A_TRACE if row["damage"].startswith(NOT_A_TRACE) else "damaged"
    names = row["devices"].split()
    if not names:
        return "no GPU"
    kinds = [name.partition(":")[0] for name in names]
    counts = " + ".join(numbers.plural(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return f"{counts}, {len(row['devices_with_events'].split())} with events"
