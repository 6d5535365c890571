"""What fills the memory of a GPU is the ledger of its allocator, to the last byte, and what programs say of themselves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview
from scripts.cuda_trace import U64, CudaTrace, Ref, Stats
from scripts.scenarios import SCENARIOS
from scripts.scenarios.memory import (
    BEFORE_BYTES,
    MB,
    Block,
    MemoryLedger,
    allocate_step,
)
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of, in_program
from tests.command import Command
from tests.xplane.hlo_messages import add_programs
from tests.xplane.test_hlo_buffers import written
from traceview.analysis.workload.memory import (
    HeldMemory,
    Memory,
)
from traceview.trace.device.memory import allocators
from traceview.trace.device.op_names import split_op
from traceview.trace.reading.load import load


def training(gpus: int = 1, steps: int = 4) -> tuple[CudaTrace, list[Any]]:
    """A run whose GPUs compute in every step."""
    trace = new_trace(length_ms=50 * steps + 50)
    marked = marked_steps(trace, count=steps)
    for step in marked:
        for ordinal in range(gpus):
            step.kernel(ordinal, 1, 48)
    return trace, marked


def memory(folder: Path, **options: Any) -> Memory:
    found = traceview.analyze(folder, **options).results.memory
    assert found is not None
    return found


def has_room(folder: Path) -> bool:
    """Whether a larger batch is said to fit."""
    return finding_of(traceview.analyze(folder), "batch-headroom") is not None


# The ledger


class Run:
    """A random run of some allocators, in which each event is followed by what is in use by the ledger."""

    def __init__(self, numbers: list[int], allocator_count: int) -> None:
        self.trace, _ = training(allocator_count)
        self.ledgers = [MemoryLedger(self.trace, ordinal) for ordinal in range(allocator_count)]
        self.after: list[list[tuple[int, dict[int, Block]]]] = [[] for _ in self.ledgers]
        threads = [self.trace.thread("tf_Compute", 900 + number) for number in range(3)]
        for at, number in enumerate(numbers):
            place = number % allocator_count
            ledger, thread = self.ledgers[place], threads[number % 3]
            time, size = ms(1) + at * 1000, 256 * (1 + number % 97)
            if number % 5 < 2 and ledger.blocks:
                address = sorted(ledger.blocks)[number % len(ledger.blocks)]
                ledger.take(time, address, thread=thread)
            elif number % 5 == 2:
                # Was given out before the recording, at an address of its own.
                ledger.take_unknown(time, 7_000_000_000 + at * 4096, size, thread=thread)
            else:
                ledger.give(time, size, f"model/layer_{number % 4}/MatMul", thread=thread)
            self.after[place].append((ledger.held_bytes, dict(ledger.blocks)))


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=120), st.integers(1, 3))
@settings(max_examples=25)
def test_live_is_what_was_allocated_and_not_freed_at_every_event_and_in_the_table(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], allocator_count: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    run = Run(numbers, allocator_count)
    run.trace.write(folder)
    found, frame = load(folder).once(allocators), traceview.load(folder).table("memory")
    assert sorted(found) == [n for n, after in enumerate(run.after) if after]
    for device, allocator in found.items():
        assert allocator.unrecorded_bytes == 0
        assert allocator.held_at(0) - allocator.change_bytes[0] == BEFORE_BYTES
        held = BEFORE_BYTES + np.cumsum(allocator.change_bytes)
        assert held.tolist() == allocator.held_bytes.tolist()
        for event, (held_bytes, blocks) in enumerate(run.after[device]):
            assert allocator.held_bytes[event] == held_bytes
            live = allocator.live_after(event)
            addresses, changes = allocator.address[live], allocator.change_bytes[live]
            sizes = dict(zip(addresses.tolist(), changes.tolist(), strict=True))
            assert sizes == {address: block.size for address, block in blocks.items()}
        rows = frame[frame["device"] == f"GPU:{device}"]
        most, blocks = max(reversed(run.after[device]), key=lambda pair: pair[0])
        assert int(rows["bytes"].sum()) == most
        expected: Counter[str | None] = Counter()
        for block in blocks.values():
            expected[block.op] += block.size
        ops = rows[rows["kind"] == "output"]
        assert dict(zip(ops["op"], ops["bytes"], strict=True)) == dict(expected)
        assert int(ops["count"].sum()) == len(blocks)


def test_of_chosen_steps_the_peak_in_them(tmp_path: Path) -> None:
    SCENARIOS["memory_growing"]().write(tmp_path)
    (gpu1,) = (row for row in memory(tmp_path, steps=slice(2, 4)).devices if row.ordinal == 1)
    # Three steps left 3 MB each; what they left is known, for the capture holds it.
    assert (gpu1.peak_bytes, gpu1.process_peak_bytes) == (4187 * MB, 4199 * MB)
    assert gpu1.before_bytes == BEFORE_BYTES
    frame = traceview.load(tmp_path).table("memory", steps=slice(2, 4))
    assert frame[frame["op"] == "loss/mean"]["bytes"].tolist() == [9 * MB]


def test_layers_alike_but_for_numbers_are_one_row(tmp_path: Path) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0)
    allocate_step(steps[0], ledger, {f"model/layer_{n}/dense/MatMul": MB for n in range(6)})
    trace.write(tmp_path)
    rows = [row for row in memory(tmp_path).layers if row.kind == "output"]
    assert [(row.held_by, row.name_count, row.bytes, row.count) for row in rows] == [
        ("model/layer_*/dense", 6, 6 * MB, 6)
    ]


def test_memory_of_the_host_is_none_of_a_gpu(tmp_path: Path) -> None:
    trace, steps = training()
    MemoryLedger(trace, 0).give(steps[0].at(2), MB)
    MemoryLedger(trace, 0, 0, allocator="gpu_host_bfc").give(steps[0].at(2), 64 * MB)
    trace.write(tmp_path)
    found = memory(tmp_path)
    assert [row.peak_bytes for row in found.devices] == [BEFORE_BYTES + MB]
    assert [(row.held_by, row.kind, row.bytes) for row in found.layers] == [
        (None, "before", BEFORE_BYTES),
        (None, "output", MB),
    ]


def test_memory_of_virtual_gpus_is_nobodys(tmp_path: Path) -> None:
    """Three allocators and two planes: the numbers of the one are not those of the other."""
    for count, known in ((2, True), (3, False)):
        trace = new_trace()
        for ordinal in range(2):
            trace.gpu(ordinal)
        for number in range(count):
            for at, held, peak in ((3, 50, 70), (5, 20, 80), (4, 60, 90)):
                of_number: dict[str, Any] = {
                    "held_bytes": held + number,
                    "peak_bytes": peak + number,
                }
                trace.allocation(number, ms(at), changed_bytes=1, **of_number)
        trace.write(tmp_path)
        of_device = load(tmp_path).once(allocators)
        held_peak = {d: (of.held_bytes[-1], of.peak_bytes) for d, of in of_device.items()}
        assert held_peak == ({0: (20, 90), 1: (21, 91)} if known else {})


def test_events_that_were_dropped_are_said(tmp_path: Path) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0)
    first = ledger.give(steps[0].at(2), 10 * MB, "model/a/MatMul")
    ledger.held_bytes += 5 * MB  # an allocation without an event
    ledger.give(steps[0].at(3), MB, "model/b/MatMul")
    ledger.take(steps[0].at(4), first)
    trace.write(tmp_path)
    (row,) = memory(tmp_path).devices
    assert (row.peak_bytes, row.before_bytes) == (BEFORE_BYTES + 16 * MB, BEFORE_BYTES + 5 * MB)
    assert row.unrecorded_bytes == 5 * MB


def test_frees_that_were_dropped_leave_no_more_than_is_in_use(tmp_path: Path) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0, held_bytes=0)
    for at in range(3):
        ledger.give(steps[0].at(2 + at), 10 * MB, "model/a/MatMul")
    ledger.held_bytes = 0  # all are freed without an event
    ledger.give(steps[0].at(9), 31 * MB, "model/b/MatMul")
    trace.write(tmp_path)
    (row,) = memory(tmp_path).devices
    assert (row.peak_bytes, row.before_bytes, row.allocated_bytes) == (31 * MB, 31 * MB, 0)
    assert not has_room(tmp_path)


def test_an_address_that_is_given_out_again_was_free(tmp_path: Path) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0)
    ledger.give(steps[0].at(2), 10 * MB, "model/a/MatMul")
    # The free of that block is not recorded, and its address is given out again.
    ledger.held_bytes -= 10 * MB
    ledger.free, ledger.blocks = list(ledger.blocks), {}
    ledger.give(steps[0].at(3), 12 * MB, "model/b/MatMul")
    trace.write(tmp_path)
    ops = traceview.load(tmp_path).table("memory").dropna(subset=["op"])
    assert ops["op"].tolist() == ["model/b/MatMul"]


def test_absurd_changes_stay_numbers_of_a_report(tmp_path: Path) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0)
    for number in range(1100):
        ledger.held_bytes = ((1 << 53) - 256) * (number % 2)
        ledger.give(steps[0].at(2) + number, 256, "model/a/MatMul")
        ledger.held_bytes -= 256
    report = analyzed(tmp_path, trace)
    (tmp_path / "report.json").write_text(report.to_json(), encoding="utf-8")
    assert traceview.load_report(tmp_path / "report.json").results == report.results
    (row,) = memory(tmp_path).devices
    assert row.unrecorded_bytes == 1 << 53


HOSTILE: list[Stats] = [
    {"allocation_bytes": -1},
    {"allocation_bytes": U64((1 << 64) - 1)},
    {"allocation_bytes": "many"},
    {"bytes_allocated": -5},
    {"addr": U64((1 << 64) - 256)},
    {"addr": "0x7f"},
    {"fragmentation": float("nan")},
    {"fragmentation": 17},
    {"bytes_available": -1},
    {"peak_bytes_in_use": U64((1 << 64) - 1)},
    {"tf_op": b"\xff\xfe/\x00|`*:"},
    {"region_type": b"\xff" * 5000},
    {"allocator_name": b"GPU_99999999999999999999_bfc"},
]


@pytest.mark.parametrize("stats", HOSTILE, ids=repr)
def test_hostile_values_count_as_not_recorded(
    stats: Stats, tmp_path: Path, command: Command
) -> None:
    trace, steps = training()
    ledger = MemoryLedger(trace, 0)
    ledger.stats = {key: of for key, of in stats.items() if key == "fragmentation"}
    allocate_step(steps[0], ledger)
    trace.allocation(
        0,
        steps[0].at(40),
        held_bytes=BEFORE_BYTES + MB,
        peak_bytes=ledger.peak_bytes,
        changed_bytes=MB,
        stats={"tf_op": Ref("model/odd/MatMul"), "addr": 4096, **stats},
    )
    allocate_step(steps[1], ledger)
    trace.write(tmp_path)
    (row,) = memory(tmp_path).devices
    assert row.peak_bytes == BEFORE_BYTES + 178 * MB
    assert row.before_bytes + row.allocated_bytes == row.peak_bytes
    # That of the odd event counts where its size and address can be those of an allocation.
    assert row.allocated_bytes in (178 * MB, 179 * MB)
    assert row.fragmentation_ratio == (None if "fragmentation" in stats else 0)
    for format_ in ("json", "csv"):
        assert command("show", "memory", str(tmp_path), "--format", format_).code == 0
    report = traceview.analyze(tmp_path)
    assert json.loads(report.to_json())["results"]["memory"]["devices"]
    assert report.to_html()


def test_without_allocators_the_table_says_why(
    tmp_path: Path, fixtures: Path, command: Command
) -> None:
    trace, steps = training()
    # Captures on CPUs have events of the host's allocators.
    MemoryLedger(trace, 0, allocator="cpu_bfc").give(steps[0].at(2), MB, "model/a/MatMul")
    report = analyzed(tmp_path, trace)
    assert report.results.memory is None
    assert report.skipped["memory"].startswith("no allocator of a GPU recorded")
    assert "Memory  " not in command("analyze", str(tmp_path), "--full").out
    done = command("show", "memory", str(tmp_path), "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert "no allocator of a GPU recorded" in done.err
    assert traceview.load(fixtures / "keras-fit-2").table("memory").empty


# Findings


def test_room_for_a_batch_is_only_claimed_where_the_numbers_carry_it(tmp_path: Path) -> None:
    trace, steps = training(2, steps=8)
    for ordinal in range(2):
        ledger = MemoryLedger(trace, ordinal, 5000 * MB)
        for step in steps:
            allocate_step(step, ledger, {"model/dense/MatMul": 20 * MB})
    trace.write(tmp_path / "room")
    assert has_room(tmp_path / "room")
    # Of one of two GPUs nothing is recorded.
    trace, steps = training(2)
    ledger = MemoryLedger(trace, 0)
    for step in steps:
        allocate_step(step, ledger)
    trace.write(tmp_path / "half")
    assert not has_room(tmp_path / "half")
    # Before the capture more was in use than in it.
    ledger.peak_bytes += MB
    ledger.give(steps[-1].at(48), 1)
    ledger.trace.gpus.pop(1)
    trace.write(tmp_path / "peak")
    assert not has_room(tmp_path / "peak")


# Recorded on GPUs


@pytest.mark.shared
def test_a_recorded_run_has_no_room_for_a_batch(shared_traces: Path) -> None:
    assert not has_room(shared_traces / "jax-gemm-1of8")


@pytest.mark.shared
def test_bert_on_two_gpus(shared_traces: Path) -> None:
    found = memory(shared_traces / "bert-8xV100")
    gpus = {row.device: row for row in found.devices}
    assert {key: row.peak_bytes for key, row in gpus.items()} == {
        "GPU:4": 6208853760,
        "GPU:6": 6210111488,
    }
    for row in gpus.values():
        assert row.before_bytes == 4013337088
        assert row.capacity_bytes == 15477102400
        assert row.unrecorded_bytes == 0
        assert row.forward_bytes > 0.99 * row.allocated_bytes
    layers = found.layers
    dropout = (
        "bert_span_labeler/bert_encoder_*/transformer/layer_*/self_attention/dropout_*/dropout"
    )
    # Of each of 24 layers a mask and what it leaves, [4, 16, 384, 384], in half precision of 2 bytes.
    assert (layers[1].held_by, layers[1].name_count, layers[1].count) == (dropout, 24, 48)
    assert layers[1].bytes == 48 * 4 * 16 * 384 * 384 * 2


CONVERT = """
import json, sys
from xprof.convert import raw_to_tool_data
content, _ = raw_to_tool_data.xspace_to_tool_data(sys.argv[2:], "memory_profile", {})
open(sys.argv[1], "wb").write(content if isinstance(content, bytes) else content.encode())
"""


@pytest.mark.xprof
@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-gemm-1of8"])
def test_xprof_has_the_same_peak_and_the_same_bytes_of_each_op(
    name: str, shared_traces: Path, tmp_path: Path
) -> None:
    source = sorted((shared_traces / name).rglob("*.xplane.pb"))[0]
    file = tmp_path / "host.xplane.pb"
    shutil.copyfile(source, file)
    page = tmp_path / "page.json"
    subprocess.run([sys.executable, "-c", CONVERT, page, file], check=True, capture_output=True)
    profiles = json.loads(page.read_text(encoding="utf-8"))["memoryProfilePerAllocator"]
    frame = traceview.load(source).table("memory", window="trace")
    for row in memory(source, window="trace").devices:
        profile = profiles[f"GPU_{row.ordinal}_bfc"]
        summary = profile["profileSummary"]
        assert row.peak_bytes == int(summary["peakStats"]["peakBytesInUse"])
        assert row.capacity_bytes == int(summary["memoryCapacity"])
        assert row.fragmentation_ratio == pytest.approx(
            summary["peakStats"]["fragmentation"], abs=1e-6
        )
        own = frame[frame["device"] == row.device].fillna({"op": ""})
        assert own.groupby("op")["bytes"].sum().to_dict() == _of_xprof(profile)


def _of_xprof(profile: Any) -> dict[str, int]:
    """Bytes by op. What XProf calls `unused preallocated device memory` was in use before the capture."""
    sums: Counter[str] = Counter()
    for entry in profile["activeAllocations"]:
        count = int(entry["numOccurrences"])
        if int(entry["specialIndex"]) >= 0:
            activity = profile["specialAllocations"][int(entry["specialIndex"])]
            sums[""] += int(activity["allocationBytes"])
            continue
        activity = profile["memoryProfileSnapshots"][int(entry["snapshotIndex"])][
            "activityMetadata"
        ]
        # Replicas of an op are one.
        sums[split_op(activity["tfOpName"])[0]] += count * int(activity["allocationBytes"])
    return dict(sums)


# Programs


def write_program(folder: Path, *, ran: bool = True) -> None:
    """Four steps with one kernel of the program `jit_f`."""
    trace = new_trace()
    for step in marked_steps(trace):
        stats = in_program("a", "jit_f", 1) if ran else {}
        step.kernel(0, 2, 30, name="a", op="XlaModule:", stats=stats)
        trace.allocation(0, step.at(1), held_bytes=2000, peak_bytes=2000, changed_bytes=1000)
    writer = written()
    writer.program()
    add_programs(trace.write(folder), {"jit_f(1)": writer.message.SerializeToString()})


def test_what_a_program_takes_by_layer_and_argument(tmp_path: Path) -> None:
    write_program(tmp_path)
    (program,) = memory(tmp_path).programs
    assert (program.program, program.whole_bytes, program.live_bytes) == ("jit_f", 1508, 500)
    assert program.held == (
        HeldMemory("f/Model/dense", 1, "temporary", "forward", 500, 2),
        HeldMemory("f", 1, "result", "other", 400, 1),
        HeldMemory("weights[0]", 1, "argument", "other", 400, 1),
        HeldMemory("batch", 1, "argument", "other", 100, 1),
        HeldMemory(None, 1, "constant", "other", 8, 1),
    )
    write_program(tmp_path / "other", ran=False)
    assert memory(tmp_path / "other").programs == ()


def test_it_is_shown_and_redaction_hides_its_names(tmp_path: Path, command: Command) -> None:
    write_program(tmp_path)
    shown = command("show", "memory", str(tmp_path), "--width", "160").out
    assert "Live at the peak of jit_f" in shown
    assert "f/Model/dense" in shown
    hidden = command("report", str(tmp_path), "--redact", "--format", "json", "-o", "-").out
    (program,) = json.loads(hidden)["results"]["memory"]["programs"]
    assert program["argument_bytes"] == 500
    assert [name for name in ("Model", "dense", "weights", "jit_f") if name in hidden] == []


@pytest.mark.shared
def test_a_real_program(shared_traces: Path) -> None:
    """A convolution on MI300X, whose operands are transposed first: the result twice, and 14 MB."""
    program = memory(shared_traces / "jax-8xMI300X").programs[0]
    assert program.program == "jit_forward_3d_conv"
    result = 5120 * 34 * 31 * 53 * 2
    assert program.result_bytes == result
    assert 0 < program.live_bytes - result < 8_000_000
    assert program.live_bytes <= program.temporary_bytes
