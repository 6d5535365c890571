"""Scripts with real JAX below `traceview capture`: which of their calls are steps, and that nothing of them is touched."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.capture.conftest import CAPTURE, Captured, environment_with, run_python, run_together
from tests.capture.test_workers import free_addresses

pytestmark = pytest.mark.jax

START = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
weights = jnp.ones((32, 32)) * 0.01
def loss(w, x): return jnp.mean((jnp.tanh(x @ w) - x) ** 2)
def update(w, x): return w - 0.1 * jax.grad(loss)(w, x)
batch = jnp.ones((8, 32))
"""
END = "\nprint(float(w.sum()))\n"
LOOP = "w = weights\nfor number in range(20): w = train_step(w, batch)"
PMAP = """
n = jax.local_device_count()
train_step = jax.pmap(lambda w, x: w - 0.1 * jax.lax.pmean(jax.grad(loss)(w, x), "i"), axis_name="i", donate_argnums=0)
w = jnp.broadcast_to(weights, (n, 32, 32))
for number in range(20): w = train_step(w, jnp.ones((n, 8, 32)))
"""
SHARD_MAP = """
import inspect
try: from jax import shard_map
except ImportError: from jax.experimental.shard_map import shard_map
off = "check_vma" if "check_vma" in inspect.signature(shard_map).parameters else "check_rep"
mesh = Mesh(np.array(jax.devices()), ("d",))
def of_shard(w, x): return w - 0.1 * jax.lax.pmean(jax.grad(loss)(w, x), "d")
train_step = jax.jit(shard_map(of_shard, mesh=mesh, in_specs=(P(), P("d")), out_specs=P(), **{off: False}))
"""
MESH = """
mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("data", "model"))
weights = jax.device_put(weights, NamedSharding(mesh, P(None, "model")))
batch = jax.device_put(batch, NamedSharding(mesh, P("data")))
train_step = jax.jit(update)
"""
SCAN = """
from functools import partial
@partial(jax.jit, donate_argnums=0)
def train_step(w, xs):
    total, _ = jax.lax.scan(lambda sum, x: (sum + jax.grad(loss)(w, x), None), jnp.zeros_like(w), xs)
    return w - 0.1 * total
batch = jnp.ones((4, 8, 32))
"""
LOADER = """
import queue, threading
@jax.jit
def evaluate(w): return loss(w, batch)
@jax.jit
def prepare(w): return w * 1
train_step = jax.jit(update)
batches = queue.Queue(2)
def produce():
    for _ in range(20): batches.put(jax.device_put(np.ones((8, 32), np.float32)))
    batches.put(None)
threading.Thread(target=produce, daemon=True).start()
w = prepare(weights)
number = 0
while (x := batches.get()) is not None:
    w = train_step(w, x)
    number += 1
    if number % 5 == 0: evaluate(w).block_until_ready()
"""
MARKS = """
first, second = jax.jit(update), jax.jit(lambda w: w * 0.999)
w = weights
for number in range(20):
    with jax.profiler.StepTraceAnnotation("train", step_num=1000 + number): w = second(first(w, batch))
    with jax.profiler.StepTraceAnnotation("eval", step_num=number): float(w.sum())
"""
INFERENCE = """
prepare = jax.jit(lambda x: x * 2)
@jax.jit
def predict(w, x):
    for _ in range(50): x = jnp.tanh(x @ w)
    return x
for number in range(20): w = np.asarray(predict(weights, prepare(batch)))
"""
EAGER = """
objective = jax.jit(loss)
w = weights
for number in range(20): w = w - 0.1 * jax.grad(objective)(w, batch)
"""
CALLBACK = """
@jax.jit
def train_step(w, x):
    jax.debug.callback(lambda value: None, w.sum())
    return update(w, x)
"""
THREAD = """
import threading
train_step = jax.jit(update)
w = weights
def run():
    global w
    for number in range(20): w = train_step(w, batch)
thread = threading.Thread(target=run); thread.start(); thread.join()
"""
AHEAD = "train_step = jax.jit(update).lower(weights, batch).compile()\n" + LOOP
WAYS = {
    "jit": ("train_step = jax.jit(update)\n" + LOOP, "update"),
    "pmap": (PMAP, "<lambda>"),
    "shard_map": (SHARD_MAP + LOOP, "of_shard"),
    "mesh": (MESH + LOOP, "update"),
    "scan over micro-batches, donated": (SCAN + LOOP, "train_step"),
    "a loader, evaluation": (LOADER, "update"),
    "marks": (MARKS, "train"),
    "compiled ahead of time": (AHEAD, "update"),
    "gradients outside jit": (EAGER, "loss"),
    "inference": (INFERENCE, "predict"),
    "a callback to Python": (CALLBACK + LOOP, "train_step"),
    "another thread": (THREAD, "update"),
}


def run(folder: Path, script: str, *options: str) -> Captured:
    """Run a script below `traceview capture` with these options; without options as it is."""
    capture = [*CAPTURE, *options] if options else []
    devices = "--xla_force_host_platform_device_count=4"
    variables = environment_with(XLA_FLAGS=devices, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    return run_python(folder, *capture, "train.py", script=script, environment=variables)


@pytest.mark.parametrize("way", WAYS)
def test_chosen_steps_are_recorded_however_they_are_compiled(way: str, tmp_path: Path) -> None:
    script, function = WAYS[way]
    done = run(tmp_path, START + script + END, "--steps", "8:13")
    assert done.code == 0, done.err
    assert (done.window["got"], done.window["edge_steps"]) == ([8, 13], [7, 13]), done.err
    assert {call["function"] for call in done.window["calls"]} == {function}
    sidecar = done.sidecar
    (steps,) = (entry for entry in sidecar["steps"]["functions"] if entry["is_step"])
    assert steps["calls"] == 14
    assert done.out == run(tmp_path, START + script + END).out


def test_the_sidecar_describes_devices_and_functions(tmp_path: Path) -> None:
    done = run(tmp_path, START + MESH + LOOP + END, "--steps", "8:13")
    sidecar = done.sidecar
    (function,) = sidecar["jax"].pop("functions")
    assert sidecar["jax"] == {"device_kind": "cpu", "device_count": 4, "process_count": 1}
    assert (function["name"], function["is_step"], function["compilations"]) == ("update", True, [])
    placed = {"devices": 4, "sharding": "NamedSharding", "mesh": {"data": 2, "model": 2}}
    assert function["arguments"] == [
        {"name": "w", "type": "float32[32,32]", "shard": "32,16", **placed},
        {"name": "x", "type": "float32[8,32]", "shard": "4,32", **placed},
    ]
    assert {"jax", "jaxlib", "numpy"} <= set(sidecar["versions"])


AGAIN = """
import numpy as np
def update_by(w, x, how): return update(w, x)
mesh = Mesh(np.array(jax.devices()), ("d",))
whole, split = (NamedSharding(mesh, spec) for spec in (P(), P("d")))
@jax.jit
def with_constants(w, x):
    with jax.ensure_compile_time_eval(): one = float(jnp.ones((x.shape[0],)).mean())
    return update(w, x) * one
by_value, by_type, by_shape = (jax.jit(update_by, static_argnums=2), jax.jit(update_by), jax.jit(update))
w = jax.device_put(weights, whole)
data = np.ones((8, 32), np.float32)
for number in range(20): w = CALL
"""
CHANGES = {
    "by_shape(w, np.ones((8 + number // 5, 32), np.float32))": (
        *("x", "float32[9,32] -> float32[10,32]"),
    ),
    "by_value(w, data, f'secret {number // 5}')": ("how", "static str -> static str"),
    "by_type(w, data, number if number < 10 else np.int32(number))": ("how", "~int32[] -> int32[]"),
    "by_shape(w, jax.device_put(data, whole if number < 10 else split))": (
        *("x", "float32[8,32] placed differently"),
    ),
    "with_constants(w, np.ones((8 + number // 5, 32), np.float32))": (
        *("x", "float32[9,32] -> float32[10,32]"),
    ),
    "by_type(w, data, None if number < 10 else 1.0)": ("how", "absent -> ~float32[]"),
    "jax.jit(lambda w, x: update(w, x))(w, data)": ("", "<lambda>"),
}
"""By call which argument changes, and how; without one, the function itself is new."""


def skip_before_0_8(sidecar: dict[str, Any], why: str) -> None:
    """Skip the rest of a test, where the sidecar is as it should be."""
    if tuple(map(int, sidecar["versions"]["jax"].split(".")[:2])) < (0, 8):
        pytest.skip(f"before JAX 0.8 {why}")


@pytest.mark.parametrize("call", CHANGES)
def test_what_has_changed_where_a_function_is_compiled_again(call: str, tmp_path: Path) -> None:
    done = run(tmp_path, START + AGAIN.replace("CALL", call) + END, "--steps", "8:13")
    where, value = CHANGES[call]
    (function,) = done.sidecar["jax"]["functions"]
    first, *_ = function["compilations"]
    assert first["is_new_function"] is (where == "")
    assert [each["name"] for each in first["changes"]] == [where] * (where != "")
    assert "secret" not in json.dumps(done.sidecar)
    skip_before_0_8(done.sidecar, "no devices of CPUs are recorded")
    findings = traceview.analyze(done.logdir).findings
    (finding,) = (each for each in findings if each.code == "retracing")
    changed = [each for each in finding.evidence if each.metric == "changed_argument"]
    assert [(each.where, each.value) for each in changed] == ([(where, value)] if where else [])
    assert where or value in finding.title
    assert all(each.detail == "step 10" for each in changed)


@pytest.mark.parametrize(
    ("made", "is_anew"),
    [("made()", True), ("kept.append(made()) or kept[-1]", False), ("kept[0]", False)],
)
def test_a_function_that_is_given_to_pmap_anew_is_told(
    made: str, is_anew: bool, tmp_path: Path
) -> None:
    """JAX keeps it: one that the script keeps, too, is another one."""
    body = f"""
def made(): return jax.pmap(lambda x: 2 * x)
kept = [made()]
train_step, w = jax.jit(update), weights
for number in range(20):
    w = train_step(w, batch)
    if number % 2 == 0: ({made})(batch[:1])
"""
    sidecar = run(tmp_path, START + body + END, "--steps", "8:13").sidecar
    skip_before_0_8(sidecar, "pmap was no function of jit")
    again = [each for each in sidecar["jax"]["functions"] if each["compilations"]]
    assert [each["name"] for each in again] == ["<lambda>"] * is_anew
    assert all(row["is_new_function"] for each in again for row in each["compilations"])


ALIKE = {
    "objects of one function, numbers of one type, and another function of the name": (
        "steps = [update_by]\ndef update_by(w, x): return loss(w, x)\nevaluate = jax.jit(update_by)\n",
        "(jax.jit(steps[0])(w, data, number), number == 10 and evaluate(w, data))[0]",
    ),
    "two functions of one line": (
        "steps = [jax.jit(lambda w, x: update(w, x)) for _ in range(2)]\n",
        "steps[number == 10](w, data)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ALIKE)
def test_nothing_has_changed_where_all_calls_are_alike(what: str, tmp_path: Path) -> None:
    """In step 10 something is called for the first time."""
    before, call = ALIKE[what]
    script = AGAIN.replace("CALL", call).replace("w = jax", f"{before}w = jax")
    done = run(tmp_path, START + script + END, "--steps", "8:13")
    (function,) = done.sidecar["jax"]["functions"]
    assert function["compilations"] == []
    report = traceview.analyze(tmp_path / "logs")
    assert "retracing" not in {each.code for each in report.findings}


MICRO = """
gradients = jax.jit(jax.grad(loss))
@jax.jit
def apply(w, g): return w - 0.1 * g
w = weights
for number in range(20):
    total = 0
    for _ in range(4): total = total + gradients(w, batch)
    w = apply(w, total)
"""


def test_an_optimizer_between_micro_batches_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, START + MICRO + END, "--steps", "12:20")
    assert "--step-function apply counts its calls" in done.err
    options = ("--steps", "8:13", "--step-function", "apply", "--run", "named")
    counted = run(tmp_path, START + MICRO + END, *options)
    named = counted.window["calls"]
    assert {call["function"] for call in named} == {"apply"}
    assert "micro" not in counted.err


UNTOUCHED = """
from jax._src import api, pjit, profiler
from jax._src.interpreters import pxla
from jax._src.array import ArrayImpl
def state():
    own = getattr(api, "_post_hook_state", None)
    hook = own.get_global() if own is not None else __import__("jax._src.lib", fromlist=["jax_jit"]).jax_jit.global_state().post_hook
    annotation = profiler.StepTraceAnnotation
    return [hook, pxla.ExecuteReplicated.__call__, pxla.lower_sharding_computation, pjit._infer_params, vars(ArrayImpl)["_value"],
            vars(ArrayImpl)["block_until_ready"], vars(annotation).get("__enter__"), annotation.__init__, profiler._profile_state.profile_session]
"""


@pytest.mark.parametrize("setting", ["", "jax.config.update('jax_debug_nans', True)\n"])
def test_after_the_window_nothing_is_hooked(setting: str, tmp_path: Path) -> None:
    """What the script has asked JAX for meanwhile stays as it is."""
    look = "\n[print(type(x).__module__, str(x).split(' at 0x')[0][:24]) for x in state()]"
    script = f"{START}{UNTOUCHED}{setting}train_step = jax.jit(update)\n{LOOP}{look}{END}"
    plain = run(tmp_path, script)
    done = run(tmp_path, script, "--steps", "8:13")
    assert "traceview" not in done.out
    assert done.out == plain.out


def test_a_profile_of_the_script_inside_the_window_records_nothing(tmp_path: Path) -> None:
    body = """
train_step = jax.jit(update)
w = weights
for number in range(20):
    if number == 10: jax.profiler.start_trace("own", create_perfetto_trace=True)
    w = train_step(w, batch)
    if number == 11: jax.profiler.stop_trace()
"""
    done = run(tmp_path, START + body + END, "--steps", "8:15")
    assert done.code == 0, done.err
    assert "the script's own profile was not recorded" in done.err
    assert done.window["got"] == [8, 15]


KERAS = """
import os; os.environ["KERAS_BACKEND"] = "jax"
import numpy as np, keras
model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.ones((320, 4), "float32")
model.fit(x, x[:, :1], batch_size=32, epochs=2, validation_data=(x, x[:, :1]), verbose=0)
print(len(model.history.history["loss"]))
"""


OF_KERAS = "import traceview; callback = traceview.keras_callback('logs', range(8, 13)); model.fit"


@pytest.mark.skipif(find_spec("keras") is None, reason="Keras is installed beside TensorFlow only")
@pytest.mark.parametrize("option", ["", "jit_compile=False", "run_eagerly=True", "the callback"])
def test_fit_of_keras_on_jax(option: str, tmp_path: Path) -> None:
    """A batch is a step, also where Keras runs its ops one by one."""
    if option == "the callback":
        script = KERAS.replace("verbose=0", "verbose=0, callbacks=[callback]")
        done = run(tmp_path, script.replace("model.fit", OF_KERAS, 1))
    else:
        done = run(tmp_path, KERAS.replace('"mse")', f'"mse", {option})'), "--steps", "8:13")
    assert (done.code, done.out) == (0, "2\n"), done.err
    assert (done.window["got"], done.window["calls"][0]["function"]) == ([8, 13], "train_step")


@pytest.mark.parametrize("first", ["tensorflow", "jax"])
def test_a_script_that_imports_tensorflow_for_its_input_has_one_trace(
    first: str, tmp_path: Path
) -> None:
    # Of TensorFlow only that it is imported matters here.
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("__version__ = '2.21.0'", encoding="utf-8")
    second = "jax" if first == "tensorflow" else "tensorflow"
    script = f"import sys; sys.path.insert(0, '.'); import {first}, {second}\n{START}"
    done = run(tmp_path, script + "train_step = jax.jit(update)\n" + LOOP + END, "--steps", "8:13")
    assert (done.code, done.window["got"]) == (0, [8, 13]), done.err
    assert "nothing" not in done.err


SESSION = """
import traceview
train_step, w = jax.jit(update), weights
with traceview.capture_steps("logs", range(8, 13)) as session:
    for number in range(20):
        with session.step(number):
            w = train_step(w, batch)
            assert float(w.sum()) < 1000
        w = train_step(w, batch)
print(session.run is not None)
"""


def test_steps_that_the_program_marks_itself(tmp_path: Path) -> None:
    done = run(tmp_path, START + SESSION + END)
    assert (done.code, done.out.splitlines()[0]) == (0, "True"), done.err
    assert (done.window["got"], done.window["edge_steps"]) == ([8, 13], [7, 13])
    assert {call["function"] for call in done.window["calls"]} == {"step"}
    sidecar = done.sidecar
    assert [entry["name"] for entry in sidecar["jax"]["functions"]] == ["update"]


PROCESSES = (
    """
import sys, jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
"""
    + START.replace("import jax,", "import", 1)
    + """
mesh = Mesh(np.array(jax.devices()), ("data",))
w = jax.jit(lambda: weights, out_shardings=NamedSharding(mesh, P()))()
train_step = jax.jit(update)
for number in range(20):
    local = np.ones((8 * jax.local_device_count(), 32), np.float32)
    w = train_step(w, jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), local))
jax.block_until_ready(w)
"""
)


def test_processes_of_one_job_share_a_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROCESSES, encoding="utf-8")
    command, (address,) = (*CAPTURE, "--steps", "8:13", "train.py"), free_addresses(1)
    devices = "--xla_force_host_platform_device_count=2"
    environment = environment_with(XLA_FLAGS=devices, JAX_PLATFORMS="cpu")
    commands = [(*command, str(index), address) for index in range(2)]
    done = run_together(tmp_path, commands, [environment] * 2)
    (folder,) = tmp_path.glob("logs/plugins/profile/*")
    names = sorted(path.name.rpartition("_")[2] for path in folder.glob("*.xplane.pb"))
    assert names == ["p0.xplane.pb", "p1.xplane.pb"], [each.err for each in done]
