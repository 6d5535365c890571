"""Test the variable TRACEVIEW_CAPTURE with launchers that are installed here.

    python scripts/launchers.py "mpirun -n 2 --oversubscribe" "srun -n 2 --overcommit" …

Needs an environment with TensorFlow and traceview, and launchers that start two processes on this host. Each launcher
starts a training program without a capture, with one, with one and ``--run``, and as a cluster in which the program
sets TF_CONFIG from its rank. The results have to be equal, and the files those that docs/capture.md promises. The exit
code is 1 if something differs.

The packages ``openmpi``, ``mpich`` and ``torch`` of the registry hold ``mpirun``, ``mpiexec`` and ``torchrun``. For
``torchrun`` give ``"torchrun --nproc_per_node 2 --no-python"``.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from traceview.capture.process.saying import VARIABLE

PROGRAM = """
import json, os, sys
names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")
rank = next(int(os.environ[name]) for name in names if name in os.environ)
if len(sys.argv) > 1:
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": sys.argv[1:]}, "task": task})
import tensorflow as tf

tf.keras.utils.set_random_seed(7)
strategy = (
    tf.distribute.MultiWorkerMirroredStrategy() if len(sys.argv) > 1 else tf.distribute.get_strategy()
)
with strategy.scope():
    weights = tf.Variable(tf.ones([8, 1]))
pairs = tf.random.normal([512, 8]), tf.random.normal([512, 1])
dataset = tf.data.Dataset.from_tensor_slices(pairs).batch(8).repeat()

def replica(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    context = tf.distribute.get_replica_context()
    weights.assign_sub(0.01 * context.all_reduce("mean", tape.gradient(loss, weights)))
    return loss

@tf.function
def train_step(batch):
    return strategy.reduce("mean", strategy.run(replica, args=batch), axis=None)

for number, batch in zip(range(30), strategy.experimental_distribute_dataset(dataset)):
    loss = train_step(batch)
os.write(1, f"RESULT {rank} {float(loss)!r} {weights.numpy().tobytes().hex()}\\n".encode())
"""
OPTIONS = "--steps 10:14 --out logs"
TIMEOUT_S = 300


def addresses() -> list[str]:
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("localhost", 0))
        return [f"localhost:{probe.getsockname()[1]}" for probe in (first, second)]


def results(
    launcher: list[str], folder: Path, value: str | None, *arguments: str
) -> tuple[int, list[str]]:
    """Exit code and results of a launch."""
    folder.mkdir()
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [*launcher, sys.executable, str(folder.parent / "train.py"), *arguments],
        cwd=folder,
        env={**os.environ, **variables, **({VARIABLE: value} if value else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        print(done.stdout)
    return done.returncode, sorted(re.findall(r"RESULT .*", done.stdout))


def files(folder: Path) -> list[list[str]]:
    """The trace files of each run, without the name of the host."""
    host = socket.gethostname()
    runs = sorted((folder / "logs" / "plugins" / "profile").glob("*"))
    traces = (sorted(path.name for path in run.glob("*.xplane.pb")) for run in runs)
    return [[name.removeprefix(host).partition(".")[0] for name in names] for names in traces]


def faults(launcher: list[str], folder: Path) -> list[str]:
    """What is not as it should be."""
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    alone = results(launcher, folder / "alone", None)
    cluster = results(launcher, folder / "cluster", None, *addresses())
    launches = {
        "variable": (alone, OPTIONS, (), [["_r0"], ["_r1"]]),
        "run": (alone, f"{OPTIONS} --run together", (), [["_r0", "_r1"]]),
        "workers": (cluster, OPTIONS, addresses(), [["_w0", "_w1"]]),
    }
    found = [f"without a capture: {each}" for each in (alone, cluster) if len(each[1]) != 2]
    for name, (expected, value, arguments, names) in launches.items():
        done = results(launcher, folder / name, value, *arguments)
        if done != expected:
            found.append(f"{name}: {done} instead of {expected}")
        if sorted(files(folder / name)) != names:
            found.append(f"{name}: files {files(folder / name)} instead of {names}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("launchers", nargs="+", metavar="LAUNCHER")
    good = True
    for launcher in parser.parse_args().launchers:
        with TemporaryDirectory() as folder:
            found = faults(shlex.split(launcher), Path(folder))
        print(f"{launcher}: {'; '.join(found) or 'ok'}", flush=True)
        good = good and not found
    sys.exit(not good)


if __name__ == "__main__":
    main()
