"""Shows how long the model waits for input, for which host and shard, and the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.base import Finding
from traceview.analysis.context import View
from traceview.analysis.cost import cost_words
from traceview.analysis.idle import ANALYSIS as IDLE
from traceview.analysis.input.chain import chain
from traceview.analysis.input.late_shards import InputReplica
from traceview.analysis.input.result import (
    Bottleneck,
    Input,
    InputHost,
    keeps_waiting,
    work_words,
)
from traceview.analysis.input.rules import INPUT_BOUND, REPLICA_STARVED
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import VERDICTS, look_of
from traceview.trace.pipeline import SLOW_CALL_PS, InputStage

TITLE: Final = "Input pipeline"
BRIEF_STAGES: Final = 5
"""Stages in a brief document, those that work most."""
BRIEF_ROWS: Final = 8
"""Hosts, and shards, that have a row in a brief document."""

MISSING: Final = {
    "prefetch": "prefetch at the end of the pipeline",
    "parallel_map": "a parallel map",
    "parallel_interleave": "a parallel interleave",
    "cache": "a cache",
}
_HAND_ON: Final = " Stages that only hand batches on, such as Root and Prefetch, do not count."
_STEPS_BEHIND: Final = f"steps {REPLICA_STARVED.limits['late_ratio']:.0%} behind"
BEHIND: Final = (
    "A shard is behind by how much later than the earliest one it was ready; median over the steps."
)
WORK: Final = (
    "Work is time in the calls of a stage, added up over all threads; that of a parallel map is the time in which it is asked "
    "and waits for its functions, which run elsewhere. Handing over is time in which a stage only waits for what stages on other "
    "threads make, or takes it over."
)
_MEASURES: Final = {"idle": "idle time of the device", "iterator": "iterator calls"}


def section(view: View, result: Input) -> doc.Section:
    """The wait, what the pipeline lacks, and the hosts, shards and stages."""
    most_rows = BRIEF_ROWS if view.is_brief else view.most_rows
    everything = f"{view.command('analyze')} --format json"
    idle = view.result(IDLE)
    most_stages = min(BRIEF_STAGES, view.most_rows) if view.is_brief else view.most_rows
    stages = sorted(result.stages, key=lambda stage: -stage.own_ps)[:most_stages]
    return doc.Section(
        "input",
        TITLE,
        (
            *doc.notes(*_notes(result, is_brief=view.is_brief)),
            *chain(result),
            *_hosts(result.hosts, most_rows, everything),
            *_replicas(result.replicas, most_rows, everything),
            *doc.remarks(BEHIND if result.replicas else None),
            *_stages(stages, result.stage_count, view.command("input")),
            *doc.remarks(WORK if stages else None),
        ),
        lead=_lead(
            result,
            next((row for row in view.findings if row.code == INPUT_BOUND.code), None),
            has_idle=bool(idle is not None and idle.devices),
        ),
    )


def _lead(result: Input, finding: Finding | None, *, has_idle: bool) -> str:
    """`finding`: says that the input pipeline keeps the devices waiting, for some steps longer than the median one.

    `has_idle`: whether a device was recorded, whose idle time has causes.
    """
    if result.input_ratio is None:
        return f"Input wait: unknown; {result.reason}."
    worst = max(result.hosts, key=lambda row: row.input_ratio or 0.0)
    whole = "median step" if any(step.used for step in result.steps) else "window"
    share = numbers.share(result.input_ratio)
    if worst.measured_by == "idle":
        lead = (
            f"{worst.device or 'A device'} is idle and waits for input for {share} of the {whole}"
        )
    else:
        lead = f"The thread that runs the steps spends {share} of the {whole} in calls for the next batch"
    if not keeps_waiting(worst) and finding:
        return f"{lead}. A batch is ready, but the pipeline takes Python's lock or the cores from the step."
    if not keeps_waiting(worst):
        shown = "; idle time meanwhile is shown as waiting for input" if has_idle else ""
        # A buffer that is empty now and then is filled in no time.
        reason = (
            "The pipeline works little, so it"
            if worst.empty_step_ratio
            else "A batch is ready, so the pipeline"
        )
        return f"{lead}. {reason} keeps up: the calls themselves take that long{shown}."
    verdict = look_of(VERDICTS, result.verdict or "none").words
    cost = finding and cost_words(
        finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic
    )
    if finding and cost and result.verdict == "none":
        # Few steps wait, and those for long.
        share = numbers.share(finding.cost_ratio)
        return (
            f"{lead} ({verdict}), but some steps wait long: {finding.code} costs {cost} ({share})."
        )
    return f"{lead} ({verdict})."


def _notes(result: Input, *, is_brief: bool) -> tuple[str | None, ...]:
    stage = result.bottleneck
    row = next((row for row in result.hosts if stage and row.host == stage.host), None)
    missing = ", ".join(MISSING.get(key, key) for key in result.missing)
    # Where the pipeline keeps up, a change to it helps nothing; in a brief document the finding gives the advice.
    is_slow = result.verdict in ("high", "moderate") and row is not None and keeps_waiting(row)
    return (
        None
        if stage is None
        else f"Slowest stage: {_path(stage.name)}, {_work(stage, row)}."
        + (_HAND_ON if _is_below_another(result, stage) else "")
        + (f" {stage.advice}" if is_slow and not is_brief else ""),
        f"Missing: {missing}." if missing and is_slow else None,
        _fill(result, row, is_slow=is_slow),
    )


def _is_below_another(result: Input, stage: Bottleneck) -> bool:
    """Whether the table of the stages has one that works longer."""
    return any(row.own_ps > stage.own_ps for row in result.stages if row.name != stage.name)


def _fill(result: Input, row: InputHost | None, *, is_slow: bool) -> str | None:
    """How often the buffers that shield the model were empty; `is_slow`: the model waits for input."""
    if row is not None and row.empty_step_ratio is not None:
        steps = numbers.share(row.empty_step_ratio)
        return f"In {steps} of the steps the fullest prefetch buffer between it and the model was empty when asked."
    if result.empty_ratio is not None:
        by_idle = any(host.measured_by == "idle" for host in result.hosts)
        who = "the devices" if by_idle else "the thread that runs the steps"
        hardly = "" if is_slow or not result.empty_ratio else f", but {who} hardly waited for it"
        return f"The model found its input buffer empty in {numbers.share(result.empty_ratio)} of its requests{hardly}."
    return None


def _work(stage: Bottleneck, row: InputHost | None) -> str:
    """How long a stage works; reports of earlier versions know only its share of the work of all."""
    if row is None or row.work_ratio is None:
        return f"{numbers.share(stage.share_ratio)} of the work of all stages"
    return work_words(row.work_ratio)


def _hosts(hosts: Sequence[InputHost], most_rows: int, rest: str) -> tuple[doc.Table, ...]:
    """The wait of each host; with a single host the lead gives it."""
    if len(hosts) < 2:
        return ()
    rows = hosts[:most_rows]
    return doc.table(
        "Input wait by host",
        (
            doc.names("host", [row.host for row in rows]),
            doc.shares("share of the step", [row.input_ratio for row in rows]),
            doc.times("wait per step", [row.wait_per_step_ps for row in rows], priority=1),
            doc.times("wait in the window", [row.wait_ps for row in rows], priority=3),
            doc.devices(
                "device",
                [row.device for row in rows],
                priority=2,
                meaning="the device of the host that waits most",
            ),
            doc.words(
                "measured by",
                [_MEASURES.get(row.measured_by, row.measured_by) for row in rows],
                priority=5,
            ),
            doc.words("unknown because", [row.reason for row in rows], priority=4),
        ),
        row_count=len(hosts),
        rest=rest,
    )


def _replicas(replicas: Sequence[InputReplica], most_rows: int, rest: str) -> tuple[doc.Table, ...]:
    rows = replicas[:most_rows]
    hosts = {row.host for row in replicas}
    return doc.table(
        "Shards of the batch",
        (
            doc.words("shard", [str(row.shard) for row in rows]),
            doc.devices("device", [row.device for row in rows]),
            doc.names("host", [row.host for row in rows], priority=3) if len(hosts) > 1 else None,
            doc.times(
                "time in calls per step",
                [row.wait_per_step_ps for row in rows],
                meaning="time in the calls for the next part of the batch, median over the steps",
            ),
            doc.times(
                "behind first shard",
                [row.late_per_step_ps for row in rows],
                meaning="ready later than the earliest shard, median over the steps",
            ),
            doc.counts(_STEPS_BEHIND, [row.late_step_count for row in rows], priority=1),
            doc.counts("steps", [row.step_count for row in rows], priority=2),
        ),
        row_count=len(replicas),
        rest=rest,
    )


def _stages(rows: Sequence[InputStage], stage_count: int, rest: str) -> tuple[doc.Table, ...]:
    hosts, kinds = {row.host for row in rows}, {row.blocking for row in rows}
    return doc.table(
        "Stages of the input pipeline",
        (
            doc.names("stage", [_path(row.name) for row in rows]),
            doc.names("host", [row.host for row in rows], priority=3) if len(hosts) > 1 else None,
            doc.words("asked by", [_asked_by(row) for row in rows]) if len(kinds) > 1 else None,
            doc.times(
                "work in the window",
                [row.own_ps for row in rows],
                meaning="time in its calls, without the stages that it calls or waits for",
            ),
            doc.times(
                "handing over",
                [row.waiting_ps for row in rows],
                priority=1,
                meaning="for stages on other threads, in the window",
            ),
            doc.counts("calls", [row.calls for row in rows], priority=4),
            doc.counts(
                f"over {numbers.time(SLOW_CALL_PS)}", [row.slow_count for row in rows], priority=5
            ),
            doc.counts("parallel calls", [row.parallelism for row in rows], priority=6),
            doc.words("buffer", [_buffer(row) for row in rows], priority=7),
            doc.shares("calls with empty buffer", [row.empty_ratio for row in rows], priority=3),
            doc.words("added by", [_added_by(row) for row in rows], priority=2)
            if any(row.injected for row in rows)
            else None,
        ),
        row_count=stage_count,
        rest=rest,
    )


def _path(name: str) -> str:
    """The path of a stage from the root."""
    return name.removeprefix("Iterator::")


def _buffer(row: InputStage) -> str | None:
    """The typical fill of the buffer, and its size."""
    if row.buffered_median is None:
        return None
    size = "" if row.buffer_limit is None else f" of {row.buffer_limit}"
    return f"{row.buffered_median}{size}"


def _asked_by(row: InputStage) -> str:
    return "model" if row.blocking else "background threads"


def _added_by(row: InputStage) -> str:
    return "TensorFlow" if row.injected else ""
