"""What of a compiled program is needless, as masks, indices, an order of products, or an exchange show, and what looks like it and is none."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.xplane.hlo_messages import F32, ModuleWriter
from tests.xplane.test_hlo import fault_or_found, read
from tests.xplane.test_hlo_flops import convolution
from traceview.xplane.columns import Instruction

S32 = 4
BACK = "jit(f)/transpose(jvp())/"


def needs(module: ModuleWriter, need: str) -> dict[str, float]:
    """Which part of what instructions do is needed, of those with this need."""
    found: dict[str, Instruction] = read(module.message)
    return {name: round(each.part, 3) for name, each in found.items() if each.need == need}


def product(
    module: ModuleWriter, name: str, left: int, right: int, shape: tuple[int, ...], scope: str = "", *, summed: tuple[int, int], batch: bool = False
) -> int:  # fmt: skip
    """A product over the dimension `summed` of each factor, of each of a `batch` by itself."""
    made = module.add(name, "dot", left, right, shape=shape, scope=scope)
    of = module.last().dot_dimension_numbers
    of.lhs_contracting_dimensions.append(summed[0])
    of.rhs_contracting_dimensions.append(summed[1])
    if batch:
        of.lhs_batch_dimensions.append(0)
        of.rhs_batch_dimensions.append(0)
    return made


def number(module: ModuleWriter, name: str, value: float = 0.0) -> int:
    made = module.add(name, "constant")
    module.last().literal.shape.element_type = F32
    module.last().literal.f32s.append(value)
    return made


def experts(
    count: int, *, direction: str = "EQ", sums: str = "", is_grown: bool = True, gives: str = ""
) -> ModuleWriter:
    """Each of some experts computes all of 6 words; a `one_hot` of those that words have chosen multiplies the result.

    `sums`: what is added before the mask. `is_grown`: the words are repeated for the experts. `gives`: what the program gives
    besides.
    """
    module = ModuleWriter()
    ids = {"words": module.add("words", "parameter", shape=(6, 16))}
    ids["chosen"] = module.add("chosen", "parameter", shape=(6,), element=S32)
    for name, shape in (("up", (count, 16, 32)), ("down", (count, 32, 16))):
        ids[name] = module.add(name, "parameter", shape=shape)
    ids["own"] = module.add("own", "parameter", shape=(count, 6, 16))
    whole = module.add("whole", "broadcast", ids["words"], shape=(count, 6, 16), dimensions=(1, 2))
    ids["first"] = product(module, "first", whole if is_grown else ids["own"], ids["up"], (count, 6, 32), summed=(2, 1), batch=True)  # fmt: skip
    ids["bent"] = module.add("bent", "tanh", ids["first"], shape=(count, 6, 32))
    ids["second"] = product(module, "second", ids["bent"], ids["down"], (count, 6, 16), summed=(2, 1), batch=True)  # fmt: skip
    made = ids["second"]
    if sums:
        made = module.add("sum", "add", made, ids[sums], shape=(count, 6, 16))
    places = module.add("places", "iota", shape=(count, 6), element=S32, dimensions=(0,))
    asked = module.add(
        "asked", "broadcast", ids["chosen"], shape=(count, 6), element=S32, dimensions=(1,)
    )
    module.add("is_own", "compare", places, asked, shape=(count, 6))
    module.last().comparison_direction = direction.encode()
    mask = module.add("mask", "convert", asked + 1, shape=(count, 6))
    spread = module.add("spread", "broadcast", mask, shape=(count, 6, 16), dimensions=(0, 1))
    kept = module.add("kept", "multiply", made, spread, shape=(count, 6, 16))
    result = module.add(
        "result", "reduce", kept, number(module, "zero"), shape=(6, 16), dimensions=(0,)
    )
    slope = module.add("slope", "multiply", spread, ids["own"], shape=(count, 6, 16), scope=f"{BACK}mul")  # fmt: skip
    of_down = product(module, "of_down", ids["bent"], slope, (count, 32, 16), f"{BACK}dot_general", summed=(1, 1), batch=True)  # fmt: skip
    product(module, "other", ids["own"], slope, (count, 16, 16), f"{BACK}dot_general", summed=(1, 1), batch=True)  # fmt: skip
    given = [ids[gives]] if gives else []
    module.computation().root_id = module.add("root", "tuple", result, of_down, of_down + 1, *given)
    return module


def test_what_a_mask_drops_of_products() -> None:
    """With the gradients of these, and what is computed between; the weights of all experts are needed."""
    found = needs(experts(4), "mask")
    assert {"whole", "first", "bent", "second", "of_down", "slope"} <= found.keys()
    assert not found.keys() & {"up", "down", "words", "chosen", "result"}
    assert "other" not in found, "a gradient of something else"
    assert set(found.values()) == {0.25}


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        ({}, {"first", "second", "of_down"}),
        ({"gives": "first"}, {"second", "of_down"}),
        ({"gives": "second"}, set()),
        ({"direction": "NE"}, set()),
        ({"direction": "LT"}, set()),
        ({"sums": "own"}, set()),
        ({"sums": "second"}, {"first", "second", "of_down"}),
    ],
)
def test_what_else_needs_a_result_or_is_added_to_it(
    change: dict[str, str], dropped: set[str]
) -> None:
    products = {"first", "second", "of_down", "other"}
    assert needs(experts(4, **change), "mask").keys() & products == dropped  # type: ignore[arg-type]  # by keyword, of mixed types


@pytest.mark.parametrize(("count", "is_dropped"), [(2, False), (3, True)])
def test_room_for_twice_as_many_is_no_waste(count: int, is_dropped: bool) -> None:
    assert bool(needs(experts(count), "mask")) == is_dropped


def places(
    picked: int, *, how: str = "scatter", is_shown: bool = False, scope: str = ""
) -> ModuleWriter:
    """Scores of 9 places; a loss takes those of some: by a mask of ones at indices, by a `gather`, or by a `slice`."""
    module = ModuleWriter()
    states = module.add("states", "parameter", shape=(9, 16))
    head = module.add("head", "parameter", shape=(16, 64))
    at = module.add("at", "parameter", shape=(picked, 1), element=S32)
    scores = product(module, "scores", states, head, (9, 64), summed=(1, 0))
    zero = number(module, "zero")
    if how == "scatter":
        total = module.add("total", "reduce", scores, zero, shape=(9,), dimensions=(1,))
        zeros = module.add("zeros", "broadcast", zero, shape=(9,))
        ones = module.add("ones", "broadcast", number(module, "one", 1), shape=(picked,))
        mask = module.add("mask", "scatter", zeros, at, ones, shape=(9,), scope=scope)
        numbers = module.last().scatter_dimension_numbers
        numbers.inserted_window_dims.append(0)
        numbers.scatter_dims_to_operand_dims.append(0)
        numbers.index_vector_dim = 1
        result = module.add("result", "multiply", total, mask, shape=(9,))
    elif how == "gather":
        result = module.add("result", "gather", scores, at, shape=(picked, 64), scope=scope)
        of = module.last().gather_dimension_numbers
        of.offset_dims.append(1)
        of.collapsed_slice_dims.append(0)
        of.start_index_map.append(0)
        of.index_vector_dim = 1
        module.last().gather_slice_sizes.extend((1, 64))
    else:
        result = module.add("result", "slice", scores, shape=(picked, 64), scope=scope)
    module.computation().root_id = module.add(
        "root", "tuple", result, *([scores] if is_shown else [])
    )
    return module


@pytest.mark.parametrize("how", ["scatter", "gather", "slice"])
def test_results_of_places_that_are_not_picked(how: str) -> None:
    assert needs(places(3, how=how), "mask")["scores"] == 0.333
    assert not needs(places(4, how=how), "mask")
    assert not needs(places(3, how=how, is_shown=True), "mask")
    assert not needs(places(3, how=how, scope=f"{BACK}x"), "mask"), "a gradient"


@pytest.mark.parametrize(("count", "part"), [(1, 0.016), (20, 0.312), (22, None)])
def test_a_constant_of_zeros(count: int, part: float | None) -> None:
    """One that is picked takes as long as 16 that are multiplied."""
    module = ModuleWriter()
    matrix = module.add("matrix", "constant", shape=(32, 32))
    numbers = [1.0] * count + [0.0] * (1024 - count)
    module.last().literal.f32s.extend(numbers)
    rows = module.add("rows", "parameter", shape=(32, 16))
    module.computation().root_id = product(module, "sums", matrix, rows, (32, 16), summed=(1, 0))
    assert needs(module, "zeros").get("sums") == part


def chain(width: int, *, is_also: str = "") -> ModuleWriter:
    """The gradient of 64 x 64 weights that narrow matrices make, multiplied with each of these."""
    module = ModuleWriter()
    rows, slopes = (module.add(name, "parameter", shape=(32, 64)) for name in ("rows", "slopes"))
    down = module.add("down", "parameter", shape=(64, width))
    up = module.add("up", "parameter", shape=(width, 64))
    product(module, "made", down, up, (64, 64), summed=(1, 0))
    whole = product(module, "whole", rows, slopes, (64, 64), summed=(0, 0))
    turned = module.add("turned", "transpose", whole, shape=(64, 64), dimensions=(1, 0))
    of_down = product(module, "of_down", turned, up, (64, width), summed=(0, 1))
    of_up = product(module, "of_up", down, whole, (width, 64), summed=(0, 0))
    given = [module.add("also", is_also, whole, shape=(64, 64))] if is_also not in ("", "given") else []  # fmt: skip
    given += [whole] if is_also == "given" else []
    module.computation().root_id = module.add("root", "tuple", of_down, of_up, *given)
    return module


def test_products_that_are_small_in_another_order() -> None:
    """Of 32 rows: 2 * 32 * 2w * 128 operations instead of 2 * 64 * 64 * (32 + 2w)."""
    assert needs(chain(4), "order") == dict.fromkeys(["made", "whole", "of_down", "of_up"], 0.2)
    assert needs(chain(8), "order")
    assert not needs(chain(9), "order")
    assert not needs(chain(4, is_also="tanh"), "order")
    assert not needs(chain(4, is_also="copy"), "order")
    assert not needs(chain(4, is_also="given"), "order")


def attention(between: str = "transpose") -> ModuleWriter:
    """Without a softmax: scores of 64 queries and keys of 8 numbers in each of 4 heads, and what their values add up to."""
    module = ModuleWriter()
    queries, keys, values = (
        module.add(name, "parameter", shape=(4, 64, 8)) for name in ("queries", "keys", "values")
    )
    product(module, "scores", queries, keys, (4, 64, 64), summed=(2, 2), batch=True)
    order, summed = ((0, 2, 1), (1, 1)) if between == "transpose" else ((), (2, 1))
    scores = module.add("between", between, module.last().id, shape=(4, 64, 64), dimensions=order)
    module.computation().root_id = product(
        module, "seen", scores, values, (4, 64, 8), summed=summed, batch=True
    )
    return module


def test_products_of_each_head_that_are_small_in_another_order() -> None:
    """2 * 8 * 8 * 128 operations instead of 2 * 64 * 64 * 16 in each head."""
    assert needs(attention(), "order") == dict.fromkeys(["scores", "seen"], 0.125)
    assert not needs(attention("exponential"), "order")


def exchanged(
    *,
    is_divided: bool = False,
    groups: int = 1,
    product_of: str = "",
    then: str = "",
    also: str = "",
) -> ModuleWriter:
    """The gradients of a batch are averaged, and the weights that they change, again; scores are gathered, and summed by each device.

    `then`: what is done with what was gathered; `also`: what reads the copy that the gather needs.
    """
    module = ModuleWriter()
    weights, rows = (module.add(name, "parameter", shape=(8, 8)) for name in ("weights", "rows"))
    count = 4 // groups

    def exchange(name: str, kind: str, *of: int, shape: tuple[int, ...] = (8, 8)) -> int:
        made = module.add(name, kind, *of, shape=shape)
        for first in range(0, 4, count):
            module.last().replica_groups.add(replica_ids=range(first, first + count))
        return made

    own = product(module, "own", rows, weights, (8, 8), summed=(1, 0))
    slopes = exchange("average", "all-reduce", own)
    new = module.add("new", "subtract", weights, slopes, shape=(8, 8))
    again = exchange("again", "all-reduce", new)
    half = module.add("half", "broadcast", number(module, "quarter", 0.25), shape=(8, 8))
    mean = module.add("mean", "multiply", again, half, shape=(8, 8))
    ordered = module.add("ordered", "copy", own, shape=(8, 8))
    gathered = exchange("gathered", "all-gather", ordered, shape=(32, 8))
    if then:
        gathered = module.add("turned", then, gathered, shape=(32, 8))
    if product_of:
        gathered = product(module, product_of, gathered, weights, (32, 8), summed=(1, 0))
    sums = module.add("sums", "exponential", gathered, shape=(32, 8))
    total = module.add("loss", "reduce", sums, number(module, "zero"), dimensions=(0, 1))
    others = [module.add("other", also, ordered, shape=(8, 8))] if also else []
    module.computation().root_id = module.add("root", "tuple", mean, total, *others)
    module.divide(4, is_divided, True)
    return module


def test_what_is_exchanged_for_nothing() -> None:
    """With the factor of a mean, and the copy that a gather needs."""
    whole = {"again": 0.0, "mean": 0.0}
    assert needs(exchanged(), "alike") == {**whole, "gathered": 0.0, "ordered": 0.0}
    assert needs(exchanged(product_of="logits"), "alike") == whole
    assert not needs(exchanged(is_divided=True, product_of="logits"), "alike")
    assert not needs(exchanged(groups=2), "alike")


def test_what_only_gives_another_order_to_what_is_exchanged() -> None:
    of_all = partial(exchanged, product_of="logits")
    assert needs(of_all(), "moved") == {"ordered": 1.0}
    assert needs(of_all(then="copy"), "moved") == {"ordered": 1.0, "turned": 1.0}
    assert needs(of_all(then="tanh"), "moved") == {"ordered": 1.0}
    assert needs(of_all(also="tanh"), "moved") == {}


def layer(*shape: int, is_differentiated: bool = True) -> ModuleWriter:
    """A layer of weights that are divided over four devices, which gathers an array of this shape."""
    module = ModuleWriter()
    weights = module.add("weights", "parameter", shape=(8, 2))
    scope = "jit(f)/jvp(model)/all_gather" if is_differentiated else "jit(f)/all_gather"
    gathered = module.add("gathered", "all-gather", weights, shape=shape, scope=scope)
    module.computation().root_id = module.add("new", "subtract", weights, gathered, shape=(8, 2))
    module.divide(4, True)
    return module


def test_activations_are_neither_weights_nor_gradients_nor_statistics() -> None:
    assert needs(layer(128, 8), "activations") == {"gathered": 0.0}
    # The parts of two or all devices, in another order.
    for weights in ((2, 8), (4, 8), (8, 8)):
        assert not needs(layer(*weights), "activations")
    assert not needs(layer(1, 1024), "activations")
    assert not needs(layer(128, 8, is_differentiated=False), "activations")


@pytest.mark.parametrize(
    "module", [experts(4), places(3), places(3, how="gather"), chain(4), exchanged()]
)
def test_wrong_numbers_are_not_told_or_damage(module: ModuleWriter) -> None:
    rng = random.Random(5)
    data = module.message.SerializeToString()
    names = {each.name for held in module.message.computations for each in held.instructions}
    for _ in range(400):
        wrong = bytearray(data)
        wrong[rng.randrange(len(wrong))] = rng.choice((0, 1, 9, 127, 255, rng.randrange(256)))
        fault_or_found(bytes(wrong), names)


def of_examples(
    *, reads: str = "", adds: str = "add", size: int = 8, is_squared: bool = False
) -> ModuleWriter:
    """The gradients of 64 examples for `size` x 4 weights, 8 x 4 of each, their mean, and the weights that it gives.

    `reads`: what else reads them. `adds`: how they become one. `is_squared`: it is the mean of their squares.
    """
    module = ModuleWriter()
    weights = module.add("weights", "parameter", shape=(size, 4))
    back, rows = (module.add(name, "parameter", shape=(64, 8)) for name in ("back", "rows"))
    left, right = (
        module.add(name, "broadcast", of, shape=(64, 8, 4), scope=BACK + "dot_general")
        for name, of in (("left", back), ("right", rows))
    )
    slopes = module.add(
        "slopes", "multiply", left, right, shape=(64, 8, 4), scope=BACK + "dot_general"
    )
    module.add("one", "parameter", computation=7)
    module.add("joined", adds, module.last().id, computation=7)
    summed = slopes
    if is_squared:
        summed = module.add(
            "square", "multiply", slopes, slopes, shape=(64, 8, 4), scope=BACK + "mul"
        )
    mean = module.add("mean", "reduce", summed, calls=(7,), shape=(8, 4), scope="jit(f)/reduce_sum")
    if reads:
        module.add("read", reads, slopes, slopes, shape=(64, 8, 4), scope="jit(f)/square")
    changed = module.add("changed", "subtract", weights, mean, shape=(size, 4), scope="jit(f)/sub")
    module.computation().root_id = changed
    return module


@pytest.mark.parametrize(
    ("options", "is_needless", "updates"),
    [
        ({}, True, {"changed"}),
        ({"adds": "maximum"}, False, {"changed"}),
        ({"reads": "multiply"}, False, {"changed"}),
        ({"is_squared": True}, False, {"changed"}),
        # No larger than the weights.
        ({"size": 8 * 64}, False, {"mean", "changed"}),
    ],
)
def test_gradients_of_examples_of_which_only_the_sum_is_read_are_one_product(
    options: dict[str, str], is_needless: bool, updates: set[str]
) -> None:
    module = of_examples(**options)  # type: ignore[arg-type]  # by keyword, of mixed types
    expected = dict.fromkeys(("left", "right", "slopes", "mean"), 0.0)
    assert needs(module, "examples") == (expected if is_needless else {})
    found = read(module.message)
    assert {name for name, each in found.items() if each.is_update} == updates


def enlarged(
    times: int = 4,
    *,
    scope: str = "",
    adds: str = "",
    sums: str = "add",
    gives: str = "",
    between: str = "reshape",
) -> ModuleWriter:
    """12 rows are repeated, and multiplied with weights; with gradients of the weights, and of the rows, which are added up again.

    `scope`: of the repetition. `adds`: what is added to all rows, `bias` or `noise`. `sums`: what makes one of several gradients. `between`: what
    computes what that reads; `gives`: which result of these the program gives besides.
    """
    module, count = ModuleWriter(), 12 * times
    rows, weights = (module.add(name, "parameter", shape=shape) for name, shape in (("rows", (12, 16)), ("weights", (16, 8))))  # fmt: skip
    slopes, noise = (module.add(name, "parameter", shape=(count, of)) for name, of in (("slopes", 8), ("noise", 16)))  # fmt: skip
    bias = module.add("bias", "parameter", shape=(16,))
    spread = module.add("spread", "broadcast", bias, shape=(count, 16), dimensions=(1,))
    repeated = module.add(
        "repeated", "broadcast", rows, shape=(12, times, 16), scope=scope, dimensions=(0, 2)
    )
    whole = module.add("whole", "reshape", repeated, shape=(count, 16))
    if adds:
        whole = module.add("sum", "add", whole, {"bias": spread, "noise": noise}[adds], shape=(count, 16))  # fmt: skip
    made = product(module, "made", whole, weights, (count, 8), summed=(1, 0))
    of_weights = product(module, "of_weights", whole, slopes, (16, 8), BACK, summed=(0, 0))
    of_rows = product(module, "of_rows", slopes, weights, (count, 16), BACK, summed=(1, 1))
    apart = module.add("apart", between, of_rows, shape=(12, times, 16))
    exps = module.add("exps", "exponential", of_rows, shape=(count, 16)) if gives == "exps" else 0
    module.add("one", "parameter", computation=7)
    module.add("joined", sums, module.last(7).id, computation=7)
    back = module.add(
        "back", "reduce", apart, number(module, "zero"), calls=(7,), shape=(12, 16), dimensions=(1,)
    )
    given = [made, of_weights, back, *{"of_rows": [of_rows], "exps": [exps], "": []}[gives]]
    module.computation().root_id = module.add("root", "tuple", *given)
    return module


def test_products_of_copies_of_rows_and_of_rows_that_are_added_up() -> None:
    every = ("made", "of_weights", "of_rows")
    assert needs(enlarged(), "copies") == dict.fromkeys(every, 0.25)
    assert needs(enlarged(3), "copies") == dict.fromkeys(every, 0.333)
    assert needs(enlarged(2), "copies") == {}
    assert needs(enlarged(adds="bias"), "copies") == dict.fromkeys((*every, "sum"), 0.25)
    # Where others are added they are no copies, and a gradient repeats what was one number.
    assert needs(enlarged(adds="noise"), "copies") == {"of_rows": 0.25}
    assert needs(enlarged(scope=BACK + "broadcast"), "copies") == {"of_rows": 0.25}
    assert needs(enlarged(sums="maximum"), "copies") == dict.fromkeys(every[:2], 0.25)
    for made in (
        enlarged(gives="of_rows"),
        enlarged(gives="exps"),
        enlarged(between="exponential"),
    ):
        assert needs(made, "copies") == dict.fromkeys(every[:2], 0.25)


@pytest.mark.parametrize(
    ("window", "groups", "size", "is_product"),
    [
        (1, 1, 8, True),
        (3, 1, 8, False),
        (1, 2, 8, False),
        # With steps of two pixels, and of the whole picture at once.
        (1, 1, 4, False),
        (8, 1, 1, True),
    ],
)
def test_a_convolution_of_single_places_is_a_product(
    window: int, groups: int, size: int, is_product: bool
) -> None:
    """Of pictures that were enlarged from 4 x 4 to 8 x 8 pixels."""
    module = ModuleWriter()
    small = module.add("small", "parameter", shape=(2, 4, 4, 16))
    kernel = module.add("kernel", "parameter", shape=(window, window, 16 // groups, 8))
    wide = module.add(
        "wide", "broadcast", small, shape=(2, 4, 2, 4, 2, 16), dimensions=(0, 1, 3, 5)
    )
    large = module.add("large", "reshape", wide, shape=(2, 8, 8, 16))
    root = module.add("made", "convolution", large, kernel, shape=(2, size, size, 8))
    convolution(module.last(), (window, window))
    module.last().feature_group_count = groups
    module.computation().root_id = root
    assert needs(module, "copies") == ({"made": 0.25} if is_product else {})


@pytest.mark.parametrize(
    ("direction", "part"), [("EQ", {"made": 0.021}), ("LT", {})], ids=["identity", "triangle"]
)
def test_a_convolution_by_an_identity(direction: str, part: dict[str, float]) -> None:
    """Patches of 4 x 4 pixels of 3 channels are cut out: of 48 numbers of a filter one is not 0."""
    module = ModuleWriter()
    pictures = module.add("pictures", "parameter", shape=(2, 8, 8, 3))
    places = [
        module.add(f"count{dim}", "iota", shape=(48, 48), element=S32, dimensions=(dim,))
        for dim in (0, 1)
    ]
    module.add("is_own", "compare", *places, shape=(48, 48))
    module.last().comparison_direction = direction.encode()
    numbers = module.add("numbers", "convert", places[1] + 1, shape=(48, 48))
    kernel = module.add("kernel", "reshape", numbers, shape=(4, 4, 3, 48))
    root = module.add("made", "convolution", pictures, kernel, shape=(2, 2, 2, 48))
    convolution(module.last(), (4, 4))
    module.computation().root_id = root
    assert needs(module, "zeros") == part


def windows(count: int, *, of: str = "rows", is_gradient: bool = False) -> ModuleWriter:
    """Of 16 times 9 in a row are cut from each place of `count`; each is multiplied with weights, bent, and has a gradient.

    `of`: what every second window is cut from.
    """
    module = ModuleWriter()
    for name in ("rows", "others"):
        module.add(name, "parameter", shape=(4, 16, 3))
    weights = module.add("weights", "parameter", shape=(3, 5))
    slopes = module.add("slopes", "parameter", shape=(4 * 9 * count, 5))
    cut = []
    for place in range(count):
        source = weights - 2 if place % 2 == 0 or of == "rows" else weights - 1
        part = module.add(f"cut{place}", "slice", source, shape=(4, 9, 3))
        cut.append(module.add(f"one{place}", "reshape", part, shape=(4, 9, 1, 3)))
    joined = module.add(
        "joined",
        "concatenate",
        *cut,
        shape=(4, 9, count, 3),
        scope=BACK if is_gradient else "",
        dimensions=(2,),
    )
    flat = module.add("flat", "reshape", joined, shape=(4 * 9 * count, 3))
    made = product(module, "made", flat, weights, (4 * 9 * count, 5), summed=(1, 0))
    bent = module.add("bent", "tanh", made, shape=(4 * 9 * count, 5))
    again = module.add(
        "again", "multiply", slopes, bent, shape=(4 * 9 * count, 5), scope=f"{BACK}mul"
    )
    further = module.add("further", "negate", again, shape=(4 * 9 * count, 5), scope=f"{BACK}neg")
    alone = module.add("alone", "negate", slopes, shape=(4 * 9 * count, 5), scope=f"{BACK}neg")
    of_weights = product(module, "of_weights", flat, further, (3, 5), f"{BACK}dot", summed=(0, 0))
    module.computation().root_id = module.add("root", "tuple", bent, of_weights, alone)
    return module


def test_windows_that_lie_over_each_other_are_copies() -> None:
    """Of 8 windows of 9 times 16 are others; what is computed of them, and of gradients behind that, could be computed of these."""
    every = ("joined", "made", "bent", "again", "further", "of_weights")
    assert needs(windows(8), "copies") == dict.fromkeys(every, 0.222)
    assert needs(windows(5), "copies") == {}
    assert needs(windows(8, of="others"), "copies") == {}
    assert needs(windows(8, is_gradient=True), "copies") == {}


@pytest.mark.parametrize(
    ("lengths", "part"),
    [((8192,), 1), ((8190,), 1), ((8137,), 0.5), ((64, 2731 * 3), 0.25), ((8191,), 0.15)],
)
def test_the_length_of_a_transform(lengths: tuple[int, ...], part: float) -> None:
    """8190 is 2 * 9 * 5 * 7 * 13; 8137 is 79 * 103."""
    module = ModuleWriter()
    rows = module.add("rows", "parameter", shape=lengths)
    module.computation().root_id = module.add("fft.1", "fft", rows, shape=lengths)
    module.last().fft_length.extend(lengths)
    assert needs(module, "length") == ({"fft.1": part} if part < 1 else {})


@pytest.mark.parametrize("length", [0, -5, 1 << 62])
def test_what_is_no_length_of_a_transform(length: int) -> None:
    module = ModuleWriter()
    module.computation().root_id = module.add("fft.1", "fft", module.add("rows", "parameter"))
    module.last().fft_length.append(length)
    assert not needs(module, "length")
