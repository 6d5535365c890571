"""Captures of an H100, an H200 and CPUs, slow and healthy in turns in one process: what is said is the cause, at its cost."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

import traceview
from scripts.real_runs.judge import Judgement, judge_healthy, judge_slow, warnings_of
from scripts.real_runs.record import STEP_TIMES
from scripts.real_runs.table import PROGRAMS
from scripts.real_runs.truth import RECORDED, UNDISTURBED, read_blocks, true_costs
from traceview.analysis.facts.selection import select
from traceview.analysis.gpu_time import host_waits
from traceview.analysis.gpu_time.host_wait_rules import HOST_BOUND
from traceview.analysis.measures.context import Context
from traceview.api import Report
from traceview.base.intervals import BoolArray
from traceview.ledger.states import State
from traceview.trace.reading.load import load

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLOW = (
    *("fit_decode/slow-2", "jax_shard_map_sums/slow-1", "loop_busy_machine/slow-1"),
    "loop_statistics_thread/slow-1",
    *("gpu_fit_callback/slow-1", "gpu_jax_callback/slow-1", "gpu_jax_checkpoint/slow-1"),
    *("gpu_jax_collect_garbage/slow-1", "gpu_jax_decomposition/slow-1", "gpu_jax_float64/slow-1"),
    *("gpu_jax_full_precision/slow-1", "gpu_jax_host_batches/slow-1"),
    *("gpu_jax_numpy_batches/slow-1", "gpu_jax_read_metrics/slow-1"),
    *("gpu_jax_thread_loader/slow-2", "gpu_loop_checkpoint/slow-1", "gpu_loop_csv/slow-1"),
    *("gpu_loop_float64/slow-1", "gpu_loop_host_batches/slow-1"),
    *("gpu_loop_numpy_function/slow-1", "gpu_loop_python/slow-1"),
    *(
        "gpu_jax_embedding_adam/slow-1",
        "gpu_jax_host_optimizer/slow-2",
        "gpu_jax_second_pass/slow-2",
    ),
    *("gpu_jax_undonated_bank/slow-1", "gpu_loop_cpu_op/slow-1", "gpu_loop_python_epoch/slow-1"),
    "gpu_loop_cpu_embedding/slow-2",
    *("gpu_loop_second_pass/slow-1", "gpu_mirrored_cpu_sums/slow-2", "gpu_jax_static_rate/slow-2"),
    *("gpu_jax_casts_per_part/slow-1", "gpu_jax_keys_and_copies/slow-1", "gpu_jax_remat/slow-1"),
    *("gpu_jax_scan_progress/slow-2", "gpu_loop_sorted_ranks/slow-1"),
    *("gpu_fit_print_norms/slow-1", "gpu_loop_confusions_and_labels/slow-1"),
    *("gpu_loop_fixed_smoothing/slow-1", "gpu_mirrored_eager_run/slow-1"),
    "gpu_jax_power_iteration/slow-1",
)
HEALTHY = {
    "gpu_jax_callback/healthy-2": "1 GPU, 9",
    "gpu_jax_decomposition/healthy-2": "1 GPU, 9",
    "loop_busy_machine/healthy-1": "2 replicas, 8",
    "loop_statistics_thread/healthy-1": "2 replicas, 8",
    "gpu_jax_second_pass/healthy-2": "1 GPU, 9",
    "gpu_jax_undonated_bank/healthy-1": "1 GPU, 9",
    "gpu_loop_python_epoch/healthy-2": "1 GPU, 9",
    "gpu_loop_second_pass/healthy-3": "1 GPU, 8",
}
READS_EACH_STEP = (
    *("gpu_loop_csv", "gpu_loop_float64", "gpu_loop_host_batches"),
    *("gpu_loop_numpy_function", "gpu_loop_python"),
)
"""Programs that today read every fourth loss, so that steps differ: fixtures/h100/README.md."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    for place in ("cpu", "h100", "h200"):
        with tarfile.open(FIXTURES / place / "recordings.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def report_of(recordings: Path, name: str) -> Report:
    """Of a recording: its folder has the files of one host and no folders around them."""
    return traceview.analyze(recordings / name)


def judged(recordings: Path, name: str) -> Judgement:
    program, recording = name.split("/")
    blocks = read_blocks(recordings / program / STEP_TIMES)
    place = int(recording.removeprefix("slow-")) - 1
    statistic = "median" if program in READS_EACH_STEP else PROGRAMS[program].statistic
    truth, alone = (
        true_costs(blocks, statistic, steps)[place] for steps in (RECORDED, UNDISTURBED)
    )
    return judge_slow(PROGRAMS[program], report_of(recordings, name), truth, alone)


@pytest.mark.parametrize("name", SLOW)
def test_the_slowdown_is_the_headline_at_its_cost(recordings: Path, name: str) -> None:
    judgement = judged(recordings, name)
    assert judgement.is_first_right, judgement.headline
    assert judgement.is_cost_right, (judgement.share, judgement.truth)


class Said(NamedTuple):
    """What a headline names, the finding that leads with its share of the step, and all warnings."""

    words: str = ""
    code: str = ""
    share: float = 0
    warnings: tuple[str, ...] | None = None


HEAVY = "cpu-heavy-op"
SAID = {
    "loop_statistics_thread/slow-1": Said("loop_statistics_thread.py:2"),
    "gpu_fit_callback/slow-1": Said("gpu_fit_callback.py:21"),
    "gpu_jax_decomposition/slow-1": Said("gpu_jax_decomposition.py:24"),
    "gpu_jax_numpy_batches/slow-1": Said("gpu_jax_numpy_batches.py:24"),
    "gpu_jax_read_metrics/slow-1": Said("gpu_jax_read_metrics.py:29"),
    "gpu_jax_thread_loader/slow-2": Said("gpu_jax_thread_loader.py:25"),
    "gpu_loop_numpy_function/slow-1": Said("gpu_loop_numpy_function.py:23"),
    "gpu_loop_python/slow-1": Said("gpu_loop_python.py:20"),
    # `while_loop` copies its condition to the host 300 times in a step: that is launching.
    "gpu_jax_power_iteration/slow-1": Said(
        "gpu_jax_power_iteration.py:26", warnings=("launch-bound",)
    ),
    # Of the read, and not of the call that follows it: TensorFlow waits for what is queued, also for the loss of an earlier step.
    "gpu_loop_python/healthy-2": Said("gpu_training.py:55", "d2h-sync", 0.147),
    # Ops on the CPU are one cause with the copies around them: 36 and 56 % are true; copies up are no batches, nor ops dispatch.
    "gpu_loop_cpu_op/slow-1": Said(
        "Mul, Sub and Mean, normalized, gpu_loop_cpu_op.py:19", HEAVY, 0.36, (HEAVY,)
    ),
    "gpu_loop_cpu_embedding/slow-2": Said(
        "ResourceScatterSub and ResourceGather, step_once, gpu_loop_cpu_embedding.py:28",
        *(HEAVY, 0.565, (HEAVY,)),
    ),
    # Each assertion copies a boolean to the host, which launches the next layer when it has it: of 61 % that are true, 40 % lie
    # in gaps after an assertion.
    "gpu_loop_assertions/slow-1": Said(
        "to the host and goes on there: Less, checked_error, gpu_loop_assertions.py:22", HEAVY, 0.40
    ),
    # A bank of 9.83 GB that is not donated: `stored` writes a few rows of it.
    "gpu_jax_undonated_bank/slow-1": Said("in DtoD copies, copy.2 of stored"),
    # It is the machine and not the program.
    "gpu_jax_float64/slow-1": Said(warnings=("float64-compute",)),
    # `ExecutorDoneCallback` takes 20 µs of a step of 6 ms, before launches that do not wait for it.
    "gpu_mirrored_generator/healthy-1": Said(warnings=("launch-bound",)),
    "gpu_loop_python_epoch/healthy-2": Said(warnings=()),
}


@pytest.mark.parametrize(("name", "said"), SAID.items(), ids=SAID)
def test_what_is_said_of_a_run(recordings: Path, name: str, said: Said) -> None:
    report = report_of(recordings, name)
    assert said.words in report.verdict.headline
    if said.code:
        leading = report.leading
        assert leading is not None
        assert leading.loss is not None
        assert leading.code == said.code
        assert leading.loss.ratio == pytest.approx(said.share, abs=0.005)
    assert said.warnings in (None, warnings_of(report))


@pytest.mark.parametrize(
    "name", ["gpu_loop_host_sums/healthy-1", "gpu_loop_python_epoch/healthy-2"]
)
def test_steps_that_read_every_fourth_loss_are_no_slow_steps(recordings: Path, name: str) -> None:
    """By the host every fourth step took 13.4 instead of 8.25 ms, or 8.00 instead of 2.21; it had run ahead in the others."""
    report = report_of(recordings, name)
    assert report.results.steps is not None
    assert report.results.steps.basis == "device"
    assert "unsteady-steps" not in {finding.code for finding in report.findings}


LEADING = {
    # `strategy.reduce` makes each call wait for 13 us: without it steps took as long (H200, in turns).
    "gpu_mirrored_cpu_sums/slow-2": "reduction-off-gpu",
    # `fit` reads its metrics in each step while the GPU works: without that, steps took 3 % less (H200, in turns).
    "gpu_fit_validation/healthy-2": "launch-bound",
}


@pytest.mark.parametrize(("name", "code"), LEADING.items(), ids=LEADING)
def test_a_host_that_hardly_waits_gains_little_by_not_waiting(
    recordings: Path, name: str, code: str
) -> None:
    report = report_of(recordings, name)
    assert report.findings[0].code == code
    assert "d2h-sync" not in warnings_of(report)


@pytest.mark.parametrize(("name", "computes"), HEALTHY.items(), ids=HEALTHY)
def test_a_device_that_computes_all_the_time_is_told_nothing(
    recordings: Path, name: str, computes: str
) -> None:
    judgement = judge_healthy(PROGRAMS[name.partition("/")[0]], report_of(recordings, name))
    assert judgement.is_first_right
    assert judgement.headline.startswith(f"No problem found: {computes}")


def test_what_the_host_stages_is_told_from_the_copy(recordings: Path) -> None:
    """6.22 of 7.44 ms go to memory that the GPU reads, before the copy of 1.22 ms runs."""
    report = report_of(recordings, "gpu_jax_host_batches/slow-1")
    (finding,) = [one for one in report.findings if one.code == "h2d-exposed"]
    assert "For 84% of that time no copy runs yet" in finding.explanation


@pytest.mark.parametrize(("cores", "is_more"), [(1, False), (4, True)])
def test_a_device_without_a_core_could_not_go_on(
    recordings: Path, tmp_path: Path, cores: int, is_more: bool
) -> None:
    """Four devices meet 120 times in each step; on two cores, two of them wait for a core anyway while two compute."""
    folder = recordings / "jax_shard_map_sums" / "slow-1"
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (sidecar,) = copy.glob("*.traceview.json")
    facts = json.loads(sidecar.read_text("utf-8"))
    assert facts["cores"]["usable_count"] == 2
    facts["cores"]["usable_count"] = cores
    sidecar.write_text(json.dumps(facts), "utf-8")
    here, there = (
        traceview.load(path).ledger().to_frame().query("state == 'communication'").duration_ps.sum()
        for path in (folder, copy)
    )
    assert bool(there > here) is is_more
    assert there != here


@pytest.mark.parametrize(("name", "is_bound"), [("healthy-1", True), ("slow-1", False)])
def test_beside_other_processes_nothing_is_at_most(
    recordings: Path, name: str, is_bound: bool
) -> None:
    """Without a line the step also waits less for cores, which is in no row of that line."""
    trace = load(recordings / "loop_busy_machine" / name)
    context = Context(trace, select(trace))
    rows = context.ledger.rows(states=(State.COMPUTE,))
    finding = HOST_BOUND.of_rows(context, rows)
    assert finding is not None
    assert finding.loss is not None
    assert (finding.loss.gain_ps_per_step is not None) is is_bound


def test_a_moment_is_no_evidence_of_a_long_gap(recordings: Path) -> None:
    """Of 55 ms between two steps `TFE_DeleteTensorHandle` takes microseconds."""
    leading = report_of(recordings, "gpu_loop_confusions_and_labels/slow-1").leading
    assert leading is not None
    assert "TFE_DeleteTensorHandle" not in [row.value for row in leading.evidence]


def test_a_compilation_that_goes_on_counts_in_the_first_step(recordings: Path) -> None:
    steps = report_of(recordings, "gpu_jax_static_rate/slow-2").results.steps
    assert steps is not None
    assert steps.used_count == steps.count == 12


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("gpu_jax_second_pass/slow-2", "loss_of"),
        ("gpu_loop_second_pass/slow-1", "logged_loss"),
        ("gpu_jax_second_pass/healthy-2", None),
    ],
)
def test_a_function_that_repeats_the_forward_pass(
    name: str, function: str | None, recordings: Path
) -> None:
    found = [row for row in report_of(recordings, name).findings if row.code == "second-forward"]
    assert [row.evidence[0].value for row in found] == ([function] if function else [])


def test_all_launches_may_be_behind_ops_on_the_cpu(
    recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing is left to say of launches: 5 % of a damaged run were of both."""

    def rows_of(context: Context) -> BoolArray:
        return context.ledger.rows(states=(State.HOST_OPS, State.H2D, State.LAUNCH))

    monkeypatch.setattr(host_waits, "detour_rows", rows_of)
    report = report_of(recordings, "gpu_loop_cpu_embedding/slow-2")
    assert "launch-bound" not in {finding.code for finding in report.findings}
