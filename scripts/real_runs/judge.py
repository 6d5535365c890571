"""Compares what traceview says of each recording with the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

from msgspec import Struct

import traceview
from scripts.real_runs.record import STEP_TIMES
from scripts.real_runs.recount import RECOUNTED, recounted
from scripts.real_runs.table import Program
from scripts.real_runs.truth import RECORDED, UNDISTURBED, Block, TrueCost, read_blocks, true_costs
from traceview.analysis.rules.finding import FindingLoss

WITHIN: Final = 0.20
"""A cost this close to the true one, as a share of it, is right."""

IS_THERE: Final = 1.0
"""A cause of a healthy run is there if what is said of it is no more than that above what it was measured to cost, as a share: a choice of ours."""


SMALL: Final = {"host-bound", "launch-bound"}
"""The findings that say of a healthy run, too, that its steps are small: the dispatch of their ops takes long beside them."""


OF_THE_MACHINE: Final = ("other-processes", "gpu-throttled")
"""Findings about the machine that the program ran on, and not about the program."""


class Judgement(Struct, frozen=True):
    """What traceview says of one recording, and whether that is right.

    Attributes:
        name: Program and recording.
        headline: The verdict in one sentence.
        finding: Code of the verdict; null where it names none.
        states: What the devices were in while that lost time.
        share: By how much a step is said to be shorter without the first right finding, and the right second one, as a share of it;
            null without the first.
        truth: What the slowdown costs the recorded steps; null for a healthy run.
        undisturbed: What it costs without the profiler.
        present: What healthy steps spend on the causes of `share`, as a share of a step.
        warnings: Codes of the findings that are no mere information.
        is_first_right: Whether the verdict names the slowdown, and the next finding the second one, if there is one; of a
            healthy run, whether there is no warning but of causes that are there, and that its steps are small.
        is_advice_known: Whether the advice on it is what the advised runs of the program follow; null if none of them does.
        is_cost_no_higher: Of a healthy run, whether nothing is said to cost more than measured.
    """

    name: str
    headline: str
    finding: str | None
    states: tuple[str, ...]
    share: float | None
    truth: TrueCost | None
    undisturbed: TrueCost | None
    warnings: tuple[str, ...]
    is_first_right: bool
    present: float = 0.0
    is_advice_known: bool | None = None
    is_cost_no_higher: bool = True

    @property
    def is_cost_right(self) -> bool:
        """Whether the cost is close enough to that of the recorded steps."""
        return self._is_close(self.truth)

    @property
    def is_undisturbed_cost_right(self) -> bool:
        """Whether the cost is close enough to the one without the profiler."""
        return self._is_close(self.undisturbed)

    def _is_close(self, truth: TrueCost | None) -> bool:
        return (
            truth is not None
            and self.share is not None
            and is_close(self.share, truth.share, self.present)
        )


def is_close(share: float, truth: float, present: float) -> bool:
    """Whether a cost is close enough to the true one: of the slowdown, or of all that its cause costs.

    A finding states what it would save to be rid of its cause: where healthy steps spend `present` on that, too, more than
    the slowdown. One that states only what is needless of it states the slowdown.
    """
    return any(
        abs(share - true) <= WITHIN * abs(true) for true in (truth, 1 - (1 - truth) * (1 - present))
    )


def judge_slow(
    program: Program,
    report: traceview.Report,
    truth: TrueCost,
    undisturbed: TrueCost,
    recording: str = "slow",
) -> Judgement:
    """Judge the report of a slow run."""
    verdict, leading = report.verdict, report.leading
    states = leading.loss.states if leading and leading.loss else ()
    ranked = [row for row in report.findings if row.loss]
    first = next((row for row in ranked if row.code in program.findings), None)
    second = next((row for row in ranked if row.code in program.second and row is not first), None)
    named = [row for row in (first, second) if row and row.loss]
    return Judgement(
        name=f"{program.name}/{recording}",
        headline=verdict.headline,
        finding=verdict.finding,
        states=states,
        share=sum(_cost(row.loss) for row in named if row.loss) if first else None,
        present=sum(program.present.get(row.code, 0.0) for row in named),
        truth=truth,
        undisturbed=undisturbed,
        warnings=warnings_of(report),
        is_first_right=verdict.finding in program.findings
        and (not program.second or second in ranked[:2]),
        is_advice_known=leading.action.startswith(program.advice)
        if leading and program.advice
        else None,
    )


def _cost(loss: FindingLoss) -> float:
    """By how much shorter a step would be, as a share of it; where that is not said, what the devices lose that are named."""
    if loss.gain_ps_per_step is None or not loss.step_ps:
        return loss.ratio
    return loss.gain_ps_per_step / loss.step_ps


def judge_healthy(
    program: Program,
    report: traceview.Report,
    recording: str = "healthy",
    present: Mapping[str, float] = MappingProxyType({}),
) -> Judgement:
    """Judge the report of a healthy run; `present`: what it spends on causes as measured, as in `Program.present`."""
    verdict, leading, warnings = report.verdict, report.leading, warnings_of(report)
    is_small = any(row.code in SMALL and "small" in row.sentences for row in report.findings)

    def is_right(above: float) -> bool:
        """Whether each cost that is said is at most so much above the measured one, as a share of it."""
        right = {
            row.code
            for row in report.findings
            if row.loss and row.loss.ratio <= (1 + above) * present.get(row.code, 0.0)
        }
        wrong = set(warnings) - right
        return wrong <= SMALL and (not wrong or is_small)

    return Judgement(
        name=f"{program.name}/{recording}",
        headline=verdict.headline,
        finding=verdict.finding,
        states=leading.loss.states if leading and leading.loss else (),
        share=None,
        truth=None,
        undisturbed=None,
        warnings=warnings,
        is_first_right=is_right(IS_THERE),
        is_cost_no_higher=is_right(WITHIN),
    )


def _present(program: Program, blocks: Sequence[Block], index: int) -> dict[str, float]:
    """What a healthy run spends on causes. One whose steps took longer than usual may have spent as much more on them."""
    steps = [block.step(program.statistic, RECORDED) for block in blocks if not block.is_slow]
    longer = max(steps[index] / median(steps), 1.0)
    return {code: 1 - (1 - share) / longer for code, share in program.present.items()}


def warnings_of(report: traceview.Report) -> tuple[str, ...]:
    """Codes of findings about the program that are a warning or critical."""
    return tuple(
        finding.code
        for finding in report.findings
        if finding.severity != "info" and finding.code not in OF_THE_MACHINE
    )


def judge_folder(program: Program, folder: Path) -> Iterator[Judgement]:
    """Judge the recordings of one program, if there are any."""
    if not folder.exists():
        return
    blocks = read_blocks(folder / STEP_TIMES)
    truths, undisturbed = (
        true_costs(blocks, program.statistic, steps) for steps in (RECORDED, UNDISTURBED)
    )
    for index, (truth, without) in enumerate(zip(truths, undisturbed, strict=True), start=1):
        path = folder / f"slow-{index}"
        yield judge_slow(program, traceview.analyze(path), truth, without, path.name)
    for index, path in enumerate(sorted(folder.glob("healthy-*"))):
        report = traceview.analyze(path)
        counts = program.needs_gpu and not {*warnings_of(report)}.isdisjoint(RECOUNTED)
        present = recounted(path) if counts else _present(program, blocks, index)
        yield judge_healthy(program, report, path.name, present)


def totals(judgements: Sequence[Judgement]) -> Iterator[str]:
    """What share of the judgements is right, a line for each kind."""
    slow = [row for row in judgements if row.truth is not None]
    sure = [row for row in slow if row.truth is not None and row.truth.is_sure]
    healthy = [row for row in judgements if row.truth is None]
    yield f"right finding first: {_count(slow, (row.is_first_right for row in slow))}"
    advised = [row.is_advice_known for row in slow if row.is_advice_known is not None]
    yield f"advice as measured: {_count(advised, advised)}"
    within = f"cost within {WITHIN:.0%}"
    yield f"{within}: {_count(slow, (row.is_cost_right for row in slow))}"
    yield f"the same where the true cost is sure: {_count(sure, (row.is_cost_right for row in sure))}"
    of_programs = _by_program(slow)
    right = (_is_cost_right(rows) for rows in of_programs)
    yield f"{within}, medians of the recordings of a program: {_count(of_programs, right)}"
    undisturbed = (row.is_undisturbed_cost_right for row in slow)
    yield f"{within} of that without the profiler: {_count(slow, undisturbed)}"
    yield f"healthy told no cause that is not there: {_count(healthy, (row.is_first_right for row in healthy))}"
    yield f"the same, and at no higher cost: {_count(healthy, (row.is_cost_no_higher for row in healthy))}"
    programs = {row.name.partition("/")[0] for row in healthy}
    warned = {row.name.partition("/")[0] for row in healthy if not row.is_first_right}
    are_healthy = (program not in warned for program in programs)
    yield f"healthy programs without a warning in any recording: {_count(programs, are_healthy)}"


def _by_program(judgements: Iterable[Judgement]) -> list[list[Judgement]]:
    rows: dict[str, list[Judgement]] = {}
    for row in judgements:
        rows.setdefault(row.name.partition("/")[0], []).append(row)
    return list(rows.values())


def _is_cost_right(rows: Sequence[Judgement]) -> bool:
    """Whether the median of what is said of the recordings of a program is close enough to that of their true costs."""
    said = median(row.share or 0.0 for row in rows)
    truth = median(row.truth.share for row in rows if row.truth is not None)
    return is_close(said, truth, median(row.present for row in rows))


def _count(rows: Sized, are_right: Iterable[bool]) -> str:
    right_count = sum(are_right)
    return f"{right_count} of {len(rows)}" + (f" ({right_count / len(rows):.0%})" if rows else "")


def line(row: Judgement) -> str:
    """One row of the table, and the headline below it."""
    marks = "first" if row.is_first_right else "WRONG"
    if not row.is_cost_no_higher:
        marks += " cost too high"
    if row.truth is not None:
        marks += " cost" if row.is_cost_right else " -   "
    true_share = " without the profiler ".join(
        f"{truth.share:6.1%} ± {truth.spread / 2:.0%}"
        for truth in (row.truth, row.undisturbed)
        if truth is not None
    )
    share = "" if row.share is None else f"{row.share:.1%}"
    said = f"{row.finding or '-'} ({', '.join(row.states) or '-'})"
    return (
        f"{row.name:32} {marks:19} {said:36} {share:>7} {true_share:>46}  {' '.join(row.warnings)}"
        f"\n    {row.headline}"
    )
