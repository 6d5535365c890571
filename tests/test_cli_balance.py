"""Do `traceview devices` and `traceview balance` list every device, in every format?"""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Two GPUs; GPU 1 has more to do in each of four steps."""
    SCENARIOS["more_work"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


@pytest.fixture
def one_gpu(tmp_path: Path) -> str:
    SCENARIOS["plain"]().write(tmp_path / "one")
    return str(tmp_path / "one")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


@pytest.mark.parametrize("name", ["devices", "balance"])
def test_every_format_has_the_same_rows(command: Command, logs: str, name: str) -> None:
    rows = table(command(name, logs, "--format", "csv").out)
    data = json.loads(command(name, logs, "--format", "json").out)
    assert [row["device"] for row in rows] == ["GPU:0", "GPU:1"]
    assert [list(row) for row in data["rows"]] == [list(row) for row in rows]
    for row, line in zip(data["rows"], rows, strict=True):
        assert {key: "" if value is None else str(value) for key, value in row.items()} == line


def test_devices_hold_all_of_device_time(command: Command, logs: str) -> None:
    rows = json.loads(command("devices", logs, "--format", "json").out)["rows"]
    results = traceview.analyze(logs).results
    assert results.device_time is not None
    for row, known in zip(rows, results.device_time.devices, strict=True):
        for key, value in vars(known).items():
            if key == "total_ps":
                assert {name: row[f"{name}_total_ps"] for name in value} == value
            elif key != "model":
                assert row[key] == value, key
    assert [row["straggler_cause"] for row in rows] == [None, "more_work"]
    assert [row["longer_ratio"] for row in rows] == pytest.approx([-0.25, 1 / 3])


def test_devices_that_did_nothing_have_a_row(command: Command, tmp_path: Path) -> None:
    SCENARIOS["two_of_eight"]().write(tmp_path)
    rows = table(command("devices", str(tmp_path), "--format", "csv").out)
    assert [row["status"] for row in rows] == ["active"] * 2 + ["empty"] * 6
    assert [row["longer_ratio"] for row in rows] == ["0.0"] * 2 + [""] * 6
    assert [
        row["device"] for row in table(command("balance", str(tmp_path), "--format", "csv").out)
    ] == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", ["devices", "balance"])
def test_a_terminal_shows_what_fits(command: Command, logs: str, name: str, width: int) -> None:
    lines = command(name, logs, "--width", str(width)).out.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("run run1")
    assert [line.split()[0] for line in lines if line.startswith("GPU:")] == ["GPU:0", "GPU:1"]


def test_balance_says_who_and_why(command: Command, logs: str) -> None:
    shown = command("balance", logs, "--width", "120").out
    assert "Balance  2 GPUs do the work of 1.40 that compute all the time (70.0%)" in shown
    words = " ".join(shown.split())
    assert (
        "- the others wait for GPU:1: it has more to do, and computes 10.0 ms per step longer than they do (median); "
        "shared evenly, its work would save at most 5.00 ms: they would then take longer"
    ) in words
    assert "45.0 ms 10.0% work shared evenly" in words
    assert (
        "4 GPUs could do at most 1.92 times as much, if the batch doubles, computing, input and launches take as "
        "long as now and collectives grow as in a ring on links as fast as now."
    ) in words


def test_one_number_has_one_name(command: Command, logs: str) -> None:
    """What GPU 1 computes longer than the other stands there once, as a time and as a share of it."""
    words = " ".join(command("balance", logs, "--width", "120").out.split())
    assert words.count("+33.3%") == 1
    # 14.3 % is what the longest takes over the middle of both: the same fact once more.
    assert "14.3%" not in words
    finding = traceview.analyze(logs).findings[0]
    assert finding.code == "straggler-gpu"
    assert "Sharing what there is to do saves less, at most 5.0 ms of each step" in (
        finding.explanation
    )


def test_a_late_start_costs_what_the_others_wait(command: Command, tmp_path: Path) -> None:
    SCENARIOS["late_start"]().write(tmp_path)
    words = " ".join(command("balance", str(tmp_path)).out.split())
    assert "the others wait for GPU:1: its kernels are started later; they wait 8.00 ms" in words


def test_work_that_is_shared_already_is_not_to_be_shared(command: Command, tmp_path: Path) -> None:
    """All GPUs compute 30 ms, one of them later: what there is to save is the delay."""
    SCENARIOS["late_start"]().write(tmp_path)
    words = " ".join(command("balance", str(tmp_path)).out.split())
    assert "42.0 ms 16.0% all computing at once" in words
    assert "work shared evenly" not in words


def test_ratios_of_steps_that_vary_are_explained(command: Command, tmp_path: Path) -> None:
    """Medians of 10 and 40 ms, and in the median step 0 % apart: a reader who divides gets 300 %."""
    trace = new_trace(length_ms=300)
    lengths = [(10, 10), (10, 40), (40, 40), (40, 40), (10, 10)]
    for step, (first, second) in zip(marked_steps(trace, count=5), lengths, strict=True):
        step.kernel(0, 2, 2 + first)
        step.kernel(1, 2, 2 + second)
    trace.write(tmp_path / "vary")
    SCENARIOS["more_work"]().write(tmp_path / "steady")
    told = [
        "it is not the ratio of the median times"
        in " ".join(command("balance", str(tmp_path / name)).out.split())
        for name in ("vary", "steady")
    ]
    assert told == [True, False]


def test_devices_say_that_the_devices_at_work_change(command: Command, tmp_path: Path) -> None:
    SCENARIOS["uneven_last_batch"]().write(tmp_path / "changes")
    SCENARIOS["more_work"]().write(tmp_path / "same")
    words = " ".join(command("devices", str(tmp_path / "changes")).out.split())
    assert (
        "The devices that ran work changed once in 4 steps: steps 0 to 2 GPU:0 and GPU:1; step 3 without GPU:1."
    ) in words
    assert "ran work" not in command("devices", str(tmp_path / "same")).out


def test_taking_turns_is_said_in_a_sentence(command: Command, tmp_path: Path) -> None:
    SCENARIOS["serial_gpus"]().write(tmp_path)
    words = " ".join(command("balance", str(tmp_path)).out.split())
    assert (
        "the 2 GPUs take turns: while one computes, the others wait, though chance alone would let 42.1% of what "
        "could run at once do so; all at once would save at most 20.0 ms of each step"
    ) in words
    assert "30.0 ms 40.0% all computing at once" in words
    assert "started later" not in words


def test_without_common_clocks_no_moment_is_compared(command: Command, tmp_path: Path) -> None:
    SCENARIOS["clocks_without_collectives"]().write(tmp_path)
    reason = "nothing shows that the clocks of the hosts agree"
    words = " ".join(command("balance", str(tmp_path)).out.split())
    assert f"what runs at once, and who starts later, is not told: {reason}" in words
    assert f"No bound with work shared evenly and all computing at once: {reason}." in words
    for told in ("starts later by", "ends earlier by", "overlap", "apart"):
        assert told not in words
    rows = json.loads(command("balance", str(tmp_path), "--format", "json").out)["rows"]
    assert [row["start_lag_ps"] for row in rows] == [None, None]
    page = command("report", str(tmp_path), "--format", "markdown").out
    section = page[page.index("Balance") :]
    assert f"who starts later, is not told: {reason}" in section
    assert "starts later by" not in section


def test_an_unsteady_device_is_no_straggler_and_told_of(command: Command, tmp_path: Path) -> None:
    trace = new_trace(length_ms=300)
    for step, length in zip(marked_steps(trace, count=5), (20, 23, 28, 28, 28), strict=True):
        step.kernel(0, 2, 22)
        step.kernel(1, 2, 2 + length)
    trace.write(tmp_path)
    words = " ".join(command("balance", str(tmp_path)).out.split())
    assert (
        "GPU:1 computed 40.0% longer than the others (median), but not steadily enough to say that they wait for it"
    ) in words


def test_what_replicas_could_do_is_not_told(command: Command) -> None:
    logs = str(Path(__file__).resolve().parents[1] / "fixtures" / "custom-loop-2")
    words = " ".join(command("balance", logs).out.split())
    assert (
        "Nothing is predicted for more replicas: replicas share the host's cores, however many there are."
    ) in words


def test_what_all_devices_ran_is_said_once(command: Command, tmp_path: Path, logs: str) -> None:
    shown = command("balance", logs, "--width", "120").out
    assert "each ran forward, reduction" in shown
    assert "  ran\n" not in shown
    SCENARIOS["gradients_on_one"]().write(tmp_path / "one")
    shown = command("balance", str(tmp_path / "one"), "--width", "120").out
    assert "each ran" not in shown
    assert "forward backward optimizer\n" in shown


def test_one_device_may_be_chosen(command: Command, logs: str) -> None:
    for name in ("devices", "balance"):
        rows = table(command(name, logs, "--format", "csv", "--device", "1").out)
        assert [row["device"] for row in rows] == ["GPU:1"]
    shown = command("balance", logs, "--device", "1", "--width", "120").out
    assert "2 GPUs do the work of 1.40" in shown
    assert "\nGPU:0 " not in shown


def test_the_report_has_the_section_only_where_it_says_something(
    command: Command, logs: str, one_gpu: str
) -> None:
    assert "\nBalance  2 GPUs" in command("analyze", logs, "--width", "100").out
    assert "\nBalance" not in command("analyze", one_gpu, "--width", "100").out


@pytest.mark.parametrize("name", ["analyze", "balance"])
def test_a_baseline_shows_where_the_time_goes(
    command: Command, logs: str, one_gpu: str, name: str
) -> None:
    """One GPU computes 40 of 50 ms, two 35 in the mean: the step is as long."""
    shown = command(name, logs, "--baseline", one_gpu, "--width", "100").out
    assert "Scaling  2.00 times the baseline by step time, on 2 times the devices (100%)" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["compute", "40.0", "ms", "35.0", "ms", "-5.00", "ms"] in rows
    assert ["imbalance", "0", "ps", "5.00", "ms", "5.00", "ms"] in rows
    assert "The batch size of this run and of the baseline is not known" in " ".join(shown.split())


def test_a_baseline_that_is_not_there_is_an_error(command: Command, logs: str) -> None:
    done = command("balance", logs, "--baseline", "nowhere")
    assert (done.code, done.out) == (3, "")
    assert "nowhere: no such file or directory" in done.err
    assert command("analyze", logs, "--baseline", "").code == 2


def test_without_compute_there_is_nothing_to_compare(command: Command, tmp_path: Path) -> None:
    SCENARIOS["gpu_planes_empty"]().write(tmp_path)
    done = command("balance", str(tmp_path), "--format", "csv")
    assert done.code == 0
    assert table(done.out) == []
    assert done.err == "traceview: no device computed in the window\n"
    assert len(table(command("devices", str(tmp_path), "--format", "csv").out)) == 2
