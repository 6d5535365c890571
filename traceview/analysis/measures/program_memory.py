"""States what memory XLA programs take while they run, and which layers and arguments hold it at the peak of the program."""

from __future__ import annotations

import re
from typing import Annotated, Final

from traceview.analysis.facts.layers import op_places
from traceview.analysis.measures.context import Context
from traceview.base.record import Count, FunctionName, OpName, Record, one_of
from traceview.trace.device.op_names import Phase
from traceview.trace.model import Recording
from traceview.xplane.hlo_buffers import KINDS, ProgramBuffers

MOST_PROGRAMS: Final = 10
MOST_ROWS: Final = 50
"""Of a program in a report."""

OTHER: Final = "other"
PHASES: Final = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
}
_ARGUMENT: Final = KINDS[0]
_NUMBER: Final = re.compile(r"\d+")
_ID: Final = re.compile(r"\(\d*\)$")


class HeldByProgram(Record, frozen=True):
    """What one layer, or one argument, holds at the peak of a program, with those that are called alike but for numbers.

    Attributes:
        kind: argument, result and constant: of the program; temporary: what it allocates beside them.
        held_by: The layer of the ops that compute it, or the name of the argument, with a star for each number if there are
            several; null where the program names neither.
        phase: The phase of the step that its ops are a part of; other where their names do not show it.
        bytes: How many bytes.
        count: In how many buffers.
    """

    kind: Annotated[str, one_of(*KINDS)]
    held_by: OpName | None
    phase: Annotated[str, one_of(*PHASES.values(), OTHER)]
    bytes: Count
    count: Count


class ProgramMemory(Record, frozen=True):
    """What an XLA program that ran takes by its own account, on each of its devices.

    Attributes:
        program: Name of the program.
        argument_bytes: Of its arguments, and of the results that take their place.
        result_bytes: Of its other results; temporaries may be in them meanwhile.
        constant_bytes: Of its constants.
        temporary_bytes: What a run allocates for temporaries.
        live_bytes: The most of these that is in use at the same time.
        held: What is in use then, by layer or argument, the most first; only of the three programs of a host that take most.
    """

    program: FunctionName
    argument_bytes: Count
    result_bytes: Count
    constant_bytes: Count
    temporary_bytes: Count
    live_bytes: Count
    held: tuple[HeldByProgram, ...]

    @property
    def whole_bytes(self) -> int:
        """What is taken while it runs."""
        return self.argument_bytes + self.result_bytes + self.constant_bytes + self.temporary_bytes


def program_memory(context: Context) -> tuple[ProgramMemory, ...]:
    """The programs that take most."""
    ranked = sorted(context.trace.program_buffers, key=lambda of: (-of.whole_bytes, of.program))
    return tuple(_program(context.trace, of) for of in ranked[:MOST_PROGRAMS])


def _program(trace: Recording, of: ProgramBuffers) -> ProgramMemory:
    return ProgramMemory(
        program=_ID.sub("", of.program.decode("utf-8", "replace")),
        argument_bytes=of.argument_bytes,
        result_bytes=of.result_bytes,
        constant_bytes=of.constant_bytes,
        temporary_bytes=of.temporary_bytes,
        live_bytes=of.peak_bytes,
        held=tuple(_held(trace, of)[:MOST_ROWS]),
    )


def _held(trace: Recording, of: ProgramBuffers) -> list[HeldByProgram]:
    """What is live at the peak, with what is called alike but for numbers in one row, the most first."""
    places = op_places(trace, dict.fromkeys(live.scope for live in of.live))
    alike: dict[tuple[str, str | None, str], tuple[set[str], int, int]] = {}
    for live in of.live:
        place, phase = places[live.scope]
        name = live.scope if live.kind == _ARGUMENT else "/".join(place.scopes)
        pattern = _NUMBER.sub("*", name) if name else None
        key = live.kind, pattern, PHASES.get(phase, OTHER)
        names, size, count = alike.get(key, (set(), 0, 0))
        alike[key] = names | {name}, size + live.bytes, count + live.count
    rows = [
        HeldByProgram(kind, pattern if len(names) > 1 else min(names) or None, phase, size, count)
        for (kind, pattern, phase), (names, size, count) in alike.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.kind, row.held_by or "", row.phase))
