"""Several processes of one host without TF_CONFIG, and children of a script, with real TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import environment_with
from tests.capture.recorded_markers import markers_of

pytestmark = pytest.mark.tensorflow

TRAIN = """
import os, sys

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
"""
ALONE = f"{TRAIN}\ntrain()\n"
FORKS = f"""{TRAIN}
import tensorflow
child = os.fork()
if not child:
    train(3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
MULTIPROCESSING = f"""{TRAIN}
import multiprocessing

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=train, args=(code,)) for code in (1, 2)]
    for child in children: child.start()
    for child in children: child.join()
    sys.exit(sum(child.exitcode for child in children))
"""
STARTS = """
import os, subprocess, sys
code = subprocess.call([sys.executable, "alone.py"])
sys.exit(code or os.system(f"'{sys.executable}' alone.py"))
"""
STEPS = [9, 10, 11, 12, 13, 14, 15]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def ended(
    folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]
) -> list[tuple[int, str, list[str]]]:
    """Exit code, standard output and lines of standard error of processes that run together."""
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**environment_with(**QUIET), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    try:
        texts = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        (process.returncode, out, err.splitlines())
        for process, (out, err) in zip(processes, texts, strict=True)
    ]


def check_run(run: Path, ends: Sequence[str]) -> None:
    """A whole trace for each process, and each of them in the report."""
    traces = sorted(run.glob("*.xplane.pb"))
    host = traces[0].name.removesuffix(".xplane.pb").removesuffix(ends[0])
    assert [path.name for path in traces] == [f"{host}{end}.xplane.pb" for end in ends]
    for trace in traces:
        assert markers_of(trace) == STEPS
        sidecar = trace.with_name(trace.name.replace(".xplane.pb", ".traceview.json"))
        assert json.loads(sidecar.read_text("utf-8"))["file"]["name"] == trace.name
    report = traceview.analyze(run)
    assert report.results.steps is not None
    assert sorted(window.host for window in report.windows) == [f"{host}{end}" for end in ends]
    assert "missing-host" not in {finding.code for finding in report.findings}


def test_two_processes_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "--run", "mine", "train.py"]
    done = ended(tmp_path, [capture] * 2, [{}] * 2)
    assert [code for code, _, _ in done] == [0, 0], done
    check_run(tmp_path / "logs" / "plugins" / "profile" / "mine", ["", "_p2"])


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_two_ranks_of_one_named_run(tmp_path: Path, rank: str, size: str) -> None:
    """They may be independent trainings, so only the name brings them together."""
    (tmp_path / "train.py").write_text(ALONE, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "--run", "mine", "train.py"]
    ranks = [{rank: str(number), size: "2"} for number in range(2)]
    done = ended(tmp_path, [capture] * 2, ranks)
    assert [code for code, _, _ in done] == [0, 0], done
    check_run(tmp_path / "logs" / "plugins" / "profile" / "mine", ["_r0", "_r1"])


def test_programs_that_a_script_starts(tmp_path: Path) -> None:
    """With the losses that they have alone, and a run each."""
    (tmp_path / "alone.py").write_text(ALONE, encoding="utf-8")
    (tmp_path / "train.py").write_text(STARTS, encoding="utf-8")
    ((code, alone, _),) = ended(tmp_path, [["alone.py"]], [{}])
    capture = ["-m", "traceview", "capture", "train.py"]
    ((captured_code, out, lines),) = ended(tmp_path, [capture], [{}])
    assert (captured_code, out) == (code, alone * 2), lines
    runs = sorted((tmp_path / "logs" / "plugins" / "profile").iterdir())
    assert len(runs) == 2
    assert Path(lines[-1]) in runs
    for run in runs:
        check_run(run, [""])


def test_two_ranks_of_horovod(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "train.py"]
    job = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "7"}
    ranks = [{**job, "HOROVOD_RANK": str(number), "HOROVOD_SIZE": "2"} for number in range(2)]
    done = ended(tmp_path, [capture] * 2, ranks)
    assert [code for code, _, _ in done] == [0, 0], done
    (run,) = {Path(lines[-1]) for _, _, lines in done}
    check_run(run, ["_r0", "_r1"])


def test_a_forked_child_trains_as_without_a_capture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORKS, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "train.py"]
    (plain, captured) = ended(tmp_path, [["train.py"], capture], [{}] * 2)
    assert plain[0] == captured[0] == 3, captured
    assert plain[1] == captured[1] != ""
    check_run(Path(captured[2][-1]), [""])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(MULTIPROCESSING, encoding="utf-8")
    capture = ["-m", "traceview", "capture", "--run", "mine", "train.py", method]
    ((code, out, lines),) = ended(tmp_path, [capture], [{}])
    assert code == 3, lines
    assert len(set(out.splitlines())) == 1
    assert out.count("loss") == 2
    run = tmp_path / "logs" / "plugins" / "profile" / "mine"
    assert lines[-1] == str(run)
    check_run(run, ["", "_p2"])
