"""Are several slowdowns at once told apart? Random runs with one to four of them, each with a known size.

`mixture(seed)` draws a run of one to four GPUs and builds it as a chain: in each step one thing happens after the other,
so what a slowdown adds to its step is the length it was given.

    main thread  ▏input ▏save ▏sync ▏Python ▏traces ▏ calls the step function                     ▏callback ▏
    executor                                         ▏CPU op ▏nothing ▏launches
    GPU:0                                                             ▏copy ▏small kernels ▏compute ▏waits   ▏transfer
    GPU:1                                                             ▏copy ▏small kernels ▏compute, longer  ▏transfer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final, TypeAlias

from scripts.cuda_trace import MS, NCCL_NAME, US, CudaTrace, Stats
from scripts.scenarios.model import Scenario, new_trace

STATES: Final[Mapping[str, str]] = {
    "input": "input",
    "checkpoint": "checkpoint",
    "sync": "sync",
    "python": "between_calls",
    "retracing": "compile",
    "cpu_op": "host_ops",
    "unrecorded": "unknown",
    "copy": "h2d",
    "launches": "launch",
    "straggler": "compute",
    "collective": "communication",
    "callback": "between",
}
"""The state of each slowdown on the critical path, in the order in which they happen in a step."""

SMALLEST_SHARE: Final = 0.02
LARGEST_SHARE: Final = 0.40
LARGEST_SUM: Final = 0.75
"""Of the slowdowns of a step together; the rest computes."""

_BEFORE_KERNEL_PS: Final = 5 * US
_LAUNCH_EVERY_PS: Final = 90 * US
_SMALL_KERNEL_PS: Final = 10 * US
_TRANSFER_PS: Final = 100 * US
"""Of a healthy collective."""
_EXECUTOR: Final = 2
_BYTES_PER_PS: Final = 0.012
"""A copy at 12 GB/s."""

ByStep: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Mixture:
    """A run, and what each of its slowdowns adds to each step.

    `added_ps`: by slowdown, picoseconds by step. `compute_ps`: on the path without the straggler's longer compute.
    `step_ps`: lengths of the steps. `slow_gpu`: the straggler.
    """

    scenario: Scenario
    added_ps: Mapping[str, ByStep]
    compute_ps: ByStep
    step_ps: ByStep
    gpu_count: int
    slow_gpu: int | None


@dataclass(frozen=True)
class Plan:
    """How long each slowdown is in each step, and how long a step computes; `compute` among the lengths is added to that."""

    gpu_count: int
    step_count: int
    compute_ps: int
    lengths: Mapping[str, ByStep]
    slow_gpu: int
    order: tuple[str, ...]


def mixture(seed: int) -> Mixture:
    """The run of a seed: always the same one."""
    return built(_drawn(Random(seed)), f"mixture-{seed}")


def _drawn(chance: Random) -> Plan:
    gpu_count = chance.randint(1, 4)
    step_count = chance.randint(4, 12)
    period_ps = chance.randint(60, 80) * MS
    possible = [name for name in STATES if gpu_count > 1 or name not in ("straggler", "collective")]
    chosen = chance.sample(possible, chance.randint(1, 4))
    shares = [SMALLEST_SHARE * (LARGEST_SHARE / SMALLEST_SHARE) ** chance.random() for _ in chosen]
    scale = min(1.0, LARGEST_SUM / sum(shares))
    lengths = {
        name: _by_step(
            chance, name, max(round(share * scale * period_ps), 12 * MS // 10), step_count
        )
        for name, share in zip(chosen, shares, strict=True)
    }
    compute_ps = period_ps - sum(max(of_steps) for of_steps in lengths.values())
    order = ["input", "checkpoint", "sync"]
    chance.shuffle(order)
    return Plan(
        gpu_count, step_count, compute_ps, lengths, chance.randrange(gpu_count), tuple(order)
    )


def _by_step(chance: Random, name: str, length_ps: int, count: int) -> ByStep:
    """In every step, or in some; a function is traced again in some, and nothing follows the last step."""
    possible = range(1 if name == "retracing" else 0, count - 1 if name == "callback" else count)
    in_all = name != "retracing" and chance.random() < 0.6
    number = len(possible) if in_all else chance.randint(1, len(possible) - 1)
    if name == "launches":
        length_ps -= length_ps % (_LAUNCH_EVERY_PS - _SMALL_KERNEL_PS)
    affected = chance.sample(possible, number)
    return tuple(length_ps if step in affected else 0 for step in range(count))


class _Run:
    """Writes a plan step by step; `now_ps` is the end of what was written."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trace: CudaTrace = new_trace(length_ms=plan.step_count * 200)
        for ordinal in range(plan.gpu_count):
            self.trace.gpu(ordinal)
        self._executor = self.trace.thread("tf_gpu_private_0", 8_001)
        # What the program did last before its first step; without it nothing would show that Python ran there.
        self.trace.host_event("EagerLocalExecute: AssignAddVariableOp", 0, US)
        self.now_ps = 2 * US
        self.compute_ps: list[int] = []
        self._tracing_count = 1

    def step(self, number: int) -> None:
        """Write one step; afterwards the marker of the next one may begin."""
        begin_ps, of = self.now_ps, {name: row[number] for name, row in self.plan.lengths.items()}
        on_main: dict[str, Callable[[int], None]] = {
            "input": lambda ps: self._main("IteratorGetNext:IteratorGetNext", ps),
            "checkpoint": lambda ps: self._main("EagerLocalExecute: SaveV2", ps),
            "sync": lambda ps: self._main("cuStreamSynchronize", ps),
        }
        for name in self.plan.order:
            if of.get(name):
                on_main[name](of[name])
        self.now_ps += of.get("python", 0)
        self._call(number, of)
        self.trace.marker(number, begin_ps, self.now_ps)
        self.now_ps += of.get("callback", 0)

    def _main(self, name: str, length_ps: int) -> None:
        self.trace.host_event(name, self.now_ps, self.now_ps + length_ps)
        self.now_ps += length_ps

    def _call(self, number: int, of: Mapping[str, int]) -> None:
        """Call the step function: it may be traced first, then an executor launches what the GPUs do."""
        called_ps = self.now_ps
        traced_ps = of.get("retracing", 0)
        self._tracing_count += traced_ps > 0
        self.now_ps += traced_ps
        run_ps = self.now_ps
        launched_ps = self._execute(number, of)
        mode = "traced-nonXla" if traced_ps else "notTraced-nonXla"
        call: Stats = {"tf_function_call": mode, "tracing_count": self._tracing_count}
        self.trace.host_event("train_step", called_ps, launched_ps + 4 * US, call)
        run: Stats = {"id": 500 + number, "_r": 1, "_pt": _EXECUTOR, "_p": 7_000 + number}
        self.trace.host_event("FunctionRun", run_ps, launched_ps + 3 * US, run)

    def _execute(self, number: int, of: Mapping[str, int]) -> int:
        """What the executor does, and the GPUs after it; returns when it has launched everything."""
        begin_ps = self.now_ps
        if of.get("cpu_op"):
            op = "model/lookup/UniqueV2:UniqueV2"
            end_ps = begin_ps + of["cpu_op"]
            self.trace.host_event(op, begin_ps, end_ps, thread=self._executor)
            self.now_ps = end_ps
        if of.get("unrecorded"):
            # The executor is still: nothing shows what it waits for.
            self._process(number, begin_ps, self.now_ps + US)
            self.now_ps += of["unrecorded"] + US
            begin_ps = self.now_ps
        if of.get("copy"):
            self._copies(of["copy"])
        count = of.get("launches", 0) // (_LAUNCH_EVERY_PS - _SMALL_KERNEL_PS)
        for _ in range(count):
            self._kernels(_SMALL_KERNEL_PS, "small")
            self.now_ps += _LAUNCH_EVERY_PS - _SMALL_KERNEL_PS
        launched_ps = self.now_ps + self.plan.gpu_count * US
        self._compute(of)
        self.compute_ps.append(
            self.plan.compute_ps + of.get("compute", 0) + count * _SMALL_KERNEL_PS
        )
        self._process(number, begin_ps, launched_ps)
        return launched_ps

    def _process(self, number: int, start_ps: int, end_ps: int) -> None:
        consumed: Stats = {
            "id": 500 + number,
            "iter_num": 0,
            "_ct": _EXECUTOR,
            "_c": 7_000 + number,
        }
        name = "ExecutorState::Process"
        self.trace.host_event(name, start_ps, end_ps, consumed, thread=self._executor)

    def _copies(self, length_ps: int) -> None:
        launch_ps, start_ps = self.now_ps, self.now_ps + _BEFORE_KERNEL_PS
        for ordinal in range(self.plan.gpu_count):
            size = round(length_ps * _BYTES_PER_PS)
            copied = self.trace.copy(ordinal, "H2D", start_ps, start_ps + length_ps, size=size)
            at_ps = launch_ps + ordinal * US
            self.trace.launch("MemcpyH2D", at_ps, copied, device_id=ordinal, thread=self._executor)
        self.now_ps = start_ps + length_ps

    def _kernels(self, length_ps: int, name: str) -> None:
        """The same kernel on every GPU, launched now."""
        start_ps = self.now_ps + _BEFORE_KERNEL_PS
        for ordinal in range(self.plan.gpu_count):
            self._kernel(ordinal, name, start_ps, start_ps + length_ps)
        self.now_ps += length_ps

    def _kernel(self, ordinal: int, name: str, start_ps: int, end_ps: int) -> None:
        self.trace.kernel(
            ordinal,
            start_ps,
            end_ps,
            name=name,
            op=f"model/{name}:MatMul",
            launch_ps=self.now_ps + ordinal * US,
            launch_thread=self._executor,
        )

    def _compute(self, of: Mapping[str, int]) -> None:
        """Every GPU computes, the slow one longer; those that are several reduce their gradients then."""
        count, start_ps = self.plan.gpu_count, self.now_ps + _BEFORE_KERNEL_PS
        if of.get("copy") and not of.get("launches"):
            start_ps = self.now_ps  # queued behind the copy
            self.now_ps -= of["copy"]
        ends = [start_ps + self.plan.compute_ps + of.get("compute", 0)] * count
        ends[self.plan.slow_gpu] += of.get("straggler", 0)
        for ordinal, end_ps in enumerate(ends):
            self._kernel(ordinal, "dense", start_ps, end_ps)
        if count > 1:
            last_ps = max(ends) + _TRANSFER_PS + of.get("collective", 0)
            for ordinal, end_ps in enumerate(ends):
                self.trace.kernel(
                    ordinal,
                    end_ps,
                    last_ps,
                    name=NCCL_NAME,
                    op="NcclAllReduce:NcclAllReduce",
                    stream=30,
                    launch_ps=self.now_ps + (count + ordinal) * US,
                    launch_thread=self._executor,
                )
            ends = [last_ps]
        self.now_ps = max(ends)


def built(plan: Plan, name: str) -> Mixture:
    """The run of a plan."""
    run = _Run(plan)
    begins = []
    for number in range(plan.step_count):
        begins.append(run.now_ps)
        run.step(number)
    begins.append(run.now_ps)
    return Mixture(
        Scenario({run.trace.host: run.trace}, {}),
        plan.lengths,
        tuple(run.compute_ps),
        tuple(end - begin for begin, end in pairwise(begins)),
        plan.gpu_count,
        plan.slow_gpu if "straggler" in plan.lengths else None,
    )
