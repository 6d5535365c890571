"""Lists the tables of `traceview show`: of each what its rows are, and which options have a meaning for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.cli.table import Answer, Choice, Request, arranged, topic_sections
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, STATES
from traceview.ledger.states import IDLE_STATES
from traceview.trace.device.table import flags, integers, table, texts
from traceview.trace.reading.locate import (
    FileSummary,
    RunSummary,
    find_runs,
    newest_readable,
    summarize,
)
from traceview.xplane.source import NOT_A_TRACE

if TYPE_CHECKING:
    from traceview.analysis.rules.finding import Finding
    from traceview.document.model import Section
    from traceview.trace.device.table import Table


def run_section(runs: Sequence[RunSummary], chosen: str | None) -> doc.Section:
    """A table of the runs; `chosen`: the name of the run that `analyze` reads by default, None if none can be read."""
    remark = (
        "No run can be read."
        if chosen is None
        else "* is the run that `traceview analyze` reads by default; `--run NAME` chooses another."
    )
    damage = [
        f"{run.name}, {file.host}: {file.damage}"
        for run in runs
        for file in run.files
        if file.damage
    ]
    return doc.Section(
        "runs",
        "Runs",
        (*doc.table("Runs", _columns(runs, chosen)), *doc.notes(*damage), *doc.remarks(remark)),
    )


def _columns(runs: Sequence[RunSummary], chosen: str | None) -> Iterator[doc.Column]:
    files = [file for run in runs for file in run.files]
    yield doc.names("run", [name for run in runs for name in _names(run, run.name == chosen)])
    yield doc.words("started", [numbers.date(file.profile_start_ns) for file in files], priority=2)
    lengths = [None if file.duration_ns is None else file.duration_ns * 1000 for file in files]
    yield doc.times("length", lengths, priority=3)
    yield doc.names("host", [file.host for file in files], priority=1)
    yield doc.words("devices", map(_devices, files))
    yield doc.sizes("size", [file.bytes for file in files], priority=4)


def _names(run: RunSummary, is_chosen: bool) -> list[str]:
    """The name of a run in its first row, with a star if it is the one to read."""
    return [f"{'*' if is_chosen else ' '} {run.name}", *[""] * (len(run.files) - 1)][
        : len(run.files)
    ]


def _devices(file: FileSummary) -> str:
    if file.damage is not None:
        return NOT_A_TRACE if file.damage.startswith(NOT_A_TRACE) else "damaged"
    if not file.device_names:
        return "no GPU"
    kinds = [name.partition(":")[0] for name in file.device_names]
    counts = " + ".join(numbers.plural(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return f"{counts}, {len(file.device_names_with_lines)} with events"


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
    shown = arranged(rows, choice, things=("run",))
    names = dict.fromkeys(shown["run"])
    by_name = {run.name: run for run in every}
    return Answer(
        rows=shown,
        sections=lambda: [run_section([by_name[name] for name in names], chosen)],
        left_out_count=rows.count - shown.count,
        about={"logdir": str(logdir)},
        code=TraceFormatError.exit_code if chosen is None else 0,
    )


TOP_GAPS: Final = 20
TOP_COLLECTIVES: Final = 10
TOP_OPS: Final = 50
"""Of each device on a terminal."""
"""Rows on a terminal, where the longest fit on one screen, with room for the rest of the answer."""

_IDLE: Final = {state.key: STATES[state.key] for state in IDLE_STATES}
_COPIES: Final = {key: CLASSES[key] for key in ("h2d", "d2h", "d2d")}


class TableKind(Struct, frozen=True):
    """A table of a trace.

    `make`: its answer. `summary`: what its rows are. `states`: what `--state` takes, by key its display name; empty where
    it has no meaning. `length`: the column that `--min` bounds, or "". `has_devices`: whether rows are about devices.
    """

    make: Callable[[Request], Answer]
    summary: str
    states: Mapping[str, str] = {}
    length: str = ""
    has_devices: bool = True


def gaps(request: Request) -> Answer:
    """When a device did nothing, longest first, and what its launching thread was in."""
    from traceview.analysis.measures.listed_gaps import gap_table, gap_table_section

    choice, trace = request.choice, request.trace
    top = choice.top_or(TOP_GAPS)
    idle = request.context.idle
    windows = {
        trace.device_key(device): request.selection.windows[trace.device_list[device].host].start_ps
        for device in idle.gaps
    }
    # A row has a dozen texts, so only those that are shown are made.
    rows, left_out_count = gap_table(
        request.context,
        devices=request.devices,
        states=choice.states,
        least_ps=choice.least_ps,
        top=None if choice.sort else top,
    )
    if choice.sort:
        every = rows
        rows = arranged(every, choice, top=top)
        left_out_count = every.count - rows.count
    return Answer(
        rows=rows,
        sections=lambda: [gap_table_section(rows, windows, choice.states)],
        left_out_count=left_out_count,
        order="" if choice.sort else "longest first",
        remarks=() if idle.gaps else ("the trace holds no device event",),
    )


def steps(request: Request) -> Answer:
    """How long each step took, and the states of each device in it."""
    from traceview.analysis.gpu_time import steps as topic
    from traceview.analysis.gpu_time.steps.table import (
        MOST_STEPS,
        first_and_last,
        step_sections,
        step_table,
    )
    from traceview.analysis.rules.finding import Skipped
    from traceview.document.numbers import plural

    context, choice = request.context, request.choice
    result = context.result(topic.ANALYSIS)
    rows = step_table(context.record(topic.ANALYSIS), request.devices)
    is_ranked = bool(choice.sort or choice.top)
    top = choice.top_or(MOST_STEPS) if is_ranked else None
    chosen = arranged(rows, choice, length="duration_ps", things=("host", "number"), top=top)
    shown = chosen if is_ranked or not choice.is_terminal else first_and_last(chosen)
    remarks: tuple[str, ...] = ()
    if isinstance(result, Skipped):
        remarks = (result.reason,)
    elif not rows.count:
        count = plural(result.count, "step")
        remarks = (
            f"{count}, but no device was recorded; traceview analyze shows how long they took",
        )
    return Answer(
        rows=shown,
        sections=lambda: step_sections(chosen, request.others()),
        left_out_count=rows.count - shown.count,
        remarks=remarks,
    )


def devices(request: Request) -> Answer:
    """Each device with the parts of its time."""
    from traceview.analysis.gpu_time import device_time

    result = request.context.record(device_time.ANALYSIS)
    return _of_topic(
        request,
        device_time.device_table(result),
        lambda: topic_sections(request, device_time.ANALYSIS, result),
    )


def balance(request: Request) -> Answer:
    """Each device that computed: how long, and who waits for whom."""
    from traceview.analysis.exchange import balance as topic
    from traceview.analysis.rules.finding import Skipped

    context = request.context
    result, absent = context.record(topic.ANALYSIS), context.result(topic.ANALYSIS)
    late = (result.straggler.device,) if result and result.straggler else ()
    answer = _of_topic(
        request,
        topic.balance_table(result),
        lambda: topic_sections(request, topic.ANALYSIS, result, *late),
    )
    reason = (absent.reason,) if isinstance(absent, Skipped) else ()
    return replace(answer, remarks=reason)


def _of_topic(request: Request, rows: Table, sections: Callable[[], Iterator[Section]]) -> Answer:
    """A row per device. A terminal shows what the report says of them, unless rows are sorted or limited."""
    choice = request.choice
    chosen = arranged(rows.where("device", request.devices), choice)
    return Answer(
        rows=chosen,
        sections=None if choice.sort or choice.top else sections,
        left_out_count=rows.count - chosen.count,
    )


def ops(request: Request) -> Answer:
    """Each op and kernel of each device with its times, the longest first."""
    from traceview.analysis.workload.ops import table_in_window
    from traceview.trace.device.table import table, texts
    from traceview.trace.frames import event_tables

    groups = table_in_window(request.trace, request.selection)
    rows = event_tables.ops(request.trace, groups)
    rows = table(
        rows.name,
        *(
            texts(column.name, column.cells()) if column.kind == "category" else column
            for column in rows.columns
        ),
    )
    choice = request.choice
    chosen = rows.where("device", request.devices)
    if choice.states:
        chosen = chosen.where("class", choice.states)
    by_time = replace(choice, sort=choice.sort or "total_ps")
    shown = arranged(
        chosen, by_time, length="total_ps", within="device", top=choice.top_or(TOP_OPS)
    )
    return Answer(
        rows=shown,
        sections=lambda: _op_sections(shown),
        left_out_count=rows.count - shown.count,
        order="share is of the device's compute time",
        remarks=() if rows.count else ("the trace holds no device event in the window",),
    )


def _op_sections(rows: Table) -> Iterator[Section]:
    """A table for each device."""
    from traceview.analysis.workload.ops import SHARE_ABOVE_ALL
    from traceview.document.model import Section, counts, looks, names, remarks, shares, times
    from traceview.document.model import table as table_block
    from traceview.document.vocabulary import look_of

    for device in dict.fromkeys(rows["device"]):
        of_device = rows.where("device", (device,))
        kernels = [kernel and kernel.removeprefix("void ") for kernel in of_device["kernel"]]
        shares_of_compute = of_device["share_ratio"]
        columns = (
            names("op", of_device["op"]),
            names("kernel", kernels),
            times("total", of_device["total_ps"]),
            shares("share", shares_of_compute),
            counts("count", of_device["count"], priority=1),
            looks("class", [look_of(CLASSES, key) for key in of_device["class"]], priority=2),
        )
        overlaps = any(share is not None and share > 1 for share in shares_of_compute)
        remark = SHARE_ABOVE_ALL if overlaps else None
        yield Section(
            f"ops-{device}", device, (*table_block("Ops and kernels", columns), *remarks(remark))
        )


def input_stages(request: Request) -> Answer:
    """Each stage of tf.data with its work: the time in its calls without the stages that it calls or waits for."""
    from traceview.analysis.gpu_time import input as topic
    from traceview.analysis.gpu_time.input.result import compute
    from traceview.analysis.rules.finding import Skipped
    from traceview.trace.device.table import record_columns, table
    from traceview.trace.host.pipeline import InputStage

    choice = request.choice
    is_ranked = bool(choice.sort or choice.least_ps)
    result = compute(request.context, None if is_ranked else choice.top)
    record = None if isinstance(result, Skipped) else result
    stages = table("input_stages", *record_columns(InputStage, record.stages if record else ()))
    rows = arranged(stages, choice, length="self_ps") if is_ranked else stages
    return Answer(
        rows=rows,
        sections=None if is_ranked else lambda: topic_sections(request, topic.ANALYSIS, record),
        left_out_count=(record.stage_count if record else 0) - rows.count,
        order="" if choice.sort else "most work first",
        remarks=(result.reason,) if isinstance(result, Skipped) else (),
    )


def copies(request: Request) -> Answer:
    """Each op or thread that issues copies, longest exposed first: those while which the GPU does nothing else."""
    from traceview.analysis.exchange import transfers as topic
    from traceview.analysis.measures.transfers import CopySource, transfers_of
    from traceview.analysis.rules.finding import Skipped
    from traceview.trace.device.table import record_columns, table

    choice = request.choice
    result = transfers_of(request.context, None)
    of_devices = () if isinstance(result, Skipped) else result.devices
    sources = [
        source
        for device in of_devices
        if device.device in request.devices
        for source in device.top_sources
        if not choice.states or source.direction in choice.states
    ]
    every = table("copies", *record_columns(CopySource, sources))
    rows = arranged(every, choice, length="total_ps", within="device")

    def sections() -> Iterator[Section]:
        shown = tuple(
            replace(
                device,
                top_sources=tuple(
                    source
                    for source in device.top_sources
                    if not choice.states or source.direction in choice.states
                )[: choice.top],
            )
            for device in of_devices
            if device.device in request.devices
        )
        record = None if isinstance(result, Skipped) else replace(result, devices=shown)
        return topic_sections(request, topic.ANALYSIS, record)

    return Answer(
        rows=rows,
        sections=None if choice.sort or choice.least_ps else sections,
        left_out_count=sum(device.source_count for device in of_devices) - rows.count,
        order="" if choice.sort else "longest exposed first",
        remarks=(result.reason,) if isinstance(result, Skipped) else (),
    )


def collectives(request: Request) -> Answer:
    """Each device in each collective: the shortest time in it is its transfer, the rest of the others is waiting."""
    from traceview.analysis.exchange import collectives as topic
    from traceview.analysis.measures.collectives import collective_table
    from traceview.analysis.rules.finding import Skipped

    choice, context = request.choice, request.context
    top = choice.top_or(TOP_COLLECTIVES)
    is_ranked = bool(choice.sort or choice.least_ps)
    rows, left_out_count = collective_table(
        request.trace,
        request.selection,
        context.collectives,
        request.devices,
        None if is_ranked else top,
    )
    if is_ranked:
        every = rows
        rows = arranged(every, choice, length="duration_ps", things=("collective",), top=top)
        left_out_count += every.count - rows.count
    result = context.result(topic.ANALYSIS)

    def sections() -> Iterator[Section | None]:
        yield from topic_sections(request, topic.ANALYSIS, context.record(topic.ANALYSIS))
        others = request.others()
        places = zip(rows["device"], rows["is_last"], strict=True)
        shown = [at for at, (key, is_last) in enumerate(places) if is_last or key not in others]
        yield topic.collective_rows_section(rows.at(shown))

    is_longest_first = top is not None and left_out_count and not is_ranked
    return Answer(
        rows=rows,
        sections=sections,
        left_out_count=left_out_count,
        order="longest waiting first" if is_longest_first else "",
        remarks=(result.reason,) if isinstance(result, Skipped) and not rows.count else (),
    )


def findings(request: Request) -> Answer:
    """Each finding of the report, the one that costs most first."""
    from traceview.trace.device.table import floats, integers, table, texts

    choice, every = request.choice, request.report.findings

    def is_wanted(finding: Finding) -> bool:
        of_state = finding.loss.states if finding.loss else ()
        return (not choice.states or not set(choice.states).isdisjoint(of_state)) and (
            not finding.devices or not request.devices.isdisjoint(finding.devices)
        )

    shown = [finding for finding in every if is_wanted(finding)]
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
    rows = arranged(rows, choice)
    return Answer(
        rows=rows,
        sections=lambda: [_findings_section(rows)],
        left_out_count=len(every) - rows.count,
    )


def _findings_section(rows: Table) -> Section:
    """A line per finding."""
    from traceview.document import model as doc
    from traceview.document import numbers
    from traceview.document.phrase import Token, phrase

    names = ("code", "severity", "gpu_time_ratio", "title")
    lines = []
    for code, severity, ratio, title in zip(*(rows[name] for name in names), strict=True):
        share = "" if ratio is None else f", {numbers.percent(ratio)} of the GPU time"
        lines.append(phrase(Token(code, "code"), f" ({severity}{share}): ", Token(title)))
    return doc.Section(
        "findings",
        "Findings",
        (
            *doc.notes(*lines),
            *doc.remarks("`traceview explain CODE` says what one means." if lines else None),
        ),
        lead="" if lines else "No finding.",
    )


TABLES: Final = {
    "gaps": TableKind(
        gaps,
        "when a device did nothing, and why",
        states={key: look.words for key, look in _IDLE.items()},
        length="duration_ps",
    ),
    "steps": TableKind(
        steps, "how long each step took, and what went into it", length="duration_ps"
    ),
    "devices": TableKind(devices, "how busy each device was, and with what"),
    "ops": TableKind(
        ops,
        "every op and kernel",
        states={key: look.words for key, look in CLASSES.items()},
        length="total_ps",
    ),
    "input": TableKind(input_stages, "the stages of tf.data", length="self_ps", has_devices=False),
    "copies": TableKind(
        copies,
        "what issues copies between host and GPUs",
        states={key: look.words for key, look in _COPIES.items()},
        length="total_ps",
    ),
    "collectives": TableKind(collectives, "who waits in which collective", length="duration_ps"),
    "balance": TableKind(balance, "how evenly the devices work"),
    "findings": TableKind(
        findings,
        "what the report concludes",
        states={key: look.words for key, look in STATES.items()},
    ),
}
"""The tables of a trace by name, in the order in which the help shows them."""
