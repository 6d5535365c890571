"""Record the small real traces in ``fixtures/``.

    python scripts/record.py [NAME …]      names: see FIXTURES; without one, all of them

Needs an environment with TensorFlow (``tensorflow-cpu`` will do), and TensorBoard for the Keras ones; no GPU.
Each fixture is recorded in a process of its own, because TensorFlow's devices can be configured
only once.

What is not as TensorFlow wrote it: the file name and ``hostnames`` say ``host-a``, and the log directory
in ``profile_options`` says ``logdir``. Every other plane says what it said.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
FIXTURES_DIR = ROOT / "fixtures"
HOST = "host-a"
WARM_UP_STEPS = 3
FEATURES = 8
BATCH_PER_REPLICA = 4


class Fixture(NamedTuple):
    """One recording: which kind of loop, on how many logical CPU devices, and how many recorded steps."""

    kind: str  # "marked" or "unmarked" loop, "fit" or "demo"
    devices: int
    steps: int


FIXTURES = {
    "custom-loop-2": Fixture("marked", 2, 6),
    "custom-loop-4": Fixture("marked", 4, 6),
    "keras-fit-2": Fixture("fit", 2, 6),
    "keras-fit-4": Fixture("fit", 4, 4),
    "no-markers-2": Fixture("unmarked", 2, 6),
    "no-markers-4": Fixture("unmarked", 4, 4),
    "plain-1": Fixture("marked", 1, 6),
    "slow-input-2": Fixture("demo", 2, 7),
}
"""fixtures/README.md says what is in them."""


# --- recording (in a process of its own) ------------------------------------------------------


def _dataset(tf: Any, batch: int) -> Any:
    features = tf.random.stateless_normal([256, FEATURES], seed=[1, 2])
    labels = tf.reduce_sum(features, axis=1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
    # First: one tf.data call per batch, not per row.
    dataset = dataset.batch(batch, drop_remainder=True)
    return dataset.map(lambda x, y: (x * 2.0, y), num_parallel_calls=2).prefetch(2)


def _model(tf: Any) -> Any:
    hidden = tf.keras.layers.Dense(16, activation="relu", name="hidden")
    out = tf.keras.layers.Dense(1, name="out")
    return tf.keras.Sequential([tf.keras.layers.Input((FEATURES,)), hidden, out])


def _optimizer(tf: Any, fixture: Fixture) -> Any:
    optimizers = tf.keras.optimizers
    return (optimizers.SGD if fixture.kind == "marked" else optimizers.Adam)(learning_rate=0.01)


def _strategy(tf: Any, fixture: Fixture) -> Any:
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(fixture.devices)])


def _loop(tf: Any, fixture: Fixture) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The two halves of a step: get a batch, train on it."""
    dataset = _dataset(tf, BATCH_PER_REPLICA * fixture.devices)
    strategy = _strategy(tf, fixture) if fixture.devices > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = _model(tf)
        optimizer = _optimizer(tf, fixture)
        optimizer.build(model.trainable_variables)

    def replica_step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(features, training=True) - labels))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def distributed_step(features: Any, labels: Any) -> Any:
        losses = strategy.run(replica_step, args=(features, labels))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    is_alone = fixture.devices == 1
    iterator = iter(dataset if is_alone else strategy.experimental_distribute_dataset(dataset))
    train_step = tf.function(replica_step if is_alone else distributed_step)
    return lambda: next(iterator), lambda batch: train_step(*batch)


def _record_loop(tf: Any, fixture: Fixture, logdir: str) -> None:
    get_batch, train = _loop(tf, fixture)
    for _ in range(WARM_UP_STEPS):
        train(get_batch())
    tf.profiler.experimental.start(logdir)
    for number in range(WARM_UP_STEPS, WARM_UP_STEPS + fixture.steps):
        # One that is only made is an event already.
        is_marked, trace = fixture.kind == "marked", tf.profiler.experimental.Trace
        with trace("train", step_num=number, _r=1) if is_marked else nullcontext():
            train(get_batch())
    tf.profiler.experimental.stop()


def _record_fit(tf: Any, fixture: Fixture, logdir: str) -> None:
    with _strategy(tf, fixture).scope():
        model = _model(tf)
        model.compile(optimizer=_optimizer(tf, fixture), loss="mse")
    first = WARM_UP_STEPS + 1  # the callback counts batches from 1
    callback = tf.keras.callbacks.TensorBoard(
        logdir, write_graph=False, profile_batch=(first, first + fixture.steps - 1)
    )
    model.fit(
        _dataset(tf, BATCH_PER_REPLICA * fixture.devices),
        steps_per_epoch=WARM_UP_STEPS + fixture.steps + 2,
        epochs=1,
        verbose=0,
        callbacks=[callback],
    )


def _record_here(name: str, logdir: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    fixture = FIXTURES[name]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(fixture.devices)]
    )
    tf.random.set_seed(7)
    (_record_fit if fixture.kind == "fit" else _record_loop)(tf, fixture, logdir)
    python = ".".join(map(str, sys.version_info[:3]))
    versions = {"python": python, "tensorflow": tf.__version__, "keras": version("keras")}
    Path(logdir, "versions.json").write_text(json.dumps(versions), encoding="utf-8")


# --- making a recording neutral ---------------------------------------------------------------


def neutral(data: bytes, logdir: str) -> bytes:
    """The XSpace without the recording machine's host name and log directory."""
    from scripts.xspace import XSpace

    space = XSpace.FromString(data)
    space.hostnames[:] = [HOST.encode() for _ in space.hostnames]
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == b"profile_options":
                # Field 10 of the options is the log directory.
                own, other = (bytes((10 << 3 | 2, len(t))) + t.encode() for t in (logdir, "logdir"))
                stat.bytes_value = stat.bytes_value.replace(own, other)
    neutral_data: bytes = space.SerializeToString(deterministic=True)
    return neutral_data


def _record_demo(logdir: str) -> None:
    """Record the demo with a slow input pipeline, by the command that a user would type."""
    command = [sys.executable, "-m", "traceview", "capture", "--demo", "--slowdown", "input"]
    command += ["--without", "nvml", "--output", logdir]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (sidecar,) = Path(logdir).rglob("*.traceview.json")
    versions = json.loads(sidecar.read_text("utf-8"))["versions"]
    kept = {name: versions[name] for name in ("python", "tensorflow", "keras")}
    Path(logdir, "versions.json").write_text(json.dumps(kept), encoding="utf-8")


def _neutral_sidecar(fields: dict[str, Any], trace: bytes) -> str:
    """The sidecar of `trace` without the recording machine's host name and folders."""
    fields["process"]["host"] = HOST
    fields["command"] = {
        "python": ["python3", "-m", "traceview", "capture", "--demo", "--slowdown", "input"],
        "script": ["training.py", *fields["command"]["script"][1:]],
    }
    sha256 = hashlib.sha256(trace).hexdigest()
    fields["file"] = {"name": f"{HOST}.xplane.pb", "bytes": len(trace), "sha256": sha256}
    return json.dumps(fields, indent=2) + "\n"


def record(name: str, into: Path) -> None:
    """Replace one recording in the folder `into` by a new one."""
    target = into / name
    is_demo = FIXTURES[name].kind == "demo"
    with tempfile.TemporaryDirectory() as logdir:
        if is_demo:
            _record_demo(logdir)
        else:
            subprocess.run([sys.executable, __file__, "--here", name, logdir], check=True)
        (recorded,) = Path(logdir).rglob("*.xplane.pb")
        run = recorded.parent.name
        data = neutral(recorded.read_bytes(), logdir)
        for leak in (recorded.name.removesuffix(".xplane.pb"), logdir, str(ROOT), str(Path.home())):
            if len(leak) > 3 and leak.encode() in data:
                raise SystemExit(f"{name}: the recording still holds {leak!r}")
        shutil.rmtree(target, ignore_errors=True)
        folder = target / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        (folder / f"{HOST}.xplane.pb").write_bytes(data)
        if is_demo:
            sidecar = recorded.with_name(recorded.name.replace(".xplane.pb", ".traceview.json"))
            text = _neutral_sidecar(json.loads(sidecar.read_text("utf-8")), data)
            (folder / f"{HOST}.traceview.json").write_text(text, encoding="utf-8")
        shutil.copy(Path(logdir, "versions.json"), target / "versions.json")
    print(f"{name}: {len(data)} bytes")


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIXTURES))
    parser.add_argument("--into", type=Path, default=FIXTURES_DIR)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        _record_here(*options.names)
        return
    unknown = set(options.names) - set(FIXTURES)
    if unknown:
        parser.error(f"unknown fixture: {', '.join(sorted(unknown))}")
    for name in options.names or FIXTURES:
        record(name, options.into)


if __name__ == "__main__":
    main()
