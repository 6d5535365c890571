"""Defines when compute becomes a finding: formats that take longer, constants, factorings, work beside the model, and the optimizer."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from traceview.analysis.facts.functions import CODE_RATIO
from traceview.analysis.facts.python import CONVERTED
from traceview.analysis.measures.op_work import LEFT_OUT_RATIO
from traceview.analysis.rules.rule import Rule
from traceview.document import numbers
from traceview.ledger.states import State

COSTLY_RATIO: Final = LEFT_OUT_RATIO
"""Of the GPU time; a choice of ours. None of 346 healthy recordings is warned of it, or of casts."""

UPDATED_BY_PRODUCTS_RATIO: Final = 0.30
"""The same of an optimizer that mostly multiplies matrices, as most do not; a choice of ours."""


def _rule(**words: Any) -> Rule:
    """A rule about compute."""
    reasons = {"graph": "the graph of the step function shows it"}
    counted = "The loss holds {exchanged} of exchanging what they compute. A finding about communication may count that, too."
    of_dispatch = "The loss holds their dispatch."
    notes = {"exchanged": counted, "dispatch": of_dispatch, **words.pop("notes", {})}
    return Rule(states=(State.COMPUTE,), reasons=reasons, notes=notes, **words)


FLOAT64: Final = _rule(
    code="float64-compute",
    title="{who:loses/lose} {loss} to float64[, {ops}][, {line}]",
    titles={"half": "{who:loses/lose} at least {loss} to float64[, {ops}][, {line}]"},
    at_least=("half",),
    meaning=(
        "float64 takes longer than float32: twice the bytes, and half as many numbers at a time or fewer. GPUs made for "
        "graphics have few units for it."
    ),
    notes={
        "half": "The loss is half of their time.",
        "peaks": "The loss is what products take less at this GPU's peak of float32, or TF32, and half of the time of other ops.",
    },
    starts_at=(
        "{limit} of the GPU time lost to float64 or complex128 results, by names of kernels, programs of XLA, and graphs of the "
        "step functions"
    ),
    action="Use float32: cast the input with `tf.cast`, and create variables with dtype `tf.float32`.",
    advice="NumPy makes float64 unless told otherwise: `array.astype(np.float32)` before the dataset is made.",
    actions={
        "jax": "Leave `jax_enable_x64` off, or cast what needs no float64 with `astype(jnp.float32)`."
    },
    example="Both replicas lose at least 18.1 of 40.1 ms (45%) to float64, MatMul",
)

SLOW_PRODUCTS: Final = _rule(
    code="no-tensor-cores",
    title="{who:loses/lose} {loss} to float32 products off the tensor cores[: {ops}][, {line}]",
    meaning=(
        "These kernels multiply matrices or convolve in full float32. The tensor cores of this GPU do that in TF32, with 10 bits "
        "of mantissa, which training mostly tolerates."
    ),
    notes={"peaks": "The loss is what they take less at the peak of TF32 of this model of GPU."},
    starts_at="{limit} of the GPU time lost to float32 products off the tensor cores, by names of kernels and peaks of the GPU",
    action="Allow TF32: `tf.config.experimental.enable_tensor_float_32_execution(True)`, or train in mixed precision.",
    actions={
        "jax": (
            "Allow TF32: leave `jax_default_matmul_precision` unset, and `precision=` of products at its default.",
            "Or compute in bfloat16: arrays and parameters with dtype `jnp.bfloat16`.",
        )
    },
    explains=("low-precision-unused",),
    example="GPU:0 loses 5.06 of 6.61 ms (77%) to float32 products off the tensor cores",
)

CONSTANT: Final = _rule(
    code="constant-compute",
    title="{who:spends/spend} {loss} on recomputing constants[: {ops}][ in {line}]",
    meaning="These ops read only constants, tensors and variables that no step changes: each step computes the same again.",
    starts_at=(
        "{limit} of the GPU time in ops of step functions that depend on no argument, random number or variable that changes, with "
        "what other devices wait meanwhile"
    ),
    action="Compute it once before the loop, and let the step read the result.",
    advice="A tensor that a function reads from outside is not computed again: `table = make_table()` above `@tf.function`.",
    actions={
        "jax": (
            "Compute it once before the loop, and pass the result to the step.",
            "What a jitted function computes from constants alone, each of its calls computes again.",
        )
    },
    example="Both replicas spend 4.61 of 22.1 ms (21%) on recomputing constants: SelfAdjointEigV2 in loss, train.py:11",
)

BATCH_WORK: Final = _rule(
    code="batch-work-in-step",
    title="{who:spends/spend} {loss} on preparing the batch inside the step[: {ops}][ in {line}]",
    titles={"frozen": "{who:spends/spend} {loss} on frozen layers[: {ops}][ in {line}]"},
    meaning="These ops read nothing but the batch and constants, so they need not wait for the last step.",
    notes={
        "frozen": "Constants are also variables that no step changes. The data set gives the same examples in each epoch."
    },
    actions={
        "frozen": (
            "Compute it once for each example, `dataset.map(lambda x, y: (frozen(x), y)).cache()`, or before training.",
            "Then train the other layers on what it made.",
        )
    },
    starts_at=(
        "{limit} of the GPU time in ops of step functions that read the batch, and neither variables, state, random numbers nor what "
        "depends on these, with what other devices wait meanwhile; only of functions that update trained variables. Also in those "
        "that besides read variables which no graph changes, where no eager op assigns any and the data set gives each example again"
    ),
    limit=COSTLY_RATIO,
    action="Move it into the input pipeline, `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
    advice=(
        "There it runs ahead of the step, and with `cache()` behind it once, if the data fit into memory. Layers of Keras work there, "
        "too: `dataset.map(lambda x, y: (layer(x), y))`."
    ),
    example="Both replicas spend 9.12 of 31.0 ms (29%) on preparing the batch inside the step: ScaleAndTranslate in call, model.py:14",
)

VARIABLE_WORK: Final = _rule(
    code="batch-free-compute",
    title="{who:spends/spend} {loss} on ops that read variables and not the batch[: {ops}][ in {line}]",
    titles={
        "dense": "{who:spends/spend} {loss} on the dense gradient of a table[: {ops}][ in {line}]",
        "converted": "{who:spends/spend} {loss} on the gradient of a table that the script makes dense[: {ops}][ in {line}]",
        "products": "{who:spends/spend} {loss} on products of variables alone, as of a regularizer[: {ops}][ in {line}]",
    },
    meaning=(
        "These ops take as long for any batch. Where a step uses few rows of their result, as of a table that is looked up, most of "
        "it is computed for nothing, and its gradient with it."
    ),
    starts_at=(
        "{limit} of the GPU time in ops of step functions that read variables, and neither the batch, random numbers nor what "
        "depends on these, without the optimizer; only of functions that update trained variables"
    ),
    limit=COSTLY_RATIO,
    notes={
        "dense": "They make the gradient of a table dense that is sparse without them: all rows are changed, exchanged and updated."
    },
    actions={
        "dense": (
            "Keep it sparse: regularize the rows that the batch looks up, not the table, `embedding.activity_regularizer = decay`.",
            "Without Keras, `tf.nn.l2_loss(tf.gather(table, ids))`. Check and clip `gradient.values` of the `tf.IndexedSlices`.",
        ),
        "products": (
            "Let a regularizer compute less: `keras.regularizers.OrthogonalRegularizer(factor, mode)` with the mode of the shorter side.",
            "Products of 640 columns took 7 ms of a step, those of 128 rows 2 (TensorFlow 2.21). Or use a norm, `L2`.",
        ),
        "converted": (
            "Keep it sparse: clip, scale and check `gradient.values` of the `tf.IndexedSlices`, not the gradient.",
            "`tf.convert_to_tensor`, `tf.math.is_nan` and `check_numerics` make all rows; `tf.clip_by_value` and `tf.cast` do not (TensorFlow 2.21).",
        ),
    },
    action="Look up the rows of the batch first, and compute on these: `tf.nn.l2_normalize(tf.gather(table, ids), axis=1)`.",
    advice="What needs all of a variable: compute it every 100th step into a variable without gradients, and read that.",
    example="GPU:0 spends 12.0 of 40.1 ms (30%) on ops that read variables and not the batch: Mul in call, train.py:28",
)

UNTRAINED: Final = _rule(
    code="untrained-compute",
    title="{who:spends/spend} {loss} on ops that train nothing[: {ops}][ in {line}]",
    titles={
        "number": "{who:spends/spend} {loss} on gradients of which only a norm or a check is used[: {ops}][ in {line}]",
        "zeros": "{who:spends/spend} {loss} on gradients that are always 0[: {ops}][ in {line}]",
        "random": "{who:spends/spend} {loss} on random numbers that train nothing[: {ops}][ in {line}]",
    },
    meaning="No update of a trained variable depends on these ops. They only feed metrics, or nothing uses their results.",
    starts_at=(
        "{limit} of the GPU time in ops of step functions on which no update of a trained variable depends, and through which no "
        "gradient was taken, with what other devices wait meanwhile; only of functions with such updates; with gradients that "
        "are zeros whatever the batch is, and updates by them. Also in gradients of a program of JAX that reach what it gives only by way of single numbers"
    ),
    actions={
        "number": (
            "Leave gradients of what is not trained out of the norm that clips, and check gradients, as with `checkify`, in few steps only.",
            "Take `jax.grad` over the trained ones, with the others as another argument. XLA does not compute what nothing reads.",
        ),
        "random": "Do not draw them where they have no effect, as noise whose strength is 0: no update depends on them.",
        "zeros": (
            "Leave out losses that weigh 0, with the layers that only they need, and hand the optimizer only what has a gradient.",
            "`zip(gradients, variables)` may leave out those whose gradient is None: an optimizer made for all keeps their state.",
        ),
    },
    notes={
        "number": "The program makes a number of them, as a norm of all gradients, or whether all are finite, and drops them. What exchanges them counts, too.",
        "zeros": "They compute gradients that are 0 whatever the batch is, exchange them, and update variables by them.",
    },
    limit=COSTLY_RATIO,
    action="Compute them outside of the step, every 100th step; in Keras in a callback, not in `compile(metrics=...)`.",
    advice=(
        "Let the step return the tensors that they read; or in it `tf.cond(step % 100 == 0, report, nothing)`. What evaluation shows can "
        "be left to it."
    ),
    explains=("straggler-gpu",),
    example="CPU:0 spends 21.3 of 50.2 ms (42%) on ops that train nothing: CTCBeamSearchDecoder in update_state, train.py:41",
)

REPEATED: Final = _rule(
    code="repeated-compute",
    title="{who:spends/spend} {loss} on what each device computes alike[: {ops}][ in {line}]",
    meaning="Each device computes from arrays that all have whole. Divided, each would compute its part.",
    titles={
        "gathered": "{who:spends/spend} {loss} on work that each device repeats after gathering its input[: {ops}][ in {line}]",
        "losses": "{who:spends/spend} {loss} on gradients of several losses through the same ops[: {ops}][ in {line}]",
        "ids": "{who:spends/spend} {loss} on applying the model again to ids of earlier passes[: {ops}][ in {line}]",
    },
    notes={
        "part": "The loss is all but the part that one of the devices would have.",
        "gathered": (
            "The loss is the exchange with its copies, and of the rest all but the part that one of the devices would have: no "
            "product needs the whole array."
        ),
        "losses": "Each replica computes gradients of each loss through the same ops, and adds them. The loss is all but one.",
        "ids": (
            "Ids are drawn one after the other, each pass computes all before again, and no gradient goes through it. The loss is all "
            "but the last pass. A model in which earlier ids see later ones needs it."
        ),
    },
    starts_at=(
        "{limit} of the GPU time, without the part of one device, in instructions of programs of several devices that read nothing "
        "but parameters which their shardings do not divide, or in ops of replicas that read the same batch. Also in all gradients but one "
        "through a product of a graph, where nothing but sums, and factors, reads them, and in passes over ids that a later one "
        "repeats with those drawn from it"
    ),
    actions={
        "gathered": (
            "Let each device compute its own part, and exchange sums of it, `jax.lax.psum` or `pmax`, instead of the whole by `all_gather`.",
            "For a softmax these are the largest score of each row and the sum of its exponentials.",
        ),
        "losses": (
            "Take one gradient, that of the sum of the losses: `tape.gradient(5 * of_boxes + of_classes, variables)`.",
            "The gradient of a sum is the sum of the gradients.",
        ),
        "ids": (
            "Keep what the layers computed of earlier ids, such as keys and values of attention, and apply the model to the newest id.",
            "`keys = tf.concat([past, keys], axis=1)`: 12 words took 43% of a step less so.",
        ),
        "batch": (
            "Divide the batch: give `strategy.run` batches of `strategy.experimental_distribute_dataset(dataset)`.",
            "A batch of `iter(dataset)` is given whole to each replica, which all make the same gradients of it.",
        ),
    },
    limit=COSTLY_RATIO,
    action="Divide the batch over the devices before the call: `jax.device_put(batch, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))`.",
    explains=("collective-exposed/alike",),
    advice=(
        "A batch that is on the host, whole on each device, or divided along another dimension, such as time, is computed whole by each. "
        "If a loop then sums gradients in each turn, `jax.shard_map` with `jax.lax.pmean` behind the loop sums them once."
    ),
    example="All 4 CPUs spend 6.90 of 20.6 ms (33%) on what each device computes alike: dot_general in logits, train.py:31",
)

COPIES_RATIO: Final = 0.20
"""The same of copies that XLA adds of arguments that are kept, or in loops; a choice of ours."""

CASTS: Final = _rule(
    code="casts",
    title="{who:spends/spend} {loss} on casts between types[, {line}]",
    meaning="A cast computes nothing: it reads the whole tensor and writes it again.",
    starts_at="{limit} of the GPU time in ops and instructions that only convert types",
    # Some are in every program whose input is made of bytes.
    limit=COSTLY_RATIO,
    action="Keep one type throughout: feed the batch in the type of the computation, and cast no result back.",
    advice="`jit_compile=True` on the function inside `strategy.run` makes casts a part of what uses them.",
    actions={
        "jax": (
            "Keep one type throughout: arrays and parameters with the dtype in which the layers compute.",
            "Inside of one `jax.jit` XLA makes most casts a part of what uses them.",
        )
    },
    example="All 4 GPUs spend 6.00 of 50.0 ms (12%) on casts between types, train.py:31",
)

HOST_OP: Final = _rule(
    code="host-op-in-step",
    title="{who:spends/spend} {loss} in {ops}[, {line}]",
    titles={
        "py_function": "{who:spends/spend} {loss} in `tf.py_function`[, {line}]",
        "numpy_function": "{who:spends/spend} {loss} in `tf.numpy_function`[, {line}]",
        "python": "{who:spends/spend} {loss} in `tf.py_function` and `tf.numpy_function`[, {line}]",
        "callback": "{who:spends/spend} {loss} in Python that {names:calls/call} inside the step[, {line}]",
        "printing": "{who:spends/spend} {loss} in `tf.print` inside the step[, {line}]",
        "summaries": "{who:spends/spend} {loss} in `tf.summary` inside the step[, {line}]",
        "checks": "{who:spends/spend} {loss} in `tf.debugging.check_numerics`[, {line}]",
        "all_checks": "{who:spends/spend} at least {loss} in `tf.debugging.enable_check_numerics`",
        "text": "{who:spends/spend} {loss} in ops on strings, {ops}[, {line}]",
    },
    at_least=("all_checks",),
    meaning=(
        "The step runs ops that are no part of the model. The loss is their time while no other runs, and what "
        "other devices wait for them. On CPU devices they count as compute. Ops of the input pipeline do not count."
    ),
    notes={
        "all_checks": "`tf.debugging.enable_check_numerics` adds one after every op, which also keeps ops from being fused."
    },
    action="Take them out of the step function: return the tensors and use them outside, every 100th step.",
    actions={
        "python": (
            "Write the Python functions of the step in TensorFlow ops, or move them into `dataset.map(...).cache()`.",
            "The GIL lets replicas run them one by one. Call what needs more than the batch outside, every 100th step.",
        ),
        "autograph": CONVERTED,
        "jax-python": (
            "Write it in `jax.numpy`, or, if it only reports, call it every 100th step on what the step returns.",
            "The program waits for each call of Python, which needs its lock.",
        ),
        "jax-printing": (
            "Return the values, and print them outside every 100th step.",
            "The program waits until Python has printed them.",
        ),
        "printing": (
            "Take `tf.print` out of the step function, or print a scalar.",
            "Return the tensor and print it outside every 100th step: `if step % 100 == 0: print(float(loss))`.",
        ),
        "summaries": (
            "Write summaries every 100th step: call a second `tf.function` that writes them.",
            "Or wrap them in `tf.summary.record_if(step % 100 == 0)`. Scalars cost little, histograms much.",
        ),
        "checks": (
            "Remove the checks once the NaN is found.",
            "Or train without them until the loss is NaN, and from the last checkpoint with them.",
        ),
        "text": (
            "Move ops on strings into the input pipeline, `dataset.map(...).cache()`.",
            "There they run ahead of the step, with a cache once, if the data fit into memory.",
        ),
    },
    starts_at=(
        "Python, printing, summaries, checks for NaN or text for {limit} of the GPU time, where the CPU is the device: on GPUs "
        "it is `cpu-heavy-op`"
    ),
    explains=("straggler-gpu",),
    example="Replica:0 spends 12.9 of 53.5 ms (24%) in tf.print inside the step",
)

LOOPED: Final = Rule(
    code="loop-bound",
    states=(State.COMPUTE, State.HOST_OPS, State.LAUNCH),
    title="{who:spends/spend} {loss} in loops of small ops, {turns} in a step[: {ops}][ in {line}]",
    meaning="Iterations run one after another, and their ops are so small that dispatch takes much of the time; it is included.",
    notes={"xla": "The loss is half of their time, for the same numbers are computed at once."},
    starts_at=(
        "{limit} of the GPU time in ops of a compiled step, with their dispatch, that run 16 times or more in it, 50 µs long in the mean; "
        "not where they are 97.5% of the compute; on GPUs of XLA only, where dispatch is a quarter"
    ),
    action="Call the ops once on the whole batch: most accept a batch dimension.",
    advice=(
        "`tf.map_fn`, `tf.scan` and loops of AutoGraph run one iteration after the other; where each needs the last one, a larger batch "
        "has fewer. `tf.nn.ctc_loss` loops for dense labels: with sparse ones a step took 25 ms instead of 60 (TensorFlow 2.21, two cores)."
    ),
    actions={
        "vectorized": (
            "Call the ops on the whole batch: `tf.vectorized_map` runs a loop over its rows for ops that it cannot convert.",
            "TensorFlow 2.21 converts neither `tf.image.crop_and_resize` nor what rotates images: a step took 27 ms, on whole batches 14.",
        ),
        "jax": (
            "Use `jax.vmap` for what `jax.lax.map` or `scan` does with one row after the other; `lax.map(..., batch_size=64)` in between.",
            "256 iterations of a small network made a step of 17 ms one of 31, in batches of 64 one of 19 (JAX 0.10, two cores).",
        ),
    },
    example="Both replicas spend 14.6 of 30.8 ms (47%) in loops of small ops, 16 iterations in a step: Transpose in view, train.py:82",
)

OPTIMIZER_BOUND: Final = _rule(
    code="optimizer-bound",
    title="{who:spends/spend} {loss} in the optimizer[, {ops}][ in {line}]",
    titles={
        "choice": "{who:spends/spend} {loss} on updates that a `where` takes in some steps only[, in {line}]"
    },
    meaning="The work of an optimizer depends on the number of parameters and not on the batch.",
    action="Use a larger batch per replica: it needs fewer updates per example, and an update takes no longer.",
    advice="An optimizer with less state, such as SGD, does less work per parameter.",
    actions={
        "embeddings": (
            "Train embeddings with `tf.keras.optimizers.SGD`, without momentum, decay or constraint: it updates only the rows that were looked up.",
            "Adaptive optimizers of Keras update the whole table. A larger batch needs fewer updates per example.",
        ),
        "products": (
            "Leave wide layers to another optimizer, `keras.optimizers.Muon(exclude_layers=['scores'])`: Muon multiplies matrices of each.",
            "Without the widest layer a step took 14 ms instead of 19 (Keras 3.15, TensorFlow 2.21, two cores).",
        ),
        "jax": (
            "Use a larger batch per device: it needs fewer updates per example, and an update takes no longer.",
            "Of a table of which a step reads few rows, update only these. Descent without means of gradients does less work.",
        ),
        "choice": "Let `tf.cond(is_due, update, keep)` choose: it runs one of them, while `tf.where` needs both results.",
        "jax-choice": (
            "Let `jax.lax.cond(is_due, update, keep, state)` choose: it runs one of them, while `where` needs both results.",
            "Where each eighth step updated, steps took 6.9 ms with `where` and 4.2 with `cond`.",
        ),
    },
    notes={
        "choice": "With the copies that XLA adds of what may be kept. The loss is all, also of steps that take the update."
    },
    starts_at=(
        "the optimizer takes {limit} of the GPU time, "
        f"{numbers.chosen('limit_ratio', UPDATED_BY_PRODUCTS_RATIO)} most in products, or "
        f"{numbers.chosen('limit_ratio', COSTLY_RATIO)} what a `select` of XLA, by numbers alone, may drop for an "
        "array that it was given"
    ),
    # In 87 healthy recordings it had up to 26 %.
    limit=0.40,
    example="Both replicas spend 30.1 of 42.3 ms (71%) in the optimizer, ResourceApplyAdam",
)

CHOSEN: Final = replace(OPTIMIZER_BOUND, limit=COSTLY_RATIO)
UPDATED_BY_PRODUCTS: Final = replace(OPTIMIZER_BOUND, limit=UPDATED_BY_PRODUCTS_RATIO)

FACTORING: Final = _rule(
    code="matrix-factoring",
    title="{who:spends/spend} {loss} on factoring matrices[: {ops}][ in {line}]",
    meaning="Factorings go column by column: they use few cores and no tensor cores, and are often no faster on GPUs than on CPUs.",
    starts_at=(
        "{limit} of the GPU time in ops that factor, invert or solve matrices, none of constants, with what other devices wait "
        "meanwhile"
    ),
    action="Do it every 100th step, and let the other steps use the last result.",
    advice="Or replace it: a power iteration, two products per step, gives the largest singular value; a solver needs no inverse.",
    actions={
        "batch": (
            "Replace it: `cholesky` and `triangular_solve` need no inverse, and the diagonal of the factor gives the determinant.",
            "A power iteration, two products per step, gives the largest singular value.",
        )
    },
    example="Both replicas spend 41.2 of 60.3 ms (68%) on factoring matrices: Svd",
)

RECOMPUTED: Final = _rule(
    code="rematerialization",
    title="{who:spends/spend} {loss} on recomputing activations for gradients[: {ops}][ in {line}]",
    meaning="Recomputing saves memory and costs about another forward pass.",
    starts_at=(
        "{limit} of the GPU time in what `tf.recompute_grad` computes again, or in instructions below `rematted_computation` of JAX, with what "
        "other devices wait meanwhile"
    ),
    action="Where memory is free, recompute less: make fewer layers within `keras.RematScope`, or wrap fewer in `tf.recompute_grad`.",
    advice="`keras.RematScope(mode='list_of_layers', layer_names=[...])` recomputes only some. `traceview show memory` says how much memory is free.",
    actions={
        "jax": (
            "Where memory is free, take `jax.checkpoint` off the cheapest layers, or keep what products give.",
            "`policy=jax.checkpoint_policies.dots_saveable` keeps products. `traceview show memory` says how much memory is free.",
        )
    },
    example="GPU:0 spends 5.12 of 21.0 ms (24%) on recomputing activations for gradients: dot_general in layer, train.py:18",
)

MOVING_RATIO: Final = 0.30
"""The same of ops that only move data; but for one program with slices of an image, 671 healthy recordings had up to 22 %."""

SLICES_RATIO: Final = 0.15
"""The same of gradients of slices, which any model may have some of; a choice of ours."""

AGAIN_RATIO: Final = 0.20
"""The same of gradients that are differentiated again; a choice of ours."""

FUNCTION_RATIO: Final = 0.30
"""The same of the ops of several types of one function without products; a loss of whole pictures had 21 %, others up to 10 %."""

TYPE_RATIO: Final = 0.45
"""The same of one type of op; they had up to 39 %."""

PRODUCTS_RATIO: Final = 0.20
"""The same of products of a low rate; they had up to 16 %."""

SLOW_RATE: Final = 1 / 20
"""Of the usual FLOP/s of the products of a step; a choice of ours."""

_EVERY_EIGHTH: Final = "Add it in every eighth step only, eight times as strong: a penalty on gradients need not be in each."

COSTLY_OPS: Final = _rule(
    code="costly-ops",
    title="{who:spends/spend} {loss} on {ops}[ in {line}]",
    titles={
        "shuffling": "{who:spends/spend} {loss} on shuffling[: {ops}][ in {line}]",
        "sorting": "{who:spends/spend} {loss} on sorting[: {ops}][ in {line}]",
        "random": "{who:spends/spend} {loss} on drawing random numbers[: {ops}][ in {line}]",
        "images": "{who:spends/spend} {loss} on transforming images[: {ops}][ in {line}]",
        "updating": "{who:spends/spend} {loss} on copies of a tensor to change a part of it[: {ops}][ in {line}]",
        "layout": "{who:spends/spend} {loss} on transposing tensors[: {ops}][ in {line}]",
        "donating": "{who:spends/spend} {loss} on copies of arguments of the program",
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
            "One factor is nearly all zeros: a diagonal matrix, one number in each row, or a constant. The loss is all but the part of the "
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
        "{limit} of the GPU time: ops that sort, draw random numbers, transform images, transpose, copy a tensor to change a part, or combine all pairs of rows, and "
        "read more than constants; Fourier transforms of a length with a large prime factor; products of more rows than needed, or of what a mask, an index or a slice drops; gradients of each example "
        f"of which only the sum is used; products with diagonal or one-hot matrices; filters that are a column times a row. {numbers.chosen('limit_ratio', SLICES_RATIO)}: gradients of slices. {numbers.chosen('limit_ratio', AGAIN_RATIO)}: "
        "gradients that are differentiated again, unless they are more than {most_again_ratio} of the compute; copies that XLA adds. "
        f"{numbers.chosen('limit_ratio', MOVING_RATIO)}: ops that only move data; a function, or layer, without products. {numbers.chosen('limit_ratio', PRODUCTS_RATIO)}: "
        "lost to products at less than a twentieth of the usual rate. "
        f"{numbers.chosen('limit_ratio', TYPE_RATIO)}: one type of op, no product. What other devices wait meanwhile counts, too"
    ),
    limit=COSTLY_RATIO,
    # A choice of ours: with more of it the step is made for it.
    limits={"most_again_ratio": 0.8},
    action="Find an op that does less, or do it every 100th step.",
    actions={
        "moving": (
            "Take tensors apart with one `tf.unstack` or `tf.split`, and collect parts in a `tf.TensorArray`; or reshape instead.",
            "The gradient of 8 slices took 12.3 ms, of `tf.unstack` 1.2. `TimeDistributed`: reshape time into the batch.",
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
            "Let a product of matrices combine them: |a|² + |b|² - 2ab for squared distances, `tf.matmul(a, b, transpose_b=True)`.",
            (
                "With the product instead of the differences of all pairs a step took 4.1 instead of 12.5 ms. "
                "Where no product gives it, use fewer rows: the time grows with their square."
            ),
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
        "zero": (
            "Multiply number by number: `rows * gates[:, None]` is `rows @ tf.linalg.diag(gates)`. `tf.gather(table, ids)` is a product with a `tf.one_hot`.",
            "With the gates of three layers as diagonal matrices a step took 27.5 ms, number by number 17.3 (TensorFlow 2.21, two cores).",
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
            "Compute fewer numbers: those over all pairs or triples of a batch grow with its square or cube.",
            "A loss of the hardest of each row took half of a step less than that of all triples; `jit_compile=True` 2% less.",
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
        "sorting": (
            "Ask for the largest alone, `tf.math.top_k(values, k)`: it took 0.8 ms where `tf.argsort` of 200,000 took 27.",
            "Or sort every 100th step.",
        ),
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
            "`tf.tensor_scatter_nd_update` copies all of it: 10 MB in 1.0 to 2.8 ms, of which it changed 3%; in place that took 0.25 (two cores).",
        ),
        "layout": (
            "Keep one order of dimensions throughout, that of the kernels: `data_format='channels_last'` in layers and input.",
            "Four residual blocks of convolutions that transposed their input and result took 13 to 16% less without.",
        ),
        "donating": "Donate what the step replaces: `jax.jit(step, donate_argnums=0)`; else XLA copies it whole to change a part of it.",
        "copying": "In a `while` or `scan` of a program keep large arrays that do not change out of the carry.",
    },
    example="CPU:0 spends 33.1 of 38.0 ms (87%) on sorting: sort in choose, train.py:17",
)

SECOND_FORWARD: Final = _rule(
    code="second-forward",
    title="{who:spends/spend} {loss} in a second forward pass, {function}",
    meaning="This compiled function computes no gradients, and repeats layers that the one that trains runs in the same steps.",
    starts_at=(
        "{limit} of the GPU time in compiled functions without gradients or updates, at least {code_ratio} of it in Python "
        "functions, or layers, that one with gradients runs, too"
    ),
    limits={"code_ratio": CODE_RATIO},
    action="Call this function in every tenth step only, or, of the same examples, take loss and metrics from the step itself.",
    advice="A `tf.function` returns as many tensors as it likes; a metric of Keras can be updated inside the step.",
    actions={
        "jax": (
            "Take the loss from the step itself, `loss, gradients = jax.value_and_grad(f)(...)`, or call this in every tenth step only.",
            "It is the loss before the update. With `has_aux=True` a function returns other values beside it.",
        )
    },
    example="GPU:0 spends 6.30 of 20.2 ms (31%) in a second forward pass, logged_loss",
)
