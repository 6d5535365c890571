"""Children of a script, and programs that it starts, with real TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import CAPTURE, run_python
from tests.capture.recorded_markers import markers_of

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import multiprocessing, sys

def train(code=0):
    import tensorflow as tf

    tf.random.set_seed(3)
    weights = tf.Variable(tf.ones([8, 1]))
    features, labels = tf.random.normal([64, 8]), tf.random.normal([64, 1])
    data = tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(8)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    for x, y in data.take(20):
        loss = train_step(x, y)
    # In one piece: another child may write at the same time.
    sys.stdout.write(f"loss {float(loss):.9f}\\n")
    sys.stdout.flush()
    sys.exit(code)

if __name__ == "__main__":
    if sys.argv[2:]:
        import tensorflow
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=train, args=(code,)) for code in (1, 2)]
    for child in children: child.start()
    for child in children: child.join()
    sys.exit(sum(child.exitcode for child in children))
"""
STEPS = [9, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("arguments", [["fork"], ["fork", "after the import"], ["spawn"]])
def test_children_train_and_each_has_a_whole_trace(tmp_path: Path, arguments: list[str]) -> None:
    command = (*CAPTURE, "--run", "mine", "train.py", *arguments)
    done = run_python(tmp_path, *command, script=PROGRAM, code=3)
    assert len(set(done.out.splitlines())) == 1
    assert done.out.count("loss") == 2
    run = tmp_path / "logs" / "plugins" / "profile" / "mine"
    assert done.err.splitlines()[-1] == str(run)
    traces = sorted(run.glob("*.xplane.pb"))
    host = traces[0].name.removesuffix(".xplane.pb")
    assert [path.name for path in traces] == [f"{host}{end}.xplane.pb" for end in ("", "_p2")]
    processes = set()
    for trace in traces:
        assert markers_of(trace) == STEPS
        sidecar = trace.with_name(trace.name.replace(".xplane.pb", ".traceview.json"))
        processes.add(json.loads(sidecar.read_text("utf-8"))["process"]["pid"])
    assert len(processes) == 2
    report = traceview.analyze(run)
    assert report.results.steps is not None
    assert sorted(window.host for window in report.windows) == [host, f"{host}_p2"]
    assert "missing-host" not in {finding.code for finding in report.findings}
