"""The oracle keeps the rules that cases A to G do not cover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import traceview
from scripts.cuda_trace import MS, PROFILE_START_NS, SECOND, CudaTrace, Ref, Stats
from tests.oracle import recorded_answer, run_answer
from tests.oracle.accessors import ORIGIN_PS, PARTS, devices_of, holds_identity, window_of
from tests.oracle.intervals import length, subtract, union


def _marked(**options: Any) -> CudaTrace:
    trace = CudaTrace(**options)
    trace.gpu(0)
    return trace


def test_interval_sets() -> None:
    assert union([(5, 7), (1, 3), (3, 4), (6, 9), (2, 2)]) == [(1, 4), (5, 9)]
    assert subtract([(0, 10), (20, 30)], [(2, 3), (9, 21), (29, 40)]) == [(0, 2), (3, 9), (21, 29)]
    assert length([(0, 10), (5, 12)]) == 12


def test_exposure_follows_the_order_of_classes(tmp_path: Path) -> None:
    trace = _marked()
    trace.kernel(0, 0, 10)
    trace.kernel(0, 5, 20, name="ncclKernel_x", stream=22)
    trace.copy(0, "H2D", 15, 30, size=8)
    trace.copy(0, "D2H", 25, 40, size=8)
    trace.copy(0, "D2D", 35, 50, size=8)
    trace.device_event(0, "Memset 2", 45, 60, stats={"Memset_details": Ref("num_bytes:4")})
    row = devices_of(run_answer([trace.write(tmp_path)], "devices"))["GPU:0"]
    assert [row[part] for part in PARTS] == [10, 10, 10, 10, 10, 10, 0]
    assert row["total_ps"]["memset"] == 15
    assert (row["kernel_count"], row["copy_count"], row["memset_count"]) == (1, 3, 1)


def test_what_never_counts(tmp_path: Path) -> None:
    trace = _marked()
    trace.kernel(0, 100, 110)
    plane = trace.gpu(0)
    for line_id, name, event in [
        (-559038737 + 3, "renumbered", "derived by id"),
        (7, "XLA Modules - from #20", "derived by name"),
        (8, "_counters_", "sm_clock_mhz"),
        (0x10000002, "Stream #268435458", "UM_BYTES"),
    ]:
        plane.line(line_id, name).add(event, 0, 1000, {"correlation_id": 1})
    plane.line(9, "Range profiler").add("x", 0, 1000, {"counter_value": 1.0, "correlation_id": 1})
    overhead = plane.line(30, "CUPTI overhead")
    overhead.add("BUFFER_FLUSH", 0, 1000)
    overhead.add("kernel on it", 200, 210, {"correlation_id": 5})
    residency: Stats = {"MemoryResidency_details": "kind:device num_bytes:1", "correlation_id": 1}
    plane.line(0, "Stream #0(MemoryResidency,Compute)").add("Memory device", 0, 1000, residency)
    answer = run_answer([trace.write(tmp_path)], "devices")
    assert window_of(answer)[1:] == (ORIGIN_PS + 100, ORIGIN_PS + 210)
    assert devices_of(answer)["GPU:0"]["busy_ps"] == 20


def test_host_that_runs_ahead_moves_the_cuts(tmp_path: Path) -> None:
    trace = _marked()
    for i in range(5):  # dispatch takes 10 ms, the device 50 ms
        trace.marker(i, 10 * i * MS, (10 * i + 9) * MS)
        start_ms = 1 + 50 * i
        launch_ps = (10 * i + 1) * MS
        trace.kernel(0, start_ms * MS, (start_ms + 40) * MS, launch_ps=launch_ps)
    answer = run_answer([trace.write(tmp_path)])
    steps = answer["steps"]
    assert (steps["basis"], steps["count"], steps["used_count"]) == ("device", 5, 4)
    assert steps["median_ps"] == 50 * MS
    assert [s["duration_ps"] for s in steps["steps"]] == [50 * MS] * 4 + [40 * MS]
    assert window_of(answer) == ("steps", ORIGIN_PS + MS, ORIGIN_PS + 241 * MS)


def test_last_step_ends_with_its_last_device_event(tmp_path: Path) -> None:
    trace = _marked()
    trace.marker(0, 0, 9 * MS)
    trace.marker(1, 10 * MS, 19 * MS)
    trace.kernel(0, 1 * MS, 2 * MS, launch_ps=MS)
    trace.kernel(0, 12 * MS, 25 * MS, launch_ps=11 * MS)
    answer = run_answer([trace.write(tmp_path)])
    assert window_of(answer) == ("steps", ORIGIN_PS, ORIGIN_PS + 25 * MS)


def test_a_launch_is_of_the_step_in_whose_marker_it_starts(tmp_path: Path) -> None:
    """The call around both launches outlasts the last marker; a kernel without length counts too."""
    trace = _marked()
    trace.marker(0, 0, 9 * MS)
    trace.marker(1, 10 * MS, 19 * MS)
    trace.host_event("IteratorGetNext:IteratorGetNext", 15 * MS, 30 * MS)
    trace.kernel(0, 25 * MS, 25 * MS, launch_ps=16 * MS)
    trace.kernel(0, 40 * MS, 41 * MS, launch_ps=21 * MS)
    answer = run_answer([trace.write(tmp_path)])
    assert window_of(answer) == ("steps", ORIGIN_PS, ORIGIN_PS + 25 * MS)
    (window,) = traceview.analyze(tmp_path).windows
    assert (window.start_ps, window.end_ps) == window_of(answer)[1:]


def test_links_run_through_producers(tmp_path: Path) -> None:
    trace = _marked()
    trace.marker(0, 0, 9 * MS)
    trace.marker(1, 10 * MS, 19 * MS)
    trace.host_event("FunctionRun", MS, 2 * MS, {"_pt": 2, "_p": 77, "_r": 1})
    worker = trace.thread("tf_Compute", 5)
    # The worker runs, and the device works, after the second step has begun.
    trace.host_event(
        "ExecutorState::Process", 11 * MS, 12 * MS, {"_ct": 2, "_c": 77}, thread=worker
    )
    trace.kernel(0, 30 * MS, 31 * MS, launch_ps=11 * MS + 1, launch_thread=worker)
    answer = run_answer([trace.write(tmp_path)])
    assert window_of(answer) == ("steps", ORIGIN_PS, ORIGIN_PS + 19 * MS)


def test_nested_markers_and_restarting_numbers(tmp_path: Path) -> None:
    trace = _marked()
    for place, number in enumerate([0, 1, 0, 1]):
        start_ps = place * 10 * MS
        trace.marker(number, start_ps, start_ps + 9 * MS)
        trace.marker(99, start_ps + MS, start_ps + 5 * MS, name="train_inner")
        trace.kernel(0, start_ps + 3 * MS, start_ps + 4 * MS, launch_ps=start_ps + 2 * MS)
    file = trace.write(tmp_path)
    rows = run_answer([file])["steps"]["steps"]
    assert [(row["number"], row["recorded_number"]) for row in rows] == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    narrowed = run_answer([file], steps=(2, 3))
    assert window_of(narrowed) == ("steps", ORIGIN_PS + 20 * MS, ORIGIN_PS + 30 * MS)


def test_traced_first_step_is_not_used(tmp_path: Path) -> None:
    trace = _marked()
    for i, start_ms in enumerate([0, 90, 100]):
        trace.marker(i, start_ms * MS, (start_ms + 10) * MS)
    trace.host_event("step_fn", MS, 80 * MS, {"tf_function_call": "traced-nonXla"})
    steps = run_answer([trace.write(tmp_path)])["steps"]
    assert (steps["count"], steps["used_count"], steps["median_ps"]) == (3, 2, 10 * MS)


def test_hosts_share_one_clock(tmp_path: Path) -> None:
    early = _marked(host="a", start_ns=PROFILE_START_NS, stop_ns=PROFILE_START_NS + 10**9)
    late = _marked(
        host="b",
        start_ns=PROFILE_START_NS + 5,
        stop_ns=PROFILE_START_NS + 10**9,
        base_ns=PROFILE_START_NS + 1005,  # absolute stamps
    )
    for trace in (early, late):
        trace.kernel(0, 0, 7)
    files = [early.write(tmp_path), late.write(tmp_path)]
    answer = run_answer([*files, *files], "devices")
    assert set(devices_of(answer)) == {"a/GPU:0", "b/GPU:0"}
    starts = {row["host"]: row["start_ps"] for row in answer["windows"]}
    assert starts == {"a": ORIGIN_PS, "b": ORIGIN_PS + 5000}
    whole = {row["host"]: row for row in run_answer(files, "trace")["windows"]}
    assert (whole["b"]["start_ps"], whole["b"]["end_ps"]) == (5000, SECOND // 1000 * 1000)


def test_planes_without_any_event_have_no_numbers(tmp_path: Path) -> None:
    trace = _marked()
    trace.marker(0, 0, MS)
    row = devices_of(run_answer([trace.write(tmp_path)]))["GPU:0"]
    assert (row["status"], row["busy_ps"], row["idle_ps"]) == ("empty", None, None)


def test_replicas_of_recorded_runs(fixtures: Path) -> None:
    for name, count, method in [
        ("custom-loop-2", 2, "marker"),
        ("keras-fit-2", 2, "keras"),
        ("no-markers-2", 2, "function"),
        ("plain-1", 1, "marker"),
    ]:
        answer = recorded_answer(fixtures / name)
        devices = devices_of(answer)
        assert list(devices) == [f"replica:{k}" for k in range(count)]
        assert answer["steps"]["method"] == method
        assert holds_identity(answer)
        steps = answer["steps"]["count"]
        # One all-reduce per step where there is anybody to reduce with, and the same work on all replicas
        # but 0, which does the rest.
        reductions = steps if count > 1 else 0
        assert all(row["collective_count"] == reductions for row in devices.values())
        rest = {row["kernel_count"] for row in devices.values() if row["ordinal"] > 0}
        assert len(rest) <= 1


def test_copies_in_other_spellings(tmp_path: Path) -> None:
    trace = _marked()
    for place, (name, text) in enumerate(
        [
            ("MEMCPYHtoD", "size:1 dest:0 async:1"),
            ("Memcpy DtoH", "kind_src:device kind_dst:pageable size:2"),
            ("MemcpyOther", "kind_src:pinned kind_dst:device size:4"),
            ("CopyDeviceToDevice", "kind:Unknown size:0 dest:2"),
            ("MemcpyOther", "size:16"),
        ]
    ):
        start_ps = 10 * place
        details: Stats = {"memcpy_details": Ref(text)}
        trace.device_event(0, name, start_ps, start_ps + 10, stats=details)
    row = devices_of(run_answer([trace.write(tmp_path)], "devices"))["GPU:0"]
    assert [row["total_ps"][cls] for cls in ("h2d", "d2h", "d2d")] == [20, 10, 20]
    assert [row["h2d_bytes"], row["d2h_bytes"], row["d2d_bytes"]] == [5, 2, 16]
    assert row["unknown_direction_count"] == 1
    assert (row["status"], row["kernel_count"]) == ("copy_only", 0)


def test_rocm_copies_take_the_direction_of_their_call(tmp_path: Path) -> None:
    trace = _marked()
    for place, call in enumerate(["hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync", "hipLaunchHostFunc"]):
        trace.device_event(
            0,
            "__amd_rocclr_copyBuffer.kd",
            10 * place,
            10 * place + 10,
            stats={"kernel_details": "grid:1,1,1"},
            launch_ps=place,
            launch_name=call,
        )
    row = devices_of(run_answer([trace.write(tmp_path)], "devices"))["GPU:0"]
    assert [row["total_ps"][cls] for cls in ("h2d", "d2h", "d2d")] == [10, 10, 10]
    assert (row["unknown_direction_count"], row["kernel_count"]) == (1, 0)


def test_chunks_of_a_plane_are_merged_and_repeated_lines_dropped(tmp_path: Path) -> None:
    first, second = _marked(), _marked()
    first.kernel(0, 0, 10)
    second.kernel(0, 20, 30)
    file = first.write(tmp_path)
    once, other = file.read_bytes(), second.write(tmp_path / "other").read_bytes()
    file.write_bytes(once + other + once)
    row = devices_of(run_answer([file], "devices"))["GPU:0"]
    assert (row["busy_ps"], row["kernel_count"], row["idle_ps"]) == (20, 2, 10)


def test_absolute_stamps_without_an_epoch(tmp_path: Path) -> None:
    trace = _marked(base_ns=PROFILE_START_NS)
    trace.kernel(0, 3, 10)
    assert window_of(run_answer([trace.write(tmp_path)])) == ("devices", 3, 10)


def test_memory_of_virtual_gpus_is_null(tmp_path: Path) -> None:
    trace = _marked()
    trace.kernel(0, 0, MS)
    trace.allocation(0, 5, held_bytes=100, peak_bytes=300, changed_bytes=100)
    trace.allocation(0, 9, held_bytes=50, peak_bytes=300, changed_bytes=50, freed=True)
    row = devices_of(run_answer([trace.write(tmp_path)]))["GPU:0"]
    assert (row["memory_held_bytes"], row["memory_peak_bytes"]) == (50, 300)
    trace.allocation(1, 9, held_bytes=1, peak_bytes=1, changed_bytes=1)
    row = devices_of(run_answer([trace.write(tmp_path)]))["GPU:0"]
    assert (row["memory_held_bytes"], row["memory_peak_bytes"]) == (None, None)


def test_driver_calls_on_a_line_of_their_own(tmp_path: Path) -> None:
    # `Host Threads/1` has another id than `python3`: only time ties its launches to a marker.
    trace = _marked()
    trace.marker(0, 0, 9 * MS)
    trace.marker(1, 10 * MS, 19 * MS)
    api = trace.host_plane.line(4242, "Host Threads/4242")
    trace.kernel(0, 30 * MS, 31 * MS, launch_ps=2 * MS, launch_thread=api)
    assert window_of(run_answer([trace.write(tmp_path)]))[2] == ORIGIN_PS + 19 * MS


def test_ops_without_replica(tmp_path: Path) -> None:
    trace = _marked()
    trace.kernel(0, 0, 10, op="gradient_tape/replica_1/dense/MatMul:MatMul")
    trace.kernel(0, 10, 14, op="gradient_tape/dense/MatMul:MatMul")
    (row,) = run_answer([trace.write(tmp_path)])["ops"]
    assert (row["op"], row["op_type"]) == ("gradient_tape/dense/MatMul", "MatMul")
    assert (row["count"], row["total_ps"], row["mean_ps"], row["median_ps"]) == (2, 14, 7, 7)
