"""What multiplies nothing is a finding by what it does together; products at a low rate are one."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed, finding_of, loss_of, ran, the, title_of, write_program
from tests.trace.test_replicas import component
from tests.xplane.hlo_messages import ModuleWriter
from traceview.report.redaction import redacted

PAIRS, DENSE = "train.py:7 in pairs", "train.py:9 in call"


@pytest.mark.parametrize(
    ("ops", "title"),
    [
        ({"a/StridedSliceGrad:StridedSliceGrad": 10, "concat:_MklConcatV2": 5.1}, "15.1 of 50.0 ms (30%) on moving data: StridedSliceGrad"),
        ({"a/StridedSliceGrad:StridedSliceGrad": 10, "concat:ConcatV2": 4.9}, ""),
        ({"a/StridedSliceGrad:StridedSliceGrad": 10, "b/Sub:Sub": 5.1}, ""),
        ({"loss/Softmax:Softmax": 22.6}, "22.6 of 50.0 ms (45%) on Softmax"),
        ({"loss/Softmax:Softmax": 22.4}, ""),
        ({"dense/MatMul:_MklNativeFusedMatMul": 40}, ""),
        ({"a/XlaRun:XlaRun": 40}, ""),
        ({"adam/update/ResourceApplyAdam:ResourceApplyAdam": 19}, ""),
    ],
)  # fmt: skip
def test_what_moves_data_and_one_type(ops: dict[str, float], title: str, tmp_path: Path) -> None:
    said = title_of(ran(tmp_path, ops.items()), "costly-ops")
    assert said == (f"GPU:0 spends {title}" if title else "")


@pytest.mark.parametrize(
    ("ops", "is_found"),
    [
        ({"Sub:Sub": 4, "Mul:Mul": 3, "gradient_tape/Mul/Mul:Mul": 3.1}, True),
        ({"Sub:Sub": 4, "Mul:Mul": 3, "gradient_tape/Mul/Mul:Mul": 2.9}, False),
        ({"Sub:Sub": 3, "Mul:Mul": 7.1}, False),
        ({"Sub:Sub": 5, "Mul:Mul": 5.1, "MatMul:MatMul": 0.9}, True),
        ({"Sub:Sub": 5, "Mul:Mul": 5.1, "MatMul:MatMul": 1.1}, False),
    ],
)
def test_a_function_that_multiplies_nothing(
    ops: dict[str, float], is_found: bool, tmp_path: Path
) -> None:
    """Its ops are of several types; gradients are of the function of their op."""
    lines = dict.fromkeys(("Sub", "Mul", "MatMul"), PAIRS)
    every = {**ops, "Other:Relu": 5.0}
    found = finding_of(ran(tmp_path, every.items(), lines=lines), "costly-ops")
    assert (found is not None) == is_found
    if found is not None:
        assert found.title == (
            "GPU:0 spends 10.1 of 50.0 ms (20%) on ops that multiply no matrices, in pairs, train.py:7"
        )
        assert "pairs or triples" in found.action


def test_ops_of_another_finding_are_in_no_group(tmp_path: Path) -> None:
    report = ran(tmp_path, [("x:ConcatV2", 24)], batch_ops=["x"])
    assert title_of(report, "batch-work-in-step")
    assert title_of(report, "costly-ops") == ""


def test_ops_that_run_at_once_share_the_time(tmp_path: Path) -> None:
    """Of 40 ms with two ops each has half, whichever began first."""
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, "split/Pad:Pad", each_ms=40)
        component(step, 2, 2, "dense/MatMul:MatMul", each_ms=40)
    found = the(analyzed(tmp_path, trace), "costly-ops")
    assert loss_of(found).gpu_time_ratio == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(("small", "is_found"), [(90_000, True), (110_000, False)])
def test_products_at_a_low_rate(small: int, is_found: bool, tmp_path: Path) -> None:
    """20 ms for 2 MFLOP, and 14 ms for less than a twentieth of that per millisecond, or more."""
    flops = {"large": 2_000_000, "small": 14 * small // 20}
    ops = {"large:Conv2D": 20.0, "small:Conv2DBackpropFilter": 14.0}
    said = title_of(ran(tmp_path, ops.items(), flops=flops), "costly-ops")
    assert ("to products at a low rate: Conv2DBackpropFilter" in said) is is_found
    assert bool(said) is is_found


@pytest.mark.parametrize(
    ("name", "scope", "title"),
    [
        ("concatenate.3", "jit(f)/concatenate", "on moving data: concatenate"),
        ("concatenate_fusion", "jit(f)/jvp()/concatenate", ""),
        ("add_fusion", "jit(f)/jvp()/add", "on add"),
        ("add_fusion", "jit(f)/add", ""),
    ],
)
def test_a_fusion_of_xla_may_update_variables(
    name: str, scope: str, title: str, tmp_path: Path
) -> None:
    module = ModuleWriter()
    module.add(name, "fusion" if "fusion" in name else "concatenate", scope=scope)
    write_program(tmp_path, module, [(name, "kernel", 23 if "add" in name else 16)])
    said = title_of(traceview.analyze(tmp_path), "costly-ops")
    assert (title in said) if title else said == ""


def test_the_verdict_names_the_line_with_much_of_the_compute(tmp_path: Path) -> None:
    """A report without names does not name it."""
    types = ("Add", "Mul", "Sub", "Relu", "Tanh", "Exp", "Log", "Abs")
    ops = {f"{type_}:{type_}": 3.0 for type_ in types} | {"MatMul:MatMul": 3.0, "b:XlaRun": 9.0}
    lines = dict.fromkeys((*types, "MatMul"), DENSE)
    report = ran(tmp_path, ops.items(), lines=lines)
    assert report.verdict.headline.startswith(
        "No problem found: 1 GPU, 72% computing, 75% of that in call, train.py:9;"
    )
    hidden = redacted(report).verdict.headline
    assert hidden.startswith("No problem found: 1 GPU, 72% computing, 75% of that in ")
    assert "call" not in hidden
    assert "train" not in hidden
