"""Compute of each kind is a sum of the ledger, on both sides of each limit, and its largest parts are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import U64
from scripts.scenarios.model import marked_steps, ms, new_trace
from scripts.scenarios.step_ops import printing_in_step
from tests.analysis.made import (
    analyzed,
    finding_of,
    in_program,
    loss_of,
    ran,
    the,
    title_of,
    write_program,
)
from tests.sidecars import write_sidecar
from tests.trace.test_replicas import component
from tests.xplane.hlo_messages import F32, F64, ModuleWriter, add_programs
from tests.xplane.test_hlo_masks import chain, experts
from traceview.document.phrase import plain
from traceview.report.model import words_of_part
from traceview.report.redaction import redacted

A, B, C = "train.py:9 in call", "train.py:21 in step", "train.py:30 in step"


@pytest.mark.parametrize(
    ("ops", "parts"),
    [
        pytest.param(
            {
                "a/MatMul": (2, A),
                "gradient_tape/a/MatMul": (2, A),
                "b/MatMul": (1, A),
                "conv/Tanh": (4, None),
            },
            [(None, "a", 4), (None, "conv", 4), (None, "b", 1)],
            id="layers of one line",
        ),
        pytest.param(
            {"a/MatMul": (3, A), "a/Tanh": (2, B), "MatMul": (1, C)},
            [(A, None, 3), (B, None, 2), (C, None, 1)],
            id="lines of one layer, and one without",
        ),
        pytest.param(
            {"a/MatMul": (4, A), "a/Tanh": (2, B), "b/MatMul": (1, B), "c/MatMul": (1, C)},
            [(A, None, 4), (B, None, 3), (C, None, 1)],
            id="a model that two lines apply, and a layer of one",
        ),
        pytest.param(
            {"a/MatMul": (8, A), "b/Tanh": (2, B)},
            [(A, None, 8), (B, None, 2)],
            id="one has four fifths",
        ),
        pytest.param(
            {"a/MatMul": (9, A), "b/Tanh": (2, B)},
            [(None, None, 9), (None, None, 2)],
            id="it has more",
        ),
    ],
)
def test_compute_is_divided_among_lines_and_layers_or_else_types(
    ops: dict[str, tuple[int, str | None]],
    parts: list[tuple[str | None, str | None, int]],
    tmp_path: Path,
) -> None:
    """Of each op its length in milliseconds and its line."""
    trace, lines = new_trace(), [A, B, C]
    for step in marked_steps(trace):
        made = [f"{op}:{op.rpartition('/')[2]}" for op, (ms, _) in ops.items() for _ in range(ms)]
        component(step, 1, 4, *made, each_ms=1)
    line_of = {op: lines.index(line) for op, (_, line) in ops.items() if line}
    report = analyzed(tmp_path, trace, sidecar={"graphs": {"lines": lines, "line_of": line_of}})
    assert report.results.compute is not None
    found = report.results.compute.parts
    whole = sum(length for length, _ in ops.values())
    assert [(p.source_line, p.layer) for p in found] == [part[:2] for part in parts]
    assert [p.compute_ratio * whole for p in found] == pytest.approx([part[2] for part in parts])


def test_small_layers_that_are_alike_count_together(tmp_path: Path) -> None:
    """One that is large stands alone, and one that is small counts with what is around it, though not with the model."""
    trace = new_trace()
    lengths = {
        "attention/query": 2,
        "attention/key": 1,
        "attention_1/query": 2,
        "attention_1/key": 1,
    }
    lengths |= {"dense": 6, "dense_1": 1, "dense_2": 1, "norm": 1}
    for step in marked_steps(trace):
        ops = [f"net/{layer}/Mul:Mul" for layer, ms in lengths.items() for _ in range(ms)]
        component(step, 1, 4, *ops, each_ms=1)
    report = analyzed(tmp_path, trace)
    assert report.results.compute is not None
    found = report.results.compute.parts
    assert {(p.layer, p.layer_count, round(p.compute_ratio * 15)) for p in found} == {
        ("net/attention*", 2, 6),
        ("net/dense", 1, 6),
        ("net/dense*", 2, 2),
    }
    words = [plain(words_of_part(part)) for part in found]
    assert "in 2 layers net/attention*" in words


@pytest.mark.parametrize(
    ("field", "code", "is_bound"),
    [("float64_ops", "float64-compute", False), ("constant_ops", "constant-compute", True)],
)
def test_what_costs_at_least_so_much_may_save_more(
    field: str, code: str, is_bound: bool, tmp_path: Path
) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 8, "model/a:MatMul", each_ms=8)
    found = the(analyzed(tmp_path, trace, sidecar={"graphs": {field: ["model/a"]}}), code)
    assert ("at least" not in found.title) is is_bound
    assert (loss_of(found).gain_ps_per_step is not None) is is_bound


@pytest.mark.parametrize(("scope", "is_one"), [("model", True), ("gradient_tape/model", False)])
def test_nobody_can_take_a_constant_out_of_gradients(
    scope: str, is_one: bool, tmp_path: Path
) -> None:
    report = ran(tmp_path, [(f"{scope}/Tile:Tile", 8)], constant_ops=[f"{scope}/Tile"])
    assert bool(title_of(report, "constant-compute")) == is_one


@pytest.mark.parametrize("calls", ["", "PartitionedCall_1/", "net/while/body/_12/"])
def test_ops_inside_of_calls_and_loops_have_their_names_in_the_graph(
    calls: str, tmp_path: Path
) -> None:
    report = ran(tmp_path, [(f"{calls}net/mul:Mul", 7)], constant_ops=["net/mul"])
    assert title_of(report, "constant-compute").startswith("GPU:0 spends 7.00 of 50.0 ms (14%)")


def test_the_name_of_a_layer_on_cpus_is_no_type(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for number, scope in enumerate(("", "replica_1/")):
            component(step, number + 1, 8, f"{scope}double/a:MatMul")
    assert finding_of(analyzed(tmp_path, trace), "float64-compute") is None


TO_LAST = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)"


@pytest.mark.parametrize(
    ("type_", "kernel", "title"),
    [
        ("TopKV2", "fusion", "sorting: TopKV2"),
        ("StatelessRandomNormalV2", "fusion", "drawing random numbers: StatelessRandomNormalV2"),
        ("ResizeBilinear", "fusion", "transforming images: ResizeBilinear"),
        (
            "TensorScatterUpdate",
            "fusion",
            "copies of a tensor to change a part of it: TensorScatterUpdate",
        ),
        ("Cumprod", "fusion", "gradients of products of numbers: Cumprod"),
        ("_MklTranspose", "fusion", "transposing tensors: Transpose"),
        ("Conv2D", TO_LAST, "transposing tensors: Conv2D"),
        ("Conv2D", "fusion", ""),
        ("Top", "fusion", ""),
    ],
)
def test_costly_ops_are_a_finding_from_an_eighth_of_the_time_on(
    type_: str, kernel: str, title: str, tmp_path: Path
) -> None:
    for length_ms, is_enough in ((6.1, True), (5.9, False)):
        trace, folder = new_trace(), tmp_path / str(length_ms)
        for step in marked_steps(trace):
            step.kernel(0, 10, 10 + length_ms, name=kernel, op=f"model/x:{type_}")
        said = title_of(analyzed(folder, trace), "costly-ops")
        assert said.endswith(f"on {title} in model") if title and is_enough else said == ""


@pytest.mark.parametrize(
    ("field", "code", "what"),
    [
        ("batch_ops", "batch-work-in-step", "preparing the batch inside the step"),
        ("untrained_ops", "untrained-compute", "ops that train nothing"),
        ("variable_ops", "batch-free-compute", "ops that read variables and not the batch"),
        ("summed_ops", "repeated-compute", "gradients of several losses through the same ops"),
        ("again_ops", "repeated-compute", "applying the model again to ids of earlier passes"),
    ],
)
@pytest.mark.parametrize(("length_ms", "cost"), [(2.99, ""), (3.01, "6.02 of 50.0 ms (12%)")])
def test_ops_that_need_not_be_in_each_step(
    field: str, code: str, what: str, length_ms: float, cost: str, tmp_path: Path
) -> None:
    """They are no other finding, whatever they do."""
    ops = [(op, length_ms) for op in ("x:TopKV2", "cast:Cast", "y:MatMul")]
    graphs: dict[str, Any] = {field: ["x", "cast"]}
    report = ran(tmp_path, ops, **graphs)
    assert title_of(report, code) == (f"GPU:0 spends {cost} on {what}: Cast" if cost else "")
    if cost:
        reason = the(report, code).confidence_reason
        assert "the graph of the step function shows it" in reason
    assert title_of(report, "costly-ops") == title_of(report, "casts") == ""


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("net/TopKV2:TopKV2", "Look for the largest among fewer"),
        ("net/resort/TopKV2:TopKV2", "Look for the largest among fewer"),
        ("net/sort/TopKV2:TopKV2", "Ask for the largest alone"),
        ("argsort_1/TopKV2:TopKV2", "Ask for the largest alone"),
    ],
)
def test_who_asks_for_the_largest_is_not_told_to(op: str, advice: str, tmp_path: Path) -> None:
    report = ran(tmp_path, [(op, 10.0), ("y:MatMul", 20.0)])
    assert the(report, "costly-ops").action.startswith(advice)


def test_what_prints_has_its_own_finding(tmp_path: Path) -> None:
    names = ["StringFormat", "PrintV2", "PrintV2_1"]
    sidecar = {"graphs": {"untrained_ops": names}}
    report = analyzed(tmp_path, printing_in_step().traces["host0"], sidecar=sidecar)
    assert finding_of(report, "untrained-compute") is None
    assert finding_of(report, "host-op-in-step") is not None


FIXED = {"batch_ops": ["x"], "constant_ops": ["y"], "fixed_ops": ["x", "y"]}


@pytest.mark.parametrize(
    ("pipeline", "assigned", "codes"),
    [
        ("Prefetch::ForeverRepeat[0]::MemoryCache", "", {"batch-work-in-step", "constant-compute"}),
        ("Prefetch::MemoryCache::ParallelMapV2", "", {"batch-work-in-step", "constant-compute"}),
        ("Prefetch::ParallelMapV2::MemoryCache", "", {"constant-compute"}),
        ("Prefetch::FlatMap[0]::Generator", "", {"constant-compute"}),
        ("", "", {"constant-compute"}),
        ("Prefetch::TensorSlice", "AssignVariableOp", set()),
        ("Prefetch::TensorSlice", "AssignAddVariableOp", set()),
    ],
)
def test_what_reads_variables_that_no_graph_changes(
    pipeline: str, assigned: str, codes: set[str], tmp_path: Path
) -> None:
    """What depends on the batch, too, can be computed before only where the same examples come again."""
    trace = new_trace()
    for step in marked_steps(trace):
        if pipeline:
            step.host(f"Iterator::Root::{pipeline}", 1, 2, {"id": U64(2**63)})
        if assigned:
            step.host(f"EagerLocalExecute: {assigned}", 3, 4)
        step.kernel(0, 5, 15, op="x:Conv2D")
        step.kernel(0, 15, 25, op="y:Conv2D")
    report = analyzed(tmp_path, trace, sidecar={"graphs": FIXED})
    found = {
        each.code: each.title
        for each in report.findings
        if each.code in codes | {"batch-work-in-step", "constant-compute"}
    }
    assert found.keys() == codes
    title = "GPU:0 spends 10.0 of 50.0 ms (20%) on frozen layers: Conv2D"
    assert found.get("batch-work-in-step", title) == title


@pytest.mark.parametrize(
    ("helper_ms", "title"),
    [(3, "on gradients that are always 0"), (6, "on ops that train nothing")],
)
def test_updates_by_zeros_are_no_optimizer(helper_ms: float, title: str, tmp_path: Path) -> None:
    """They are told with all that trains nothing, by their name if they are most of it."""
    ops = [("helper:MatMul", helper_ms), ("adam/update_0/sub:AssignSubVariableOp", 9 - helper_ms)]
    report = ran(tmp_path, ops, untrained_ops=["helper"], idle_ops=["adam/update_0/sub"])
    found = finding_of(report, "untrained-compute")
    assert found is not None
    assert found.title.startswith(f"GPU:0 spends 9.00 of 50.0 ms (18%) {title}")
    assert ("losses that weigh 0" in found.action) is (helper_ms == 3)


@pytest.mark.parametrize(
    ("dense", "made", "words"),
    [
        ((), "gradient_tape/mul/Mul:Mul", ""),
        # What depends on no batch is added to it.
        (
            ("gradient_tape/mul/Mul", "sgd/update_0/sub"),
            "gradient_tape/mul/Mul:Mul",
            "activity_regularizer",
        ),
        # Nothing is: the script converts it.
        (
            ("UnsortedSegmentSum", "sgd/update_0/sub"),
            "UnsortedSegmentSum:UnsortedSegmentSum",
            "gradient.values",
        ),
    ],
)
def test_the_update_of_a_table_whose_gradient_is_dense_for_nothing(
    dense: tuple[str, ...], made: str, words: str, tmp_path: Path
) -> None:
    code = "batch-free-compute" if dense else "optimizer-bound"
    ops = [(made, 7), ("sgd/update_0/sub:AssignSubVariableOp", 32)]
    report = ran(tmp_path, ops, dense_ops=[*dense])
    codes = {"optimizer-bound", "batch-free-compute"}
    (found,) = (each for each in report.findings if each.code in codes)
    assert found.code == code
    if dense:
        assert found.title.startswith("GPU:0 spends 39.0 of 50.0 ms (78%)")
        assert words in found.action
        if words == "gradient.values":
            # It is named by what converts, though the update takes longer.
            assert found.title.endswith("that the script makes dense: UnsortedSegmentSum")


@pytest.mark.parametrize(
    ("readers", "length_ms", "cost"),
    [
        (2, 11.9, ""),
        (2, 12.1, "6.05 of 50.0 ms (12%)"),
        (4, 12, "9.00 of 50.0 ms (18%)"),
        (1, 40, ""),
        (0, 40, ""),
    ],
)
def test_what_replicas_compute_of_the_same_batch(
    readers: int, length_ms: float, cost: str, tmp_path: Path
) -> None:
    """All but the part of one, without the optimizer."""
    ops = [("model/a:MatMul", length_ms), ("update_0/b:ResourceApplyGradientDescent", 3)]
    report = ran(tmp_path, ops, same_batch=readers)
    said = f"GPU:0 spends {cost} on what each device computes alike: MatMul in model"
    assert title_of(report, "repeated-compute") == (said if cost else "")
    if cost:
        action = the(report, "repeated-compute").action
        assert "strategy.experimental_distribute_dataset" in action


@pytest.mark.parametrize(("length_ms", "cost"), [(7.8, ""), (8.2, "6.15 of 50.0 ms (12%)")])
def test_what_each_device_computes_alike(length_ms: float, cost: str, tmp_path: Path) -> None:
    module = ModuleWriter()
    batch = module.add("batch", "parameter")
    module.add("dot.1", "dot", batch, scope="jit(f)/dense/dot_general", line=("model.py", 7))
    module.divide(4, False)
    write_program(tmp_path, module, [("dot.1", "kernel", length_ms)])
    said = f"GPU:0 spends {cost} on what each device computes alike: dot_general in model.py:7"
    assert title_of(traceview.analyze(tmp_path), "repeated-compute") == (said if cost else "")


def test_what_is_costly_by_itself_is_not_repeated_too(tmp_path: Path) -> None:
    module = ModuleWriter()
    batch = module.add("batch", "parameter")
    module.add("sort.1", "sort", batch, scope="jit(f)/sort", line=("model.py", 7))
    module.divide(4, False)
    write_program(tmp_path, module, [("sort.1", "kernel", 20)])
    report = traceview.analyze(tmp_path)
    assert title_of(report, "costly-ops").startswith(
        "GPU:0 spends 20.0 of 50.0 ms (40%) on sorting"
    )
    assert title_of(report, "repeated-compute") == ""


@pytest.mark.parametrize(
    ("module", "name", "length_ms", "title"),
    [
        (experts(4), "second", 7.9, ""),
        (experts(4), "second", 8.1, "6.08 of 50.0 ms (12%) on results that a mask drops"),
        (chain(4), "whole", 7.4, ""),
        (chain(4), "whole", 7.6, "6.08 of 50.0 ms (12%) on products that are small in another order"),
    ],
)  # fmt: skip
def test_the_part_of_products_that_is_needless(
    module: ModuleWriter, name: str, length_ms: float, title: str, tmp_path: Path
) -> None:
    write_program(tmp_path, module, [(name, "kernel", length_ms)])
    found = finding_of(traceview.analyze(tmp_path), "costly-ops")
    assert (found.title if found else "") == (f"GPU:0 spends {title}: {name}" if title else "")


@pytest.mark.parametrize(
    ("name", "scope", "title"),
    [
        *((f"{name}.1", f"jit(f)/{name}", "on factoring matrices") for name in ("eigh", "svd", "cholesky")),
        ("sort.1", "jit(f)/jit(argsort)/sort", "on sorting: sort"),
        ("sort.1", "jit(f)/jit(_shuffle)/while/body/sort", "on shuffling: sort"),
        ("sort_gather_fusion", "jit(f)/gather", ""),
        ("add_fusion", "jit(f)/jit(_normal)/jit(_normal_real)/erf_inv", "on drawing random numbers: normal"),
        ("add_fusion", "jit(f)/jit(my_normal)/erf_inv", ""),
        ("wrapped_reduce-window.1", "jit(f)/transpose(jvp())/ge", "on pooling windows"),
        ("select-and-scatter.3", "jit(f)/transpose(jvp())/select_and_scatter_add", "on pooling windows"),
        ("add_reduce-windows", "jit(f)/add", ""),
        ("dot.2", "jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general", "on recomputing activations for gradients: dot_general"),
        ("dot.2", "jit(f)/transpose(jvp())/checkpoint/dot_general", ""),
        ("convert.5", "jit(step)/convert_element_type", "on casts between types"),
        ("loop_convert_fusion", "jit(step)/convert_element_type", ""),
    ],
)  # fmt: skip
def test_what_an_instruction_of_jax_is(name: str, scope: str, title: str, tmp_path: Path) -> None:
    module = ModuleWriter()
    module.add(name, "custom-call", module.add("a", "parameter", F32), scope=scope, element=F32)
    write_program(tmp_path, module, [(name, "kernel", 10)])
    codes = ("matrix-factoring", "costly-ops", "casts", "rematerialization")
    titles = [row.title for row in traceview.analyze(tmp_path).findings if row.code in codes]
    assert len(titles) == bool(title)
    assert all(each.startswith(f"GPU:0 spends 10.0 of 50.0 ms (20%) {title}") for each in titles)


@pytest.mark.parametrize(
    ("exchange_ms", "action", "is_said"),
    [
        (1.0, "Draw fewer", False),
        (1.2, "Draw fewer", True),
        (9.9, "Draw fewer", True),
        (10.1, "Let each device", True),
    ],
)
def test_numbers_that_take_longer_to_exchange_than_to_draw(
    exchange_ms: float, action: str, is_said: bool, tmp_path: Path
) -> None:
    module, scope = ModuleWriter(), "jit(f)/jit(_normal)/add"
    module.add("add.1", "add", module.add("a", "parameter", F32), scope=scope, element=F32)
    module.add("all-reduce.1", "all-reduce", 1, scope=scope, element=F32)
    ops = [("add.1", "kernel", 10.0), ("all-reduce.1", "ncclDevKernel_AllReduce", exchange_ms)]
    write_program(tmp_path, module, ops)
    found = the(traceview.analyze(tmp_path), "costly-ops")
    assert found.action.startswith(action)
    said = f"The loss holds {exchange_ms:#.3g} ms of exchanging what they compute"
    assert (said in found.explanation) is is_said


def test_exchanges_that_are_done_again_are_collectives_as_any_other(tmp_path: Path) -> None:
    module, scope = ModuleWriter(), "jit(f)/checkpoint/rematted_computation/add"
    module.add("add.1", "add", module.add("a", "parameter", F32), scope=scope, element=F32)
    module.add("all-gather.1", "all-gather", 1, scope=scope, element=F32)
    ops = [("add.1", "kernel", 10.0), ("all-gather.1", "ncclDevKernel_AllGather", 9.0)]
    write_program(tmp_path, module, ops)
    assert title_of(traceview.analyze(tmp_path), "rematerialization").startswith(
        "GPU:0 spends 10.0 of 50.0 ms (20%)"
    )


@pytest.mark.parametrize(
    ("opcode", "computation", "is_donated", "action"),
    [
        ("parameter", 1, False, "Donate what it replaces"),
        ("parameter", 1, True, ""),
        ("add", 1, False, ""),
        ("add", 2, False, "In a while or scan"),
    ],
)
def test_the_advice_on_copies_is_by_what_is_copied(
    opcode: str, computation: int, is_donated: bool, action: str, tmp_path: Path
) -> None:
    module = ModuleWriter()
    made_of = module.add("a", opcode, computation=computation)
    module.add("copy.2", "copy", made_of, computation=computation)
    if is_donated:
        module.message.input_output_alias.entries.add()
    write_program(tmp_path, module, [("copy.2", "kernel", 10.1)])
    found = finding_of(traceview.analyze(tmp_path), "costly-ops")
    assert (found is not None) == bool(action)
    if found is not None:
        assert found.action.startswith(action)


@pytest.mark.parametrize(
    ("length_ms", "code", "said", "action"),
    [
        (5.9, "", "", ""),
        (6.1, "untrained-compute", "on gradients of which only a norm or a check is used: dot", "Leave gradients"),
        (6.1, "optimizer-bound", "on updates that a where takes in some steps only", "Let tf.cond"),
    ],
)  # fmt: skip
def test_what_a_program_needs_less_of_than_it_computes(
    length_ms: float, code: str, said: str, action: str, tmp_path: Path
) -> None:
    """From an eighth of the GPU time on, and by no other finding, as about an optimizer."""
    module = ModuleWriter()
    weights, moments, count = (
        module.add(name, "parameter", shape=shape)
        for name, shape in (("w", (4, 4)), ("m", (4, 4)), ("count", ()))
    )
    slope = module.add("dot.1", "dot", weights, shape=(4, 4), scope="jit(f)/transpose(jvp())/dot")
    norm = module.add("norm", "reduce", slope, scope="jit(f)/reduce_sum")
    changed = module.add("add", "add", moments, norm, shape=(4, 4), scope="jit(f)/adam/add")
    chosen = module.add(
        "select.3", "select", count, changed, moments, shape=(4, 4), scope="jit(f)/where"
    )
    module.computation().root_id = module.add("tuple", "tuple", chosen, norm)
    length = {"dot.1": length_ms, "add": 0.1, "select.3": length_ms}
    del length["dot.1" if code == "optimizer-bound" else "select.3"]
    write_program(tmp_path, module, [(name, "kernel", ms) for name, ms in length.items()])
    found = [row for row in traceview.analyze(tmp_path).findings if row.code in CODES]
    assert [row.code for row in found] == [code] * bool(code)
    for each in found:
        assert said in each.title
        assert each.action.startswith(action)


CODES = ("untrained-compute", "optimizer-bound", "costly-ops", "matrix-factoring")
BATCH, WEIGHTS = (32, 8), (8, 8)


@pytest.mark.parametrize(
    ("device", "gives", "captured", "is_second"),
    [
        (0, (32,), [], True),
        (1, (32,), [], False),
        (0, BATCH, [], False),
        (0, WEIGHTS, [], True),
        (0, (32,), ["seen"], False),
    ],
)
def test_a_second_forward_pass_is_on_the_device_of_the_first_and_makes_no_batch(
    device: int, gives: tuple[int, ...], captured: list[str], is_second: bool, tmp_path: Path
) -> None:
    """10 of 50 ms in a function that runs the code of the one that trains; and of which it gives weights back.

    `captured`: functions that make batches, as the capture has seen.
    """
    programs = {}
    for number, (scopes, result) in enumerate(
        (
            ({"dot.1": "jit(step)/jvp(dense)/dot", "dot.2": "jit(step)/transpose(jvp(dense))/dot"}, WEIGHTS),
            ({"dot.3": "jit(seen)/dense/dot"}, gives),
        )
    ):  # fmt: skip
        module = ModuleWriter()
        root = module.add("w", "parameter", shape=(5,) if number else WEIGHTS)
        read = [root]
        if not number:
            read.append(module.add("x", "parameter", shape=BATCH))
        for name, scope in scopes.items():
            root = module.add(name, "dot", *read, scope=scope, shape=result)
            module.made_in("logits")
        module.computation().root_id = root
        programs[f"jit_{('step', 'seen')[number]}({number})"] = module
    trace = new_trace()
    for step in marked_steps(trace):
        for on, program, name, begin in (
            (0, "step", "dot.1", 2),
            (0, "step", "dot.2", 12),
            (device, "seen", "dot.3", 30),
        ):
            stats = in_program(name, f"jit_{program}", int(program == "seen"))
            step.kernel(on, begin, begin + 10, name="fusion", op="XlaModule:", stats=stats)
    path = trace.write(tmp_path)
    add_programs(path, programs)
    write_sidecar(path, {"graphs": {"makes_batches": captured}})
    said = "GPU:0 spends 10.0 of 50.0 ms (20%) in a second forward pass, seen"
    assert title_of(traceview.analyze(tmp_path), "second-forward") == (said if is_second else "")


@pytest.mark.parametrize(
    ("forward", "backward", "is_second"),
    [
        # A tape outside of the function calls one of its graphs for the values and one for the gradients.
        ("__forward_loss_12", "__inference___backward_loss_34_56", False),
        ("__inference_loss_78", "__inference___backward_loss_34_56", True),
    ],
)
def test_the_forward_graph_of_a_function_under_a_tape_trains(
    forward: str, backward: str, is_second: bool, tmp_path: Path
) -> None:
    """Another call computes values and gradients for 20 of 50 ms; the one named `forward` computes the same values for 10."""
    trace = new_trace()
    for step in marked_steps(trace):
        for graph, launch_ms, *ops in (
            (backward, 1, "dense/MatMul:MatMul", "gradient_tape/dense/MatMul:MatMul"),
            (forward, 5, "dense/MatMul:MatMul"),
        ):
            step.host(f"EagerLocalExecute: {graph}", launch_ms, launch_ms + 2)
            for place, op in enumerate(ops):
                at_ms = 10 * place + (30 if graph == forward else 5)
                launched_ms = launch_ms + 0.5 + 0.5 * place
                step.kernel(0, at_ms, at_ms + 10, op=op, launch_ms=launched_ms)
    graphs = {"lines": ["train.py:9 in loss"], "line_of": {"dense/MatMul": 0}}
    report = analyzed(tmp_path, trace, sidecar={"graphs": graphs})
    said = "GPU:0 spends 10.0 of 50.0 ms (20%) in a second forward pass, loss"
    assert title_of(report, "second-forward").startswith(said) is is_second


@pytest.mark.parametrize(("names", "row_count"), [(("a", "b"), 2), (("a", "a"), 1)])
def test_instructions_of_other_functions_are_other_ops(
    names: tuple[str, str], row_count: int, tmp_path: Path
) -> None:
    """Two programs, of one function or of two, with an instruction of one name."""
    trace, programs = new_trace(), {}
    for number, name in enumerate(names):
        module = ModuleWriter()
        module.add("dot.1", "dot", module.add("x", "parameter"))
        programs[f"jit_{name}({number})"] = module
    for step in marked_steps(trace):
        for number, name in enumerate(names):
            at, stats = 10.0 * number, in_program("dot.1", f"jit_{name}", number)
            step.kernel(0, at, at + 5, name="dot", op="XlaModule:", stats=stats)
    add_programs(trace.write(tmp_path), programs)
    ops = traceview.analyze(tmp_path, top=None).results.ops
    assert ops is not None
    assert [row.count for row in ops.rows] == [8 // row_count] * row_count


def test_programs_show_float64_and_constants(tmp_path: Path) -> None:
    """Four steps of 50 ms of JAX: 6 ms of a product in float64, 3 ms of one of constants, and 8 ms of another.

    Their kernels and, in another program each, their instructions have one name.
    """
    trace, programs = new_trace(), {}
    for number, (operand, element, line) in enumerate(
        [("parameter", F64, 7), ("constant", F32, 3), ("parameter", F32, 9)]
    ):
        module = ModuleWriter()
        read = module.add("a", operand)
        module.add(
            "dot", "dot", read, scope="jit(f)/dense/dot", line=("model.py", line), element=element
        )
        programs[f"jit_f({number})"] = module
    for step in marked_steps(trace):
        step.host("PjitFunction(step)", 1, 1.5)
        at = 10.0
        for number, length in enumerate((6, 3, 8)):
            stats = in_program("dot", "jit_f", number)
            step.kernel(0, at, at + length, name="fusion", op="XlaModule:", stats=stats)
            at += length
    add_programs(trace.write(tmp_path), programs)
    report = traceview.analyze(tmp_path)
    float64, constant = the(report, "float64-compute"), the(report, "constant-compute")
    assert float64.title == "GPU:0 loses 3.00 of 50.0 ms (6.0%) to float64, dot_general, model.py:7"
    assert float64.action.startswith("Leave jax_enable_x64 off")
    assert constant.title.startswith("GPU:0 spends 3.00 of 50.0 ms (6.0%) on recomputing constants")
    assert "model.py:3" in constant.title
    assert "tf." not in constant.action + constant.advice


@pytest.mark.parametrize(
    ("op", "length_ms", "is_found"),
    [
        ("model/Cast:Cast", 6.5, True),
        ("model/Cast:Cast", 5.5, False),
        ("model/forecast:Mul", 6.5, False),
    ],
)
def test_casts(op: str, length_ms: float, is_found: bool, tmp_path: Path) -> None:
    """From an eighth of the step on, and with the line that made them."""
    ops = [("model/a/MatMul:MatMul", 18), (op, length_ms)]
    lines = {op.partition(":")[0]: "model.py:7 in call"}
    title = title_of(ran(tmp_path, ops, lines=lines), "casts")
    assert title.startswith("GPU:0 spends 6.50 of 50.0 ms (13%)") is is_found
    assert ("model.py:7" in title) is is_found


# What multiplies nothing, and products at a low rate


PAIRS, DENSE = "train.py:7 in pairs", "train.py:9 in call"


@pytest.mark.parametrize(
    ("ops", "title"),
    [
        ({"a/Tile:Tile": 10, "concat:_MklConcatV2": 5.1}, "15.1 of 50.0 ms (30%) on moving data: Tile in a"),
        ({"a/Tile:Tile": 10, "concat:ConcatV2": 4.9}, ""),
        ({"a/Tile:Tile": 10, "b/Sub:Sub": 5.1}, ""),
        ({"loss/Softmax:Softmax": 22.6}, "22.6 of 50.0 ms (45%) on Softmax in loss"),
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
        ({"Sub:Sub": 8, "Mul:Mul": 7, "gradient_tape/Mul/Mul:Mul": 5.1}, True),
        ({"Sub:Sub": 8, "Mul:Mul": 7, "gradient_tape/Mul/Mul:Mul": 4.9}, False),
        ({"Sub:Sub": 5, "Mul:Mul": 15.1}, False),
        ({"Sub:Sub": 9, "Mul:Mul": 11.1, "MatMul:MatMul": 1.9}, True),
        ({"Sub:Sub": 9, "Mul:Mul": 11.1, "MatMul:MatMul": 2.1}, False),
    ],
)
def test_a_function_that_multiplies_nothing(
    ops: dict[str, float], is_found: bool, tmp_path: Path
) -> None:
    """Its ops are of several types; gradients are of the function of their op. A model may need them all."""
    lines = dict.fromkeys(("Sub", "Mul", "MatMul"), PAIRS)
    every = {**ops, "Other:Relu": 5.0}
    found = finding_of(ran(tmp_path, every.items(), lines=lines), "costly-ops")
    assert (found is not None) == is_found
    if found is not None:
        assert found.title == (
            "GPU:0 spends 20.1 of 50.0 ms (40%) on ops that multiply no matrices, in pairs, train.py:7"
        )
        assert "jit_compile=True" in found.action
        assert found.severity == "warning"


@pytest.mark.parametrize(("length_ms", "is_found"), [(17.6, True), (17.4, False)])
def test_a_function_of_mostly_one_type(length_ms: float, is_found: bool, tmp_path: Path) -> None:
    """From where one type would be told, which here is too short alone."""
    ops = [("Sub:Sub", 5), ("Mul:Mul", length_ms)]
    lines = dict.fromkeys(("Sub", "Mul"), PAIRS)
    title = title_of(ran(tmp_path, ops, lines=lines), "costly-ops")
    assert ("on ops that multiply no matrices, in pairs, train.py:7" in title) is is_found


@pytest.mark.parametrize(
    ("from_first", "said"),
    [
        (2, "32.0 of 50.0 ms (64%) on ops that multiply no matrices, in grad, train.py:30 (pairs, :7)"),
        (3, "48.0 of 50.0 ms (96%) on ops that multiply no matrices, in pairs, train.py:7"),
    ],
)  # fmt: skip
def test_the_line_that_asks_for_most_of_a_function(
    from_first: int, said: str, tmp_path: Path
) -> None:
    """Of six calls some are from line 20, the others from line 30, whose ops alone are the finding if they are most."""
    ops = [
        (f"{type_}_{call}", f"{type_}_{call}:{type_}")
        for call in range(6)
        for type_ in ("Sub", "Pow")
    ]
    graphs = {
        "lines": [PAIRS, PAIRS],
        "callers": ["train.py:20 in forward", "train.py:30 in grad"],
        "line_of": {name: int(name[4] >= str(from_first)) for name, _ in ops},
    }
    trace = new_trace()
    for step in marked_steps(trace):
        for number, (_, op) in enumerate(ops):
            step.kernel(0, 1 + 4 * number, 5 + 4 * number, op=op)
    report = analyzed(tmp_path, trace, sidecar={"graphs": graphs})
    assert title_of(report, "costly-ops") == f"GPU:0 spends {said}"


@pytest.mark.parametrize(
    ("count", "length_ms", "is_found"),
    [(64, 0.08, True), (63, 0.1, False), (64, 0.07, False)],
    ids=["enough", "few", "little"],
)
def test_small_ops_that_a_loop_in_python_made(
    count: int, length_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """A tenth of the step, in 64 ops of a type and one line, none of them longer than 50 µs in the mean."""
    ops = [(f"Mul_{number}:Mul", length_ms / 2) for number in range(count)]
    ops += [(f"Sum_{number}:Sum", length_ms / 2) for number in range(count)]
    lines = {op.partition(":")[0]: PAIRS for op, _ in ops}
    title = title_of(
        ran(tmp_path, [*ops, ("dense/MatMul:MatMul", 20.0)], lines=lines), "loop-bound"
    )
    said = "on 128 small ops that a loop in Python made: Mul in pairs, train.py:7"
    assert title == (f"GPU:0 spends 5.12 of 50.0 ms (10%) {said}" if is_found else "")


@pytest.mark.parametrize(
    ("call", "again"),
    [
        ("critic_1/dense/MatMul", "MatMul_1/MatMul"),
        ("MatMul_3", "MatMul_1/MatMul"),
        ("MatMul_3", "MatMul"),
    ],
)
@pytest.mark.parametrize(
    ("again_ms", "others_ms", "is_found"),
    [
        (3.1, 10, True),
        (2.9, 10, False),
        (4, 2.8, True),
        # More than four fifths of the compute are what the step is made for.
        (4, 2.7, False),
    ],
)
def test_a_gradient_that_is_differentiated_again(
    call: str, again: str, again_ms: float, others_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """All ops of that call of a layer, and none of another call."""
    ops = {
        call: 3,
        f"gradient_tape/{call}/MatMul_1": 4,
        f"gradient_tape/gradient_tape/{call}/{again}": again_ms,
        "critic/dense/MatMul": others_ms / 2,
        "gradient_tape/critic/dense/MatMul/MatMul": others_ms / 2,
    }
    named = [(f"{name}:MatMul", length) for name, length in ops.items()]
    title = title_of(ran(tmp_path, named), "costly-ops")
    cost = f"{7 + again_ms:.1f} of 50.0 ms ({(7 + again_ms) * 2:.0f}%)"
    layer = " in critic_1/dense" if "/" in call else ""
    said = f"GPU:0 spends {cost} on gradients of gradients: MatMul{layer}"
    assert title == (said if is_found else "")


@pytest.mark.parametrize(
    ("scope", "is_one"),
    [
        ("jvp(transpose(jvp(f)))", True),
        ("jvp(vmap(transpose(jvp(f))))", True),
        ("transpose(jvp(jvp(f)))", False),
    ],
)
def test_what_jax_differentiates_again(scope: str, is_one: bool, tmp_path: Path) -> None:
    module = ModuleWriter()
    for name, path in (("dot.1", "jvp(f)"), ("dot.2", scope)):
        given = module.add(f"{name}_given", "parameter", F32)
        module.add(name, "custom-call", given, scope=f"jit(f)/{path}/dot_general", element=F32)
    write_program(tmp_path, module, [("dot.1", "kernel", 10), ("dot.2", "kernel", 10.1)])
    found = finding_of(traceview.analyze(tmp_path), "costly-ops")
    said = "GPU:0 spends 10.1 of 50.0 ms (20%) on gradients of gradients: dot_general"
    assert (found.title if found else "") == (said if is_one else "")


def test_layers_in_layers_that_are_differentiated_again(tmp_path: Path) -> None:
    twice = "gradient_tape/gradient_tape/net"
    names = (f"{twice}/MatMul_1/MatMul", f"{twice}/a/MatMul/MatMul_1/MatMul", "net/z/MatMul")
    ops = [(f"{name}:MatMul", 5.0) for name in (*names, "other/MatMul")]
    said = "GPU:0 spends 15.0 of 50.0 ms (30%) on gradients of gradients: MatMul"
    assert title_of(ran(tmp_path, ops), "costly-ops") == said
    of_batch = ran(tmp_path / "batch", ops, batch_ops=[*names])
    assert title_of(of_batch, "costly-ops") == ""


@pytest.mark.parametrize(("length_ms", "is_enough"), [(6.1, True), (5.9, False)])
def test_pairs_that_are_combined_are_one_finding(
    length_ms: float, is_enough: bool, tmp_path: Path
) -> None:
    """Whatever is computed of them."""
    ops = [("x:TopKV2", length_ms), ("y:MatMul", 20.0)]
    report = ran(tmp_path, ops, pair_ops=["x"])
    said = "GPU:0 spends 6.10 of 50.0 ms (12%) on combining all pairs element by element: TopKV2"
    titles = [row.title for row in report.findings if row.code == "costly-ops"]
    assert titles == ([said] if is_enough else [])


@pytest.mark.parametrize(("length_ms", "is_enough"), [(8.1, True), (7.9, False)])
def test_what_a_slice_drops_is_the_loss(length_ms: float, is_enough: bool, tmp_path: Path) -> None:
    """A quarter of it is kept."""
    ops = [("x:Conv2D", length_ms), ("y:MatMul", 20.0)]
    said = title_of(
        ran(tmp_path, ops, dropped_ops=["x"], saved_percent={"dropped": 75}), "costly-ops"
    )
    whole = "GPU:0 spends 6.08 of 50.0 ms (12%) on results that are dropped: Conv2D"
    assert said == (whole if is_enough else "")


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("zero", "on multiplying with zeros: MatMul in"),
        (
            "separable",
            "9.00 of 50.0 ms (18%) on filters that are a column times a row: MatMul",
        ),
    ],
)
def test_what_a_product_would_not_need_is_the_loss(kind: str, title: str, tmp_path: Path) -> None:
    """Also of what could be prepared before the step: three quarters of it are less then."""
    ops = [("x:MatMul", 12.0), ("y:MatMul", 20.0)]
    graphs: dict[str, Any] = {f"{kind}_ops": ["x"], "saved_percent": {kind: 75}}
    report = ran(tmp_path, ops, batch_ops=["x"], **graphs)
    assert title.removesuffix(" in") in title_of(report, "costly-ops")
    assert "9.00 of 50.0 ms (18%)" in title_of(report, "costly-ops")
    assert title_of(report, "batch-work-in-step") == ""


def test_copies_of_a_variable_to_change_a_part(tmp_path: Path) -> None:
    ops = [("x:ConcatV2", 12.0), ("y:MatMul", 20.0)]
    said = title_of(ran(tmp_path, ops, shifted_ops=["x"]), "costly-ops")
    assert (
        said
        == "GPU:0 spends 12.0 of 50.0 ms (24%) on copies of a tensor to change a part of it: ConcatV2"
    )


def test_what_a_step_computes_several_times(tmp_path: Path) -> None:
    ops = [("x:MatMul", 12.0), ("y:MatMul", 20.0)]
    said = title_of(ran(tmp_path, ops, same_ops=["x"]), "repeated-compute")
    assert said == "GPU:0 spends 12.0 of 50.0 ms (24%) on computing the same several times: MatMul"


def test_no_more_is_saved_than_a_product_takes(tmp_path: Path) -> None:
    """Whatever a damaged sidecar says."""
    ops = [("x:MatMul", 12.0), ("y:MatMul", 20.0)]
    report = ran(tmp_path, ops, saved_percent={"zero": 1_000}, zero_ops=["x"])
    assert title_of(report, "costly-ops").startswith("GPU:0 spends 12.0 of 50.0 ms (24%)")


def test_recomputed_activations_of_a_graph(tmp_path: Path) -> None:
    ops = [("x:MatMul", 12.0), ("y:MatMul", 20.0)]
    said = title_of(ran(tmp_path, ops, recomputed_ops=["x"]), "rematerialization")
    assert (
        said
        == "GPU:0 spends 12.0 of 50.0 ms (24%) on recomputing activations for gradients: MatMul"
    )


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


@pytest.mark.parametrize(
    ("type_", "title"),
    [("RandomStandardNormal", "on random numbers"), ("MatMul", "on ops")],
)
def test_random_numbers_that_train_nothing_are_not_drawn(
    type_: str, title: str, tmp_path: Path
) -> None:
    found = finding_of(
        ran(tmp_path, [(f"x:{type_}", 10.0)], untrained_ops=["x"]), "untrained-compute"
    )
    assert found is not None
    assert f"{title} that train nothing: {type_}" in found.title
    assert ("no effect" in found.action) is (type_ != "MatMul")


@pytest.mark.parametrize("is_of_batch", [True, False])
def test_what_is_factored_of_the_batch_cannot_be_kept(is_of_batch: bool, tmp_path: Path) -> None:
    """A gradient goes through it."""
    ops = [("net/MatrixInverse:MatrixInverse", 4.5)]
    ops += [("gradient_tape/net/MatrixInverse:MatrixInverse", 4.5)] * is_of_batch
    found = finding_of(ran(tmp_path, ops), "matrix-factoring")
    assert found is not None
    assert ("every 100th step" not in found.action) is is_of_batch


@pytest.mark.parametrize(("length_ms", "is_enough"), [(12.5, True), (11.5, False)])
def test_what_one_product_would_save(length_ms: float, is_enough: bool, tmp_path: Path) -> None:
    """Of products for each part of the batch, with their sum: at the usual rate their FLOPs take 6 ms."""
    ops = [
        ("large:MatMul", 20.0),
        ("gradient_tape/x/MatMul_1:BatchMatMulV2", length_ms - 4),
        ("gradient_tape/x/Sum_1:Sum", 4),
    ]
    flops = {"large": 2_000_000, "gradient_tape/x/MatMul_1": 600_000}
    apart = ["gradient_tape/x/MatMul_1", "gradient_tape/x/Sum_1"]
    said = title_of(ran(tmp_path, ops, flops=flops, apart_ops=apart), "costly-ops")
    part = "6.50 of 50.0 ms (13%) on gradients of a matrix that are made for each part of the batch: BatchMatMulV2 in x"
    assert said == (f"GPU:0 spends {part}" if is_enough else "")


@pytest.mark.parametrize("is_copied", [True, False])
def test_what_is_multiplied_first_is_no_product_of_each_part(
    is_copied: bool, tmp_path: Path
) -> None:
    """Three quarters of 20 ms are of rows that are the same, whatever else a product does."""
    ops = [("x:BatchMatMulV2", 8.0), ("gradient_tape/x/MatMul_1:BatchMatMulV2", 12.0)]
    copied = ["x", "gradient_tape/x/MatMul_1"] if is_copied else []
    flops = {"large": 2_000_000, "x": 1, "gradient_tape/x/MatMul_1": 1}
    report = ran(
        tmp_path,
        [*ops, ("large:MatMul", 20.0)],
        flops=flops,
        apart_ops=["gradient_tape/x/MatMul_1"],
        copied_ops=copied,
        saved_percent={"copied": 75},
    )
    titles = [row.title for row in report.findings if row.code == "costly-ops"]
    said = "15.0 of 50.0 ms (30%) on products with what was repeated before: BatchMatMulV2"
    assert (f"GPU:0 spends {said}" in titles) is is_copied
    assert any("for each part of the batch" in title for title in titles) is not is_copied


@pytest.mark.parametrize(("small", "is_found"), [(90_000, True), (110_000, False)])
def test_products_at_a_low_rate(small: int, is_found: bool, tmp_path: Path) -> None:
    """20 ms for 2 MFLOP, and 14 ms for less than a twentieth of that per millisecond, or more."""
    flops = {"large": 2_000_000, "small": 14 * small // 20}
    ops = {"large:Conv2D": 20.0, "small:Conv2DBackpropFilter": 14.0}
    said = title_of(ran(tmp_path, ops.items(), flops=flops), "costly-ops")
    assert ("to products at a low rate: Conv2DBackpropFilter" in said) is is_found
    assert bool(said) is is_found
    apart = {"large:Conv2D": 20.0, "small:DepthwiseConv2dNative": 14.0}
    assert title_of(ran(tmp_path, apart.items(), flops=flops), "costly-ops") == ""


@pytest.mark.parametrize(("each", "is_found"), [(19_000, True), (21_000, False)])
def test_products_are_slow_by_their_quickest_run(each: int, is_found: bool, tmp_path: Path) -> None:
    """Of two runs one took 4 ms, in which it would be slow with less than 20,000."""
    ops = [
        ("large:Conv2D", 20.0),
        ("small:Conv2DBackpropFilter", 10.0),
        ("small:Conv2DBackpropFilter", 4.0),
    ]
    flops = {"large": 2_000_000, "small": each}
    said = title_of(ran(tmp_path, ops, flops=flops), "costly-ops")
    assert ("at a low rate" in said) is is_found


@pytest.mark.parametrize(("beside_ms", "is_found"), [(0.5, True), (12.0, False)])
def test_products_are_slow_by_what_they_take_alone(
    beside_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """14 ms for what is slow in more than 6; another op runs meanwhile."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 1, 21, op="large:Conv2D")
        step.kernel(0, 21, 35, op="small:Conv2DBackpropFilter")
        step.kernel(0, 22, 22 + beside_ms, op="beside:Relu", stream=14)
    flops = {"large": 2_000_000, "small": 30_000}
    report = analyzed(tmp_path, trace, sidecar={"graphs": {"flops": flops}})
    assert ("at a low rate" in title_of(report, "costly-ops")) is is_found


@pytest.mark.parametrize(("length_ms", "cost"), [(22.6, "25.6 of 50.0 ms (51%)"), (22.4, "")])
def test_one_type_with_what_else_its_line_makes(
    length_ms: float, cost: str, tmp_path: Path
) -> None:
    ops = [
        ("Softmax:Softmax", length_ms),
        ("Sub:Sub", 3.0),
        ("Mul:Mul", 3.0),
        ("MatMul:MatMul", 10.0),
    ]
    lines = {"Softmax": PAIRS, "Sub": PAIRS, "Mul": DENSE, "MatMul": PAIRS}
    said = title_of(ran(tmp_path, ops, lines=lines), "costly-ops")
    assert said == (f"GPU:0 spends {cost} on Softmax in pairs, train.py:7" if cost else "")


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


@pytest.mark.parametrize(
    ("sliced_ms", "added_ms", "lost_ms"),
    [(5.0, 4.0, 9.0), (8.0, 9.0, 8.0), (4.0, 3.0, None)],
)
def test_gradients_of_slices_with_the_sums_of_these(
    sliced_ms: float, added_ms: float, lost_ms: float | None, tmp_path: Path
) -> None:
    """Sums that take longer are those of other gradients, too."""
    ops = [
        ("net/dense/MatMul:MatMul", 20.0),
        ("gradient_tape/net/StridedSliceGrad:StridedSliceGrad", sliced_ms),
        ("AddN:AddN", added_ms),
    ]
    costly = finding_of(ran(tmp_path, ops), "costly-ops")
    sliced = costly if costly and "on gradients of slices" in costly.title else None
    assert (sliced is None) == (lost_ms is None)
    if sliced and lost_ms:
        assert loss_of(sliced).ps_per_step == ms(lost_ms)
        assert sliced.action.startswith("Cut it at once, tf.split")


@pytest.mark.parametrize(
    ("sliced", "known", "is_found"),
    [
        ("net/x", {"lines": {"net/x/StridedSliceGrad": A}}, True),
        # Some line is known, but no line of the script cuts here: a layer does.
        ("gru/x", {"lines": {"net/dense/MatMul": A}}, False),
        ("gru/x", {"flops": {"net/dense/MatMul": 1000}}, False),
        # Nobody looked.
        ("gru/x", {}, True),
    ],
)
def test_slices_that_no_line_of_the_script_makes_are_those_of_layers(
    sliced: str, known: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    ops = [("net/dense/MatMul:MatMul", 20.0), (f"{sliced}/StridedSliceGrad:StridedSliceGrad", 8.0)]
    title = title_of(ran(tmp_path, ops, **known), "costly-ops")
    assert ("on gradients of slices" in title) is is_found


@pytest.mark.parametrize(
    ("op_us", "ratio", "is_information"),
    [(4.9, 0.4, True), (4.9, 0.2, False), (5.0, 0.4, False)],
)
def test_ops_that_take_hardly_longer_than_recording_them_are_information(
    op_us: float, ratio: float, is_information: bool, tmp_path: Path
) -> None:
    """Of each millisecond 100 ops take half. Recording takes 0.29 of it, more than half of that, or 0.17."""
    trace = new_trace(length_ms=100)
    worker = trace.thread("worker", 8)
    for step in marked_steps(trace, count=20, period_ms=1, marker_ms=1):
        step.host("FunctionRun", 0, 1)
        for place in range(100):
            begin_ms = place / 100
            step.host("replica_0/x:TopKV2", begin_ms, begin_ms + op_us / 1000, thread=worker)
    overhead = {"unprofiled_ns": 1000, "profiled_ns": round(1000 * (1 + ratio)), "ratio": ratio}
    report = analyzed(tmp_path, trace, sidecar={"overhead": overhead | {"spread_ratio": 0.0}})
    costly = the(report, "costly-ops")
    assert costly.severity == ("info" if is_information else "critical")


@pytest.mark.parametrize(
    ("type_", "lost_ms", "advice"),
    [
        ("MatMul", 15.1, "Leave wide layers to another optimizer"),
        ("_MklMatMul", 15.1, "Leave wide layers to another optimizer"),
        ("MatMul", 14.9, None),
        ("Mul", 20.1, "Use a larger batch"),
        ("Mul", 19.9, None),
    ],
)
def test_an_optimizer_that_multiplies_matrices(
    type_: str, lost_ms: float, advice: str | None, tmp_path: Path
) -> None:
    ops = [("net/dense/Relu:Relu", 5.0), (f"muon/update_1/{type_}:{type_}", lost_ms)]
    finding = finding_of(ran(tmp_path, ops), "optimizer-bound")
    assert (finding is not None) == (advice is not None)
    assert finding is None or finding.action.startswith(advice or "")


def test_a_gain_is_no_more_than_what_is_lost(tmp_path: Path) -> None:
    """Two GPUs sort for 20 and 12 ms of 50: 16 in the mean, while the step is as long as the first of them takes."""
    trace = new_trace()
    for step in marked_steps(trace):
        for number, length_ms in enumerate((20, 12)):
            step.kernel(number, 1, 1 + length_ms, op="x:TopKV2")
    loss = loss_of(the(analyzed(tmp_path, trace), "costly-ops"))
    assert loss.ps_per_step == ms(16)
    assert loss.gain_ps_per_step == ms(16)
