"""Collectives: what they cost, which are small, gradients that are summed without them or on one device, and when that is a finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import NCCL_NAME, PROFILE_START_NS, CudaTrace, Ref, Stats
from scripts.scenarios import SCENARIOS
from scripts.scenarios.collectives import all_reduce, layer_step
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of, in_program, loss_of, the
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from tests.xplane.test_hlo_masks import exchanged, layer
from traceview.analysis.exchange.collectives import EXPOSED, OFF_GPU, SMALL
from traceview.analysis.exchange.gradients import BACKWARD_RATIO
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Number
from traceview.report.model import Report
from traceview.trace.device.op_names import Phase, phase_of
from traceview.trace.strategy.collectives import collectives_of


def findings(report: Report) -> dict[str, Finding]:
    codes = (EXPOSED.code, SMALL.code, OFF_GPU.code)
    return {one.code: one for one in report.findings if one.code in codes}


def communicating(
    folder: Path,
    *ops: str,
    each_ms: float,
    gpus: int = 2,
    name: str = NCCL_NAME,
    is_of_jax: bool = False,
    **options: Any,
) -> Report:
    """GPUs that compute until 20 of 50 ms of each step, and then run collectives of these ops, one after the other."""
    trace = new_trace()
    for step in marked_steps(trace):
        if is_of_jax:
            step.host("PjitFunction(step)", 0, 0.1)
        for ordinal in range(gpus):
            step.kernel(ordinal, 0.1, 20)
            for place, op in enumerate(ops):
                start_ms = 20 + each_ms * place
                step.kernel(ordinal, start_ms, start_ms + each_ms, name=name, op=op, stream=22)
    return analyzed(folder, trace, **options)


@pytest.mark.parametrize("size", [1, 2])
def test_a_collective_may_wait_for_a_worker_that_the_run_lacks(size: int, tmp_path: Path) -> None:
    """Then its host is part of the name of a device, though it is the only one."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 0, 20)
        step.all_reduce(0, 20, 45)
    task = {"role": "worker", "index": 0, "sizes": {"worker": size}}
    write_sidecar(trace.write(tmp_path), {"cluster": task})
    (found,) = [each for each in traceview.analyze(tmp_path).findings if each.loss]
    assert found.code == "collective-exposed"
    assert ("perhaps waiting for worker 1, which the run lacks" in found.title) is (size == 2)
    assert found.action.startswith("Capture on all of them") is (size == 2)
    assert ("/" in found.devices[0]) is (size == 2)


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(4.98, None), (5.0, "warning"), (10, "critical")],
)
def test_exposed_communication(tmp_path: Path, exposed_ms: float, severity: str | None) -> None:
    """Of both GPUs in steps of 50 ms, the last of which is 49.9 ms long."""
    found = findings(communicating(tmp_path, "sum:CollectiveReduceV2", each_ms=exposed_ms))
    assert {code: one.severity for code, one in found.items()} == (
        {"collective-exposed": severity} if severity else {}
    )
    if severity:
        one = found["collective-exposed"]
        assert one.loss is not None
        assert one.loss.gpu_time_ps == 2 * 4 * ms(exposed_ms)
        assert one.loss.ps_per_step == ms(exposed_ms)
        assert one.loss.states == ("communication",)
        assert one.devices == ("GPU:0", "GPU:1")
        assert one.confidence == "medium"


@pytest.mark.parametrize(
    ("scope", "count", "is_loop"),
    [("while/body/_5/while", 4, True), ("while/body/_5/while", 3, False), ("sgd", 4, False)],
)
def test_exchanges_inside_a_loop_belong_behind_it(
    scope: str, count: int, is_loop: bool, tmp_path: Path
) -> None:
    ops = [f"{scope}/CollectiveReduceV2:CollectiveReduceV2"] * count
    found = findings(communicating(tmp_path, *ops, each_ms=3))["collective-exposed"]
    assert ("exchanges inside of a loop" in found.title) is is_loop
    assert (f"The loop makes {count} collectives per step." in found.explanation) is is_loop
    assert found.action.startswith("If the loop only adds up gradients") is is_loop


@pytest.mark.parametrize(
    ("runs", "name", "is_loop", "action"),
    [
        (1, "all-reduce.1", True, "If the loop only adds up gradients"),
        (1, "all-gather.1", True, "Gather what no turn changes"),
        (4, "all-reduce.1", False, "Exchange less often"),
    ],
)
def test_a_program_that_runs_for_each_array_is_no_loop(
    runs: int, name: str, is_loop: bool, action: str, tmp_path: Path
) -> None:
    """A collective runs four times in a step; `runs`: how often the other instruction of its program does."""
    trace = new_trace()
    kernel = NCCL_NAME.replace("AllReduce", "AllGather") if "gather" in name else NCCL_NAME
    for step in marked_steps(trace):
        step.host("PjitFunction(step)", 0, 1)
        for ordinal in range(2):
            for place in range(4):
                at, stats = 2 + 8 * place, in_program("fusion.1")
                if place < runs:
                    step.kernel(ordinal, at, at + 4, op="XlaModule:", stats=stats)
                stats = in_program(name)
                step.kernel(ordinal, at + 4, at + 8, name=kernel, op="XlaModule:", stats=stats)
    found = findings(analyzed(tmp_path, trace))["collective-exposed"]
    assert ("exchanges inside of a loop" in found.title) is is_loop
    assert found.action.startswith(action)


@pytest.mark.parametrize("is_of_jax", [False, True])
@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("collective-permute.{}", 2),
        ("collective-permute.{}", 1),
        ("all-to-all.{}", 2),
        ("ppermute.{}", 2),
    ],
)
def test_arrays_that_get_another_sharding(
    name: str, moves: int, is_of_jax: bool, tmp_path: Path
) -> None:
    """Of three collectives so many; the programs' own have names of functions."""
    kinds = [name] * moves + ["all-reduce.{}"] * (3 - moves)
    ops = [f"{kind.format(place)}:Xla" for place, kind in enumerate(kinds)]
    report = communicating(tmp_path, *ops, each_ms=3, is_of_jax=is_of_jax)
    found = findings(report)["collective-exposed"]
    is_known = moves > 1 and not name.startswith("pp")
    assert found.action.startswith("Keep the sharding that the array has:") is is_known


def of_program(
    folder: Path, *kernels: tuple[str, str, float], module: ModuleWriter | None = None
) -> Report:
    """Two GPUs that run instructions of a program one after the other: instruction, name of the kernel and milliseconds."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            at = 0.1
            for instruction, name, length in kernels:
                step.kernel(ordinal, at, at + length, name=name, stats=in_program(instruction))
                at += length
    add_programs(trace.write(folder), {"jit_step(5)": module or exchanged()})
    return traceview.analyze(folder)


@pytest.mark.parametrize(
    ("name", "length_ms", "title"),
    [
        ("again", 2.4, ""),
        ("again", 2.6, "Both GPUs spend 2.60 of 50.0 ms (5.2%) on exchanging values that all devices already hold"),
        ("average", 4.9, ""),
        ("average", 5.1, "Both GPUs spend 5.10 of 50.0 ms (10%) in exposed communication"),
    ],
)  # fmt: skip
def test_what_devices_have_alike_before_they_exchange_it(
    name: str, length_ms: float, title: str, tmp_path: Path
) -> None:
    report = of_program(tmp_path, ("own", "kernel", 20), (name, NCCL_NAME, length_ms))
    found = findings(report).get("collective-exposed")
    assert (found.title if found else "") == title
    if found and name == "again":
        assert found.confidence == "high"


def test_what_a_graph_sums_again_is_alike(tmp_path: Path) -> None:
    sidecar = {"graphs": {"sent_ops": ["sgd/again"]}}
    report = communicating(tmp_path, "sgd/again:CollectiveReduceV2", each_ms=3, sidecar=sidecar)
    found = findings(report)["collective-exposed"]
    assert (
        found.title
        == "Both GPUs spend 3.00 of 50.0 ms (6.0%) on exchanging values that all devices already hold"
    )
    assert found.action.startswith("Sum gradients once: leave out your own all_reduce")


@pytest.mark.parametrize(
    ("copy_ms", "said"),
    [
        (0.6, "6.00 of 50.0 ms (12%) in exposed communication"),
        (0.7, "6.70 of 50.0 ms (13%) in exposed communication, with the copies around it"),
    ],
)
def test_copies_for_an_exchange_belong_to_it(copy_ms: float, said: str, tmp_path: Path) -> None:
    kernels = ("own", "kernel", 20), ("ordered", "copy", copy_ms), ("gathered", NCCL_NAME, 6.0)
    report = of_program(tmp_path, *kernels, module=exchanged(product_of="logits"))
    assert findings(report)["collective-exposed"].title == f"Both GPUs spend {said}"


@pytest.mark.parametrize(("own_ms", "is_told"), [(2.9, True), (3.1, False)])
def test_activations_are_most_of_what_is_exchanged(
    own_ms: float, is_told: bool, tmp_path: Path
) -> None:
    kernels = ("own", NCCL_NAME, own_ms), ("gathered", NCCL_NAME, 3.0)
    report = of_program(tmp_path, ("new", "kernel", 20), *kernels, module=layer(128, 8))
    found = findings(report)["collective-exposed"]
    assert ("on exchanging activations" in found.title) is is_told
    assert found.action.startswith("Exchange less: multiply") is is_told


@pytest.mark.parametrize("other_ms", [7, 20])
def test_another_finding_counts_what_devices_have_alike(other_ms: float, tmp_path: Path) -> None:
    kernels = ("own", "kernel", 20), ("again", NCCL_NAME, 6), ("average", NCCL_NAME, other_ms)
    titles = {row.sentences[0]: row.explanation for row in of_program(tmp_path, *kernels).findings}
    assert "Another finding counts the other 6.00 ms of communication." in titles[""]
    assert "Another finding" not in titles["alike"]


@pytest.mark.parametrize(("length_ms", "is_told"), [(2.9, False), (3.0, True)])
def test_a_gather_for_what_each_device_then_computes(
    length_ms: float, is_told: bool, tmp_path: Path
) -> None:
    """With its copy, and three quarters of what four devices compute alike: 1 + 3 + 2 ms."""
    kernels = ("ordered", "copy", 1.0), ("gathered", NCCL_NAME, length_ms), ("sums", "kernel", 2.7)
    report = of_program(tmp_path, ("own", "kernel", 20), *kernels)
    found = {row.code: row.title for row in report.findings}.get("repeated-compute", "")
    assert ("on work that each device repeats after gathering its input" in found) == is_told


def test_a_device_alone_shows_no_transfer(tmp_path: Path) -> None:
    """What the only recorded device spends in a collective may be waiting for the others."""
    report = communicating(tmp_path, "sum:CollectiveReduceV2", each_ms=10, gpus=1)
    result = report.results.collectives
    assert result is not None
    assert (result.count, result.incomplete_count, result.transfer_ps) == (4, 4, 0)
    one = findings(report)["collective-exposed"]
    assert (one.severity, one.confidence) == ("warning", "low")
    assert one.sentences[2] == "alone"


def test_a_wait_of_one_host_costs_what_the_other_waits_for_it(tmp_path: Path) -> None:
    """Of steps of 50 ms one host saves for 20, and the GPU of the other one is in their collective meanwhile."""
    traces = []
    for host, saves_ms in (("host0", 0), ("host1", 20)):
        trace = CudaTrace(host, start_ns=PROFILE_START_NS, stop_ns=PROFILE_START_NS + 250_000_000)
        for index, step in enumerate(marked_steps(trace)):
            if saves_ms:
                step.host("EagerLocalExecute: SaveV2", 0.1, saves_ms)
            begin_ms = saves_ms + 0.1
            step.kernel(0, begin_ms, begin_ms + 10, launch_ms=begin_ms)
            all_reduce(step, [(begin_ms + 10, 35)], instance=100 + index, asked_ms=begin_ms + 0.5)
        traces.append(trace)
    report = analyzed(tmp_path, *traces)
    found = the(report, "checkpoint-stall")
    # It says why the other one starts late.
    assert "straggler-gpu" not in {row.code for row in report.findings}
    assert found.title == (
        "host1/GPU:0 waits 19.9 of 50.0 ms (40%) for checkpoints; meanwhile host0/GPU:0 waits 19.9 ms"
    )
    assert loss_of(found).gpu_time_ratio == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(
    ("op", "is_of_jax", "key"),
    [
        ("adam/CollectiveGatherV2:CollectiveGatherV2", False, "rows"),
        ("jit(step)/jvp(looked_up)/gather:gather", True, "rows"),
        # The batch, or another array that trains nothing.
        ("jit(step)/mixed/gather:gather", True, "own_rows"),
    ],
)
def test_rows_of_a_table_grow_with_the_batch(
    op: str, is_of_jax: bool, key: str, tmp_path: Path
) -> None:
    gather = NCCL_NAME.replace("AllReduce", "AllGather")
    report = communicating(tmp_path, op, each_ms=10, name=gather, is_of_jax=is_of_jax)
    one = findings(report)["collective-exposed"]
    assert one.sentences[1].removeprefix("jax-") == key
    assert ("A larger batch does not help" in one.advice) is (key == "rows")


# Calls


@pytest.mark.parametrize(
    ("strategy", "action"),
    [
        ({"class": "MirroredStrategy"}, "nccl"),
        ({"class": "MirroredStrategy", "packs": 1}, "one_pack"),
        ({"class": "MirroredStrategy", "packs": 4}, "nccl"),
        ({"class": "CollectiveAllReduceStrategy", "bytes_per_pack": 0}, "one_pack"),
        ({"class": "CollectiveAllReduceStrategy", "bytes_per_pack": 1 << 20}, "split_packs"),
    ],
)
def test_the_action_is_about_the_calls_of_the_strategy(
    strategy: dict[str, Any], action: str, tmp_path: Path
) -> None:
    (path,) = SCENARIOS["several_packs"]().write(tmp_path)
    write_sidecar(path, {"strategy": strategy})
    one = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert one.sentences[1] == action
    assert one.arguments["calls"] == Number(4, "collective")


# Sums on the CPU


@pytest.mark.parametrize(
    ("name", "sidecar", "action"),
    [
        ("cpu_bounce", {}, ""),
        (
            "cpu_bounce",
            {"devices": {"physical": [{"type": "GPU", "logical_devices": 2}]}},
            "virtual_gpus",
        ),
        ("scalar_loss", {}, None),
    ],
)
def test_gradients_that_the_cpu_sums(
    name: str, sidecar: dict[str, Any], action: str | None, tmp_path: Path
) -> None:
    """Two of 50 ms are copies of gradients, and the GPUs wait for 0.6 ms between these."""
    (path,) = SCENARIOS[name]().write(tmp_path)
    write_sidecar(path, sidecar)
    found = findings(traceview.analyze(tmp_path))
    assert [one.sentences[1] for one in found.values()] == ([] if action is None else [action])
    for one in found.values():
        assert one.code == OFF_GPU.code
        assert loss_of(one).ps_per_step == ms(2.6)


def test_a_sum_for_one_gpu_is_none_of_replicas(tmp_path: Path) -> None:
    """Its copy back, a tenth of the step, is one like any other."""
    trace = new_trace()
    executor = trace.thread("tf_Compute", 8_001)
    summed: Stats = {"tf_op": Ref("sgd/AddN/_9:_Recv")}
    for step in marked_steps(trace):
        step.kernel(0, 0.1, 40)
        step.host("sgd/AddN:AddN", 40.1, 40.2, thread=executor)
        step.copy(0, "H2D", 40.4, 45.4, size=25_000_000, stats=summed, launch_ms=40.3)
        step.kernel(0, 45.5, 48)
    codes = {finding.code for finding in analyzed(tmp_path, trace).findings}
    assert codes & {"h2d-exposed", OFF_GPU.code} == {"h2d-exposed"}


def test_replicas_number_the_ops_of_one_collective(fixtures: Path) -> None:
    """`CollectiveReduceV2`, `CollectiveReduceV2_1` … of four replicas meet in one collective per step."""
    result = traceview.analyze(fixtures / "custom-loop-4").results.collectives
    assert result is not None
    (op,) = result.ops
    assert (op.op, op.count_per_step, op.device_count) == ("sgd/CollectiveReduceV2", 1, 4)
    assert result.count_per_step == 1


def test_replicas_on_the_cpu_are_information_only(fixtures: Path) -> None:
    report = traceview.analyze(fixtures / "keras-fit-4")
    assert {one.severity for one in findings(report).values()} == {"info"}


# Small ones


def analyzed_steps(folder: Path, fill: Callable[[Step, int], None]) -> dict[str, Finding]:
    """The findings on steps of 50 ms, each filled by a function that gets it and a number for its first collective."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        fill(step, 100 * index)
    return {row.code: row for row in analyzed(folder, trace).findings}


def of_values(step: Step, first: int, count: int, size: int) -> None:
    """So many collectives of 2 ms each, and one of the gradients that takes as long."""
    for place in range(count):
        start_ms = 11 + 4 * place
        span, at_ms = (start_ms, start_ms + 2), start_ms - 0.5
        all_reduce(step, [span] * 2, instance=first + place, asked_ms=at_ms, size=size)
    all_reduce(step, [(45, 47)] * 2, instance=first + 50, asked_ms=44)


def test_collectives_of_batch_normalization_are_named(tmp_path: Path) -> None:
    finding = analyzed_steps(tmp_path, layer_step)["small-collectives"]
    assert finding.title == (
        "Both GPUs spend 8.00 of 50.0 ms (16%) in collectives of synchronised batch normalisation"
    )
    assert "without synchronized=True" in finding.action
    of_others = analyzed_steps(tmp_path / "others", partial(layer_step, layer="memory_bank"))
    assert of_others["small-collectives"].title.endswith("that exchange little each")


@pytest.mark.parametrize(
    ("gathers", "action"), [(5, "Keep small weights whole"), (4, "Exchange in one call")]
)
def test_what_is_gathered_for_each_use_is_better_kept_whole(
    gathers: int, action: str, tmp_path: Path
) -> None:
    """Ten of 3 ms each, so many of which gather."""

    def gathered(step: Step, _: int) -> None:
        step.host("PjitFunction(step)", 0, 1)
        for number in range(2):
            thread = step.trace.thread(f"device{number}", 70 + number)
            stats = {"device_ordinal": number}
            step.host("dot.1", 1, 15, stats, thread=thread)
            for place in range(10):
                kind = "all-gather" if place < gathers else "all-reduce"
                at = 16 + 3 * place
                step.host(f"{kind}.{place}", at, at + 3, stats, thread=thread)

    assert analyzed_steps(tmp_path, gathered)["small-collectives"].action.startswith(action)


@pytest.mark.parametrize(
    ("count", "size", "is_small"),
    [(8, 64_000, True), (7, 4, False), (8, 64_001, False)],
)
def test_many_small_collectives(count: int, size: int, is_small: bool, tmp_path: Path) -> None:
    def values(step: Step, first: int) -> None:
        for ordinal in range(2):
            step.kernel(ordinal, 1, 10)
        of_values(step, first, count, size)

    found = analyzed_steps(tmp_path, values)
    if is_small:
        small = found["small-collectives"]
        assert small.title == (
            "Both GPUs spend 16.0 of 50.0 ms (32%) in collectives that exchange little each"
        )
        assert "takes a list of tensors" in small.action
        # That of the gradients, 4 %, is too short to be told.
        assert "collective-exposed" not in found
    else:
        assert "small-collectives" not in found
        assert "collective-exposed" in found


@pytest.mark.parametrize(("keys", "lost_ms"), [(17, 16), (18, 21), (35, 21), (36, 16)])
def test_keys_are_made_for_small_collectives(keys: int, lost_ms: int, tmp_path: Path) -> None:
    """A call converts one for each of nine collectives on two GPUs, in 5 ms, before its graph; others convert more."""

    def values(step: Step, first: int) -> None:
        step.host("train_step", 0.1, 49)
        for place in range(keys):
            step.host("convert_to_tensor", 0.2 + 5 * place / keys, 0.2 + 5 * (place + 1) / keys)
        step.host("FunctionRun", 5.2, 49)
        for ordinal in range(2):
            step.kernel(ordinal, 6, 10, launch_ms=5.9)
        of_values(step, first, 8, 4)

    small = analyzed_steps(tmp_path, values)["small-collectives"]
    assert loss_of(small).ps_per_step == ms(lost_ms)
    assert ("5.00 ms of it pass before the graph runs" in small.explanation) is (lost_ms > 16)


@pytest.mark.parametrize(
    ("pairs", "late"),
    [
        # GPU:2 comes first, then GPU:1, then GPU:0.
        (((0, 1), (1, 2)), {"GPU:1": {"GPU:0"}, "GPU:2": {"GPU:1"}}),
        (((0, 1), (2, 0)), {"GPU:1": {"GPU:0"}, "GPU:2": {"GPU:0"}}),
        ((), {"GPU:1": {"GPU:0"}, "GPU:2": {"GPU:0"}}),
    ],
)
def test_a_device_waits_for_its_source(
    pairs: tuple[tuple[int, int], ...], late: dict[str, set[str]], tmp_path: Path
) -> None:
    """Where it has none, or that is there before it, it waits for the last of all."""
    module = ModuleWriter()
    module.add(
        "ppermute.1", "collective-permute" if pairs else "all-reduce", module.add("a", "parameter")
    )
    for source, target in pairs:
        module.last().source_target_pairs.add(source=source, target=target)
    module.divide(3)
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        stats = in_program("ppermute.1", "jit_f", 1)
        for ordinal in range(3):
            begin = 32 - 10 * ordinal
            step.kernel(ordinal, 2, begin)
            step.kernel(ordinal, begin, 40, name=NCCL_NAME, op="XlaModule:", stats=stats, stream=22)
    add_programs(trace.write(tmp_path), {"jit_f(1)": module})
    loaded = traceview.load(tmp_path)
    rows = loaded.ledger().to_frame()
    waits = rows[(rows.state == "device_wait") & (rows.activity == "collective")]
    assert {device: set(of.by) for device, of in waits.groupby("device", observed=True)} == late
    assert (collectives_of(loaded).sends.size > 0) == bool(pairs)
    is_met = (rows.state == "communication") & (rows.duration_ps > ms(8))
    assert not is_met.any()


@pytest.mark.parametrize(("cores", "communication_ms"), [(2, 0), (3, 4)])
def test_while_others_have_all_cores_a_collective_holds_nothing_up(
    cores: int, communication_ms: float, tmp_path: Path
) -> None:
    """The sum of the third device lasts while the other two compute again, on two cores or three."""
    trace = new_trace()
    for step in marked_steps(trace):
        for number in range(3):
            thread = trace.thread(f"device{number}", 70 + number)
            stats = {"device_ordinal": number}
            step.host("dot.1", 1, 10, stats, thread=thread)
            step.host("all-reduce.7", 10, 14 if number < 2 else 24, stats, thread=thread)
            step.host("dot.2", 14 if number < 2 else 24, 34, stats, thread=thread)
    write_sidecar(trace.write(tmp_path), {"cores": {"machine_count": 8, "usable_count": cores}})
    frame = traceview.load(tmp_path).ledger().to_frame()
    third = frame[(frame.device == "CPU:2") & (frame.step == 1) & (frame.activity == "collective")]
    by_state = third.groupby("state").duration_ps.sum() / ms(1)
    assert by_state.get("communication", 0) == communication_ms
    assert by_state.sum() == 14


# Which devices compute gradients, and why only one does


CODE = "single-gpu-gradients"
FORWARD = "model/dense/MatMul:MatMul"
BACKWARD = "gradient_tape/model/dense/MatMul:MatMul"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (b"model/dense/MatMul:MatMul", Phase.FORWARD),
        (b"gradient_tape/replica_1/model/dense/MatMul:MatMul", Phase.BACKWARD),
        (b"gradients/model/dense/MatMul_grad/MatMul:MatMul", Phase.BACKWARD),
        (b"model/relu:ReluGrad", Phase.BACKWARD),
        (b"x/conv:Conv2DBackpropFilter", Phase.BACKWARD),
        (b"x/conv_transpose:Conv2DBackpropInput", Phase.FORWARD),
        (b"gradient_tape/x/conv/Conv2DBackpropInput:Conv2DBackpropInput", Phase.BACKWARD),
        (b"x/norm:FusedBatchNormGradV3", Phase.BACKWARD),
        (b"x/jit(step)/transpose(jvp(dense))/dot_general", Phase.BACKWARD),
        (b"Adam/Adam/update_1/ResourceApplyAdam:ResourceApplyAdam", Phase.OPTIMIZER),
        (b"sgd/update_0_3/mul:Mul", Phase.OPTIMIZER),
        (b"StatefulPartitionedCall/adam_1/mul:Mul", Phase.OPTIMIZER),
        # As Keras 3 writes the name of `RMSprop`.
        (b"rm_sprop_1/Mul:Mul", Phase.OPTIMIZER),
        (b"sgd/CollectiveReduceV2:CollectiveReduceV2", Phase.REDUCTION),
        (b"x/NcclAllReduce:NcclAllReduce", Phase.REDUCTION),
        (b"adamant/MatMul:MatMul", Phase.FORWARD),
        (b"fusion_3", Phase.UNKNOWN),
        (b"", Phase.UNKNOWN),
    ],
)
def test_names_show_the_phase(name: bytes, phase: Phase) -> None:
    assert phase_of(name) is phase


@pytest.mark.parametrize(("above_ms", "is_reached"), [(0.1, True), (-0.1, False)])
def test_constants_of_the_backward_pass_are_not_it(
    above_ms: float, is_reached: bool, tmp_path: Path
) -> None:
    """20 ms in all."""
    length = 20 * BACKWARD_RATIO + above_ms
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22 - length)
            if ordinal == 0:
                step.kernel(ordinal, 22 - length, 22, op=BACKWARD)
    assert (finding_of(analyzed(tmp_path, trace), CODE) is not None) == is_reached


@pytest.mark.parametrize(("length_ms", "is_alone"), [(0.3, False), (0.1, True)])
def test_a_device_with_much_other_work_computes_gradients_too(
    length_ms: float, is_alone: bool, tmp_path: Path
) -> None:
    """Those of the first take 1 ms: a fifth of that is no constant, however little it is of the 20 ms of the second."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 3)
        step.kernel(0, 3, 4, op=BACKWARD)
        step.kernel(1, 2, 22 - length_ms)
        step.kernel(1, 22 - length_ms, 22, op=BACKWARD)
    assert (finding_of(analyzed(tmp_path, trace), CODE) is not None) == is_alone


@pytest.mark.parametrize(("slow", "is_found"), [((1,), True), (range(4), False)])
def test_what_waits_for_a_core_once_hides_no_gradients(
    slow: Sequence[int], is_found: bool, tmp_path: Path
) -> None:
    """The ops before the gradients take 2 ms, and in slow steps 40, of which gradients of 0.3 ms are less than a twentieth."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        for ordinal in range(2):
            step.kernel(ordinal, 1, 41 if number in slow else 3)
            if ordinal == 0:
                step.kernel(ordinal, 41, 41.3, op=BACKWARD)
    assert (finding_of(analyzed(tmp_path, trace), CODE) is not None) == is_found


# One device


def reasons(folder: Path) -> tuple[str, ...]:
    finding = the(traceview.analyze(folder), CODE)
    return finding.sentences[3:]


def test_a_divided_gpu_runs_several_replicas(tmp_path: Path) -> None:
    (path,) = SCENARIOS["replicas_on_one_gpu"]().write(tmp_path)
    physical = [{"type": "GPU", "logical_devices": 2}]
    write_sidecar(path, {"devices": {"physical": physical}})
    assert reasons(tmp_path) == ()
