"""Makes the chart of an input pipeline: its stages from the source to the model, with the wait on every edge."""

from __future__ import annotations

from traceview.analysis.input.result import Input
from traceview.document.figures import Chain, ChainStage
from traceview.trace.pipeline import InputStage

_SEPARATOR = "::"


def chain(result: Input) -> tuple[Chain, ...]:
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
