"""Every kind of loop and launcher with the real TensorFlow: the same results as without a capture, and its steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import CAPTURE, QUIET, Captured, run_process
from tests.capture.in_process import Script, captured_scripts
from tests.capture.recorded_markers import markers_of
from tests.capture.test_with_tensorflow import START
from traceview.capture.process.saying import VARIABLE
from traceview.document import screen as terminal
from traceview.report.document import document_of

pytestmark = pytest.mark.tensorflow

SEED = "import tensorflow as tf\ntf.keras.utils.set_random_seed(7)\n"
WINDOW = [*range(9, 16)]
RESULT = "\nprint('RESULT', float(loss), weights.numpy().tobytes().hex())\n"


@dataclass(frozen=True)
class Loop:
    """A script that leaves `loss` and `weights`, and its step function."""

    script: str
    function: str
    said: str = ""
    steps: tuple[int, ...] = tuple(WINDOW)


LOOPS = {
    "eager": Loop(
        """
for epoch in range(4):
    for x, y in data(8): loss = train(x, y)
    for x, y in data(3): loss_of(x, y)
""",
        "GradientTape",
    ),
    "eager, the same batch": Loop(
        "x, y = next(iter(data()))\nfor number in range(30): loss = train(x, y)", "GradientTape"
    ),
    "a function in the tape": Loop(
        """
forward = tf.function(loss_of)
for x, y in data(20):
    with tf.GradientTape() as tape: loss = forward(x, y)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
""",
        "GradientTape",
    ),
    "a concrete function": Loop(
        """
step, test = (tf.function(f).get_concrete_function(*data().element_spec) for f in (train, loss_of))
for x, y in data(20): loss = step(x, y); test(x, y)
""",
        "train",
    ),
    "a saved function": Loop(
        """
import tempfile
class Module(tf.Module):
    @tf.function
    def step(self, x, y): return train_on(self.weights, x, y)
def train_on(weights, x, y):
    with tf.GradientTape() as tape: loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss
module, folder = Module(), tempfile.mkdtemp()
module.weights = weights
tf.saved_model.save(module, folder, module.step.get_concrete_function(*data().element_spec))
loaded = tf.saved_model.load(folder)
step = loaded.signatures["serving_default"]
for x, y in data(20): loss = step(x=x, y=y)["output_0"]
weights = loaded.weights
""",
        "signature_wrapper",
    ),
    "a thread": Loop(
        """
import threading
def loop():
    global loss
    step = tf.function(train)
    for x, y in data(20): loss = step(x, y)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
""",
        "train",
        "another thread than the main one trains",
    ),
    "replicas in a thread": Loop(
        """
import threading
strategy, weights, dataset = mirrored()
@tf.function
def train_step(batch):
    return strategy.reduce("mean", strategy.run(train_replica, args=batch), axis=None)
def loop():
    global loss
    for number, batch in zip(range(20), dataset): loss = train_step(batch)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
""",
        "train_step",
        "another thread than the main one trains",
    ),
    "fit": Loop(
        """
made = model()
loss = made.fit(data(10), epochs=2, validation_data=data(2), verbose=0).history["val_loss"][-1]
weights = made.layers[0].kernel
""",
        "net",
    ),
    "train_on_batch": Loop(
        """
made = model()
for x, y in data(20): loss = made.train_on_batch(x, y)
weights = made.layers[0].kernel
""",
        "net",
    ),
}
Runs = dict[str, Captured]


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runs, Runs]:
    """All loops in one process each, without and with a capture."""
    folder, texts = tmp_path_factory.mktemp("loops"), LOOPS.items()
    plain, captured = (
        {name: Script(SEED + START + loop.script + RESULT, steps) for name, loop in texts}
        for steps in ("", "10:15")
    )
    return captured_scripts(folder / "plain", plain), captured_scripts(
        folder / "captured", captured
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_trains_the_same_and_has_its_steps(name: str, loops: tuple[Runs, Runs]) -> None:
    plain, captured = (runs[name] for runs in loops)
    results = [
        [line for line in run.out.splitlines() if line.startswith("RESULT ")]
        for run in (plain, captured)
    ]
    assert results[0] == results[1]
    assert len(results[0]) == 1
    (trace,) = captured.run.glob("*.xplane.pb")
    assert markers_of(trace) == [*LOOPS[name].steps]
    functions = captured.sidecar["steps"]["functions"]
    assert [f["name"] for f in functions if f["is_step"]] == [LOOPS[name].function]
    assert captured.sidecar["hooks"]["missing"] == []
    assert LOOPS[name].said in captured.err


# Launchers

FIT = (
    SEED
    + START
    + """
with tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope(): made = model()
history = made.fit(data(30), verbose=0)
weights, loss = made.layers[0].kernel, history.history["loss"][0]
"""
    + RESULT
)
PARAMETER_SERVER = (
    SEED
    + START
    + """
import socket
def address():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"
cluster = tf.train.ClusterSpec({"worker": [address()], "ps": [address()]})
servers = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in ("worker", "ps")]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope(): weights = tf.Variable(tf.ones([8, 1]))
@tf.function
def train_step(iterator):
    return strategy.run(train, args=next(iterator))
def batches():
    return tf.data.Dataset.from_tensors((tf.ones([8, 8]), tf.ones([8, 1]))).repeat()
iterator = iter(coordinator.create_per_worker_dataset(batches))
for epoch in range(3):
    for _ in range(10): loss = coordinator.schedule(train_step, args=(iterator,))
    coordinator.join()
loss = loss.fetch()
"""
    + RESULT
)
THREADS = "config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)"
NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "traceview")
cell = open("cell.py").read()
for line in ("", "%%traceview --steps 10:15 --out logs\\n"):
    assert shell.run_cell(line + cell).success
"""


def run(
    folder: Path, command: Sequence[str], value: str | None = None
) -> tuple[int, list[str], str]:
    """Exit code, results and standard error of a command."""
    variables = QUIET() if value is None else QUIET(**{VARIABLE: value})
    done = run_process(folder, *command, environment=variables)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return done.returncode, results, done.stderr


def captured_runs(folder: Path) -> list[Captured]:
    runs = sorted((folder / "logs" / "plugins" / "profile").iterdir())
    return [Captured(0, "", str(run), folder) for run in runs]


def steps_of(captured: Captured) -> list[int]:
    (trace,) = captured.run.glob("*.xplane.pb")
    return markers_of(trace)


@pytest.mark.parametrize(
    "script", [FIT, PARAMETER_SERVER], ids=["fit on two devices", "parameter server"]
)
def test_the_variable_changes_nothing_but_the_trace(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.py").write_text(script + "__import__('sys').exit(3)\n", encoding="utf-8")
    command = [sys.executable, "train.py"]
    code, results, err = run(tmp_path, command)
    assert (code, len(results)) == (3, 1)
    *same, said = run(tmp_path, command, "--steps 10:15 --out logs")
    assert same == [code, results]
    # TensorFlow logs times and numbers of threads.
    alone, others = (
        [
            re.sub(r"\s*\d+", "", line)
            for line in text.splitlines()
            if not line.startswith("traceview[")
        ]
        for text in (err, said)
    )
    # Servers of a cluster log in turn.
    assert sorted(others) == sorted(alone)
    (captured,) = captured_runs(tmp_path)
    assert steps_of(captured) == WINDOW
    if script == PARAMETER_SERVER:
        # The main thread waits in `coordinator.join`; another one runs the steps.
        assert "in <module>" not in traceview.analyze(captured.run).to_json()


def test_steps_of_two_workers_are_those_of_one_and_the_others_are_mentioned(tmp_path: Path) -> None:
    two = PARAMETER_SERVER.replace('"worker": [address()]', '"worker": [address(), address()]')
    # Where there are fewer cores than workers, each would wait for the other's threads.
    two = two.replace("servers = [", f"{THREADS}\nservers = [").replace(
        'job_name=job, task_index=0) for job in ("worker", "ps")',
        'job_name=job, task_index=index, config=config) for job, index in (("worker", 0), ("worker", 1), ("ps", 0))',
    )
    script = two.replace("range(10)", "range(100)")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, *CAPTURE, "--steps", "40:50", "train.py"]
    code, _, err = run(tmp_path, command)
    assert code == 0, err
    (captured,) = captured_runs(tmp_path)
    assert steps_of(captured) == [*range(39, 51)]
    (count,) = re.findall(r"meanwhile other threads called train_step (\d+) times", err)
    assert int(count) > 1
    document = document_of(traceview.analyze(captured.run))
    page = " ".join(terminal.render(document, width=200, color=False, most_lines=10**6).split())
    assert "The steps here are those of one worker" in page


def test_a_cell_of_a_notebook_trains_the_same(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text(FIT, encoding="utf-8")
    (tmp_path / "driver.py").write_text(NOTEBOOK, encoding="utf-8")
    code, results, err = run(tmp_path, [sys.executable, "driver.py"])
    assert (code, results) == (0, results[:1] * 2), err
    (captured,) = captured_runs(tmp_path)
    assert steps_of(captured) == WINDOW


def test_a_shell_script_with_two_trainers_below_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FIT, encoding="utf-8")
    shell = f"'{sys.executable}' train.py & '{sys.executable}' train.py & wait\n'{sys.executable}' train.py\nexit 4\n"
    (tmp_path / "train.sh").write_text(shell, encoding="utf-8")
    alone = run(tmp_path, ["bash", "train.sh"])
    program = (sys.executable, *CAPTURE, "--steps", "10:15", "--", "bash", "train.sh")
    code, results, err = run(tmp_path, program)
    assert (code, results) == alone[:2] == (4, [results[0]] * 3)
    runs = captured_runs(tmp_path)
    assert [steps_of(captured) for captured in runs] == [WINDOW] * 3
    for captured in runs:
        assert f"the trace is in {captured.run}; the script goes on" in err
