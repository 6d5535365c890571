"""Two processes of a MultiWorkerMirroredStrategy capture into one folder: real TensorFlow, one host."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.xspace import XSpace
from tests.capture.conftest import QUIET, run_together
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
STEPS = [9, 10, 11, 12, 13, 14, 15]
CRASHES = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV}
MAX_REPEATS = 2
"""TensorFlow 2.21 itself crashes at some stops of a worker's profile (README, Capture)."""


@dataclass(frozen=True)
class Workers:
    """What two workers said, and the runs that each of them named."""

    text: list[str]
    runs: list[list[Path]]


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def launch(
    folder: Path, commands: Sequence[Sequence[str]], addresses: Sequence[str], apart_s: float
) -> Workers:
    """Start a worker per command and address, the second one later, and wait until both have ended.

    A launch in which native code crashed is said, taken back and made again; any other failure is one.
    """
    logs, kept = folder / "logs", folder / "kept"
    logs.mkdir(exist_ok=True)
    shutil.copytree(logs, kept)
    codes, texts = finished(folder, commands, addresses, apart_s)
    for _ in range(MAX_REPEATS):
        if not (CRASHES & {*codes} and "Fatal Python error" in "".join(texts)):
            break
        said = "\n".join([f"a launch crashed in native code: {codes}", *texts])
        warnings.warn(said, stacklevel=2)
        shutil.rmtree(logs)
        shutil.copytree(kept, logs)
        codes, texts = finished(folder, commands, addresses, apart_s)
    shutil.rmtree(kept)
    assert codes == [0] * len(codes), "\n".join(texts)
    lines = [[line for line in text.splitlines() if line.startswith(str(logs))] for text in texts]
    return Workers(texts, [[Path(line) for line in found] for found in lines])


def finished(
    folder: Path, commands: Sequence[Sequence[str]], addresses: Sequence[str], apart_s: float
) -> tuple[list[int], list[str]]:
    """Exit codes and output of the workers."""
    whole = [[*command, str(index), *addresses] for index, command in enumerate(commands)]
    environment = QUIET(PYTHONFAULTHANDLER="1")
    done = run_together(folder, whole, [environment] * len(addresses), apart_s)
    return [each.returncode for each in done], [each.stdout + each.stderr for each in done]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workers, Workers]:
    """`traceview capture`, and at once after it, by the same cluster, `capture_steps` twice."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    (folder / "api.py").write_text(API, encoding="utf-8")
    addresses = free_addresses(2)
    plain = ["-m", "traceview", "capture", "--steps", "10:15", "plain.py"]
    return (
        launch(folder, [plain, plain], addresses, 3),
        launch(folder, [["api.py"]] * 2, addresses, 0),
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
    launches: tuple[Workers, Workers], tmp_path: Path
) -> None:
    workers = launches[0]
    assert workers.runs[0] == workers.runs[1]
    (run,) = workers.runs[0]
    check_run(run, "arguments")
    check_clocks(run, tmp_path / "run")
    assert "did not join this run" not in "".join(workers.text)


def test_captures_in_a_program_that_follow_at_once(launches: tuple[Workers, Workers]) -> None:
    earlier, workers = launches
    assert workers.runs[0] == workers.runs[1]
    first, second = workers.runs[0]
    check_run(first, "dataset")
    check_run(second, "dataset")
    logdir = first.parents[2]
    assert {run.directory for run in find_runs(logdir)} == {first, second, *earlier.runs[0]}
    hidden = [path.name for path in logdir.iterdir() if path.name != "plugins"]
    assert [name.startswith(".traceview-cluster-") for name in hidden] == [True]
    # That TensorFlow may crash a worker as its profile ends is said to every one; nothing else is.
    warned = [line for line in "".join(workers.text).splitlines() if "CaptureWarning:" in line]
    assert [line for line in warned if STOP_RISK not in line] == []


def test_one_worker_of_two_is_captured_and_both_go_on(tmp_path: Path) -> None:
    """Keys of collectives are made when a function is called: one more in one worker, and they never meet again."""
    (tmp_path / "plain.py").write_text(PLAIN, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "--steps", "10:15", "plain.py"]
    workers = launch(tmp_path, [capture, ["plain.py"]], free_addresses(2), 0)
    (run,) = workers.runs[0]
    assert [path.suffix for path in sorted(run.iterdir())] == [".json", ".pb"]
    assert "worker 1 did not join this run" in workers.text[0]
