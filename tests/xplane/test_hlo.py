"""What is read of compiled programs is what protobuf wrote, and hostile bytes are damage at their place or are passed over."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from tests.xplane.hlo_messages import F32, F64, MESSAGES, HloModule, ModuleWriter
from traceview.xplane.columns import Fault, Instruction, Program
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.hlo import read_instructions

OFFSET = 100
S32 = 4


def read(message: Any, *wanted: str) -> dict[str, Instruction]:
    """The instructions of a message, by default all."""
    data = message.SerializeToString()
    names = {name.encode() for name in wanted} or {
        each.name for computation in message.computations for each in computation.instructions
    }
    found = read_instructions(Program(b"jit_f(1)", data, OFFSET), names)
    return {name.decode(): each for name, each in found.items()}


def program() -> ModuleWriter:
    """An entry with a product of an argument, whose scope only the root of a fusion says."""
    module = ModuleWriter()
    inner = module.add("p", "parameter", computation=2)
    module.add("neg", "negate", inner, scope="jit(f)/other/neg", computation=2)
    root = module.add(
        "mul", "multiply", inner, scope="jit(f)/dense/mul", line=("a/model.py", 9), computation=2
    )
    module.computation(2).root_id = root
    x = module.add("x", "parameter", scope="x", element=F64)
    module.add("dot.1", "dot", x, scope="jit(f)/dense/dot_general", line=("/home/u/model.py", 7))
    module.add("fusion.2", "fusion", x, calls=(2,))
    return module


def test_scope_line_and_type_of_elements() -> None:
    found = read(program().message)
    assert found["dot.1"] == Instruction(
        b"jit_f(1)", b"dot.1", "jit(f)/dense/dot_general", "", "model.py:7", F32, flops=None
    )
    assert found["x"].element_type == F64
    assert (found["fusion.2"].scope, found["fusion.2"].line) == ("jit(f)/dense/mul", "model.py:9")


def test_a_fusion_is_named_after_the_largest_product_in_it() -> None:
    """It ends with a sum, and multiplies a little before and much after."""
    module = ModuleWriter()
    inner = module.add("p", "parameter", shape=(8, 8), computation=2)
    line = ("model.py", 7)
    few = module.add(
        "few", "dot", inner, inner, shape=(8, 1), scope="jit(f)/few/dot", computation=2
    )
    many = module.add(
        "many", "dot", inner, inner, shape=(8, 8), scope="jit(f)/many/dot", line=line, computation=2
    )
    root = module.add("sum", "reduce", many, few, scope="jit(f)/sum", computation=2)
    module.computation(2).root_id = root
    x = module.add("x", "parameter", shape=(8, 8))
    module.add("fusion.2", "fusion", x, calls=(2,), scope="jit(f)/sum")
    found = read(module.message)["fusion.2"]
    assert (found.scope, found.line) == ("jit(f)/many/dot", "model.py:7")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((7, 7), ("jit(f)/echo/conv_general_dilated", "model.py:7")),
        ((None, 7), ("jit(f)/echo/conv_general_dilated", "model.py:7")),
        ((7, 8), ("", "")),
        ((None, None), ("", "")),
    ],
)
def test_a_product_that_xla_made_anew_is_named_after_what_is_beside_it(
    lines: tuple[int | None, int | None], said: tuple[str, str]
) -> None:
    module, x = ModuleWriter(), None
    for name, number in zip(
        ("reverse", "convolution", "slice"), (lines[0], None, lines[1]), strict=True
    ):
        own: dict[str, Any] = {}
        if number:
            own = {"scope": f"jit(f)/echo/{name}", "line": ("model.py", number)}
        x = module.add(name, name, *([] if x is None else [x]), **own)
    found = read(module.message)["convolution"]
    assert (found.scope, found.line) == said


@pytest.mark.parametrize(("last", "named"), [((), "drawn"), ((8,), "drawn"), ((64, 64), "mean")])
def test_a_fusion_is_named_after_most_of_its_work(last: tuple[int, ...], named: str) -> None:
    """Unless what it ends with is a twentieth of that or more."""
    module = ModuleWriter()
    node = module.add("p", "parameter", shape=(64, 64), computation=2)
    for name in ("xor", "or", "log"):
        scope = f"jit(f)/drawn/{name}"
        node = module.add(
            name, name, node, shape=(64, 64), scope=scope, line=("model.py", 7), computation=2
        )
    for name in ("broadcast", "iota"):
        # Nothing is computed here.
        module.add(name, name, shape=(64, 64, 8), scope="jit(f)/mean/x", computation=2)
    root = module.add(
        "reduce", "reduce", node, shape=last, scope="jit(f)/mean/reduce", computation=2
    )
    module.computation(2).root_id = root
    module.add(
        "fusion.2", "fusion", module.add("x", "parameter"), calls=(2,), scope="jit(f)/mean/reduce"
    )
    assert read(module.message)["fusion.2"].scope.split("/")[1] == named


def test_the_line_is_the_innermost_outside_of_installed_packages() -> None:
    """Frames are numbered from 1: 1 is of the script, 2 inside of it is of a library, 3 of a library alone."""
    module = program()
    index = module.message.stack_frame_index
    index.file_names.extend([b"/home/u/train.py", b"/x/site-packages/flax/linear.py"])
    index.function_names.extend([b"loss.<locals>.inner", b"Dense.__call__"])
    index.file_locations.add(file_name_id=1, function_name_id=1, line=42)
    index.file_locations.add(file_name_id=2, function_name_id=2, line=7)
    index.stack_frames.add(file_location_id=1)
    index.stack_frames.add(file_location_id=2, parent_frame_id=1)
    index.stack_frames.add(file_location_id=2)
    dot = module.computation().instructions[1]
    for frame, line in ((1, "train.py:42 in inner"), (2, "train.py:42 in inner")):
        dot.metadata.stack_frame_id = frame
        assert read(module.message)["dot.1"].line == line
    dot.metadata.stack_frame_id = 3
    assert read(module.message)["dot.1"].line == "linear.py:7 in __call__"
    dot.metadata.stack_frame_id = 4
    assert read(module.message)["dot.1"].line == "model.py:7", "no such frame"


def test_where_tensorflow_makes_all_ops_is_no_line() -> None:
    module = program()
    of_dot = module.computation().instructions[1].metadata
    of_dot.source_file = b"/x/site-packages/tensorflow/python/framework/ops.py"
    assert read(module.message)["dot.1"].line == ""


def test_what_depends_on_no_input_and_draws_nothing_is_constant() -> None:
    module = program()
    one = module.add("one", "constant")
    table = module.add("table", "dot", one, one)
    module.add("eigen", "custom-call", table)
    x = 4
    module.add("mixed", "add", table, x)
    module.add("zeros", "broadcast", one)
    module.add("draw", "rng", computation=3)
    module.add("call", "call", calls=(3,), computation=4)
    module.add("noise", "rng", one)
    module.add("calls_noise", "fusion", one, calls=(4,))
    module.add("unknown", "add", one, 999)
    callback = module.add("callback", "custom-call", one, custom_call_has_side_effect=True)
    module.add("of_callback", "add", callback)
    module.add("inner_callback", "custom-call", computation=7, custom_call_has_side_effect=True)
    module.add("calls_callback", "fusion", one, calls=(7,))
    constant = {name for name, each in read(module.message).items() if each.is_constant}
    assert constant == {"table", "eigen"}


def repeated(module: ModuleWriter) -> set[str]:
    return {name for name, each in read(module.message).items() if each.is_repeated}


def of_mesh() -> ModuleWriter:
    """Reads whole weights and a batch: layers of either, of both, and of the sum over the devices."""
    module = ModuleWriter()
    weights, batch = (module.add(name, "parameter") for name in ("weights", "batch"))
    norm = module.add("norm", "multiply", weights, weights)
    module.add("rows", "dot", batch, norm)
    total = module.add("total", "all-reduce", norm)
    module.add("update", "subtract", weights, total)
    module.add("inner", "dot", computation=2)
    module.add("copied", "copy", computation=2)
    module.add("loop", "while", weights, calls=(2,))
    number = module.add("number", "partition-id")
    module.add("part", "dynamic-slice", weights, number)
    module.add("table", "exponential", module.add("one", "constant"))
    return module


@pytest.mark.parametrize(
    ("partitions", "divided", "names"),
    [
        (4, (False, True), "norm loop inner"),
        (4, (False, False), "norm rows loop inner"),
        (1, (False, False), ""),
        (0, (False, False), ""),
    ],
)
def test_what_all_devices_compute_from_what_each_has_whole_is_repeated(
    partitions: int, divided: tuple[bool, bool], names: str
) -> None:
    module = of_mesh()
    module.divide(partitions, *divided)
    assert repeated(module) == set(names.split())
    assert read(module.message)["norm"].partitions == max(partitions, 1)
    module.message.spmd_parameters_shardings[1].metadata.add(op_name=b"batch")
    assert repeated(module) == set(names.split()), "where a sharding comes from divides nothing"
    module.message.spmd_parameters_shardings.add()
    assert not repeated(module), "shardings of another number of parameters say nothing"


@pytest.mark.parametrize(
    ("groups", "names"), [([(0, 1, 2, 3)], "sum lost"), ([(0, 1), (2, 3)], ""), ([], "")]
)
@pytest.mark.parametrize("is_split", [False, True])
def test_what_all_devices_compute_from_what_they_have_gathered_is_repeated(
    groups: list[tuple[int, ...]], names: str, is_split: bool
) -> None:
    """From the parts of all, in one instruction, or in two that begin and end it; not what else a device has of its own."""
    module = ModuleWriter()
    batch = module.add("batch", "parameter")
    gathered = module.add("gather", "all-gather-start" if is_split else "all-gather", batch)
    for group in groups:
        module.last().replica_groups.add(replica_ids=group)
    whole = module.add("done", "all-gather-done", gathered) if is_split else gathered
    total = module.add("sum", "exponential", whole)
    module.add("lost", "subtract", total, whole)
    module.add("own", "dot", batch, whole)
    module.divide(4, True)
    assert repeated(module) == set(names.split())


def test_what_computes_with_gradients_and_is_none_is_an_update() -> None:
    module = ModuleWriter()
    weights = module.add("weights", "parameter")
    loss = module.add("loss", "dot", weights, scope="jit(step)/jvp(loss)/dot_general")
    slope = module.add("slope", "dot", loss, scope="jit(step)/transpose(jvp(loss))/dot_general")
    module.add("report", "negate", loss, scope="jit(step)/neg")
    module.add("turned", "negate", slope, scope="jit(step)/transpose(jvp(other))/neg")
    laid_out = module.add("copy", "copy", slope)
    module.add("products", "dot", computation=2, scope="jit(step)/while/body/dot_general")
    loop = module.add("loop", "while", laid_out, calls=(2,), scope="jit(step)/while")
    module.add("changed", "subtract", weights, loop, scope="jit(step)/sub")
    found = read(module.message)
    updates = {name for name, each in found.items() if each.is_update}
    assert updates == {"loop", "products", "changed"}


def test_calls_copies_and_frames_in_a_circle_end() -> None:
    module = program()
    one = module.add("one", "constant")
    module.add("again", "call", one, calls=(5,), computation=5)
    module.add("circle", "call", one, calls=(5, 6))
    module.divide(2)
    index = module.message.stack_frame_index
    index.stack_frames.add(file_location_id=9, parent_frame_id=1)
    module.computation().instructions[1].metadata.stack_frame_id = 1
    copy = module.add("copy.1", "copy", 1)
    module.last().operand_ids[0] = copy
    found = read(module.message)
    assert (found["circle"].scope, found["copy.1"].copied) == ("", "")


@pytest.mark.parametrize("seed", range(40))
def test_hostile_bytes_are_damage_with_an_offset_or_are_read(seed: int) -> None:
    chance = random.Random(seed)
    module = program()
    module.message.stack_frame_index.file_names.append(b"train.py")
    data = bytearray(module.message.SerializeToString())
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        cut = chance.randint(0, len(changed)) if chance.random() < 0.3 else len(changed)
        whole = bytes(changed[:cut])
        names = {b"dot.1", b"fusion.2", b"x", b"mul", b""}
        fault, found = fault_or_found(whole, names)
        if fault is None:
            assert set(found) <= names
        else:
            assert OFFSET <= fault.offset <= OFFSET + len(whole)
            assert fault.reason


def fault_or_found(data: bytes, names: set[bytes]) -> tuple[Fault | None, dict[bytes, Instruction]]:
    try:
        return None, read_instructions(Program(b"jit_f(1)", data, OFFSET), names)
    except DamageError as error:
        return error.fault, {}


def test_a_cut_program_is_damage_unless_it_ends_between_fields() -> None:
    data = program().message.SerializeToString()
    faults = [fault_or_found(data[:size], {b"dot.1"})[0] for size in range(len(data))]
    # The two computations, and the id of the entry.
    assert sum(fault is None for fault in faults) == 3


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", MESSAGES)
def test_the_fields_are_those_of_xla(name: str) -> None:
    """Of the definition that TensorFlow brings."""
    data = importlib.import_module("tensorflow.compiler.xla.xla_data_pb2")
    hlo = importlib.import_module("tensorflow.compiler.xla.service.hlo_pb2")
    of_xla = {
        inner.name: inner
        for module in (hlo, data)
        for outer in module.DESCRIPTOR.message_types_by_name.values()
        for inner in (outer, *outer.nested_types)
    }
    known = of_xla[name].fields_by_name
    for number, field, _, kind in MESSAGES[name]:
        assert known[field].number == number
        assert known[field].is_repeated == (kind == "rep")
    written = HloModule.DESCRIPTOR.file.message_types_by_name[name]
    assert {field.name for field in written.fields} <= set(known)


def copies(*, donated: tuple[int, ...] = (), aliased: tuple[int, ...] = ()) -> dict[str, str]:
    """What each copy of a program with two arguments is."""
    module = ModuleWriter()
    first, second = (module.add(name, "parameter", shape=(4,)) for name in ("a", "b"))
    module.last().parameter_number = 1
    module.add("copy.1", "copy", module.add("view", "bitcast", first))
    module.add("copy.2", "copy", second)
    module.add("copy.3", "copy", module.add("sum", "add", first, second))
    filled = module.add("zeros", "broadcast", module.add("zero", "constant"), computation=2)
    module.computation(2).root_id = filled
    module.add("copy.4", "copy", module.add("fusion.1", "fusion", calls=(2,)))
    module.add("copy.5", "copy", module.add("of_body", "parameter", computation=3), computation=3)
    module.add("copy.6", "copy", computation=4)
    module.add("inner", "while", calls=(4,), computation=3)
    module.add("loop", "while", calls=(3,), scope="jit(f)/jit(_gamma)/while", line=("f.py", 7))
    module.add("copy.7", "copy", first, scope="jit(f)/copy")
    for number in donated:
        module.message.buffer_donor.entries.add(parameter_number=number)
    for number in aliased:
        module.message.input_output_alias.entries.add(parameter_number=number)
    found = {name: each for name, each in read(module.message).items() if name.startswith("copy")}
    of_the_loop = ("jit(f)/jit(_gamma)/while/copy", "f.py:7")
    said = {name: (each.scope, each.line) for name, each in found.items() if each.scope}
    assert said == {
        "copy.5": of_the_loop,
        "copy.6": of_the_loop,
        "copy.7": ("jit(f)/copy", ""),
    }
    return {name: each.copied for name, each in found.items()}


def test_a_copy_is_of_an_argument_that_may_not_be_overwritten() -> None:
    """Of those that XLA adds: one in a loop has the scope and the line of that, as of what the loop is made for."""
    others = {"copy.3": "", "copy.4": "", "copy.5": "inside", "copy.6": "inside", "copy.7": ""}
    assert copies() == {"copy.1": "argument", "copy.2": "argument", **others}
    assert copies(donated=(0,)) == {"copy.1": "", "copy.2": "argument", **others}
    assert copies(aliased=(1,)) == {"copy.1": "argument", "copy.2": "", **others}


def needs(module: ModuleWriter) -> dict[str, str]:
    """What the instructions of a program are needed for, of those that are needed for less than all."""
    return {name: each.need for name, each in read(module.message).items() if each.need}


def norms(*, is_given: str = "", result: str = "", element: int = F32) -> ModuleWriter:
    """A program of two weights and one number that it learns; the gradient of the second is read for a norm.

    `is_given`: also in the result. `result`: what reads the number that is learned. `element`: the type of what is below a
    gradient.
    """
    module = ModuleWriter()
    ids = {"w": module.add("w", "parameter", shape=(4,)), "x": module.add("x", "parameter")}

    def add(
        name: str, opcode: str, *read: str, shape: tuple[int, ...] = (4,), back: bool = False
    ) -> None:
        scope = f"jit(f)/{'transpose(jvp())/' * back}{opcode}"
        ids[name] = module.add(
            name, opcode, *(ids[each] for each in read), shape=shape, scope=scope, element=element
        )

    add("slope", "multiply", "w", back=True)
    add("frozen", "multiply", "slope", back=True)
    add("summed", "all-reduce", "slope", "frozen", back=True)
    for place, name in enumerate(("trained", "other")):
        add(name, "get-tuple-element", "summed", back=True)
        module.last().tuple_index = place
    add("squares", "multiply", "other")
    add("norm", "reduce", "squares", "trained", shape=())
    add("learned", "reduce", result or "slope", shape=(), back=True)
    add("changed", "subtract", "x", "learned", shape=())
    add("new", "subtract", "w", "trained", "norm")
    add("result", "tuple", "new", "changed", *([is_given] if is_given else []), shape=())
    module.computation().root_id = ids["result"]
    return module


def test_gradients_of_which_only_a_number_is_used() -> None:
    """Of what is exchanged together each place is for itself, and a number that is learned is used whole."""
    assert needs(norms()) == dict.fromkeys(("frozen", "other", "summed", "squares"), "number")
    assert [read(norms().message, "summed")["summed"].part] == [0.5]
    assert needs(norms(is_given="norm")) == needs(norms())
    assert not needs(norms(is_given="other"))
    assert not needs(norms(element=S32)), "indices, in the scope of a gradient that needs them, too"
    assert "frozen" not in needs(norms(result="frozen"))


@pytest.mark.parametrize(
    ("condition", "sides", "names"),
    [
        ("due", ("new", "old"), "copy.1 due new select"),
        ("due", ("old", "new"), "copy.1 due new select"),
        ("started", ("new", "old"), ""),
        ("late", ("new", "old"), ""),
        ("count", ("new", "old"), "copy.1 count new select"),
        ("due", ("new", "new"), ""),
        ("due", ("old", "old"), ""),
        ("finite", ("new", "old"), ""),
        ("slope", ("new", "old"), ""),
        ("drawn", ("new", "old"), ""),
    ],
)
@pytest.mark.parametrize("is_fused", [False, True])
def test_what_a_choice_may_drop(
    condition: str, sides: tuple[str, str], names: str, is_fused: bool
) -> None:
    """Now and then, by numbers that were given alone, and for an argument as it was given; with the copy of it, whatever else reads that."""
    module = ModuleWriter()
    ids = {
        name: module.add(name, "parameter", shape=shape)
        for name, shape in (("w", (4,)), ("count", ()))
    }
    ids["old"] = module.add("copy.1", "copy", ids["w"], shape=(4,))
    ids["slope"] = module.add("slope", "negate", ids["old"], shape=(4,))
    ids["new"] = module.add("new", "subtract", ids["w"], ids["slope"], shape=(4,))
    for name, direction in (("started", b"GE"), ("due", b"EQ")):
        ids[name] = module.add(name, "compare", ids["count"], comparison_direction=direction)
    module.add("later", "compare", computation=3, comparison_direction=b"GT")
    ids["late"] = module.add("late", "fusion", ids["count"], calls=(3,))
    ids["finite"] = module.add("finite", "reduce", ids["slope"])
    ids["drawn"] = module.add("drawn", "rng")
    given = read = [ids[each] for each in (condition, *sides)]
    inside = 2 if is_fused else 1
    if is_fused:
        read = []
        for number, shape in enumerate(((), (4,), (4,))):
            read.append(module.add(f"p.{number}", "parameter", shape=shape, computation=2))
            module.last(2).parameter_number = number
    read[0] = module.add("spread", "broadcast", read[0], shape=(4,), computation=inside)
    chosen = module.add("select", "select", *read, shape=(4,), computation=inside)
    if is_fused:
        module.computation(2).root_id = chosen
        chosen = module.add("fusion", "fusion", *given, shape=(4,), calls=(2,))
    module.computation().root_id = module.add("root", "tuple", chosen, ids["slope"])
    expected = names.replace("select", "fusion" if is_fused else "spread select").split()
    assert needs(module) == dict.fromkeys(expected, "choice")


def test_the_arrays_that_a_program_takes_and_gives() -> None:
    module = ModuleWriter()
    module.add("a", "parameter", shape=(4, 2))
    module.add("step", "parameter")
    root = module.add("dot.1", "dot", 1, shape=(3,), element=F64)
    module.computation().root_id = root
    found = read(module.message, "dot.1")["dot.1"]
    assert [*found.taken, *found.given] == [(F32, (4, 2)), (F64, (3,))]
