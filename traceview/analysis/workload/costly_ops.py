"""Chooses ops that take much and are not what a step is made for: by their types and instructions, and by what they do together.

A step is expected to multiply matrices, convolve, and update variables. Of all else one *group* is a finding that takes a large
part of it: what only moves data, what one function makes that multiplies nothing, one type of op; and products at a low rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.functions import codes_of_labels
from traceview.analysis.facts.layers import instructions_that, label_places
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import (
    asked_for_most,
    flops_by_device,
    label_flops,
    label_ps,
    line_of,
    rows_of_labels,
)
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Line
from traceview.analysis.workload.compute_rules import (
    CHOSEN,
    COPIES_RATIO,
    COSTLY_RATIO,
    FACTORING,
    RECOMPUTED,
    UNTRAINED,
    rule_about_compute,
)
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.document import numbers
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import (
    Phase,
    label_lines,
    label_texts,
    of_instructions,
    op_labels,
    op_names,
)
from traceview.xplane.columns import Instruction

_MOVING_RATIO: Final = 0.30
"""Of the GPU time, in ops that only move data; but for one program with slices of an image, 671 healthy recordings had up to 22 %."""

_SLICES_RATIO: Final = 0.15
"""The same of gradients of slices, which any model may have some of; a choice of ours."""

_AGAIN_RATIO: Final = 0.20
"""The same of gradients that are differentiated again; a choice of ours."""

_FUNCTION_RATIO: Final = 0.40
"""The same of the ops of several types of one function without products; what develops pictures had 36 %, a loss of whole ones 21."""

_TYPE_RATIO: Final = 0.45
"""The same of one type of op; they had up to 39 %."""

_PRODUCTS_RATIO: Final = 0.20
"""The same of products of a low rate; they had up to 16 %."""

_EVERY_EIGHTH: Final = "Add it in every eighth step only, eight times as strong: a penalty on gradients need not be in each."

COSTLY_OPS: Final = rule_about_compute(
    code="costly-ops",
    title="{who:spends/spend} {loss} on {ops}[ in {line}]",
    titles={
        "shuffling": "{who:spends/spend} {loss} on shuffling[: {ops}][ in {line}]",
        "pooling": "{who:spends/spend} {loss} on pooling windows[ in {line}]",
        "sorting": "{who:spends/spend} {loss} on sorting[: {ops}][ in {line}]",
        "random": "{who:spends/spend} {loss} on drawing random numbers[: {ops}][ in {line}]",
        "running": "{who:spends/spend} {loss} on gradients of products of numbers[: {ops}][ in {line}]",
        "images": "{who:spends/spend} {loss} on transforming images[: {ops}][ in {line}]",
        "updating": "{who:spends/spend} {loss} on copies of a tensor to change a part of it[: {ops}][ in {line}]",
        "layout": "{who:spends/spend} {loss} on transposing tensors[: {ops}][ in {line}]",
        "donating": "{who:spends/spend} {loss} on copies of arguments of the function[ {program}]",
        "copying": "{who:spends/spend} {loss} on copies that XLA adds to loops[ in {line}]",
        "slices": "{who:spends/spend} {loss} on gradients of slices[: {ops}][ in {line}]",
        "zeros": "{who:spends/spend} {loss} on multiplying with zeros[: {ops}][ in {line}]",
        "separable": "{who:spends/spend} {loss} on filters that are a column times a row[: {ops}][ in {line}]",
        "mask": "{who:spends/spend} {loss} on results that a mask drops[: {ops}][ in {line}]",
        "dropped": "{who:spends/spend} {loss} on results that are dropped[: {ops}][ in {line}]",
        "order": "{who:spends/spend} {loss} on products that are small in another order[: {ops}][ in {line}]",
        "length": "{who:spends/spend} {loss} on Fourier transforms of an unfavourable length[: {ops}][ in {line}]",
        "again": "{who:spends/spend} {loss} on gradients of gradients[: {ops}][ in {line}]",
        "copied": "{who:spends/spend} {loss} on products with what was repeated before[: {ops}][ in {line}]",
        "apart": "{who:spends/spend} {loss} on gradients of a matrix that are made for each part of the batch[: {ops}][ in {line}]",
        "pairs": "{who:spends/spend} {loss} on combining all pairs element by element[: {ops}][ in {line}]",
        "copies": "{who:spends/spend} {loss} on computing with more rows than it needs[: {ops}][ in {line}]",
        "examples": "{who:spends/spend} {loss} on gradients of each example, of which only the sum is used[: {ops}][ in {line}]",
        "moving": "{who:spends/spend} {loss} on moving data[: {ops}][ in {line}]",
        "function": "{who:spends/spend} {loss} on ops that multiply no matrices[, in {line}]",
        "products": "{who:loses/lose} {loss} to products at a low rate[: {ops}][ in {line}]",
    },
    meaning="A large part of the step goes to these ops. Cheaper ones often suffice.",
    notes={
        "separable": (
            "Two convolutions, along columns and along rows, give the same. Instead of n x n two of n took about 5 / n of the time; the loss is the rest."
        ),
        "dropped": "A slice or a diagonal keeps a third of the results or less, and nothing else reads them. The loss is the rest, with its gradients.",
        "mask": (
            "They compute what a mask, such as a `one_hot`, or an index then leaves a part of. The program says how large it is; the "
            "loss is the rest."
        ),
        "zeros": (
            "One factor is nearly all zeros: a diagonal matrix, one number in each row, a constant, or filters that keep channels apart. The loss is all but the part of the "
            "others, of a constant 16 times that."
        ),
        "copies": "The program repeats rows before it computes with them, or adds up the rows of the result: fewer would do.",
        "copied": "Rows that are the same are multiplied again and again, perhaps joined with others. The loss is the part that is the same again.",
        "apart": "They are then summed, and the loss is what one product over the whole batch would save.",
        "pairs": "Each row of a tensor is combined with each row of another, and what that gives is added up.",
        "again": (
            "The loss of the model contains a gradient of these layers, which is differentiated again. With JAX their own forward and "
            "backward pass is not counted."
        ),
        "examples": "The program adds them up and does nothing else with them: that sum is one product of matrices.",
        "length": "Their length has a large prime factor. The loss is about what they would take less without: half or more of it.",
        "order": "They multiply three matrices: `(a @ b) @ c` and `a @ (b @ c)` are the same, and one has far fewer operations.",
        "moving": "They put numbers in other places. The gradient of a slice is as large as the whole tensor, and all are added.",
        "function": "Each reads all of its input and writes all of its result, while products of matrices use a number often.",
        "products": (
            "Other products of the step do 20 times their FLOP/s or more; the loss is what they would take less at the usual rate."
        ),
    },
    starts_at=(
        "{limit} of the GPU time: ops that sort, draw, pool windows, transform images, transpose, copy a tensor to change a part, or combine all pairs, and read more than constants; transforms and products of "
        f"which less is needed. {numbers.chosen('limit_ratio', _SLICES_RATIO)}: gradients of slices. {numbers.chosen('limit_ratio', _AGAIN_RATIO)}: "
        "gradients that are differentiated again, unless they are more than {most_again_ratio} of the compute; copies that XLA adds. "
        f"{numbers.chosen('limit_ratio', _MOVING_RATIO)}: ops that only move data. {numbers.chosen('limit_ratio', _FUNCTION_RATIO)}: a function, or layer, without products. {numbers.chosen('limit_ratio', _PRODUCTS_RATIO)}: "
        "lost to products at less than a twentieth of the usual rate. "
        f"{numbers.chosen('limit_ratio', _TYPE_RATIO)}: one type of op, no product. Waits of other devices count, too"
    ),
    limit=COSTLY_RATIO,
    # A choice of ours: with more of it the step is made for it.
    limits={"most_again_ratio": 0.8},
    action="Give it less to work on, find an op that does less, or do it every 100th step.",
    advice="Non-maximum suppression takes the best few hundred boxes. A product of a sparse array of JAX, 15% of it not 0, took 30 ms, of the whole array 6.",
    actions={
        "moving": (
            "Take tensors apart with one `tf.unstack` or `tf.split`, and collect parts in a `tf.TensorArray`; or reshape instead.",
            "The gradient of 8 slices took 12.3 ms, of `tf.unstack` 1.2. `TimeDistributed`: reshape time into the batch.",
        ),
        "pooling": (
            "Pool windows that do not overlap by an axis, `x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))`; sums of others are differences of `cumsum`.",
            "`lax.reduce_window` and its gradient are slow on CPUs: by an axis a step took 12.7 ms instead of 16.7, windows of 169 hours 26, by `jnp.cumsum` 4 (JAX 0.10).",
        ),
        "order": (
            "Multiply narrow matrices first: `(rows @ down) @ up`, or without a softmax `queries @ (keys.T @ values)`; gradients then do so, too.",
            "So adapters are quicker beside a layer than added to its weights: its own gradient, as large as these, is not made.",
        ),
        "length": (
            "Pad to a length of small prime factors, such as the next power of two: `jnp.fft.rfft(rows, n=8192)`.",
            "Transforms of 8,191 numbers, a prime, took 4.4 ms, of 8,192 0.5, and of 8,194 = 2 * 17 * 241 1.2 (JAX 0.10).",
        ),
        "again": (
            _EVERY_EIGHTH,
            "A gradient penalty in each step took 11.6 ms, in every eighth 6.5. In a `tf.function` a Python `bool` chooses: two graphs.",
        ),
        "copies": (
            "Compute first, then repeat: a layer that treats each row, or pixel, by itself belongs before `jnp.repeat`, `UpSampling2D` and overlapping windows.",
            "A step that narrows channels before it enlarges pictures took 6.7 instead of 12.4 ms (JAX 0.10, two cores).",
        ),
        "copied": (
            "Multiply first, then repeat: instead of joining a repeated context with each row, a layer for each, and add what they give.",
            "`Dense(n)(rows) + Dense(n)(context)[:, None]` is the same layer; a step took 4.3 instead of 8.1 ms (two cores).",
        ),
        "apart": (
            "Multiply with the matrix once: `tf.tensordot(tensor, matrix, 1)` for `@`, and letters for the dots of an einsum, `'bti,io->bto'`.",
            "A step of two such layers took 11 instead of 16 ms; the gradient of an einsum with dots 300 instead of 4 (two cores).",
        ),
        "pairs": (
            "Let a product of matrices combine squares, |a|² + |b|² - 2ab for distances; else take fewer rows: the time grows with their square.",
            "So a step took 4.1 instead of 12.5 ms. Sums of absolute differences follow from sorted numbers, `reduce_sum((2 * k - n + 1) * sort(x))`, k from 0: 6 instead of 29 ms.",
        ),
        "jax-again": (
            _EVERY_EIGHTH,
            "With a gradient penalty a step took 3.6 ms, without it 1.8. A static argument of `jax.jit` chooses: two programs.",
        ),
        "examples": (
            "Take the gradient of the mean loss, `jax.grad` of one function of the batch, not the mean of `jax.vmap(jax.grad(loss))`.",
            "With it a step of three layers and 128 examples took 2.9 instead of 7.2 ms (JAX 0.10, two cores).",
        ),
        "zeros": (
            "Add up the entries that are not 0: `jax.ops.segment_sum(rows[source], target, count)`, or `jnp.take` for a row each.",
            "A list of the entries holds the same: their rows, their columns, and their values, if these are not all 1.",
        ),
        "moved": (
            "Move the numbers instead, `x.reshape(n, h, p, w, p, c).transpose(0, 1, 3, 2, 4, 5)` for patches: an identity as a filter changes none.",
            "`keras.ops.image.extract_patches` is such a convolution: 13 ms instead of 1.5 (Keras 3.15 on JAX).",
        ),
        "zero": (
            "Multiply number by number: `rows * gates[:, None]` is `rows @ tf.linalg.diag(gates)`. `tf.gather(table, ids)` is a product with a `tf.one_hot`.",
            "With the gates of three layers as diagonal matrices a step took 27.5 ms, number by number 17.3 (TensorFlow 2.21, two cores).",
        ),
        "channels": (
            "Enlarge with `UpSampling2D(interpolation='bilinear')`: this convolution joins all channels with all, and its filters keep them apart.",
            "For scores of 40 classes a step took 48 ms, so 33 (TensorFlow 2.21, two cores). Other filters can treat each channel by itself.",
        ),
        "separable": (
            "Convolve along columns, then along rows: a filter of n x 1, one of 1 x n. A blur by a Gaussian or a mean is such a product.",
            "With 25 x 25 and its gradients a step took 21.8 ms, with the two 13.9 (TensorFlow 2.21, two cores).",
        ),
        "dropped": (
            "Pick first, then multiply: `head(states[:, -1])`, not `head(states)[:, -1]`; `tf.reduce_sum(a * b, -1)`, not a diagonal.",
            "Let a convolution take `strides`: with `strides=4` instead of a slice of every fourth result a step took 29 instead of 37 ms (TensorFlow 2.21, two cores).",
        ),
        "mask": (
            "Pick first, then multiply: `states[places] @ weights`, not a mask over the results of all places.",
            "Experts: sort the words by their expert, so that each multiplies its own, instead of a `one_hot` over all of them.",
        ),
        "jax-moving": "Reshape where that does, and keep large arrays in one order and place through the step.",
        "function": (
            "Compile that function with XLA, `@tf.function(jit_compile=True)`, which joins such ops; or compute fewer numbers, or less often.",
            "So a step took 22 instead of 41 ms, another 34 instead of 41. A loss of the hardest of each row took half of a step less than that of all triples, compiled 2% less.",
        ),
        "products": (
            "Replace what makes them: convolutions in groups, of a few channels or of many taps, gradients of strided ones, single rows.",
            (
                "A filter of 96 taps took 27% of a step, by `jnp.fft.rfft` 4% (JAX 0.10). Zeros as a fourth channel, `jnp.pad`, left 3.5 of 6.5 ms of a step. `jax.vmap` over kernels makes a "
                "convolution in groups: a loop over the kernels in Python took half of the time."
            ),
        ),
        "slices": (
            "Cut it at once, `tf.split(values, count, axis)`: its gradient joins the parts, that of a slice is zeros of the whole around each.",
            "With 32 slices of one tensor a step took 24 ms, with `tf.split` 17 (TensorFlow 2.21, two cores).",
        ),
        "running": (
            "Multiply factors one by one, `a * b * c` of `tf.unstack`, or add logs: `tf.exp(tf.reduce_sum(tf.math.log(x), axis))`.",
            "The gradient of `tf.reduce_prod` takes running products. A step of decision trees took 41 ms, with either 34, by pairs 28 (TensorFlow 2.21).",
        ),
        "sorting": (
            "Ask for the largest alone, `tf.math.top_k(values, k)`: it took 0.8 ms where `tf.argsort` of 200,000 took 27.",
            "Or sort every 100th step.",
        ),
        "largest": "Look for the largest among fewer numbers, such as a sample of them, or in every 100th step only.",
        "jax-sorting": (
            "Ask for the largest alone, `jax.lax.top_k(values, k)`: it took 0.3 ms where `argsort` of 200,000 took 63.",
            "Or sort every 100th step.",
        ),
        "shuffling": (
            "Draw places with `jax.random.randint`, or without repeats `jax.lax.top_k(jax.random.uniform(key, (n,)), k)[1]`; permute once per epoch.",
            "`permutation`, and `choice` with `replace=False`, sort all places: 116 ms for 256 of 200,000, `top_k` 2.4, `randint` 0.05 (JAX 0.10).",
        ),
        "random": (
            "Draw fewer numbers: one for each row or channel, not each element; or by a simpler distribution, such as uniform.",
            "`Dropout(noise_shape=...)` and `SpatialDropout1D` do that. Noise that may repeat can be drawn once for many steps.",
        ),
        "categories": (
            "Draw all at once where rows have the same chances: `tf.random.categorical(logits[:1], rows * n)`, then reshape.",
            "Each row goes through all categories, however few it draws: with 128 rows of 20,000 a step took 38 ms, with one row 18 (TensorFlow 2.21).",
        ),
        "jax-random": (
            "Draw fewer numbers: one for each row or channel, not each element; or by a simpler distribution, such as uniform.",
            "`categorical` draws one per class: 512 of 1,200 classes took 6.3 ms, `jnp.searchsorted(jnp.cumsum(chances), uniform(key, shape))` 0.1 (JAX 0.10).",
        ),
        "exchanged_random": (
            "Let each device draw its own part: `jax.config.update('jax_threefry_partitionable', True)`, as JAX does from 0.5 on.",
            "Without it each device makes all numbers, or gathers them. The numbers differ from those before.",
        ),
        "images": (
            "Move it into the input pipeline, `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
            "There it runs beside the step. Layers of Keras work there, too: `dataset.map(lambda x, y: (layer(x), y))`.",
        ),
        "updating": (
            "Keep it in a variable, and change that in place: `bank.scatter_nd_update(places, rows)`.",
            "Copies of 10 MB took 1.0 to 2.8 ms, in place 0.25 (two cores). A queue as a ring has its next row at `count % length`: a step took 5.3 instead of 8.4 ms.",
        ),
        "layout": (
            "Keep one order of dimensions throughout, that of the kernels: `data_format='channels_last'` in layers and input.",
            "Four residual blocks of convolutions that transposed their input and result took 13 to 16% less without.",
        ),
        "donating": "Donate what it replaces: `jax.jit(function, donate_argnums=0)`; else XLA copies it whole to change a part of it.",
        "copying": "In a `while` or `scan` of a program keep large arrays that do not change out of the carry.",
    },
    example="CPU:0 spends 33.1 of 38.0 ms (87%) on sorting: sort in choose, train.py:17",
)


def types_of_labels(context: Context) -> tuple[tuple[str, ...], Int64Array]:
    """The types of ops, "" where none was recorded, and int64 the place of that of each label.

    Of an instruction of XLA it is the op of the source that it was made for, or its own, of what XLA has added.
    """
    trace = context.trace
    (ops, op_of_label), place_of = trace.once(op_names), dict[str, int]()

    def place(type_: str) -> int:
        return place_of.setdefault(type_, len(place_of))

    places = np.array([place(type_ or "") for _, type_ in ops], dtype=np.int64)
    compiled = of_instructions(trace, lambda each: place(_type_of(each)), NONE)
    return tuple(place_of), np.where(compiled == NONE, places[op_of_label], compiled)


_PRIMITIVE: Final = lazy_pattern(r"[a-z][a-z0-9_]{0,40}")
_KNOWN: Final = {"dot": "dot_general", "convolution": "conv_general_dilated", "command_buffer_": ""}


_DRAWS: Final = lazy_pattern(
    r"jit\(_(bernoulli|exponential|gamma|gumbel|normal|normal_real|randint|truncated_normal|uniform)\)"
    r"|(random_bits|rng_bit_generator|rng_uniform|threefry2x32)$"
)
"""Functions of `jax.random`, and the primitives that they call (JAX 0.10)."""


def _type_of(instruction: Instruction) -> str:
    """`gather` of `jit(step)/take/gather`; `copy` of `copy.3`; "" of a CUDA graph, which hides its ops; what numbers are drawn for."""
    last, name = instruction.scope.rpartition("/")[2], instruction.name.decode("utf-8", "replace")
    own = name.rstrip("0123456789").removesuffix(".") or name
    # `convolution-base-dilated` is one, too.
    known = _KNOWN.get(own.partition("-")[0])
    if known is not None:
        # Gradients of products end with the transposition of their result.
        return known
    drawn = _DRAWS.search(instruction.scope)
    if drawn:
        return str(drawn[1] or drawn[2])
    return instruction.op_type or (last if _PRIMITIVE.fullmatch(last) else own)


# By name


class OpsByName(Struct, frozen=True):
    """Ops that a rule is about, by their types in TensorFlow, by kernels and by instructions of XLA. `key`: of its title and action."""

    rule: Rule
    key: str = ""
    types: re.Pattern[str] | None = None
    is_one: Callable[[Instruction], bool] | None = None
    kernels: re.Pattern[bytes] | None = None


_FACTORINGS: Final = lazy_pattern(
    "cholesky|eigh?|geqrf|hessenberg|householder_product|lu|qr|schur|svd|triangular_solve|tridiagonal"
)
"""Primitives of JAX (0.4 to 0.11), with which the scope of an instruction ends."""
_SORTS: Final = frozenset(["sort", "top_k", "approx_top_k"])
_SHUFFLES: Final = lazy_pattern(r"jit\(_(?:permutation|shuffle)\)")
"""Those that sort all of what they draw from."""
_POOLS: Final = lazy_pattern(rb"(?:^|_)(?:reduce-window|select-and-scatter)(?![a-z])")
_COPY: Final = lazy_pattern(rb"copy(?:\.\d+)?")
_COPYING: Final = replace(COSTLY_OPS, limit=COPIES_RATIO)


def _is_copy(copied: str, each: Instruction) -> bool:
    """Whether an instruction is such a copy."""
    return each.copied == copied and _COPY.fullmatch(each.name) is not None


DRAWN: Final = OpsByName(
    COSTLY_OPS,
    "random",
    lazy_pattern(r"(?:Stateless)?(?:Multinomial|Random|(?:Parameterized)?TruncatedNormal)\w*"),
    lambda each: _DRAWS.search(each.scope) is not None,
)

BY_NAME: Final = (
    OpsByName(UNTRAINED, "number", is_one=lambda each: each.need == "number"),
    OpsByName(CHOSEN, "choice", is_one=lambda each: each.need == "choice"),
    OpsByName(COSTLY_OPS, "pooling", is_one=lambda each: _POOLS.search(each.name) is not None),
    OpsByName(COSTLY_OPS, "order", is_one=lambda each: each.need == "order"),
    OpsByName(COSTLY_OPS, "length", is_one=lambda each: each.need == "length"),
    OpsByName(COSTLY_OPS, "copies", is_one=lambda each: each.need == "copies"),
    OpsByName(COSTLY_OPS, "examples", is_one=lambda each: each.need == "examples"),
    OpsByName(COSTLY_OPS, "zeros", is_one=lambda each: each.need == "zeros"),
    OpsByName(COSTLY_OPS, "mask", is_one=lambda each: each.need == "mask"),
    # The scope of what `jax.checkpoint` computes again (JAX 0.4 to 0.11).
    OpsByName(RECOMPUTED, is_one=lambda each: "rematted_computation" in each.scope.split("/")),
    OpsByName(
        FACTORING,
        types=lazy_pattern(
            r"(?:Batch)?(?:Svd|SelfAdjointEig|Eig|Qr|Lu|Cholesky(?:Grad)?|(?:Log)?MatrixDeterminant"
            r"|Matrix(?:Inverse|Solve|SolveLs|TriangularSolve|SquareRoot|Logarithm|Exponential))(?:V\d+)?"
        ),
        is_one=lambda each: _FACTORINGS.fullmatch(each.scope.rpartition("/")[2]) is not None,
    ),
    OpsByName(
        COSTLY_OPS, "shuffling", is_one=lambda each: _SHUFFLES.search(each.scope) is not None
    ),
    OpsByName(
        COSTLY_OPS,
        "sorting",
        lazy_pattern(r"(?:InTopK|TopK|Unique)(?:With\w+)?(?:V2)?"),
        lambda each: each.scope.rpartition("/")[2] in _SORTS,
    ),
    DRAWN,
    # TensorFlow 2.21 makes them for the gradient of `tf.reduce_prod`, and hardly any script does.
    OpsByName(COSTLY_OPS, "running", lazy_pattern("Cumprod")),
    OpsByName(
        COSTLY_OPS,
        "images",
        lazy_pattern(
            r"(?:Adjust(?:Contrast|Hue|Saturation)|CropAndResize|ImageProjectiveTransform|Resize)\w*|RGBToHSV|HSVToRGB"
        ),
    ),
    OpsByName(COSTLY_OPS, "updating", lazy_pattern(r"TensorScatter\w+")),
    # Kernels of cuDNN in front of and behind convolutions. Transpositions of XLA were up to 14% of healthy steps on CPUs.
    OpsByName(
        COSTLY_OPS,
        "layout",
        lazy_pattern(r"_?(?:Mkl)?(?:Conjugate)?Transpose"),
        kernels=lazy_pattern(rb"(?:nchwToNhwc|nhwcToNchw)Kernel"),
    ),
    OpsByName(_COPYING, "donating", is_one=partial(_is_copy, "argument")),
    OpsByName(_COPYING, "copying", is_one=partial(_is_copy, "inside")),
)


def labels_by_name(context: Context, ops: OpsByName) -> BoolArray:
    """Which labels are such ops."""
    types, of_label = context.once(types_of_labels)
    is_type = [ops.types is not None and ops.types.fullmatch(type_) is not None for type_ in types]
    marks: BoolArray = np.array(is_type, dtype=np.bool_)[of_label]
    if ops.is_one is not None:
        marks |= instructions_that(context.trace, ops.is_one)
    if ops.kernels is not None:
        names = context.trace.device_columns.name[context.trace.once(op_labels).row]
        marks |= context.trace.names.where(names, ops.kernels.search)
    return marks


# By what they do together


def all_ps(context: Context) -> Int64Array:
    """How long all devices together compute what each label names, int64 picoseconds."""
    labels = np.ones(context.trace.once(op_labels).row.size, dtype=np.bool_)
    return label_ps(context, rows_of_labels(context, labels))


def multiplies_nothing(context: Context) -> BoolArray:
    """Which labels are ops of a known type that do no product."""
    types, of_label = context.once(types_of_labels)
    is_typed = np.array([bool(type_) for type_ in types], dtype=np.bool_)[of_label]
    nothing: BoolArray = is_typed & (context.trace.once(label_flops) == 0)
    return nothing


def _is_of_graph(context: Context) -> BoolArray:
    """Which labels are ops that run by themselves, as XLA has not compiled them."""
    trace = context.trace
    runs: BoolArray = trace.device_columns.instruction[trace.once(op_labels).row] == NONE
    return runs


_MOVES: Final = lazy_pattern(
    r"_?(?:Mkl)?(?:(?:Strided)?Slice|Tile|(?:Mirror)?Pad(?:V2)?|BroadcastTo|Reverse(?:V2)?|Roll|TensorList\w+"
    r"|(?:Concat|Split|Pack|Unpack|(?:Conjugate)?Transpose)\w*|(?:Batch|Depth|Space)To(?:Batch|Depth|Space)\w*)(?:Grad)?"
)
"""Types of ops whose result has the numbers of their input in other places, once or more often, and zeros."""
_MOVED: Final = lazy_pattern(
    rb"(?:wrapped_)?(?:concatenate|dynamic-slice|dynamic-update-slice|pad|reverse|slice|transpose)(?:\.\d+)?"
)
"""Names of instructions of XLA that do the same and nothing else."""


def moving(context: Context, is_free: BoolArray) -> BoolArray:
    """Which labels only move data."""
    types, of_label = context.once(types_of_labels)
    is_type = np.array([_MOVES.fullmatch(type_) is not None for type_ in types], dtype=np.bool_)
    marks = is_type[of_label] & context.once(_is_of_graph)
    marks |= instructions_that(context.trace, lambda each: _MOVED.fullmatch(each.name) is not None)
    return is_free & marks


_MULTIPLIED: Final = 0.1
"""Of the compute of a function that multiplies nothing worth mentioning; a choice of ours."""
_ONE_TYPE: Final = 2 / 3
"""Of the compute of a function whose ops are rather of one type; a choice of ours."""


def of_one_function(context: Context, is_free: BoolArray, most: float = _ONE_TYPE) -> BoolArray:
    """Which labels are ops of the function, or layer, that takes longest of those that multiply nothing. `most`: that one type takes.

    Gradients belong to the function of their op. What XLA has compiled it has fused as far as it can.
    """
    is_free = is_free & context.once(_is_of_graph)
    codes, code = context.trace.once(codes_of_labels)
    types, type_ = context.once(types_of_labels)
    ps = context.once(all_ps)
    own = SWEEPS.totals(code, np.where(is_free, ps, 0), len(codes))
    products = np.where(context.once(multiplies_nothing), 0, ps)
    own[SWEEPS.totals(code, products, len(codes)) > _MULTIPLIED * own] = 0
    for each in np.argsort(-own[1:], kind="stable").tolist():
        labels: BoolArray = is_free & (code == each + 1)
        by_type = SWEEPS.totals(type_, np.where(labels, ps, 0), len(types))
        if by_type.max() <= most * own[each + 1]:
            return asked_for_most(context, labels, ps)
    return np.zeros_like(is_free)


def of_slices(context: Context) -> BoolArray:
    """Which labels are gradients of slices in a graph, with the sums of these, unless other sums take longer than they do.

    Where the capture saw which line of the script made each op, only slices of one: others are those of layers, as in a GRU of Keras.
    """
    types, of_label = context.once(types_of_labels)
    sliced, added = (
        np.array([type_ == each for type_ in types], dtype=np.bool_)[of_label]
        for each in ("StridedSliceGrad", "AddN")
    )
    graphs = [host.captured.graphs for host in context.trace.hosts]
    if any(graph.flops or graph.lines for graph in graphs):
        sliced &= np.array([bool(line) for line in context.trace.once(label_lines)], dtype=np.bool_)
    ps = context.once(all_ps)
    labels: BoolArray = sliced | (added & (ps[added].sum() <= ps[sliced].sum()))
    return labels


_SORTED: Final = lazy_pattern(r"(?:^|/)(?:arg)?sort(?:_\d+)?/")
"""The scope of what `tf.sort` and `tf.argsort` make, a `TopKV2` each (TensorFlow 2.21)."""


def asks_for_largest(context: Context, labels: BoolArray) -> bool:
    """Whether most of what sorts is `tf.math.top_k` itself."""
    texts, ps = context.trace.once(label_texts), context.once(all_ps)
    chosen = np.flatnonzero(labels)
    of_chosen = [texts[each] for each in chosen.tolist()]
    is_top = np.array(
        [":TopK" in each and not _SORTED.search(each) for each in of_chosen], np.bool_
    )
    return bool(2 * ps[chosen[is_top]].sum() > ps[chosen].sum())


def of_one_type(context: Context, is_free: BoolArray) -> BoolArray:
    """Which labels are ops of the type that takes longest, of XLA in the forward and backward pass: others may update variables."""
    types, of_label = context.once(types_of_labels)
    phase = context.trace.once(label_places).phase
    is_free = is_free & (context.once(_is_of_graph) | (phase != Phase.UNKNOWN))
    ps = SWEEPS.totals(of_label, np.where(is_free, context.once(all_ps), 0), len(types))
    longest: BoolArray = is_free & (of_label == np.argmax(ps))
    if context.ledger.loss(rows_of_labels(context, longest)).share < _TYPE_RATIO:
        return longest
    # What else their line makes goes with them, as what collects for a product of sparse arrays.
    named = line_of(context, np.where(longest, context.once(all_ps), 0)).get("line")
    line = (named.called or named.line) if isinstance(named, Line) else None
    lines = context.trace.once(label_lines)
    at_line = np.fromiter((each == line for each in lines), np.bool_, len(lines))
    return longest | (is_free & at_line)


def own_part(context: Context, labels: BoolArray) -> float:
    """How much of the time that ops have in the ledger they would save at most, for other ops run at the same time.

    The ledger gives an instant to the op that began first. All that runs then waits for the same cores or multiprocessors.
    """
    ps, most = int(context.once(all_ps)[labels].sum()), 0.0
    for of in context.once(flops_by_device).values():
        duration_ps = of.duration_ps.total
        most += of.ran_ps * (of.duration_ps.where(labels).total / duration_ps if duration_ps else 0)
    return min(1.0, most / ps) if ps else 1.0


class Group(Struct, frozen=True):
    """Ops that are a finding together, of those that no other one is about. `key`: of its title and action. `is_of_model`: a model may be
    made of them, and need them all.
    """

    rule: Rule
    key: str
    choose: Callable[[Context, BoolArray], BoolArray]
    is_of_model: bool = True


AGAIN: Final = replace(COSTLY_OPS, limit=_AGAIN_RATIO)
SLICES: Final = replace(COSTLY_OPS, limit=_SLICES_RATIO)

GROUPS: Final = (
    Group(replace(COSTLY_OPS, limit=_MOVING_RATIO), "moving", moving, is_of_model=False),
    Group(replace(COSTLY_OPS, limit=_FUNCTION_RATIO), "function", of_one_function),
    Group(replace(COSTLY_OPS, limit=_TYPE_RATIO), "", of_one_type),
    Group(replace(COSTLY_OPS, limit=_TYPE_RATIO), "function", partial(of_one_function, most=1.0)),
)
"""In this order: what a finding is about is in no later group."""

LOW_RATE: Final = replace(COSTLY_OPS, limit=_PRODUCTS_RATIO)
