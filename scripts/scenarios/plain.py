"""Does a trace of one and the same run give one and the same answer in whatever form it is stored?

All cases here hold the *plain* run: one GPU, four steps of 50 ms, in each a 1 MB copy from pinned
memory at 1–2 ms on stream 21 and a kernel at 2–42 ms on stream 20. They differ in how it was
written, or in what else was recorded that must not count.
"""

from __future__ import annotations

from scripts.cuda_trace import (
    BASE_NS,
    PROFILE_START_NS,
    U64,
    CudaTrace,
    Dangling,
    Plane,
    Ref,
    Stats,
)
from scripts.scenarios.model import (
    ORIGIN_PS,
    Scenario,
    Step,
    Truth,
    device_truth,
    findings_truth,
    idle_truth,
    marked_steps,
    ms,
    new_trace,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9
COPY_BYTES = 1_000_000
COPY_DETAILS_2020 = f"size:{COPY_BYTES} dest:0 async:1"
KERNEL_DETAILS_2020 = "regs:38 shm:0 grid:160,1,1 block:1024,1,1"


def plain_step(step: Step, ordinal: int = 0) -> None:
    """The device work of one plain step."""
    step.copy(ordinal, "H2D", 1, 2, size=COPY_BYTES)
    step.kernel(ordinal, 2, 42)


def plain_truth(
    *,
    origin_ps: int = ORIGIN_PS,
    findings: Truth | None = None,
    **others: Truth,
) -> Truth:
    """The answer for the plain run, whatever it is wrapped in."""
    device = device_truth(WINDOW_MS, compute=160, h2d=4, idle=35.9)
    return {
        "windows": window_truth(WINDOW_MS, start_ps=origin_ps),
        "steps": steps_truth([50, 50, 50, 49.9], 50, origin_ps=origin_ps),
        "device_time": {"GPU:0": device},
        "findings": findings or findings_truth([], ["unused-gpu", "events-dropped"]),
        **others,
    }


def _plain(trace: CudaTrace) -> CudaTrace:
    for step in marked_steps(trace):
        plain_step(step)
    return trace


def _scenario(trace: CudaTrace, truth: Truth | None = None) -> Scenario:
    return Scenario({trace.host: trace}, plain_truth() if truth is None else truth)


def plain() -> Scenario:
    """The plain run in the format of current TensorFlow."""
    return _scenario(_plain(new_trace()))


def old_format() -> Scenario:
    """The plain run as TensorFlow wrote it in 2020: texts in place, 32-bit thread ids, no epoch."""
    trace = CudaTrace("host0")
    trace.gpu(0, stats={"clock_rate": 1_530_000, "core_count": 80})
    thread = trace.thread("python3", 3_095_888_191)
    for index in range(4):
        step = Step(trace, 50 * index)
        step.host("train", 0, 49.9, {"step_num": index, "group_id": index}, thread=thread)
        stats: Stats = {
            "annotation": Ref("model/dense/MatMul:MatMul#shape=(float32[8,8])#"),
            "level 0": Ref("model/dense/MatMul:MatMul"),
            "kernel_details": KERNEL_DETAILS_2020,
            "is_eager": 0,
        }
        copy = trace.copy(
            0, "H2D", step.at(1), step.at(2), size=COPY_BYTES, details=COPY_DETAILS_2020
        )
        kernel = trace.kernel(0, step.at(2), step.at(42), op=None, details=None, stats=stats)
        garbage: Stats = {"kernel_details": "regs:17179869185 shm:21474836480 grid:1,1,1"}
        trace.launch("MemcpyH2D", step.at(0.011), copy, thread=thread)
        trace.launch("sgemm_128x64", step.at(0.015), kernel, thread=thread, stats=garbage)
    _stored_lines(trace)
    return _scenario(trace)


def _stored_lines(trace: CudaTrace) -> None:
    plane = trace.gpu(0)
    for line_id, name, event in (
        (-559038737, "Steps", "0"),
        (-559038734, "TensorFlow Ops", "MatMul"),
        (-559038735, "TensorFlow Name Scope", "model"),
        (30, "Framework Ops - from #20", "MatMul"),
        (3735928559 + 5, "renumbered", "MatMul"),
    ):
        plane.line(line_id, name).add(event, ms(1), ms(192), {"correlation_id": U64(2)})


def overhead_stream() -> Scenario:
    """One overhead event renames its whole stream `CUPTI overhead`; its kernels still count."""
    trace = _plain(new_trace())
    stream = trace.gpu(0).line(20)
    stream.name = "CUPTI overhead"
    for index in range(4):
        at_ps = ms(50 * index)
        stream.add("BUFFER_FLUSH", at_ps + ms(43), at_ps + ms(48))
    return _scenario(trace)


def not_busy_lines() -> Scenario:
    """Memory residency, unified memory, counters and allocations: recorded, long, and not work."""
    trace = _plain(new_trace())
    plane = trace.gpu(0)
    residency: Stats = {"MemoryResidency_details": Ref("kind:device num_bytes:4096 addr:0x7f00")}
    plane.line(0, "Stream #0(MemoryResidency)").add("Memory device", 0, ms(199), residency)
    paged = plane.line(0x10000001, "Stream #268435457(UnifiedMemory)")
    paged.add("UM_BYTES_TRANSFER_HTOD", ms(43), ms(49))
    counters = plane.line(40, "_counters_")
    for index in range(20):
        at_ps = ms(10 * index)
        counters.add("power_mw", at_ps, at_ps, {"power_mw": 250_000.0})
    plane.line(41, "SM Active").add("SM Active", ms(43), ms(49), {"counter_value": 0.5})
    memory = plane.line(25, "Stream #25(MemoryAlloc,MemoryFree)")
    for name, details in (("MemoryAlloc", "memalloc_details"), ("MemoryFree", "MemFree_details")):
        stats: Stats = {"correlation_id": U64(900), details: Ref("kind:device num_bytes:4096")}
        memory.add(name, ms(44), ms(48), stats)
    return _scenario(trace)


def dropped_events() -> Scenario:
    """The tracer ran full: 12 and 3 events missing, said twice in the file."""
    trace = _plain(new_trace())
    warning = (
        "Detected GPU events dropped on host0: Profiler has collected 8 driver events and 8 device "
        "events. 12 events dropped because total device(activity) events reaches max; 3 events "
        "dropped because total driver(callback) events reaches max."
    )
    trace.warnings = [warning, warning]
    truth = plain_truth(
        findings=findings_truth(["events-dropped"], []),
        capture={"quality": "degraded", "dropped_count": 15},
    )
    del truth["steps"]["used_count"]
    del truth["steps"]["median_ps"]
    return _scenario(trace, truth)


def profiler_error() -> Scenario:
    """CUPTI complained, yet events were recorded."""
    trace = _plain(new_trace())
    trace.errors = ["host0: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: see ERR_NVGPUCTRPERM"]
    truth = plain_truth(capture={"quality": "degraded", "dropped_count": 0})
    return _scenario(trace, truth)


def absolute_stamps() -> Scenario:
    """Line stamps were stored as wall-clock nanoseconds; the environment says when that began."""
    trace = CudaTrace(
        "host0",
        base_ns=PROFILE_START_NS + BASE_NS,
        start_ns=PROFILE_START_NS,
        stop_ns=PROFILE_START_NS + 250_000_000,
    )
    return _scenario(_plain(trace))


def absolute_stamps_without_start() -> Scenario:
    """Wall-clock stamps and no environment: the smallest stamp is the origin."""
    trace = CudaTrace("host0", base_ns=PROFILE_START_NS + BASE_NS)
    return _scenario(_plain(trace), plain_truth(origin_ps=0))


def different_stamps() -> Scenario:
    """Host and device lines count from different stamps, as JAX traces do."""
    trace = CudaTrace("host0", base_ns=300_000, start_ns=PROFILE_START_NS)
    trace.thread().stamp_ns = 36_840
    trace.gpu(0).line(20).stamp_ns = 245_747
    trace.gpu(0).line(21).stamp_ns = 245_747
    truth = plain_truth(origin_ps=300_000_000)
    return _scenario(_plain(trace), truth)


def metadata_dangles() -> Scenario:
    """Ids without an entry; a nameless event that was launched is still a kernel."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.copy(0, "H2D", 1, 2, size=COPY_BYTES, stats={Dangling(7001): 1})
        step.kernel(0, 2, 40, op=None, stats={"tf_op": Dangling(7002)})
        step.kernel(0, 40, 42, name=Dangling(7003))
    return _scenario(trace)


def odd_line_ids() -> Scenario:
    """A negative thread id and stream ids above 2³¹."""
    trace = new_trace()
    thread = trace.thread("python3", -6_917_529_027_641_081_856)
    for index in range(4):
        step = Step(trace, 50 * index, thread=thread)
        step.host("train", 0, 49.9, {"_r": 1, "step_num": index}, thread=thread)
        copy = trace.copy(0, "H2D", step.at(1), step.at(2), size=COPY_BYTES, stream=5_000_000_000)
        trace.launch("MemcpyH2D", step.at(0.005), copy, thread=thread)
        step.kernel(0, 2, 42, stream=2**31 + 5)
    return _scenario(trace)


def split_planes() -> Scenario:
    """Two planes of one name, numbered differently, with parts of the same stream in each."""
    trace = new_trace()
    second = Plane("/device:GPU:0", 0, first_metadata_id=50)
    for index, step in enumerate(marked_steps(trace)):
        plain_step(step)
        if index == 1:
            _cut(trace.gpu(0), second)
    trace.extra_planes.append(second)
    return _scenario(trace)


def _cut(source: Plane, target: Plane) -> None:
    """Move what was recorded so far to the other plane, on lines of the same ids."""
    for key, line in source.lines.items():
        moved = target.line(line.line_id, key=key)
        moved.types, moved.events = dict(line.types), list(line.events)
        line.events.clear()


def past_the_stop() -> Scenario:
    """Device events end after the profile's stop, at 181 ms; they count to their end."""
    trace = new_trace(length_ms=181)
    for step in marked_steps(trace, marker_ms=30):
        plain_step(step)
    device = device_truth(192, compute=160, h2d=4, idle=28)
    truth: Truth = {
        "windows": window_truth(192),
        "steps": steps_truth([50, 50, 50, 42], 50),
        "device_time": {"GPU:0": device},
        # The host left each step 12 ms before its kernel ended, and came back 8 ms after that.
        "idle": {"GPU:0": idle_truth(states={"between": 3 * 8})},
        "findings": findings_truth(["callback-stall"]),
    }
    return _scenario(trace, truth)


def zero_length() -> Scenario:
    """Events of no length inside the window: counted, and no time."""
    trace = new_trace()
    for step in marked_steps(trace):
        plain_step(step)
        step.kernel(0, 45, 45)
        step.copy(0, "H2D", 46, 46, size=0)
    return _scenario(trace)


def clock_inversion() -> Scenario:
    """Clocks disagree by microseconds: every kernel starts 5 µs before its launch."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.copy(0, "H2D", 1, 2, size=COPY_BYTES)
        step.kernel(0, 2, 42, launch_ms=2.005)
    return _scenario(trace)


def hostile_names() -> Scenario:
    """Names made to break a renderer: markup, script, line breaks, bad UTF-8, 100 kB."""
    trace = new_trace()
    names: tuple[str | bytes, ...] = (
        "[red]x[/red]",
        "</script><script>alert(1)</script>",
        "line\nbreak\r\n| table | cell |\t\x1b[31m",
        b"\xff\xfe not UTF-8 \xc3",
        "k" * 100_000,
        "{{ 7 * 7 }} ${HOME} `id` <!-- & \" ' -->",
        "",
        "ядро/核\u202e",
    )
    for step in marked_steps(trace):
        step.copy(0, "H2D", 1, 2, size=COPY_BYTES)
        for index, name in enumerate(names):
            start_ms = 2 + 5 * index
            op = "model/</td><b>[bold]:MatMul" if index % 2 else None
            step.kernel(0, start_ms, start_ms + 5, name=name, op=op)
        step.host("</script>[link=x]", 0.1, 0.2, {"k\n": b"\xff"})
    trace.thread("[blink]\x00</style>", 2).add("idle", 0, ms(1))
    return _scenario(trace)


def duplicate_files() -> Scenario:
    """The same bytes under two host names are one host."""
    trace = _plain(new_trace())
    return Scenario({"host0": trace, "host1": trace}, plain_truth())
