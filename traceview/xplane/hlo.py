"""Reads what a compiled XLA program says of its instructions: scope, line of Python, type, FLOPs, and what has no input, or the same on every device.

`hlo_module` reads its messages. Here is what follows from several instructions together: those that a fusion or a loop holds, that
give what another one takes, and that a collective waits for.

A product of two numbers and its sum are two operations: of matrices, convolutions and attention. What is no product counts 0:
it takes memory traffic rather than units that multiply. Sources: openxla/xla `xla/xla_data.proto` (types),
`xla/service/gpu/cublas_cudnn.h` (targets of custom calls), `backend_configs.proto`; jax `_src/cudnn/fused_attention_stablehlo.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from math import prod
from operator import itemgetter
from typing import Any, Final, NamedTuple

from traceview.xplane import hlo_fields as field
from traceview.xplane.columns import Copied, Exchange, Instruction, Need, Program
from traceview.xplane.hlo_flow import CALLS, COLLECTIVES, GRADIENT, Flow, Key, beside_turns
from traceview.xplane.hlo_masks import Masks
from traceview.xplane.hlo_module import (
    DEEPEST,
    MOST_DIMENSIONS,
    Computation,
    HloInstruction,
    Shape,
    located,
    opened,
)
from traceview.xplane.hlo_products import GEMM, config_of, matrix_dimensions, whole_numbers
from traceview.xplane.hlo_shares import Shares
from traceview.xplane.message import Message

LARGEST: Final = 2**62
"""More operations than any instruction has: a number above is damage, or of a dimension that is not known."""

_COMPLEX: Final = (15, 18)
"""The types C64 and C128, of which a product is four."""

_NO_PRODUCT_CALLS: Final = (
    "__cudnn$norm", "__cub$", "__gpu$TopK", "TopK", "cu_threefry2x32", "hip_threefry2x32", "Sharding",
    "SPMDFullToShardShape", "SPMDShardToFullShape", "SliceToDynamic", "PadToStatic", "AllocateBuffer",
    "annotate_device_placement", "MoveToHost", "MoveToDevice",
)  # fmt: skip
_CONVOLUTION: Final = "__cudnn$conv"
_ATTENTION: Final = "__cudnn$fmha"
PRODUCTS: Final = frozenset(
    (
        "dot", "convolution", "custom-call", "cholesky", "triangular-solve", "fft", "ragged-dot", "scaled-dot",
    )
)  # fmt: skip
"""Instructions that multiply, as far as their shapes tell how much."""


class Product(NamedTuple):
    """Operations, None where they are not known, and the number of the type of what is multiplied."""

    flops: int | None
    operand_type: int = 0


NO_PRODUCT: Final = Product(0)
UNKNOWN: Final = Product(None)


def _sum(products: Iterable[Product]) -> Product:
    """That of several instructions together."""
    flops, operand_type = 0, 0
    for product in products:
        if product.flops is None:
            return UNKNOWN
        flops, operand_type = flops + product.flops, operand_type or product.operand_type
    return Product(flops, operand_type)


def _flops(opcode: str, result: Shape, left: Shape, right: Shape, fields: Message) -> int:
    """The operations of an instruction with these fields; raises for what its shapes or its configuration do not tell."""
    target = fields.text(field.TARGET)
    if opcode == "dot" or target.startswith(GEMM):
        summed, *_ = matrix_dimensions(opcode, fields)
        return 2 * result.size * prod(left.dimensions[place] for place in summed)
    if opcode == "convolution":
        return _of_convolution(result, left, right, fields)
    if target.startswith(_CONVOLUTION):
        return _of_convolution_call(target, result, left, right, fields)
    if target.startswith(_ATTENTION):
        return _of_attention(target, left, config_of(fields, "cudnn_fmha_backend_config"))
    raise ValueError(opcode)


def _of_convolution(result: Shape, input_: Shape, kernel: Shape, fields: Message) -> int:
    """Each element of the kernel meets each place of the result, or of the input where that has fewer.

    So zeros between the elements and around the input of a gradient are not counted, and those of `SAME` padding are, as is
    usual.
    """
    windows = islice(fields.message(field.WINDOW).messages(field.WINDOW_DIMENSIONS), _MOST_NUMBERS)
    of = fields.message(field.CONVOLUTION)
    places, results = (
        of.numbers(at, _MOST_NUMBERS) for at in (field.INPUT_SPATIAL, field.OUTPUT_SPATIAL)
    )
    met = [
        each.number(field.WINDOW_SIZE) * min(input_.dimensions[at], result.dimensions[to])
        for each, at, to in zip(windows, places, results, strict=True)
    ]
    made = (result.dimensions[of.number(at)] for at in (field.OUTPUT_BATCH, field.OUTPUT_FEATURE))
    return 2 * prod((*made, *met, kernel.dimensions[of.number(field.KERNEL_INPUT_FEATURE)]))


def _of_convolution_call(
    target: str, result: Shape, left: Shape, right: Shape, fields: Message
) -> int:
    """Of cuDNN: forward, and the gradients of input and kernel, which have the operations of the forward pass."""
    if "BackwardFilter" in target:
        output, kernel = right, result
    elif "BackwardInput" in target:
        output, kernel = left, right
    else:
        output, kernel = result, right
    features = fields.message(field.CONVOLUTION).number(field.KERNEL_OUTPUT_FEATURE)
    return 2 * output.size * (kernel.size // kernel.dimensions[features])


def _of_attention(target: str, query: Shape, config: Any) -> int:
    """Two products forward, and four backward: scores that are computed again do not count, and masks take nothing off."""
    scores = prod(whole_numbers(config["intermediate_tensor_shape"]["dimensions"]))
    is_backward = "Backward" in target
    # The product that yields scores of the shape above; backward its first factor has the shape of the queries, too.
    product = config[f"{'bmm2_grad_gemm2' if is_backward else 'bmm1'}_dot_dimension_numbers"]
    contracted = whole_numbers(product["lhs_contracting_dimensions"])
    forward = 4 * scores * prod(query.dimensions[place] for place in contracted)
    return 2 * forward if is_backward else forward


# Sizes

_BITS: Final = {
    **dict.fromkeys((30, 31), 1),
    **dict.fromkeys((26, 27), 2),
    **dict.fromkeys((21, 22, 32), 4),
    **dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8),
    **dict.fromkeys((3, 7, 10, 16), 16),
    **dict.fromkeys((4, 8, 11), 32),
    **dict.fromkeys((5, 9, 12, 15), 64),
    18: 128,
}
"""Bits of an element by the number of its type (`PrimitiveType`)."""

_NOTHING: Final = (14, 17)
"""Opaque values and tokens, which have no memory that is known of."""


def size_of(shape: Shape) -> int | None:
    """The bytes of an array; None where the type or a dimension is not known."""
    if shape.element_type in _NOTHING:
        return 0
    bits = _BITS.get(shape.element_type)
    size = None if bits is None else (prod(shape.dimensions) * bits + 7) // 8
    return size if size is not None and 0 <= size < LARGEST else None


_MOST_CALLED: Final = 64
"""Computations that one instruction calls; of one that calls more it is not known what it multiplies."""

_REPEATS: Final = frozenset(("while", "conditional"))
"""Of those the ones of which it is not known how often."""

_NOT_TOLD: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""What shapes and configurations raise that are not as they should be."""
_MOST_NUMBERS: Final = MOST_DIMENSIONS + 1
"""Of one field that are looked at."""


_COMPUTES_NOTHING: Final = frozenset((
    "parameter", "constant", "broadcast", "iota", "bitcast", "reshape", "tuple", "get-tuple-element", "slice", "copy",
))  # fmt: skip
"""What a fusion holds that it does not compute with."""
_PRIMITIVES: Final = {"dot": "dot_general", "convolution": "conv_general_dilated"}
"""Products that XLA makes anew, without a scope, and what JAX calls them."""
_HARDLY_ANY: Final = 1 / 20
"""Of the elements that a fusion computes. A choice of ours."""

_LARGE_FACTORS: Final = ((3000, 0.15), (1000, 0.25), (100, 0.5))
"""Prime factors of a length that a transform takes longer for, and which part others take, measured with JAX 0.10 on a CPU."""
_LONGEST_TRANSFORM: Final = 1 << 32


def _largest_factor(number: int) -> int:
    """The largest prime factor; 1 of what is no length."""
    if not 0 < number < _LONGEST_TRANSFORM:
        return 1
    largest, factor = 1, 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            largest, number = factor, number // factor
    return max(largest, number)


def read_instructions(program: Program, wanted: Collection[bytes]) -> dict[bytes, Instruction]:
    """The instructions of a program with the names in `wanted`; others are not there.

    Raises `DamageError` with the offset in the file.
    """
    with located(program.offset):
        return _Program(program, frozenset(wanted)).instructions()


class _Program:
    """One program while it is read, for the instructions with the names in `wanted`."""

    def __init__(self, program: Program, wanted: frozenset[bytes]) -> None:
        self._name = program.name
        self._module = opened(program)
        self._wanted = wanted
        self._products: dict[int, tuple[Product, bool]] = {}

    def instructions(self) -> dict[bytes, Instruction]:
        flow = Flow(self._module)
        shares = Shares(flow)
        updates, needs = self._after_gradients(flow), self._needs(flow, shares)
        return {
            instruction.name: Instruction(
                self._name,
                instruction.name,
                *self._said(instruction, computation),
                self._shape(instruction.shape).element_type,
                (computation.id, instruction.id) in shares.constants,
                (computation.id, instruction.id) in shares.repeated,
                (computation.id, instruction.id) in updates,
                self._module.partitions,
                *self._product(instruction, computation, DEEPEST),
                exchange=self._exchange(instruction, computation),
                copied=self._copied(instruction, computation, flow),
                need=needs.get((computation.id, instruction.id), ("", 0.0))[0],
                part=needs.get((computation.id, instruction.id), ("", 0.0))[1],
                taken=self._module.taken,
                given=self._module.given,
            )
            for computation, instruction in self._module.named(self._wanted)
        }

    def _said(self, instruction: HloInstruction, computation: Computation) -> tuple[str, str, str]:
        """Scope, type and line; a fusion is named after what is most of its work, whatever it ends with."""
        if self._is_added(instruction):
            return self._module.said_around(computation)
        said = self._module.said(instruction)
        if instruction.opcode in _PRIMITIVES and "/" not in said[0]:
            return self._said_beside(instruction, computation)
        if instruction.opcode != "fusion" or not instruction.called:
            return said
        held = self._module.computation(instruction.called[0])
        products = [each for each in held.instructions if each.opcode in PRODUCTS]
        flops = [self._product(each, held, DEEPEST).flops or 0 for each in products]
        if any(flops):
            most = self._module.said(products[flops.index(max(flops))])
        else:
            most = self._said_of_most(held, said[0].rpartition("/")[0])
        return most if "/" in most[0] else said

    def _said_beside(
        self, instruction: HloInstruction, computation: Computation
    ) -> tuple[str, str, str]:
        """The same of a product that XLA has made anew: the scope and line of what it takes and what takes it, if these have one line."""
        beside = [
            self._module.said(each)
            for each in computation.instructions
            if each.id in instruction.operands or instruction.id in each.operands
        ]
        scopes = {line: scope for scope, _, line in beside if line and "/" in scope}
        if len(scopes) != 1:
            return self._module.said(instruction)
        ((line, scope),) = scopes.items()
        return f"{scope.rpartition('/')[0]}/{_PRIMITIVES[instruction.opcode]}", "", line

    def _said_of_most(self, held: Computation, scope: str) -> tuple[str, str, str]:
        """The same of what computes most elements in a fusion, if hardly any are computed in the scope of its end."""
        count: Counter[str] = Counter()
        said_in: dict[str, tuple[str, str, str]] = {}
        for each in held.instructions:
            if each.opcode not in _COMPUTES_NOTHING:
                said = self._module.said(each)
                around = said[0].rpartition("/")[0]
                said_in[around] = said
                count[around] += max(self._shape(each.shape).size, 0)
        most, size = max(count.items(), key=itemgetter(1), default=("", 0))
        whole = count.total()
        is_most = 2 * size > whole and count[scope] <= _HARDLY_ANY * whole
        return said_in[most] if is_most else ("", "", "")

    def _is_added(self, instruction: HloInstruction) -> bool:
        """Whether it is a copy that XLA has added: the source has none there."""
        return instruction.opcode == "copy" and "/" not in self._module.said(instruction)[0]

    # What follows gradients

    def _after_gradients(self, flow: Flow) -> frozenset[tuple[int, int]]:
        """The instructions of the source that compute with gradients and are none, by the ids of computation and instruction.

        What has or reads a gradient larger than all that the program keeps, as of each example, is about to make those of what
        it keeps.
        """
        entry, found = self._module.entry, set[tuple[int, int]]()
        of_examples = flow.gradients_of_examples()
        has_gradient: dict[int, bool] = {}
        for instruction in entry.instructions:
            scope, _, _ = self._module.said(instruction)
            is_gradient = GRADIENT in scope or (entry.id, instruction.id) in of_examples
            follows = any(has_gradient.get(operand, False) for operand in instruction.operands)
            has_gradient[instruction.id] = is_gradient or follows
            if follows and not is_gradient and "/" in scope:
                found.add((entry.id, instruction.id))
                found.update(flow.held(instruction))
        return frozenset(found)

    # What it is needed for

    def _needs(self, flow: Flow, shares: Shares) -> dict[Key, tuple[Need, float]]:
        """What the program needs less than whole, and what runs in it."""
        entry, masks = self._module.entry, Masks(flow)
        needs: dict[Key, tuple[Need, float]] = dict.fromkeys(shares.moved, ("moved", 1.0))
        needs |= dict.fromkeys(shares.activations, ("activations", 0.0))
        with suppress(*_NOT_TOLD):
            needs |= {key: ("copies", part) for key, part in masks.copies().items()}
            needs |= {key: ("order", part) for key, part in masks.orders().items()}
            needs |= masks.parts()
            of_examples = flow.gradients_of_examples()
            needs |= {key: ("examples", 0.0) for key, summed in of_examples.items() if summed}
            for key in self._beside_turns():
                needs.setdefault(key, ("turns", 1.0))
        needs |= {key: ("alike", part) for key, part in shares.needless.items()}
        needs |= flow.needs()
        for instruction in entry.instructions:
            if instruction.opcode == "fft" and (part := self._of_transform(instruction)) < 1:
                needs.setdefault((entry.id, instruction.id), ("length", part))
            if (key := (entry.id, instruction.id)) in needs:
                for held in flow.held(instruction):
                    needs.setdefault(held, needs[key])
        return needs

    def _beside_turns(self) -> Iterator[Key]:
        """Instructions of loops that could run for all turns at once; gradients where what they are of could, for nobody moves these alone."""
        keys = [*beside_turns(self._module)]
        said = [self._module.said(self._module.computation(of).by_id[one]) for of, one in keys]
        forward = {line for scope, _, line in said if GRADIENT not in scope}
        for key, (scope, _, line) in zip(keys, said, strict=True):
            if GRADIENT not in scope or not line or line in forward:
                yield key

    def _of_transform(self, instruction: HloInstruction) -> float:
        """Which part of a Fourier transform one takes whose lengths have no large prime factor."""
        lengths = self._module.fields(instruction).numbers(field.FFT_LENGTH, MOST_DIMENSIONS)
        most = max(map(_largest_factor, lengths), default=1)
        return next((part for least, part in _LARGE_FACTORS if most > least), 1.0)

    # Its FLOPs

    def _product(
        self, instruction: HloInstruction, computation: Computation, depth: int
    ) -> Product:
        """What an instruction multiplies, with what it calls unless that has events of its own."""
        if instruction.opcode in CALLS:
            return self._product_called(instruction, depth)
        if instruction.opcode not in PRODUCTS:
            return NO_PRODUCT
        fields = self._module.fields(instruction)
        if fields.text(field.TARGET).startswith(_NO_PRODUCT_CALLS):
            return NO_PRODUCT
        by_id = computation.by_id
        try:
            left, right = (self._shape(by_id[id_].shape) for id_ in instruction.operands[:2])
            flops = _flops(instruction.opcode, self._shape(instruction.shape), left, right, fields)
        except _NOT_TOLD:
            return UNKNOWN
        if left.element_type in _COMPLEX:
            flops *= 4
        is_known = left.element_type and 0 < flops < LARGEST
        return Product(flops, left.element_type) if is_known else UNKNOWN

    def _product_called(self, instruction: HloInstruction, depth: int) -> Product:
        if len(instruction.called) > _MOST_CALLED:
            return UNKNOWN
        inside = [self._inside(called, depth - 1) for called in instruction.called]
        # A fusion is one event.
        is_one = instruction.opcode == "fusion"
        product = _sum(of for of, has_events in inside if is_one or not has_events or not of.flops)
        return UNKNOWN if product.flops and instruction.opcode in _REPEATS else product

    def _inside(self, id_: int, depth: int) -> tuple[Product, bool]:
        """What the instructions of a computation multiply together, and whether events ran any of them."""
        if id_ not in self._products:
            # Also ends a recursion.
            self._products[id_] = UNKNOWN, False
            computation = self._module.computation(id_)
            held = computation.instructions
            product = UNKNOWN
            if depth > 0:
                product = _sum(self._product(inner, computation, depth) for inner in held)
            self._products[id_] = product, any(inner.name in self._wanted for inner in held)
        return self._products[id_]

    def _shape(self, bounds: tuple[int, int]) -> Shape:
        """The type of the elements of a shape and its dimensions; of a tuple those of its first shape."""
        return next(iter(self._module.arrays(bounds)), Shape(0, ()))

    # What it exchanges

    def _exchange(self, instruction: HloInstruction, computation: Computation) -> Exchange | None:
        collective = instruction
        if instruction.opcode == "async-start" and instruction.called:
            held = self._module.computation(instruction.called[0]).instructions
            collective = next((each for each in held if each.opcode in COLLECTIVES), instruction)
        if collective.opcode not in COLLECTIVES:
            return None
        by_id = computation.by_id
        given = [by_id[operand] for operand in instruction.operands if operand in by_id]
        sizes = [size_of(array) for each in given for array in self._module.arrays(each.shape)]
        known = [size for size in sizes if size is not None]
        is_known = len(known) == len(sizes) and sum(known) < LARGEST
        return Exchange(
            sum(known) if is_known else None,
            self._module.groups(collective),
            self._module.pairs(collective),
        )

    # What it copies

    def _copied(self, instruction: HloInstruction, computation: Computation, flow: Flow) -> Copied:
        """Whether a copy that XLA has added is of an argument that the program may not overwrite, or in a loop or a branch."""
        if not self._is_added(instruction):
            return ""
        if computation is not self._module.entry:
            return "inside"
        made_of = flow.viewed((computation.id, instruction.id)) or instruction
        number = self._module.fields(made_of).number(field.PARAMETER_NUMBER)
        is_kept = made_of.opcode == "parameter" and number not in self._module.overwritten
        return "argument" if is_kept else ""
