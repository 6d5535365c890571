"""Defines what a topic is, what it computes from, and what its section is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from traceview.analysis.facts.ledger import ledger_of
from traceview.analysis.facts.python import PythonShare, shared
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import Selection
from traceview.analysis.rules.finding import Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import RunCommands
from traceview.base.record import Record
from traceview.base.timing import stage
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, columns, table
from traceview.document.model import Section
from traceview.ledger.table import Ledger
from traceview.trace.device.table import Table
from traceview.trace.model import Trace


class _HasDevice(Protocol):
    """A row about one device."""

    @property
    def device(self) -> str: ...


R = TypeVar("R", bound=Record)
D = TypeVar("D", bound=_HasDevice)
N = TypeVar("N")


def _range(column: doc.Column) -> str:
    """Between which values those of a column lie, after the words that some rows have instead: `none or 57.7–57.9%`."""
    words = dict.fromkeys(value for value in column.values if isinstance(value, str))
    known = [value for value in column.values if not isinstance(value, str | None)]
    if words and not known:
        return " or ".join(words)
    return " or ".join((*words, _RANGES[column.kind](known)))


def _nothing(*_: object) -> Iterable[Finding]:
    return ()


_RANGES: Final[Mapping[str, Callable[[Any], str]]] = {
    "time": numbers.time_range,
    "share": numbers.share_range,
}
"""How the range of values of a kind is written."""

_MOST_PRIORITY: Final = 3
"""Columns of a higher number, which go first where room is short, have no range."""

FEW_ROWS: Final = 6
"""Rows on a terminal of a table whose first rows say most."""

TOP_OPS: Final = 10
"""Rows of the op table per device in a report, unless asked otherwise."""


TOP_GAPS: Final = 10
"""Gaps per device in a report; `traceview show gaps` shows all."""


class Options(Struct, frozen=True):
    """Options of a caller. `top`: op rows per device, None for all rows of all tables. `gaps`: per device."""

    top: int | None = TOP_OPS
    gaps: int = TOP_GAPS

    def rows_of(self, few: int) -> int | None:
        """How many rows a table has that a report shortens to so many."""
        return None if self.top is None else few


class Analysis(Struct, Generic[R], frozen=True):
    """A topic: how its result is computed, what is concluded from it, and how it is shown.

    `name`: its key in the results of a report. `compute`: the result, or why there is none. `rules`: the findings that it can
    lead to. `diagnose`: these, None for one that is not made; `if_absent`: those without a result; `conclude`: those that are only
    made where the findings so far do not explain them. `sections`: its parts of a document, None where it has nothing to show.
    `title_if_absent`: the title of a section that gives the reason where there is no result; without it nothing is said. `rows`:
    the records in a result that are the rows of its table in `traceview show`, and their type; `table`: makes a table that is more
    than that. Both have all rows of a context whose options leave out none.
    """

    name: str
    compute: Callable[[Context], R | Skipped]
    rules: tuple[Rule, ...] = ()
    diagnose: Callable[[Context, R], Iterable[Finding | None]] = _nothing
    if_absent: Callable[[Context], Iterable[Finding | None]] = _nothing
    conclude: Callable[[Context, R | Skipped, Sequence[Finding]], Iterable[Finding]] = _nothing
    sections: tuple[Callable[[View, R], Section | None], ...] = ()
    title_if_absent: str = ""
    rows: tuple[type[Record], Callable[[R], Iterable[Record]]] | None = None
    table: Callable[[Context], Table] | None = None


class Context(Run):
    """A run with its ledger, and with the results and findings of the topics."""

    def __init__(self, trace: Trace, selection: Selection, options: Options | None = None) -> None:
        super().__init__(trace, selection)
        self.options = options or Options()

    @property
    def ledger(self) -> Ledger:
        """Where every picosecond of every device went."""
        return self.once(ledger_of)

    @property
    def python_of_input(self) -> Mapping[str, PythonShare]:
        """By name of the host: the Python that threads other than that of the steps ran in the window."""
        return self.once(_python_of_input)

    def result(self, analysis: Analysis[R]) -> R | Skipped:
        """The result of a topic, or why there is none."""
        with stage(f"analysis of {analysis.name}"):
            return self._once(("result", analysis.name), lambda: analysis.compute(self))

    def record(self, analysis: Analysis[R]) -> R | None:
        """The result of a topic; None if there is none."""
        result = self.result(analysis)
        return None if isinstance(result, Skipped) else result

    def findings(self, analysis: Analysis[R]) -> tuple[Finding, ...]:
        """The conclusions from a topic alone."""
        return self._once(("findings", analysis.name), lambda: self._findings(analysis))

    def _findings(self, analysis: Analysis[R]) -> tuple[Finding, ...]:
        result = self.record(analysis)
        with stage("findings"):
            made = analysis.if_absent(self) if result is None else analysis.diagnose(self, result)
            return tuple(filter(None, made))


def _python_of_input(context: Context) -> Mapping[str, PythonShare]:
    hosts, windows = context.trace.hosts, context.selection.windows
    lines = {hosts[at].name: of.of_others(windows[at]) for at, of in context.idle.python.items()}
    return {host: shared(line) for host, line in lines.items() if line}


class View(Struct, frozen=True):
    """A finished report, as the section of a topic sees it.

    `results`: by name, without those that are absent; `skipped`: why. `window_start_ps`: by host, since the origin of
    the run. `others`: keys of the devices that are shown as a range, for they are many and do not stand out. `most_rows`: of one table. `is_brief`: for a terminal, where nobody scrolls far. `commands`: those
    that show more.
    """

    results: Mapping[str, Any]
    skipped: Mapping[str, str]
    findings: tuple[Finding, ...]
    window_start_ps: Mapping[str, int]
    commands: RunCommands
    others: tuple[str, ...] = ()
    most_rows: int = 64
    is_brief: bool = False

    @property
    def few_rows(self) -> int:
        """How many rows a table has whose first ones say most."""
        return min(FEW_ROWS, self.most_rows) if self.is_brief else self.most_rows

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes cost so much that longer steps are no proof against the profiler."""
        return any(finding.is_disturbance for finding in self.findings)

    def result(self, analysis: Analysis[R]) -> R | None:
        """The result of a topic; None if the report has none."""
        return self.results.get(analysis.name)

    def record(self, name: str, kind: type[N]) -> N | None:
        """The result of another topic by its name, as a section shows a number of it; None if the report has none."""
        result = self.results.get(name)
        return result if isinstance(result, kind) else None

    def split(self, rows: Iterable[D]) -> tuple[list[D], list[D]]:
        """The rows of devices with a row each, and those of the `others`."""
        every = list(rows)
        shown = [row for row in every if row.device not in self.others]
        return shown, [row for row in every if row.device in self.others]

    def device_table(
        self, label: str, rows: Iterable[D], shown: Sequence[Shown], name: str = ""
    ) -> tuple[doc.Block, ...]:
        """A table with rows of devices, and between which values those of the `others` lie.

        `name`: of the table of `traceview show` that has all rows; without it the JSON report has them.
        """
        own, others = self.split(rows)
        rest = self.command(f"show {name}") if name else "the JSON report"
        own_rows = table(label, own, shown, most_rows=self.most_rows, rest=rest)
        return (*own_rows, *self.ranges(others, shown, name))

    def ranges(
        self, rows: Sequence[D], shown: Iterable[Shown], name: str
    ) -> tuple[doc.Remark, ...]:
        """Between which values the times and shares of devices without a row lie; `name` as of `device_table`."""
        if not rows:
            return ()
        values = {
            column.heading: _range(column)
            for column in columns(rows, shown)
            if column.kind in _RANGES and column.priority <= _MOST_PRIORITY
        }
        count = numbers.plural(len({row.device for row in rows}), "other device")
        text = f"{count}: {', '.join(f'{heading} {value}' for heading, value in values.items())}"
        if not name:
            return (doc.Remark(f"{text}."),)
        return (
            doc.Remark(f"{text}. All devices:", f"{self.command(f'show {name}')} -o {name}.csv"),
        )

    def command(self, name: str) -> str:
        """The command for all rows of a table of this run."""
        return self.commands.command(name)

    def reason(self, analysis: Analysis[R]) -> str:
        """Why a result is absent."""
        return self.skipped.get(analysis.name, "not computed")
