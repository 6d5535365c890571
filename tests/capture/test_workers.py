"""Two processes of a MultiWorkerMirroredStrategy capture into one folder: real TensorFlow, one host."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.xspace import XSpace
from tests.capture.conftest import CAPTURE, QUIET, Captured, run_together
from tests.capture.recorded_markers import markers_of
from tests.oracle import run_answer
from traceview.capture.sidecar.environment import STOP_RISK
from traceview.trace.reading.locate import find_runs

pytestmark = [
    pytest.mark.tensorflow,
    # Shown in the summary instead of failing there and then.
    pytest.mark.filterwarnings("default:a launch crashed in native code"),
]

TRAIN = """
import json, os, sys
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": sys.argv[2:]}, "task": {"type": "worker", "index": int(sys.argv[1])}}
)
import tensorflow as tf

tf.keras.utils.set_random_seed(7)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.ones([64, 1]))
features, labels = tf.random.normal([128, 64]), tf.random.normal([128, 1])
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(32)
batches = iter(strategy.experimental_distribute_dataset(dataset))

def replica(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    context = tf.distribute.get_replica_context()
    weights.assign_sub(0.01 * context.all_reduce("mean", tape.gradient(loss, weights)))
    return loss

@tf.function
def train_step(batch):
    return strategy.run(replica, args=batch)
"""
PLAIN = (
    TRAIN
    + """
for _ in range(20): train_step(next(batches))
"""
)
API = (
    TRAIN
    + """
import traceview
for _ in range(2):
    with traceview.capture_steps("logs", range(10, 15)) as session:
        for number in range(20):
            with session.step(number):
                train_step(next(batches))
    print(session.run)
"""
)
CAPTURE_PLAIN = (*CAPTURE, "--steps", "10:15", "plain.py")
STEPS = [9, 10, 11, 12, 13, 14, 15]
CRASHES = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV}
MAX_REPEATS = 2
"""TensorFlow 2.21 itself crashes at some stops of a worker's profile (README, Capture)."""


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def launch(
    folder: Path, commands: Sequence[Sequence[str]], addresses: Sequence[str], apart_s: float = 0
) -> list[Captured]:
    """Start a worker per command and address, the second one later, and wait until both have ended.

    A launch in which native code crashed is said, taken back and made again; any other failure is one.
    """
    logs, kept = folder / "logs", folder / "kept"
    logs.mkdir(exist_ok=True)
    shutil.copytree(logs, kept)
    whole = [[*command, str(index), *addresses] for index, command in enumerate(commands)]
    environments = [QUIET(PYTHONFAULTHANDLER="1")] * len(addresses)
    done = run_together(folder, whole, environments, apart_s)
    for _ in range(MAX_REPEATS):
        codes, text = [each.code for each in done], "\n".join(each.err for each in done)
        if not (CRASHES & {*codes} and "Fatal Python error" in text):
            break
        warnings.warn(f"a launch crashed in native code: {codes}\n{text}", stacklevel=2)
        shutil.rmtree(logs)
        shutil.copytree(kept, logs)
        done = run_together(folder, whole, environments, apart_s)
    shutil.rmtree(kept)
    assert [each.code for each in done] == [0] * len(done), [each.err for each in done]
    return done


def named_runs(worker: Captured) -> list[Path]:
    """The runs that a worker says it has recorded."""
    lines = (worker.out + worker.err).splitlines()
    return [Path(line) for line in lines if line.startswith(str(worker.logdir))]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Captured], list[Captured]]:
    """`traceview capture`, and at once after it, by the same cluster, `capture_steps` twice."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    (folder / "api.py").write_text(API, encoding="utf-8")
    addresses = free_addresses(2)
    return (
        launch(folder, [CAPTURE_PLAIN] * 2, addresses, apart_s=3),
        launch(folder, [["api.py"]] * 2, addresses),
    )


def check_run(run: Path, batch_found_by: str) -> None:
    """Two files that are whole, with the same steps, and two hosts in the report."""
    names = [f"{socket.gethostname()}_w{index}" for index in range(2)]
    files = sorted(path.name for path in run.iterdir())
    assert files == [f"{name}{end}" for name in names for end in (".traceview.json", ".xplane.pb")]
    for index, name in enumerate(names):
        trace = run / f"{name}.xplane.pb"
        assert markers_of(trace) == STEPS
        found = run_answer([trace])["steps"]["steps"]
        assert [step["number"] for step in found] == STEPS[1:-1]
        sidecar = json.loads((run / f"{name}.traceview.json").read_text("utf-8"))
        assert sidecar["state"] == "saved"
        # The script's batch of 32 is that of both workers together.
        sidecar["batch"].pop("branches")
        assert sidecar["batch"] == {"global": 32, "per_replica": 16, "found_by": batch_found_by}
        assert "profiler" not in sidecar["notes"]
        assert sidecar["cluster"] == {
            "role": "worker",
            "index": index,
            "sizes": {"worker": 2},
        }
    report = traceview.analyze(run)
    results: Any = report.results
    assert [file.host for file in report.source.files] == names
    assert [(step.host, step.number) for step in results.steps.steps] == [
        (name, number) for name in names for number in STEPS[1:-1]
    ]
    assert [row.device for row in results.device_time.devices] == [
        f"{name}/replica:0" for name in names
    ]


def check_clocks(run: Path, copy: Path) -> None:
    """One machine has one clock. Where worker 1 claims another, its collectives with worker 0 put it right."""
    shutil.copytree(run, copy)
    _, path = sorted(copy.glob("*.xplane.pb"))
    space = XSpace.FromString(path.read_bytes())
    for plane in space.planes:
        for stat in plane.stats:
            name = plane.stat_metadata[stat.metadata_id].name
            if name in (b"profile_start_time", b"profile_stop_time"):
                stat.uint64_value += 500_000_000
    path.write_bytes(space.SerializeToString())
    # TensorFlow 2.15 records no times, so that the sidecar's count.
    _, path = sorted(copy.glob("*.traceview.json"))
    sidecar = json.loads(path.read_text("utf-8"))
    for reading in sidecar["clock"].values():
        reading["wall_ns"] += 500_000_000
    path.write_text(json.dumps(sidecar), encoding="utf-8")
    right, wrong = traceview.load(run), traceview.load(copy)
    clock = right.hosts[1].clock
    assert clock is not None
    # On a busy machine the ends of collectives lie apart by more than they spread.
    assert abs(clock.offset_ps) < 1_000_000_000
    assert clock.collective_count >= 5
    corrected = wrong.hosts[1].clock
    assert corrected is not None
    assert corrected.method == "collectives"
    apart = [trace.hosts[1].start_ps - trace.hosts[0].start_ps for trace in (right, wrong)]
    # A CPU notes the end of a collective when a thread gets round to it.
    assert abs(apart[1] - apart[0]) <= 20_000_000_000


def test_a_script_captured_by_each_worker(
    launches: tuple[list[Captured], list[Captured]], tmp_path: Path
) -> None:
    workers = launches[0]
    (run,), same = map(named_runs, workers)
    assert same == [run]
    check_run(run, "arguments")
    check_clocks(run, tmp_path / "run")
    assert "did not join this run" not in "".join(each.err for each in workers)


def test_captures_in_a_program_that_follow_at_once(
    launches: tuple[list[Captured], list[Captured]],
) -> None:
    earlier, workers = launches
    (first, second), same = map(named_runs, workers)
    assert same == [first, second]
    check_run(first, "dataset")
    check_run(second, "dataset")
    logdir = workers[0].logdir
    assert {run.directory for run in find_runs(logdir)} == {first, second, *named_runs(earlier[0])}
    hidden = [path.name for path in logdir.iterdir() if path.name != "plugins"]
    assert [name.startswith(".traceview-cluster-") for name in hidden] == [True]
    # That TensorFlow may crash a worker as its profile ends is said to every one; nothing else is.
    lines = (line for each in workers for line in each.err.splitlines())
    warned = [line for line in lines if "CaptureWarning:" in line]
    assert [line for line in warned if STOP_RISK not in line] == []


def test_one_worker_of_two_is_captured_and_both_go_on(tmp_path: Path) -> None:
    """Keys of collectives are made when a function is called: one more in one worker, and they never meet again."""
    (tmp_path / "plain.py").write_text(PLAIN, encoding="utf-8")
    captured, _ = launch(tmp_path, [CAPTURE_PLAIN, ["plain.py"]], free_addresses(2))
    (run,) = named_runs(captured)
    assert [path.suffix for path in sorted(run.iterdir())] == [".json", ".pb"]
    assert "worker 1 did not join this run" in captured.err
