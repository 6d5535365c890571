"""Shows how long the model waits for input, for which host and shard, and the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.facts.input_supply import LATE_RATIO, InputShard
from traceview.analysis.gpu_time.input.result import Bottleneck, Input, InputHost
from traceview.analysis.measures.context import View
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import Chain, ChainStage
from traceview.document.vocabulary import VERDICTS, look_of
from traceview.trace.host.pipeline import SLOW_CALL_PS, InputStage

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
_STEPS_BEHIND: Final = f"steps {LATE_RATIO:.0%} behind"
BEHIND: Final = (
    "A shard is behind by how much later than the earliest one it was ready; median over the steps."
)
_SEPARATOR: Final = "::"
WORK: Final = (
    "Work is time in the calls of a stage, added up over all threads; that of a parallel map is the time in which it is asked "
    "and waits for its functions, which run elsewhere. Handing over is time in which a stage only waits for what stages on other "
    "threads make, or takes it over."
)
_MEASURES: Final = {"ledger": "time of the device", "iterator": "iterator calls"}


def section(view: View, result: Input) -> doc.Section:
    """The wait, what the pipeline lacks, and the hosts, shards and stages."""
    most_rows = BRIEF_ROWS if view.is_brief else view.most_rows
    everything = f"{view.command('analyze')} --format json"
    most_stages = min(BRIEF_STAGES, view.most_rows) if view.is_brief else view.most_rows
    stages = sorted(result.stages, key=lambda stage: -stage.own_ps)[:most_stages]
    return doc.Section(
        "input",
        TITLE,
        (
            *doc.notes(*_notes(result)),
            *_chain(result),
            *_hosts(result.hosts, most_rows, everything),
            *_shards(result.shards, most_rows, everything),
            *doc.remarks(BEHIND if result.shards else None),
            *_stages(stages, result.stage_count, view.command("show input")),
            *doc.remarks(WORK if stages else None),
        ),
        lead=_lead(result),
    )


def _lead(result: Input) -> str:
    if result.input_ratio is None:
        return f"Input wait: unknown; {result.reason}."
    worst = max(result.hosts, key=lambda row: row.input_ratio or 0.0)
    whole = "step" if any(step.used for step in result.steps) else "window"
    share = numbers.percent(result.input_ratio)
    verdict = look_of(VERDICTS, result.verdict or "none").words
    if worst.measured_by == "iterator":
        lead = f"The thread that runs the steps waits {share} of the {whole} for the next batch"
    else:
        lead = f"{worst.device or 'A device'} waits {share} of the {whole} for input"
    if not worst.keeps_up:
        return f"{lead} ({verdict})."
    if result.verdict == "none":
        return f"{lead}. The pipeline keeps up: a batch is ready when the model asks."
    return f"{lead} ({verdict}). A batch is ready, but Python of the pipeline keeps the lock from the step."


def _notes(result: Input) -> tuple[str | None, ...]:
    stage = result.bottleneck
    row = next((row for row in result.hosts if stage and row.host == stage.host), None)
    missing = ", ".join(MISSING.get(key, key) for key in result.missing)
    # Where the pipeline keeps up, a change to it helps nothing.
    is_slow = result.verdict in ("high", "moderate") and row is not None and not row.keeps_up
    return (
        None
        if stage is None
        else f"Slowest stage: {_path(stage.name)}, {_work(stage, row)}."
        + (_HAND_ON if _is_below_another(result, stage) else ""),
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
        by_device = any(host.measured_by == "ledger" for host in result.hosts)
        who = "the devices" if by_device else "the thread that runs the steps"
        hardly = "" if is_slow or not result.empty_ratio else f", but {who} hardly waited for it"
        return f"The model found its input buffer empty in {numbers.share(result.empty_ratio)} of its requests{hardly}."
    return None


def _work(stage: Bottleneck, row: InputHost | None) -> str:
    """How long a stage works, on one thread or on several."""
    if row is None or row.work_ratio is None:
        return f"{numbers.percent(stage.share_ratio)} of the work of all stages"
    more = ", on more than one thread" if row.work_ratio > 1 else ""
    return f"works {numbers.percent(row.work_ratio)} of the window{more}"


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
            doc.times("wait in all", [row.wait_ps for row in rows], priority=3),
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


def _shards(shards: Sequence[InputShard], most_rows: int, rest: str) -> tuple[doc.Table, ...]:
    rows = shards[:most_rows]
    hosts = {row.host for row in shards}
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
        row_count=len(shards),
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


def _chain(result: Input) -> tuple[Chain, ...]:
    """The pipeline of the slowest stage, or of the stage that takes longest; nothing without two stages of one."""
    named = result.bottleneck
    blocking = [stage for stage in result.stages if stage.blocking] or list(result.stages)
    if not blocking:
        return ()
    host = named.host if named else blocking[0].host
    stages = {stage.name: stage for stage in result.stages if stage.host == host}
    inside = named.name if named and named.name in stages else blocking[0].name
    leaves = [name for name in stages if _is_above(inside, name) or name == inside]
    leaf = max(leaves, key=lambda name: name.count(_SEPARATOR), default=inside)
    path = [name for name in stages if name == leaf or _is_above(name, leaf)]
    path.sort(key=lambda name: -name.count(_SEPARATOR))
    if len(path) < 2:
        return ()
    model_wait = next((row.wait_ps for row in result.hosts if row.host == host), None)
    return (
        Chain(
            tuple(
                ChainStage(
                    name=name.rpartition(_SEPARATOR)[2],
                    own_ps=stages[name].own_ps,
                    awaited_ps=_waited(stages[above], stages[name]) if above else model_wait,
                    is_slowest=named is not None and name == named.name,
                )
                for name, above in zip(path, [*path[1:], ""], strict=True)
            )
        ),
    )


def _waited(stage: InputStage, input_stage: InputStage) -> int | None:
    """How long a stage waited for its input on another thread; None on its own thread, where it called it instead."""
    return (
        None if stage.threads == input_stage.threads and not stage.waiting_ps else stage.waiting_ps
    )


def _is_above(name: str, below: str) -> bool:
    """Whether a stage stands nearer to the model than another one of its pipeline."""
    return below.startswith(f"{name}{_SEPARATOR}")
