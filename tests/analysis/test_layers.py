"""The compute of each device is divided among layers, phases and lines without rest, and names alone decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import MS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import write_program
from tests.command import Command
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import ModuleWriter
from traceview.analysis.workload.layers import Layers, LayerTime

Ops = Sequence[tuple[str | None, float]]


def tensorflow(folder: Path, ops: Ops, *, gpus: int = 1, graphs: Any = None) -> None:
    """Four steps of 50 ms on each GPU, with these ops one after the other: names, and milliseconds."""
    trace = new_trace()
    for step in marked_steps(trace):
        for gpu in range(gpus):
            at = 2.0
            for op, length in ops:
                name = of_replica(op, gpu) if gpu and op else op
                step.kernel(gpu, at, at + length, op=name)
                at += length
    write_sidecar(trace.write(folder), {"graphs": graphs})


def of_replica(op: str, number: int) -> str:
    """As a MirroredStrategy names the copies of an op."""
    tape, slash, rest = op.rpartition("gradient_tape/")
    return f"{tape}{slash}replica_{number}/{rest}"


def result(folder: Path) -> Layers:
    layers = traceview.analyze(folder).results.layers
    assert layers is not None
    return layers


def times(rows: Sequence[LayerTime]) -> dict[tuple[str | None, str | None], float]:
    """Milliseconds of a step by layer and line."""
    return {(row.layer, row.source_line): row.compute_ps_per_step / MS for row in rows}


KERAS = [
    ("model/dense/BiasAdd/ReadVariableOp:ReadVariableOp", 1),
    ("model/dense/MatMul:MatMul", 4),
    ("model/dense/BiasAdd:BiasAdd", 1),
    ("model/out/Relu:_FusedMatMul", 2),
    ("loss/mse/sub:Sub", 1),
    ("gradient_tape/model/out/MatMul/MatMul:MatMul", 3),
    ("gradient_tape/model/dense/BiasAdd/BiasAddGrad:BiasAddGrad", 1),
    ("gradient_tape/model/dense/ReluGrad:ReluGrad", 1),
    ("StatefulPartitionedCall/adam/update_0_1/Mul:Mul", 2),
    ("AddN:AddN", 1),
    (None, 1),
]


def test_the_tree_of_a_keras_model(tmp_path: Path) -> None:
    tensorflow(tmp_path, KERAS)
    layers = result(tmp_path)
    assert times(layers.rows) == {
        ("model", None): 13,
        ("model/dense", None): 8,
        ("model/out", None): 5,
        ("adam", None): 2,
        ("loss/mse", None): 1,
        (None, None): 2,
    }
    assert [row.layer for row in layers.rows][-1] is None
    assert (layers.device_count, layers.step_count, layers.row_count) == (1, 4, 6)
    assert layers.compute_ps_per_step == 18 * MS == sum(row.own_ps_per_step for row in layers.rows)
    dense = layers.rows[1]
    assert (dense.forward_ps_per_step, dense.backward_ps_per_step) == (6 * MS, 2 * MS)
    assert (dense.own_ps_per_step, layers.rows[0].own_ps_per_step) == (8 * MS, 0)
    assert layers.rows[3].optimizer_ps_per_step == 2 * MS
    assert layers.rows[-1].other_ps_per_step == MS, "a kernel without a name"
    assert dense.gpu_time_ratio == pytest.approx(8 * 4 / 199.9)


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("model/dense/MatMul:MatMul", "model/dense"),
        ("model/block/add:AddV2", "model/block"),
        ("while/body/_3/while/StatefulPartitionedCall/model/dense/MatMul:MatMul", "model/dense"),
        # Names in loops and conditions say again what is around these.
        ("net/lstm/while/body/_5/net/lstm/while/cell/MatMul:MatMul", "net/lstm/cell"),
        (
            "gradient_tape/net/lstm/while/net/lstm/while_grad/body/_9/gradient_tape/net/lstm/while/gradients/net/lstm/while/cell/Mul_grad/Mul:Mul",
            "net/lstm/cell",
        ),
        (
            "gradient_tape/cond/StatelessIf/then/_2/gradient_tape/cond/gradients/cond/net/dense/Mul_grad/Mul:Mul",
            "net/dense",
        ),
        ("net/StatefulPartitionedCall/net/dense/MatMul:MatMul", "net/net/dense"),
        ("gradient_tape/model/block/add/Sum:Sum", "model/block"),
        ("gradients/model/dense_1/MatMul_grad/MatMul:MatMul", "model/dense_1"),
        ("train/Adam/update_dense/kernel/ResourceApplyAdam:ResourceApplyAdam", "dense"),
        ("train/Adam/update_encoder/dense/bias/Mul:Mul", "encoder/dense"),
        ("Adam/Adam/update/ResourceApplyAdam:ResourceApplyAdam", "Adam/Adam"),
        ("update_1/AssignVariableOp:AssignVariableOp", None),
        ("Encoder/dense/GatherV2/Cast:Cast", "Encoder/dense"),
        ("MatMul:MatMul", None),
        # Keras calls a layer `add` or `conv2d`; only an op of that very name is none.
        ("model/conv2d/Conv2D:Conv2D", "model/conv2d"),
        ("model/add/add:AddV2", "model/add"),
        ("gradient_tape/a/b/Custom/Inner:Inner", "a/b"),
        ("gradient_tape/unseen/Custom/Inner:Inner", "unseen/Custom"),
        ("fusion_3", None),
    ],
)
def test_what_a_name_shows(op: str, layer: str | None, tmp_path: Path) -> None:
    tensorflow(tmp_path, [("model/block/add:AddV2", 1), ("a/b/c:Mul", 1), (op, 7)])
    rows = traceview.load(tmp_path).table("layers")
    row = rows[rows["own_ps_per_step"] >= 7 * MS]
    assert row["layer"].fillna("").tolist() == [layer or ""]


def test_layers_have_the_names_that_keras_says(tmp_path: Path) -> None:
    """Keras 3 opens the scope of a layer twice, so graphs number it; a second call of the layer has another number."""
    ops: Ops = [
        ("net_1/conv2d_1/MatMul:MatMul", 1),
        ("net_3/conv2d_1/MatMul:MatMul", 2),
        ("net_1/conv2d_1_2/MatMul:MatMul", 4),
        ("net_1/own_1/MatMul:MatMul", 8),
    ]
    tensorflow(tmp_path, ops, graphs={"layers": ["net", "conv2d", "conv2d_1"]})
    own = {row.layer: row.own_ps_per_step // MS for row in result(tmp_path).rows}
    assert own == {"net": 0, "net/conv2d": 3, "net/conv2d_1": 4, "net/own_1": 8}


def test_a_name_of_any_length_is_read_to_a_depth(tmp_path: Path) -> None:
    tensorflow(tmp_path, [("/".join("s" * 5000) + "/MatMul:MatMul", 2)])
    (row,) = result(tmp_path).rows
    assert row.layer is not None
    assert set(row.layer.split("/")) == {"s"}
    assert len(row.layer) < 60


LINES = {
    "lines": ["model.py:7 in call", "train.py:30 in step"],
    "line_of": {
        "model/dense/": 0,
        "model/out/Relu": 0,
        "Loss": 1,
        "replica_1/model/": 0,
        "replica_1/Loss": 1,
    },
}


def with_lines(folder: Path) -> None:
    """Two GPUs with ops of two lines, of one line outside of all layers, and of none."""
    outside: Ops = [("Loss:Mean", 2), ("Other:Mean", 1)]
    tensorflow(folder, [*KERAS[1:4], *outside, *KERAS[5:8]], gpus=2, graphs=LINES)


def test_lines_of_graphs_are_rows_and_sums_stay(tmp_path: Path) -> None:
    with_lines(tmp_path)
    rows = result(tmp_path).rows
    assert times(rows) == {
        ("model", None): 12,
        ("model/dense", "model.py:7 in call"): 7,
        ("model/out", None): 5,
        ("model/out", "model.py:7 in call"): 3.5,
        (None, "train.py:30 in step"): 2,
        (None, None): 1,
    }
    check_sums(traceview.load(tmp_path))


def test_ops_have_lines(tmp_path: Path, command: Command) -> None:
    with_lines(tmp_path)
    lines = (
        traceview.load(tmp_path)
        .table("ops", window="trace")
        .set_index(["device", "op"])["source_line"]
    )
    assert lines["GPU:0", "Loss"] == "train.py:30 in step"
    assert lines["GPU:1", "model/dense/MatMul"] == "model.py:7 in call"
    assert lines[:, "Other"].isna().all()
    wide = "--width", "160"
    assert "model.py:7 in call" in command("show", "ops", str(tmp_path), *wide).out
    shown = command("show", "layers", str(tmp_path), *wide).out
    assert re.search(r"^no layer, train\.py:30 ", shown, re.MULTILINE)


# JAX


MODEL = [
    ("jit(step)/jit(main)/jvp(Model)/dense/dot_general", 4.0, ("/home/u/model.py", 7)),
    ("jit(step)/jit(main)/transpose(jvp(Model))/dense/dot_general", 6.0, ("model.py", 7)),
    ("jit(step)/jit(main)/jvp(Model)/dense/jit(_where)/select_n", 1.0, ("model.py", 8)),
    ("jit(step)/(transpose(jvp(Model))/head/mul:jvp(Model)/x/add)", 2.0, ("model.py", 9)),
    ("jit(step)/mul", 3.0, ("train.py", 40)),
    ("x", 1.0, ("", 0)),
]


def test_scopes_and_lines_of_a_program(tmp_path: Path) -> None:
    """One instruction after the other: scope, milliseconds and line."""
    module = ModuleWriter()
    for number, (scope, _, line) in enumerate(MODEL):
        module.add(f"fusion.{number}", "fusion", scope=scope, line=line)
    names = [f"fusion.{number}" for number in range(len(MODEL))]
    lengths = [length for _, length, _ in MODEL]
    write_program(tmp_path, module, list(zip(names, names, lengths, strict=True)))
    rows = result(tmp_path).rows
    assert times(rows) == {
        ("step", None): 16,
        ("step/Model", None): 13,
        ("step/Model/dense", None): 11,
        ("step/Model/dense", "model.py:7"): 10,
        ("step/Model/dense", "model.py:8"): 1,
        ("step/Model/head", "model.py:9"): 2,
        ("step", "train.py:40"): 3,
        (None, None): 1,
    }
    dense = rows[2]
    assert (dense.forward_ps_per_step, dense.backward_ps_per_step) == (5 * MS, 6 * MS)
    assert sum(row.own_ps_per_step for row in rows) == 17 * MS


def test_functions_of_jax_are_no_layers_of_the_compute(tmp_path: Path) -> None:
    """The line names them already; what they hold without a layer is that of the line."""
    module = ModuleWriter()
    one, two, three = (f"model.py:{number}" for number in (7, 8, 9))
    ops = {
        "jit(step)/jit(main)/jvp(Model)/dense/dot": one,
        "jit(step)/jit(main)/jvp(Model)/head/dot": one,
        "jit(step)/jit(main)/jit(update)/mul": two,
        "jit(step)/jit(main)/jit(update)/add": three,
    }
    lengths = []
    for number, (scope, line) in enumerate(ops.items()):
        file, _, at = line.partition(":")
        module.add(f"op{number}", "add", scope=scope, line=(file, int(at)))
        lengths.append((f"op{number}", f"op{number}", 8.0 - number))
    write_program(tmp_path, module, lengths)
    compute = traceview.analyze(tmp_path).results.compute
    assert compute is not None
    assert [(part.layer, part.source_line) for part in compute.parts] == [
        ("Model/dense", None),
        ("Model/head", None),
        (None, two),
    ]


# FLOPs

F16 = 10


def test_flops_by_hand(tmp_path: Path, command: Command) -> None:
    """A layer with a product of 4 ms, one with a sum of 3 ms, and in the second a call that nobody knows."""
    module = ModuleWriter()
    given: dict[str, Any] = {"element": F16, "shape": (4096, 4096)}
    left, right = (module.add(name, "parameter", **given) for name in ("left", "right"))
    module.add("dot", "dot", left, right, scope="jit(step)/jvp(Model)/dense/dot_general", **given)
    module.last().dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    module.add("add", "add", left, right, scope="jit(step)/jvp(Model)/norm/add", **given)
    module.add("call", "custom-call", left, scope="jit(step)/jvp(Model)/norm/call", **given)
    module.last().custom_call_target = b"mine"
    lengths = {"dot": 4.0, "add": 3.0, "call": 2.0}
    write_program(tmp_path, module, [(name, name, length) for name, length in lengths.items()])
    rows = {row.layer: row for row in result(tmp_path).rows}
    product = 2 * 4096**3
    dense, norm, model = (rows[f"step/Model{inner}"] for inner in ("/dense", "/norm", ""))
    assert dense.flops_per_second == product * 250
    assert norm.flops_per_second == 0
    assert model.flops_per_second == pytest.approx(product / 0.007), "of what is known"
    assert "34.4 TFLOP/s" in command("show", "layers", str(tmp_path), "--width", "200").out


# Recounted


@pytest.mark.parametrize("name", ["keras-fit-2", "custom-loop-4", "plain-1", "slow-input-2"])
def test_the_layers_of_recorded_runs_sum_to_the_compute(fixtures: Path, name: str) -> None:
    check_sums(traceview.load(fixtures / name))


def check_sums(trace: traceview.Trace) -> None:
    ledger, rows = trace.ledger(), trace.table("layers")
    own = rows.groupby("device")["own_ps_per_step"].sum().to_dict()
    frame = ledger.to_frame()
    counted = frame[frame["is_used"]] if frame["is_used"].any() else frame
    sums = counted[counted["state"] == "compute"].groupby("device", observed=True)
    steps = {trace.device_key(device): count for device, count in ledger.steps_of_device.items()}
    compute_ps = sums["duration_ps"].sum()
    expected = {key: compute_ps[key] // (steps[key] or 1) for key in compute_ps.index}
    assert own == expected
    phases = [f"{phase}_ps_per_step" for phase in ("forward", "backward", "optimizer", "other")]
    assert (rows[phases].sum(axis=1) == rows["compute_ps_per_step"]).all()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["jax-8xMI300X", "jax-gemm-1of8", "bert-8xV100"])
def test_the_layers_of_real_gpus_sum_to_the_compute(shared_traces: Path, name: str) -> None:
    check_sums(traceview.load(shared_traces / name))


@pytest.mark.shared
def test_the_lines_of_real_programs(shared_traces: Path) -> None:
    """Of two programs that were compiled for MI300X the lines in their HLO, with what their kernels take."""
    convolution, _ = result(shared_traces / "jax-8xMI300X").rows
    assert convolution.layer == "forward_3d_conv"
    assert convolution.source_line == "generate_conv_trace.py:23 in forward_3d_conv"
    products = {row.source_line: row for row in result(shared_traces / "jax-gemm-1of8").rows}
    line = "generate_gemm_trace.py:37 in run_gemms"
    assert (products[line].layer, products[line].compute_ps_per_step) == ("dot", 3233884000)
