"""What a device loses where threads of the model are ready and others have the cores: as much as the kernel counted.

Steps of 100 ms with one replica: 10 ms of dispatch, then an op. The threads run on 0.7 cores and want one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of, loss_of
from tests.python_sidecars import PROFILE_START_NS, Line, clocks_group, python_group
from traceview.analysis.rules.finding import Finding

CALLER, EXECUTOR, PIPELINE, BATCHES, SECOND, WORKER, NOBODY, SCRIPT = 1, 41, 50, 51, 42, 43, 90, 77
COUNT: Final[Line] = ("train.py", "count", 12, True)
LOADS: Final = {CALLER: (0.1, 0.0), EXECUTOR: (0.6, 0.3), PIPELINE: (0.8, 0.0)}
OP_MS: Final = 90 * 0.3
DISPATCH_MS: Final = 10 * 0.3


def found(
    folder: Path,
    *,
    loads: dict[int, tuple[float, float]] | None = LOADS,
    cores: int | None = 2,
    code: str = "input-bound",
    is_on_gpu: bool = False,
    idents: dict[int, int] | None = None,
    load: dict[str, int] | None = None,
    ends: int | None = None,
    is_sampled: bool = True,
    called: tuple[Line, ...] = (),
    stage: str = "Map",
    versions: dict[str, str] | None = None,
    **clocks: Any,
) -> Finding | None:
    """The finding of one code about eight steps, with a pipeline of such a `stage`. `load`: what the machine did, from `/proc/stat`. `ends`: which thread ends an
    asynchronous op of the step, while the script calls ops. `called`: of a library, from the line of the script.
    """
    trace = new_trace(length_ms=1000)
    worker = trace.thread("tf_data_private", PIPELINE)
    batches = trace.thread("tf_data_iterator_resource", BATCHES)
    executor, second = trace.thread("tf_Compute", EXECUTOR), trace.thread("tf_Compute", SECOND)
    worker_of_ops = trace.thread("tf_numa_-1_Eigen", WORKER)
    script = trace.thread("python", SCRIPT)
    samples = []
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("InstantiatedCapturedFunction::Run", 0, 100, {"id": 900}, thread=worker)
        step.host("decode:DecodePng", 0, 100, thread=worker)
        step.host("IteratorGetNextOp::DoCompute", 0, 1)
        step.host(
            "Iterator::Root::Prefetch", 0, 1, {"id": 2, "buffer_limit": 2, "buffered_elements": 1}
        )
        made = {"id": 3, "parent_id": 2}
        step.host(f"Iterator::Root::Prefetch::{stage}", 0, 99, made, thread=worker)
        below = {"id": 4, "parent_id": 3}
        step.host(f"Iterator::Root::Prefetch::{stage}::Batch", 0, 99, below, thread=batches)
        step.host("FunctionRun", 1, 100)
        step.host("replica_0/side:Add", 10, 100, thread=second)
        step.host("a part of an op", 10, 100, thread=worker_of_ops)
        step.host("TFE_DeleteTensorHandle", 50, 51, thread=script)
        if ends is not None:
            key, name = 700 + round(step.start_ms), "ExecutorState::ProcessAsync"
            step.host("TFE_Py_FastPathExecute_C", 4, 6, thread=script)
            step.host(f"{name}::Start", 2, 2.1, {"_pt": 2, "_p": key}, thread=executor)
            by = script if ends == SCRIPT else executor
            step.host(f"{name}::Done", 5, 5.1, {"_ct": 2, "_c": key}, thread=by)
        if is_on_gpu:
            step.kernel(0, 10, 100, launch_ms=9)
        else:
            step.host("replica_0/x:MatMul", 10, 100, thread=executor)
        for number in range(0, 100, 2):
            at_ns = PROFILE_START_NS + round((step.start_ms + number) * 1e6)
            samples += [(at_ns, n, (*called, COUNT)) for n in (0, 1)]
    threads = [
        {"ident": None, "name": "MainThread", "native_id": CALLER},
        {"ident": None, "name": "statistics", "native_id": SCRIPT},
    ]
    cpu_us = [round(t * 1e-3) % 10**9 if thread else -1 for t, thread, _ in samples]
    facts: dict[str, Any] = {"python": python_group(samples, threads, cpu_us)} if is_sampled else {}
    if loads is not None:
        facts["threads"] = clocks_group(loads, length_ms=1000, idents=idents, **clocks)
    if cores is not None:
        facts["cores"] = {"machine_count": 8, "usable_count": cores}
    if load is not None:
        facts["load"] = load
    if versions:
        facts["versions"] = versions
    return finding_of(analyzed(folder, trace, sidecar=facts), code)


def lost_ms(finding: Finding | None) -> float:
    assert finding is not None
    return loss_of(finding).ps_per_step / ms(1)


def check_nothing_bounds_it(finding: Finding | None) -> None:
    """Clocks say how much is lost in an interval, and not when."""
    assert finding is not None
    assert loss_of(finding).gain_ps_per_step is None


def test_a_thread_that_works_for_an_op_waits_for_a_core(tmp_path: Path) -> None:
    """All threads of the model run on 0.65 cores and want one."""
    loads = {CALLER: (0.1, 0.0), EXECUTOR: (0.05, 0.05), WORKER: (0.5, 0.3), PIPELINE: (0.8, 0.0)}
    finding = found(tmp_path, loads=loads)
    assert lost_ms(finding) == pytest.approx(100 * 0.35, rel=0.05)
    check_nothing_bounds_it(finding)


@pytest.mark.parametrize(("ran", "alone"), [(0.5, 1.4), (0.35, 1.25)])
def test_of_what_threads_of_one_op_want_beyond_a_core_half_counts(
    ran: float, alone: float, tmp_path: Path
) -> None:
    """Two run and wait for 0.4 of a core each: they want 1.8 and 1.5."""
    loads = {EXECUTOR: (ran, 0.4), WORKER: (ran, 0.4), PIPELINE: (0.8, 0.0)}
    expected = 100 * (1 - 2 * ran / alone)
    assert lost_ms(found(tmp_path, loads=loads)) == pytest.approx(expected, rel=0.05)


def test_who_sleeps_wants_no_core(tmp_path: Path) -> None:
    """The threads of the model run and wait for 30 of 100 ms, half of it without a core."""
    loads = {CALLER: (0.05, 0.05), EXECUTOR: (0.1, 0.1), PIPELINE: (0.8, 0.0)}
    assert lost_ms(found(tmp_path, loads=loads)) == pytest.approx(15, rel=0.05)


def test_nobody_owes_more_than_what_it_ran(tmp_path: Path) -> None:
    """The model lacks 0.9 of one core, and the pipeline ran on 0.3."""
    loads = {EXECUTOR: (0.1, 0.9), PIPELINE: (0.3, 0.0)}
    assert lost_ms(found(tmp_path, loads=loads)) == pytest.approx(30, rel=0.05)


def test_threads_are_known_by_what_pthread_self_returns(tmp_path: Path) -> None:
    """The numbers of the kernel are others then."""
    loads = {thread + 1000: load for thread, load in LOADS.items()}
    idents = {thread + 1000: thread for thread in LOADS}
    finding = found(tmp_path, loads=loads, idents=idents)
    assert lost_ms(finding) > OP_MS * 0.9
    # More calls at once would take more cores.
    assert finding is not None
    assert finding.action.startswith("Make the function cheaper")
    assert found(tmp_path / "unknown", loads=loads) is None


def test_other_processes_cost_what_they_ran(tmp_path: Path) -> None:
    """They ran three times as much as the pipeline, and lose of what that leaves."""
    load = {"elapsed_ns": 10, "busy_ns": 40, "own_ns": 16, "cores": 4}
    finding = found(tmp_path, load=load, cores=4, code="other-processes")
    left_ms = (OP_MS + DISPATCH_MS) * (1 - 0.25 * 0.3)
    assert lost_ms(finding) == pytest.approx(0.75 * left_ms, rel=0.03)
    assert finding is not None
    assert "to other processes, which take 60% of the 4 cores" in finding.title


@pytest.mark.parametrize(
    ("children_ns", "who"), [(13, "processes that the script starts"), (11, "other processes")]
)
def test_processes_that_the_script_starts_are_told_where_they_are_most(
    children_ns: int, who: str, tmp_path: Path
) -> None:
    """Of 24 ns that other processes ran in 10; those of the script were counted for twice that."""
    load = {"elapsed_ns": 10, "busy_ns": 40, "own_ns": 16, "cores": 4}
    load |= {"children_elapsed_ns": 20, "children_ns": 2 * children_ns}
    finding = found(tmp_path, load=load, cores=4, code="other-processes")
    assert finding is not None
    assert f"to {who}, which take 60% of the 4 cores" in finding.title
    assert finding.action.startswith("Start fewer" if children_ns > 12 else "Record again")


@pytest.mark.parametrize(
    "load",
    [
        {},
        {"elapsed_ns": 0, "busy_ns": 5, "cores": 2},
        {"busy_ns": "much"},
        # Coarse ticks make no share above all.
        {"elapsed_ns": 10, "busy_ns": 42, "own_ns": 41, "cores": 4},
    ],
)
def test_other_processes_that_the_load_does_not_show_cost_nothing(
    load: dict[str, Any], tmp_path: Path
) -> None:
    assert found(tmp_path, load=load, code="other-processes") is None


@pytest.mark.parametrize(("ran", "expected_ms"), [(0.51, 30), (0.49, 30 * 0.2 / 0.69)])
def test_iterators_that_run_no_op_are_the_pipeline_from_half_a_core_on(
    ran: float, expected_ms: float, tmp_path: Path
) -> None:
    """The model lacks 0.3 of a core, and with less nobody is known to take their part of it."""
    loads = {**LOADS, PIPELINE: (0.2, 0.0), BATCHES: (ran, 0.0)}
    assert lost_ms(found(tmp_path, loads=loads)) == pytest.approx(expected_ms, rel=0.05)
    unnamed = found(tmp_path / "native", loads=loads, code="native-threads", unnamed=[BATCHES])
    assert unnamed is None


@pytest.mark.parametrize("stage", ["Map", "FlatMap[0]::Generator"])
def test_what_takes_cores_is_told_to_be_made_cheaper(stage: str, tmp_path: Path) -> None:
    """In parallel, or by ops of TensorFlow, it would take them as well."""
    finding = found(tmp_path, stage=stage)
    assert finding is not None
    assert " to the input pipeline, which takes its cores" in finding.title
    assert " cheaper" in finding.action


@pytest.mark.parametrize(("waited", "confidence"), [(0.3, "high"), (0.07, "low")])
def test_a_small_loss_to_cores_is_an_estimate(
    waited: float, confidence: str, tmp_path: Path
) -> None:
    finding = found(tmp_path, loads={**LOADS, EXECUTOR: (0.6, waited)})
    assert finding is not None
    assert finding.confidence == confidence
    assert (finding.severity == "info") == (confidence == "low")


def test_a_thread_of_the_model_that_asks_an_iterator_is_none_of_the_pipeline(
    tmp_path: Path,
) -> None:
    loads = {CALLER: (0.6, 0.3), EXECUTOR: (0.1, 0.0), PIPELINE: (0.8, 0.0)}
    assert lost_ms(found(tmp_path, loads=loads)) > OP_MS * 0.9


def test_native_threads_cost_what_they_ran(tmp_path: Path) -> None:
    """Such as those of a library: they record nothing, and neither Python nor anybody who names threads knows them."""
    loads = {**LOADS, PIPELINE: (0.2, 0.0), NOBODY: (0.8, 0.0)}
    assert found(tmp_path / "named", loads=loads, code="native-threads") is None
    # The first thread has the name of the process, too.
    unnamed: dict[str, Any] = {"loads": loads, "unnamed": [CALLER, NOBODY]}
    finding = found(tmp_path / "unnamed", code="native-threads", **unnamed)
    left_ms = (OP_MS + DISPATCH_MS) * (1 - 0.2 * 0.3)
    assert lost_ms(finding) == pytest.approx(0.8 * left_ms, rel=0.03)
    assert finding is not None
    assert "to native threads of the process, which take 80% of the time of a core" in finding.title
    assert finding.confidence == "medium"
    check_nothing_bounds_it(finding)
    assert found(tmp_path / "others", code="other-processes", **unnamed) is None
    # Nothing is lost to both.
    load = {"elapsed_ns": 10, "busy_ns": 40, "own_ns": 16, "cores": 4}
    codes = ("native-threads", "other-processes")
    both = [found(tmp_path / code, code=code, load=load, cores=4, **unnamed) for code in codes]
    assert sum(map(lost_ms, both)) < OP_MS + DISPATCH_MS
    # Without samples it may be a thread of Python.
    not_sampled = found(tmp_path / "any", code="native-threads", is_sampled=False, **unnamed)
    assert not_sampled is None


@pytest.mark.parametrize(("ran", "is_found"), [(0.11, True), (0.09, False)])
def test_what_computes_parts_of_ops_is_no_thread_of_a_library(
    ran: float, is_found: bool, tmp_path: Path
) -> None:
    loads = {**LOADS, PIPELINE: (0.2, 0.0), NOBODY: (ran, 0.0)}
    clocks: dict[str, Any] = {"loads": loads, "unnamed": [CALLER, NOBODY]}
    assert (found(tmp_path, code="native-threads", **clocks) is not None) is is_found


@pytest.mark.parametrize("loaded", [{"jax"}, {"jax", "tensorflow"}, {"tensorflow"}])
def test_threads_of_tf_data_record_nothing_in_a_profile_of_jax(
    loaded: set[str], tmp_path: Path
) -> None:
    loads = {**LOADS, PIPELINE: (0.2, 0.0), NOBODY: (0.8, 0.0)}
    versions = dict.fromkeys(loaded, "1.0")
    unnamed: dict[str, Any] = {"loads": loads, "unnamed": [CALLER, NOBODY]}
    finding = found(tmp_path, code="native-threads", versions=versions, **unnamed)
    assert finding is not None
    assert finding.action.startswith("See what the tf.data pipeline does") is (len(loaded) > 1)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("numpy/linalg/_linalg.py", ", after calls in count, train.py:12 (svd of numpy)"),
        ("scipy/linalg/_decomp.py", ", after calls in count, train.py:12 (svd of scipy)"),
        ("numpy/_core/numeric.py", None),
    ],
)
def test_native_threads_are_those_of_a_library_that_is_called(
    file: str, named: str | None, tmp_path: Path
) -> None:
    """BLAS and OpenMP keep the cores for a while after each call."""
    loads = {**LOADS, PIPELINE: (0.2, 0.0), NOBODY: (0.8, 0.0)}
    called = ((file, "svd", 1851, False),)
    finding = found(
        tmp_path, loads=loads, unnamed=[CALLER, NOBODY], code="native-threads", called=called
    )
    assert finding is not None
    assert finding.title.endswith(named or "which take 80% of the time of a core")
    assert finding.action.startswith("Limit BLAS and OpenMP" if named else "If BLAS or OpenMP")


def test_a_thread_of_the_script_costs_what_it_ran(tmp_path: Path) -> None:
    loads = {**LOADS, PIPELINE: (0.2, 0.0), SCRIPT: (0.8, 0.0)}
    finding = found(tmp_path, loads=loads, code="python-thread")
    assert lost_ms(finding) == pytest.approx(0.8 * (OP_MS + DISPATCH_MS), rel=0.05)
    assert finding is not None
    assert "to the core that statistics takes in count, train.py:12" in finding.title
    assert [row.metric for row in finding.evidence] == ["computed_ratio", "python_line"]
    assert "holds the GIL" not in finding.explanation
    check_nothing_bounds_it(finding)


@pytest.mark.parametrize(
    ("own", "ready"),
    [
        pytest.param(0.9, 0.3, id="it runs beside them"),
        pytest.param(0.9, 0.0, id="no op waits"),
        pytest.param(0.0, 0.3, id="it waits itself"),
    ],
)
def test_python_of_the_step_costs_what_its_ops_wait_for_beside_it(
    own: float, ready: float, tmp_path: Path
) -> None:
    """Ops run all the time, on 0.6 of a core; the thread of the steps has called them before, and is at a line of its own.

    Half of what they lack counts.
    """
    trace = new_trace(length_ms=1000)
    executor = trace.thread("tf_Compute", EXECUTOR)
    samples = []
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("FunctionRun", 0, 0.5)
        step.host("replica_0/x:MatMul", 0.2, 100, thread=executor)
        for number in range(0, 100, 2):
            at_ns = PROFILE_START_NS + round((step.start_ms + number) * 1e6)
            samples.append((at_ns, 0, (COUNT,)))
    cpu_us = [round(at_ns * own * 1e-3) % 10**9 for at_ns, *_ in samples]
    threads = [{"ident": None, "name": "MainThread", "native_id": CALLER}]
    loads = {CALLER: (own, 0.0), EXECUTOR: (0.6, ready)}
    facts = {
        "python": python_group(samples, threads, cpu_us),
        "threads": clocks_group(loads, length_ms=1000),
        "cores": {"machine_count": 2, "usable_count": 2},
    }
    finding = finding_of(analyzed(tmp_path, trace, sidecar=facts), "python-stall")
    if not own * ready:
        assert finding is None
        return
    assert lost_ms(finding) == pytest.approx(30 / 2, rel=0.05)
    assert finding is not None
    assert finding.title.endswith("for Python in the step in count, train.py:12")


def test_a_thread_that_calls_ops_is_beside_the_step_where_it_gives_what_that_waits_for(
    tmp_path: Path,
) -> None:
    loads = {**LOADS, PIPELINE: (0.2, 0.0), SCRIPT: (0.8, 0.0)}
    found_of = {
        ends: found(tmp_path / str(ends), loads=loads, code="python-thread", ends=ends)
        for ends in (SCRIPT, EXECUTOR)
    }
    # With the 3 ms for which the graph waits for it.
    assert lost_ms(found_of[SCRIPT]) == pytest.approx(0.8 * OP_MS + 3, rel=0.1)
    assert found_of[EXECUTOR] is None


def test_what_the_model_would_wait_alone_is_nobodys(tmp_path: Path) -> None:
    """Its threads run on 0.7 cores and want 1.8: alone they would have the one that there is."""
    loads = {EXECUTOR: (0.5, 0.3), SECOND: (0.2, 0.8), PIPELINE: (0.8, 0.0)}
    finding = found(tmp_path, loads=loads, cores=1)
    assert lost_ms(finding) == pytest.approx(100 * 0.3, rel=0.05)


def test_what_the_model_waits_while_nothing_else_runs_is_nobodys(tmp_path: Path) -> None:
    """From 500 ms on the pipeline rests, and threads that want 0.8 cores still wait for 0.1 of one, in steps until 800 ms.

    What is recorded after the steps says nothing of them.
    """
    alone = {CALLER: (0.1, 0.0), EXECUTOR: (0.6, 0.1), PIPELINE: (0.0, 0.0)}
    finding = found(tmp_path, later=(500, alone))
    expected = 5 / 8 * 100 * (0.3 - (1 - 0.7 / 0.8))
    assert lost_ms(finding) == pytest.approx(expected, rel=0.05)


def test_a_wait_that_is_counted_when_it_is_over_was_before(tmp_path: Path) -> None:
    """From 500 ms on it waits for more than there is time: 200 ms of that were before, when it ran for 0.4 of the time."""
    loads = {CALLER: (0.0, 0.0), EXECUTOR: (0.4, 0.0), PIPELINE: (0.8, 0.0)}
    later = {CALLER: (0.0, 0.0), EXECUTOR: (0.2, 1.2), PIPELINE: (0.8, 0.0)}
    finding = found(tmp_path, loads=loads, later=(500, later), cores=1)
    assert lost_ms(finding) == pytest.approx((200 + 0.8 * 300) / 8, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"loads": None}, id="no clocks"),
        pytest.param({"cores": None}, id="the cores are not known"),
        pytest.param(
            {"cores": 1, "loads": {**LOADS, SECOND: (0.9, 0.3)}}, id="the model wants more"
        ),
        pytest.param({"loads": {**LOADS, CALLER: (0.1, 0), EXECUTOR: (0.9, 0)}}, id="no waits"),
    ],
)
def test_where_nobody_waits_or_nobody_knows_nothing_is_lost(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    assert found(tmp_path, **changes) is None


def test_a_kernel_needs_no_core(tmp_path: Path) -> None:
    """But what the host does before it does."""
    loads = {CALLER: (0.1, 0.9), PIPELINE: (0.8, 0.0)}
    finding = found(tmp_path, is_on_gpu=True, loads=loads, cores=1)
    assert lost_ms(finding) == pytest.approx(0.8 * 10, rel=0.1)


@pytest.mark.parametrize(("others", "saved_ms"), [(0.0, 40), (0.4, 20), (0.7, 5), (0.8, 0)])
def test_turns_save_no_more_than_the_cores_that_rest(
    others: float, saved_ms: float, tmp_path: Path
) -> None:
    """Two replicas compute for 40 ms of 100, one after the other, and workers help on the second of two cores."""
    trace = new_trace(length_ms=1000)
    threads = [trace.thread("tf_Compute", EXECUTOR), trace.thread("tf_Compute", SECOND)]
    worker = trace.thread("tf_numa_-1_Eigen", WORKER)
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("FunctionRun", 1, 100)
        step.host("a part of an op", 10, 90, thread=worker)
        for number, thread in enumerate(threads):
            at_ms = 10 + 40 * number
            step.host(f"replica_{number}/x:MatMul", at_ms, at_ms + 40, thread=thread)
    loads = {EXECUTOR: (0.4, 0.0), SECOND: (0.4, 0.0), WORKER: (others, 0.0)}
    facts = {"threads": clocks_group(loads, length_ms=1000), "cores": {"usable_count": 2}}
    finding = finding_of(analyzed(tmp_path, trace, sidecar=facts), "serial-gpus")
    assert lost_ms(finding) == pytest.approx(saved_ms, abs=1) if saved_ms else finding is None


@pytest.mark.parametrize(
    ("usable", "other_cores", "code"),
    [
        pytest.param(1, 0.0, "few-cores", id="it may use one of two cores"),
        pytest.param(2, 0.0, None, id="it may use both"),
        pytest.param(
            1, 1.12, "few-cores", id="the other one is free for more than half of what lacks"
        ),
        pytest.param(1, 1.2, "other-processes", id="it is free for less"),
    ],
)
def test_cores_that_the_process_may_not_use(
    usable: int, other_cores: float, code: str | None, tmp_path: Path
) -> None:
    """Threads of the model run on 0.7 cores and want one, and no thread of another kind runs."""
    loads = {CALLER: (0.1, 0.0), EXECUTOR: (0.6, 0.3)}
    busy = round(70 + 100 * other_cores)
    load = {"elapsed_ns": 100, "busy_ns": busy, "own_ns": 70, "cores": 2}
    for each in ("few-cores", "other-processes"):
        finding = found(tmp_path / each, loads=loads, load=load, cores=usable, code=each)
        assert (finding is not None) is (each == code)
        if finding is not None:
            # The limit has its part of what others leave.
            limit = min(0.3, 2 - 0.7 - other_cores)
            expected = 100 * (1 - (1 - limit) * (1 - (0.3 - limit)))
            assert lost_ms(finding) == pytest.approx(expected, rel=0.03)
            said = "the process may use 1 of 2 cores"
            assert (said in finding.title) is (code == "few-cores")


def test_without_its_limit_a_process_would_have_the_cores_of_the_machine(tmp_path: Path) -> None:
    """Threads of one op run on one core and want 1.4 of the two."""
    loads = {EXECUTOR: (0.5, 0.4), WORKER: (0.5, 0.4)}
    load = {"elapsed_ns": 100, "busy_ns": 100, "own_ns": 100, "cores": 2}
    finding = found(tmp_path, loads=loads, load=load, cores=1, code="few-cores")
    assert lost_ms(finding) == pytest.approx(100 * (1 - 1 / 1.4), rel=0.05)


def test_collectives_of_cpu_devices_wait_for_cores_as_ops_do(tmp_path: Path) -> None:
    """Two devices compute for half of each step and exchange for the other half; their threads have half of the cores that they want."""
    trace = new_trace(length_ms=1000)
    pools = [trace.thread("tf_XLAEigen", native) for native in (EXECUTOR, SECOND)]
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        for number, pool in enumerate(pools):
            stats = {"device_ordinal": number}
            step.host("dot.1", 0, 50, stats, thread=pool)
            step.host("all-reduce.1", 50, 100, stats, thread=pool)
    loads = {CALLER: (0.0, 0.0), EXECUTOR: (0.5, 0.5), SECOND: (0.5, 0.5)}
    facts = {
        "threads": clocks_group(loads, length_ms=1000),
        "cores": {"machine_count": 2, "usable_count": 2},
        "load": {"elapsed_ns": 10**9, "busy_ns": 2 * 10**9, "own_ns": 10**9, "cores": 2},
    }
    ledger = analyzed(tmp_path, trace, sidecar=facts).results.ledger
    assert ledger is not None
    for device in ledger.devices:
        states = device.states
        assert states["no_core"] == pytest.approx(ms(50), rel=0.05)
        assert states["compute"] == pytest.approx(states["communication"], rel=0.05)
