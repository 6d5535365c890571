"""Defines when compute becomes a finding: formats that take longer, constants, factorings, work beside the model, and the optimizer."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from traceview.analysis.facts.functions import CODE_RATIO
from traceview.analysis.facts.python import CONVERTED
from traceview.analysis.measures.graph_loops import FEWEST_MADE
from traceview.analysis.measures.op_work import LEFT_OUT_RATIO
from traceview.analysis.rules.rule import Rule
from traceview.document import numbers
from traceview.ledger.states import State

COSTLY_RATIO: Final = LEFT_OUT_RATIO
"""Of the GPU time; a choice of ours. None of 346 healthy recordings is warned of it, or of casts."""

UPDATED_BY_PRODUCTS_RATIO: Final = 0.30
"""The same of an optimizer that mostly multiplies matrices, as most do not; a choice of ours."""


def rule_about_compute(**words: Any) -> Rule:
    """A rule about compute."""
    reasons = {"graph": "the graph of the step function shows it"}
    counted = "The loss holds {exchanged} of exchanging what they compute. A finding about communication may count that, too."
    of_dispatch = "The loss holds their dispatch."
    notes = {"exchanged": counted, "dispatch": of_dispatch, **words.pop("notes", {})}
    return Rule(states=(State.COMPUTE,), reasons=reasons, notes=notes, **words)


FLOAT64: Final = rule_about_compute(
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

SLOW_PRODUCTS: Final = rule_about_compute(
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

CONSTANT: Final = rule_about_compute(
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

BATCH_WORK: Final = rule_about_compute(
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

VARIABLE_WORK: Final = rule_about_compute(
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

UNTRAINED: Final = rule_about_compute(
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

REPEATED: Final = rule_about_compute(
    code="repeated-compute",
    title="{who:spends/spend} {loss} on what each device computes alike[: {ops}][ in {line}]",
    meaning="The same is computed more than once.",
    titles={
        "gathered": "{who:spends/spend} {loss} on work that each device repeats after gathering its input[: {ops}][ in {line}]",
        "losses": "{who:spends/spend} {loss} on gradients of several losses through the same ops[: {ops}][ in {line}]",
        "ids": "{who:spends/spend} {loss} on applying the model again to ids of earlier passes[: {ops}][ in {line}]",
        "same": "{who:spends/spend} {loss} on computing the same several times[: {ops}][ in {line}]",
    },
    notes={
        "part": (
            "Each device computes from arrays that all have whole. Divided, each would compute its part: the loss is all but that of one."
        ),
        "gathered": (
            "Each device computes from arrays that all have whole. The loss is the exchange with its copies, and of the rest all but the part that one of the devices would have: no "
            "product needs the whole array."
        ),
        "same": "A step computes it from the same tensors and variables. The loss is all but the first time.",
        "losses": "Each replica computes gradients of each loss through the same ops, and adds them. The loss is all but one.",
        "ids": (
            "Ids are drawn one after the other, each pass computes all before again, and no gradient goes through it. The loss is all "
            "but the last pass. A model in which earlier ids see later ones needs it."
        ),
    },
    starts_at=(
        "{limit} of the GPU time, without the part of one device, in instructions of programs of several devices that read nothing "
        "but parameters which their shardings do not divide, or in ops of replicas that read the same batch. Also in all but one "
        "of the gradients through one product of a graph, if these are only scaled and summed, and in passes over ids that a later pass "
        "over more of them repeats"
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
        "same": (
            "Compute it once, before what needs it, and hand the result on: `keys = attention.keys(values)` ahead of a loop over words.",
            "TensorFlow merges ops that read the same tensors; each read of a variable gives another one. A step that writes 12 words took 30 ms instead of 42.",
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

CASTS: Final = rule_about_compute(
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

HOST_OP: Final = rule_about_compute(
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
    titles={
        "unrolled": "{who:spends/spend} {loss} on {turns} that a loop in Python made[: {ops}][ in {line}]",
        "in_turn": "{who:spends/spend} {loss} in loops of {turns} per step, each after the one before[, in {line}]",
    },
    meaning="Iterations run one after another.",
    notes={
        "dispatch": "Their ops are so small that dispatch takes much of the time; it is included.",
        "in_turn": "The loss is what they compute, all of it; a model may need that.",
        "xla": "The loss is half of their time, for the same numbers are computed at once.",
    },
    reasons={"in_turn": "how many iterations are needed is not recorded"},
    # Choices of ours.
    limits={"in_turn_ratio": 0.3, "unrolled_ratio": 0.1, "made_count": FEWEST_MADE},
    starts_at=(
        "{limit} of the GPU time in ops, 50 µs long in the mean, that run 16 times or more in a compiled step, with their dispatch, less than 97.5% of "
        "its compute, on GPUs a quarter of it dispatch; {unrolled_ratio} where a line made {made_count} of a type; {in_turn_ratio} where iterations need those before"
    ),
    action="Call the ops once on the whole batch: most accept a batch dimension.",
    advice=(
        "`tf.map_fn`, `tf.scan` and loops of AutoGraph run one iteration after the other. `tf.nn.ctc_loss` loops for dense labels: with sparse ones a step took 25 ms instead of 60 (TensorFlow 2.21, two cores)."
    ),
    actions={
        "vectorized": (
            "Call the ops on the whole batch: `tf.vectorized_map` runs a loop over its rows for ops that it cannot convert.",
            "TensorFlow 2.21 converts neither `tf.image.crop_and_resize` nor what rotates images: a step took 27 ms, on whole batches 14.",
        ),
        "turns": (
            "Compute outside of the loop what needs no other iteration: `rows @ weights` for all rows at once, not in each.",
            "Recurrent layers of few units take `unroll=True`: an LSTM of 32 units took 2.8 ms instead of 4.3 so (TensorFlow 2.21, two cores).",
        ),
        "unrolled": (
            "Compute with whole tensors instead of a loop in Python: a product of matrices, `tf.gather` of all pairs at once, `tf.vectorized_map`.",
            "The graph holds the ops of all its iterations, each with a dispatch. 496 products of pairs of fields took 8 ms, half of squared sum less sum of squares none.",
        ),
        "in_turn": (
            "Let the loop end sooner, with a larger tolerance or fewer iterations, or do more in each; a loop that has converged needs no gradient.",
            "`tf.stop_gradient` keeps the gradient from going back through all iterations.",
        ),
        "jax-in_turn": (
            "Let the loop end sooner, `odeint(..., rtol=1e-3, atol=1e-3)`, or do more in each iteration; a loop that has converged needs no gradient.",
            "`jax.lax.stop_gradient` and `jax.custom_vjp` keep the gradient from going back through all iterations.",
        ),
        "jax-turns": (
            "Compute outside of the loop what needs no other iteration: `jax.lax.scan(cell, start, rows @ weights)`, not `row @ weights` in each.",
            "With the products of all 60 iterations at once a step took 15 ms instead of 22 (JAX 0.10, two cores).",
        ),
        "jax": (
            "Use `jax.vmap` for what `jax.lax.map` or `scan` does with one row after the other; `lax.map(..., batch_size=64)` in between.",
            "256 iterations of a small network made a step of 17 ms one of 31, in batches of 64 one of 19 (JAX 0.10, two cores).",
        ),
    },
    example="Both replicas spend 14.6 of 30.8 ms (47%) in loops of small ops, 16 iterations in a step: Transpose in view, train.py:82",
)

OPTIMIZER_BOUND: Final = rule_about_compute(
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

FACTORING: Final = rule_about_compute(
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

RECOMPUTED: Final = rule_about_compute(
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

SECOND_FORWARD: Final = rule_about_compute(
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
        ),
        "alone": (
            "Run it by `strategy.run`, each replica on its part of the batch; or in every tenth step only, if that is enough.",
            "What a script calls outside of `strategy.run` runs on the first replica, and the others wait.",
        ),
    },
    explains=("serial-gpus/function",),
    example="GPU:0 spends 6.30 of 20.2 ms (31%) in a second forward pass, logged_loss",
)
