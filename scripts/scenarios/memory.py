"""What fills the memory of GPUs? Allocators whose every allocation is written down beside the trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scripts.cuda_trace import CudaTrace, Line, Ref, Stats
from scripts.scenarios.model import (
    Scenario,
    Step,
    marked_steps,
    new_trace,
    scenario,
)

MB = 10**6
CAPACITY_BYTES = 15_477_102_400
BEFORE_BYTES = 4_000 * MB
STEPS = 8
FIRST_ADDRESS = 139_760_685_864_448

FORWARD = {"model/dense/MatMul": 100 * MB, "model/dense/Relu": 50 * MB, "model/out/MatMul": 20 * MB}
BACKWARD = "gradient_tape/model/out/MatMul/MatMul"
KEPT_BYTES = 3 * MB


class Block(NamedTuple):
    """What an op was given."""

    op: str | None
    region: str | None
    size: int


@dataclass
class MemoryLedger:
    """An allocator: what it gives out and takes back is written to a trace, and kept here.

    An address that was taken back is the first to be given out again. `stats`: of every event.
    """

    trace: CudaTrace
    ordinal: int
    held_bytes: int = BEFORE_BYTES
    capacity_bytes: int = CAPACITY_BYTES
    allocator: str | None = None
    stats: Stats = field(default_factory=dict)
    peak_bytes: int = 0
    blocks: dict[int, Block] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    def give(
        self,
        at_ps: int,
        size: int,
        op: str | None = None,
        *,
        region: str | None = "output",
        thread: Line | None = None,
    ) -> int:
        """Give out a block; its address."""
        address = self.free.pop() if self.free else FIRST_ADDRESS + 256 * len(self.blocks)
        self.blocks[address] = Block(op, region, size)
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        named = {"tf_op": op, "region_type": region}
        self._write(at_ps, address, size, {key: Ref(of) for key, of in named.items() if of}, thread)
        return address

    def take(self, at_ps: int, address: int, *, thread: Line | None = None) -> None:
        """Take back a block."""
        size = self.blocks.pop(address).size
        self.free.append(address)
        self.take_unknown(at_ps, address, size, thread=thread)

    def take_unknown(
        self, at_ps: int, address: int, size: int, *, thread: Line | None = None
    ) -> None:
        """Take back a block that was given out before the recording."""
        self.held_bytes -= size
        self._write(at_ps, address, size, {}, thread, freed=True)

    def _write(
        self,
        at_ps: int,
        address: int,
        size: int,
        stats: Stats,
        thread: Line | None,
        *,
        freed: bool = False,
    ) -> None:
        own: Stats = {"addr": address, **self.stats}
        self.trace.allocation(
            self.ordinal,
            at_ps,
            held_bytes=self.held_bytes,
            peak_bytes=max(self.peak_bytes, self.held_bytes),
            changed_bytes=size,
            freed=freed,
            capacity_bytes=self.capacity_bytes,
            allocator=self.allocator,
            stats={**own, **stats},
            thread=thread,
        )


def allocate_step(step: Step, ledger: MemoryLedger, forward: Mapping[str, int] = FORWARD) -> None:
    """The activations of a step: held from the forward pass until its gradients are made."""
    prefix = f"replica_{ledger.ordinal}/" if ledger.ordinal else ""
    given = [
        ledger.give(step.at(3 + number), size, prefix + op)
        for number, (op, size) in enumerate(forward.items())
    ]
    work = ledger.give(step.at(20), 8 * MB, prefix + BACKWARD, region="temp")
    for number, address in enumerate([work, *reversed(given)]):
        ledger.take(step.at(30 + number), address)


def _run(kept_bytes: int, must: list[str], must_not: list[str]) -> Scenario:
    """Two GPUs train alike; each step of GPU 1 keeps so many bytes."""
    trace = new_trace(length_ms=450)
    ledgers = [MemoryLedger(trace, ordinal) for ordinal in range(2)]
    for step in marked_steps(trace, count=STEPS):
        for ledger in ledgers:
            step.kernel(ledger.ordinal, 1, 48)
            allocate_step(step, ledger)
        if kept_bytes:
            ledgers[1].give(step.at(45), kept_bytes, "replica_1/loss/mean")
    return scenario(trace, must, must_not)


def memory_headroom() -> Scenario:
    """GPUs of 15.5 GB hold 4 GB of variables and 178 MB of activations: twice the batch fits."""
    return _run(0, ["batch-headroom"], ["memory-near-limit", "memory-growing"])


def memory_growing() -> Scenario:
    """GPU 1 keeps 3 MB more after every step."""
    return _run(KEPT_BYTES, ["memory-growing"], ["memory-near-limit", "batch-headroom"])
