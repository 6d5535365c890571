"""Lists the training programs: what slows each down, and which finding is right to stand first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

Statistic = Literal["median", "mean"]


class Program(Struct, frozen=True):
    """A training program that can be slowed down.

    Attributes:
        name: Its module in `programs`.
        slowdown: What slows it down, in words.
        findings: Codes that are right as the first finding of the slow run; none if nothing slows it down.
        statistic: Whether the slowdown costs every step (median) or some steps (mean).
        second: Codes that are right as the second finding, of a program that two things slow down.
        advice: How the advice begins that the blocks with `StepClock.is_advised` follow; empty if none of them does.
        present: By code of a finding what healthy steps spend on that, too, as a share of a step: how much shorter they were
            without it, in turns with it in one process on two idle cores. Without `pmean`, or by `shard_map` without a sum;
            with a batch made before the loop, or a dataset of it; without setting the rate, asking for predictions,
            the loss of all tasks, casts, averages, statistics or dropout. Without making gradients orthogonal, or without
            writing what was measured; in one epoch; with a fourth channel of zeros; with half of the batch on each of two replicas.
    """

    name: str
    slowdown: str
    findings: tuple[str, ...]
    statistic: Statistic = "median"
    second: tuple[str, ...] = ()
    advice: str = ""
    present: Mapping[str, float] = MappingProxyType({})

    @property
    def is_jax(self) -> bool:
        """Whether JAX runs the steps, which records its profile itself."""
        return "jax" in self.name.split("_")

    @property
    def needs_gpu(self) -> bool:
        """Whether it trains on a GPU."""
        return self.name.startswith("gpu_")


_INPUT: Final = ("input-bound",)
_HOST_OP: Final = ("host-op-in-step", "cpu-heavy-op")
_CACHE: Final = "Put dataset.cache() behind the slow stage"
_OPS: Final = "Write the Python functions of the step in TensorFlow ops"
_SMALL_OPS: Final = ("host-bound", "collective-exposed", "small-collectives")
_PYTHON: Final = ("python-stall", "callback-stall")
_WAITS: Final = ("callback-stall",)

PROGRAMS: Final = {
    program.name: program
    for program in (
        Program("fit_generator", "a generator tokenizes text in Python", _INPUT),
        Program(
            "loop_generator",
            "a generator changes tokens in Python",
            _INPUT,
            advice="Do the work in ops of TensorFlow",
        ),
        Program(
            "fit_decode", "files are decoded one by one, in each epoch again", _INPUT, advice=_CACHE
        ),
        Program(
            "loop_spectrogram",
            "a map without parallel calls makes spectrograms again",
            _INPUT,
            advice=_CACHE,
        ),
        Program(
            "loop_compressed_files",
            "each epoch unpacks a compressed file",
            _INPUT,
            advice=_CACHE,
            present={"casts": 0.066},
        ),
        Program("fit_shuffle", "each pass over the data fills a shuffle buffer", _INPUT, "mean"),
        Program(
            "loop_new_iterator",
            "every third step begins the data set anew, which fills its buffers again",
            (*_INPUT, "callback-stall"),
            "mean",
            advice="Make one iterator before the loop",
        ),
        Program(
            "loop_checkpoint", "a checkpoint after every fourth step", ("checkpoint-stall",), "mean"
        ),
        Program(
            "fit_model_checkpoint",
            "Keras writes the weights after every batch",
            ("callback-stall", "checkpoint-stall"),
        ),
        Program(
            "loop_ragged",
            "every third batch has another length, which traces the step again",
            ("retracing",),
            "mean",
            advice="Let one graph serve every shape",
        ),
        Program(
            "loop_python_argument",
            "a Python number that changes every fourth step traces the step again",
            ("retracing",),
            "mean",
        ),
        Program("fit_callback", "a callback orders the weights with NumPy", ("callback-stall",)),
        Program(
            "loop_metric",
            "predictions are read and ranked with NumPy after each step",
            ("callback-stall", "d2h-sync"),
        ),
        Program(
            "loop_numpy_batches", "NumPy augments each batch between two steps", ("callback-stall",)
        ),
        Program("loop_thread", "a Python thread counts words beside the steps", ("python-thread",)),
        Program(
            "loop_constants",
            "nested lists are made into a tensor for each step",
            ("callback-stall", "host-bound", "launch-bound"),
            advice="Convert once before the loop",
        ),
        Program(
            "loop_summaries",
            "histograms of all weights are written after each step",
            ("callback-stall",),
        ),
        Program(
            "fit_validation",
            "a validation ends each epoch of six steps",
            ("validation-stall",),
            "mean",
        ),
        Program("fit_eagerly", "the step runs eagerly", ("host-bound", "launch-bound")),
        Program(
            "loop_eager_optimizer",
            "Adam updates the variables op by op outside of the graph",
            ("callback-stall", "host-bound", "launch-bound"),
        ),
        Program(
            "loop_map_fn", "`tf.map_fn` runs small ops row by row", ("host-bound", "launch-bound")
        ),
        Program(
            "loop_numpy_function",
            "`tf.numpy_function` orders each row inside the step",
            _HOST_OP,
            advice=_OPS,
        ),
        Program("loop_strings", "texts are split and hashed inside the step", _HOST_OP),
        Program("loop_print", "`tf.print` writes a layer inside the step", _HOST_OP),
        Program("loop_summaries_in_step", "the step itself writes histograms", _HOST_OP),
        Program("fit_check_numerics", "every op is checked for NaN", _HOST_OP),
        Program(
            "loop_embedding", "Adam updates a whole embedding table", ("optimizer-bound", *_HOST_OP)
        ),
        Program("loop_straggler", "replica 1 of 2 computes more", ("straggler-gpu",)),
        Program("loop_straggler_of_4", "replica 2 of 4 has larger images", ("straggler-gpu",)),
        Program(
            "loop_array_batch",
            "a NumPy array of float64 is converted in each call of the step",
            ("callback-stall", "python-stall", "host-bound"),
        ),
        Program(
            "loop_many_variables",
            "300 tiny variables have an all-reduce and an update each",
            _SMALL_OPS,
            advice="Run fewer and larger ops",
        ),
        Program(
            "loop_small_all_reduces",
            "60 statistics are summed one by one",
            _SMALL_OPS,
            advice="Exchange in one call",
            present={"collective-exposed": 0.36},
        ),
        Program(
            "loop_producer_thread",
            "a thread that counts letters in Python fills the queue of batches",
            ("python-thread",),
            present={"callback-stall": 0.046, "repeated-compute": 0.29},
        ),
        Program(
            "loop_print_replicas",
            "`tf.print` writes a layer inside the step of each replica",
            _HOST_OP,
        ),
        Program("fit_csv", "lines of a table are decoded one by one", _INPUT, advice=_CACHE),
        Program(
            "fit_py_map",
            "the pipeline calls Python on each batch",
            _INPUT,
            advice="Replace Python of the pipeline",
        ),
        Program(
            "loop_decomposition",
            "the loss takes the singular values of a matrix",
            ("matrix-factoring",),
            advice="Do it every 100th step",
        ),
        Program(
            "loop_ranking_and_strings",
            "NumPy ranks outputs after each step, and the step hashes texts",
            ("callback-stall",),
            second=(*_HOST_OP, "constant-compute"),
        ),
        Program("fit_four_replicas", "nothing", ()),
        Program("loop_read_loss", "nothing", ()),
        Program(
            "jax_pmap_numpy",
            "NumPy augments each batch before the call",
            _PYTHON,
            # 0.18, and on another day 0.175 to 0.26.
            present={"collective-exposed": 0.2},
            advice="Do it ahead in a thread",
        ),
        Program("jax_shard_map_sums", "120 small gradients are summed one by one", _SMALL_OPS),
        Program(
            "jax_mesh_generator",
            "a generator makes each batch",
            _PYTHON,
            advice="Write it in jax.numpy",
            present={"collective-exposed": 0.41},
        ),
        Program(
            "jax_numpy_and_callback",
            "NumPy sorts each batch before the call, 0.8 ms, and the step calls Python, 0.7 ms",
            (*_PYTHON, *_HOST_OP),
            second=(*_PYTHON, *_HOST_OP),
        ),
        Program("keras_jax_generator", "a generator makes each batch", _PYTHON),
        Program(
            "loop_recurrence",
            "`tf.while_loop` runs a recurrence of tiny ops",
            ("host-bound", "launch-bound"),
        ),
        Program(
            "loop_py_loss",
            "`tf.py_function` takes edit distances inside the step",
            _HOST_OP,
            advice=_OPS,
        ),
        Program(
            "fit_sequence_json",
            "each batch is read from lines of JSON",
            (*_INPUT, *_PYTHON),
            present={"input-bound": 0.057},
        ),
        Program(
            "fit_tiny_steps",
            "each call of a tiny model trains on one batch",
            ("host-bound", "launch-bound", *_PYTHON),
        ),
        Program(
            "loop_busy_machine", "other processes compute on the same cores", ("other-processes",)
        ),
        Program(
            "loop_micro_batches",
            "gradients of small batches are summed and applied one by one",
            (*_SMALL_OPS, "optimizer-bound"),
        ),
        Program(
            "loop_average_weights",
            "NumPy averages the weights after each step",
            ("callback-stall", "d2h-sync"),
        ),
        Program(
            "loop_fsync_log",
            "outputs are written as text and forced to the disk",
            ("callback-stall",),
        ),
        Program("loop_statistics_thread", "a thread of NumPy takes a core", ("python-thread",)),
        Program(
            "loop_collect_garbage",
            "a full garbage collection after every third step",
            ("garbage-collection",),
            "mean",
        ),
        Program(
            "loop_parse_single",
            "records are parsed one by one",
            _INPUT,
            advice=_CACHE,
            present={"repeated-compute": 0.32},
        ),
        Program(
            "loop_inverse",
            "each step inverts the same matrix",
            ("constant-compute", "matrix-factoring"),
        ),
        Program(
            "loop_new_function",
            "every fourth step makes its `tf.function` anew",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program("loop_float64", "the layers compute in float64", ("float64-compute",)),
        Program(
            "loop_generator_and_checkpoint",
            "every fourth step writes a checkpoint, 3.2 ms of a mean step, and a generator makes each batch, 2 ms",
            ("checkpoint-stall",),
            "mean",
            second=_INPUT,
            present={"repeated-compute": 0.21},
        ),
        Program(
            "loop_ordering_and_letters",
            "NumPy orders the data after each step, and the step counts letters in Python",
            ("callback-stall",),
            second=_HOST_OP,
        ),
        Program(
            "fit_text_and_callback",
            "a callback ranks the weights, and numbers are parsed from text",
            ("callback-stall",),
            second=_INPUT,
        ),
        Program(
            "jax_static_and_numpy",
            "a static argument that changes compiles anew, and NumPy shuffles before each call",
            ("retracing", "compile-in-window"),
            "mean",
            second=_PYTHON,
        ),
        Program(
            "jax_unjitted_update",
            "Adam updates the weights op by op",
            ("host-bound", "launch-bound", *_PYTHON),
        ),
        Program(
            "jax_device_get",
            "weights are taken from sharded arrays outside of jax.jit, fetched and ordered after each step",
            ("host-bound",),
            second=_PYTHON,
            present={"collective-exposed": 0.18},
        ),
        Program("jax_float64", "the weights are float64", ("float64-compute",)),
        Program("keras_jax_callback", "a callback counts large numbers in Python", _PYTHON),
        Program(
            "loop_process_queue",
            "another process makes each batch",
            _WAITS,
            present={"callback-stall": 0.045},
        ),
        Program(
            "loop_http_report",
            "each loss is reported to a server",
            _WAITS,
            advice="Do it in a thread of its own",
        ),
        Program("loop_lock", "a thread keeps a lock", _WAITS),
        Program(
            "loop_worker_queue",
            "a generator waits for the one process that loads its batches",
            _INPUT,
            advice="Give that more threads or processes",
            present={"input-bound": 0.24},
        ),
        Program(
            "loop_worker_processes",
            "processes that the script started compute on the cores of the replicas",
            ("other-processes",),
        ),
        Program(
            "loop_waiting_generator",
            "a generator waits",
            _INPUT,
            advice="Let threads load ahead",
            present={"input-bound": 0.14},
        ),
        Program(
            "loop_compiled_shapes",
            "XLA compiles each length of a batch",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program(
            "jax_list_batches",
            "jnp.array converts lists",
            ("host-bound", "garbage-collection", *_PYTHON),
        ),
        Program("loop_two_models", "nothing", ()),
        Program(
            "loop_learning_rate",
            "nothing",
            (),
            present={"callback-stall": 0.059, "repeated-compute": 0.4},
        ),
        Program("jax_scan_steps", "nothing", (), present={"collective-exposed": 0.3}),
        Program("keras_jax_arrays", "nothing", ()),
        Program("gpu_jax_numpy_batches", "NumPy makes each batch", _PYTHON),
        Program("gpu_jax_host_batches", "the call copies each batch", ("h2d-exposed",)),
        Program("gpu_jax_thread_loader", "a thread computes each batch", ("python-thread",)),
        Program(
            "gpu_jax_unjitted_update",
            "Adam updates the weights op by op outside of `jit`",
            ("launch-bound", "host-bound"),
        ),
        Program("gpu_jax_read_metrics", "24 numbers are read one by one", ("d2h-sync",)),
        Program("gpu_jax_checkpoint", "the weights are written after each step", _PYTHON),
        Program("gpu_jax_callback", "a callback ranks the rows with NumPy", ("cpu-heavy-op",)),
        Program("gpu_jax_float64", "the weights are float64", ("float64-compute",)),
        Program("gpu_jax_scan_rows", "`scan` goes row by row, in small kernels", ("launch-bound",)),
        Program("gpu_jax_decomposition", "the step takes eigenvalues", ("matrix-factoring",)),
        Program(
            "gpu_jax_collect_garbage",
            "the garbage is collected after each step",
            ("garbage-collection",),
        ),
        Program("gpu_jax_full_precision", "products ask for full float32", ("no-tensor-cores",)),
        Program(
            "gpu_jax_second_pass", "a second function computes the loss again", ("second-forward",)
        ),
        Program(
            "gpu_loop_second_pass",
            "a second function computes the loss again",
            ("second-forward",),
            "mean",
        ),
        Program("gpu_fit_py_map", "the pipeline calls Python on each batch", _INPUT),
        Program("gpu_fit_callback", "a callback reads weights and sorts them", ("callback-stall",)),
        Program("gpu_loop_host_batches", "the call copies each batch", ("h2d-exposed",), "mean"),
        Program("gpu_loop_csv", "lines of a table are decoded one by one", _INPUT, "mean"),
        Program(
            "gpu_loop_python", "Python counts names after each step", ("callback-stall",), "mean"
        ),
        Program(
            "gpu_loop_many_variables",
            "256 small variables have kernels of their own",
            ("launch-bound",),
            "mean",
        ),
        Program("gpu_loop_float64", "layers compute in float64", ("float64-compute",), "mean"),
        Program(
            "gpu_loop_eager_optimizer",
            "Adam updates the variables op by op outside of the graph",
            ("callback-stall", "launch-bound"),
            "mean",
        ),
        Program(
            "gpu_loop_numpy_function",
            "the step ranks the outputs with NumPy",
            ("cpu-heavy-op",),
            "mean",
        ),
        Program(
            "gpu_loop_checkpoint",
            "a checkpoint is written after every fourth step",
            ("checkpoint-stall",),
            "mean",
        ),
        Program("gpu_mirrored_generator", "a generator makes each batch", _INPUT, "mean"),
        Program(
            "gpu_loop_cpu_op",
            "a normalization in the model is placed on the CPU",
            ("cpu-heavy-op",),
            "mean",
        ),
        Program(
            "gpu_loop_cpu_embedding",
            "the embedding table is a variable on the CPU",
            ("cpu-heavy-op",),
            "mean",
        ),
        Program(
            "gpu_loop_python_epoch",
            "the epoch, a Python number that changes every sixth step, traces the step again",
            ("retracing",),
            "mean",
        ),
        Program("gpu_fit_decode", "images are decoded and augmented one by one", _INPUT, "mean"),
        Program(
            "gpu_fit_validation",
            "a validation ends each epoch of six steps",
            ("validation-stall",),
            "mean",
        ),
        Program(
            "gpu_mirrored_cpu_sums",
            "gradients are summed on the CPU",
            ("reduction-off-gpu",),
            "mean",
        ),
        Program(
            "gpu_mirrored_statistics",
            "three statistics of each layer are summed over the replicas one by one",
            (*_SMALL_OPS, "launch-bound"),
            "mean",
        ),
        Program(
            "gpu_jax_static_rate",
            "a learning rate that is a static argument compiles the update again every fourth step",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program(
            "gpu_jax_host_optimizer",
            "Adam runs on the host, in NumPy, which reads the gradients",
            _PYTHON,
            second=("d2h-sync",),
        ),
        Program(
            "gpu_jax_micro_losses",
            "the loss of each of 24 small batches is read at once",
            ("d2h-sync",),
        ),
        Program(
            "gpu_jax_undonated_bank",
            "a bank of 10 GB is not donated, so that each step copies it",
            ("d2d-copies",),
        ),
        Program(
            "gpu_jax_power_iteration",
            "`while_loop` iterates a small matrix 300 times, in tiny kernels",
            ("launch-bound", "d2h-sync"),
        ),
        Program(
            "gpu_jax_stacked_samples",
            "each of 512 samples is copied by itself, and they are stacked op by op",
            ("host-bound", "launch-bound", "h2d-exposed", *_PYTHON),
        ),
        Program(
            "gpu_jax_embedding_adam", "Adam updates a whole embedding table", ("optimizer-bound",)
        ),
        Program(
            "gpu_fit_one_thread",
            "the options of the data set leave its parallel map a single thread",
            _INPUT,
            "mean",
        ),
        Program(
            "gpu_fit_groups_and_report",
            "a callback words a report in Python, 10 ms, and features are normalized group by group in small kernels, 3 ms",
            ("callback-stall",),
            "mean",
            second=("launch-bound",),
        ),
        Program(
            "gpu_loop_assertions",
            "each layer waits until an assertion on the values of the one before has been read",
            ("d2h-sync", "cpu-heavy-op"),
            "mean",
        ),
        Program(
            "gpu_loop_host_sums",
            "gradients of small batches are summed in variables on the CPU",
            ("cpu-heavy-op", "d2h-sync"),
            "mean",
        ),
        Program(
            "gpu_loop_sorted_ranks",
            "scores are sorted to know the rank of the label",
            ("costly-ops",),
            "mean",
        ),
        Program(
            "gpu_mirrored_gathered_rows",
            "all outputs are gathered from the replicas for their mean",
            ("collective-exposed",),
            "mean",
        ),
        Program(
            "gpu_mirrored_host_input",
            "an option of the strategy keeps batches on the host, so that the step copies them",
            ("h2d-exposed",),
            "mean",
        ),
        Program(
            "gpu_mirrored_eager_metrics",
            "11 metrics are averaged over the replicas outside of the compiled step, one by one",
            (*_PYTHON, "host-bound", "d2h-sync"),
            "mean",
        ),
        Program(
            "gpu_jax_casts_per_part",
            "each small batch converts the weights to bfloat16 again",
            ("casts",),
        ),
        Program(
            "gpu_jax_model_by_model",
            "each of 48 small models is trained by a call of its own",
            ("launch-bound", "host-bound"),
        ),
        Program(
            "gpu_jax_scan_progress",
            "`io_callback` reports each of 8 small batches of a `scan`",
            ("cpu-heavy-op",),
        ),
        Program(
            "gpu_jax_keys_and_copies",
            "weights are copied to the host after each step, 12 ms, and 24 random keys are made one by one, 3 ms",
            ("d2h-sync",),
            second=("host-bound", "launch-bound", *_PYTHON),
        ),
        Program(
            "gpu_jax_remat",
            "`jax.checkpoint` computes each layer again in the backward pass",
            ("rematerialization",),
        ),
        Program(
            "gpu_jax_cpu_backend",
            "a function that smooths each batch is compiled for the CPU",
            ("cpu-heavy-op",),
        ),
        Program(
            "gpu_mirrored_padded_part",
            "the batch of one replica is padded to three times its rows",
            ("straggler-gpu",),
            "mean",
        ),
        Program(
            "gpu_mirrored_eager_run",
            "`strategy.run` is called outside of any `tf.function`",
            ("host-bound", "launch-bound", "callback-stall"),
            "mean",
        ),
        Program(
            "gpu_fit_print_norms",
            "`tf.print` writes the norm of each column of each gradient to a file",
            ("cpu-heavy-op",),
            "mean",
        ),
        Program(
            "gpu_loop_fixed_smoothing",
            "each step makes the same smoothing matrix again",
            ("constant-compute",),
            "mean",
        ),
        Program(
            "gpu_loop_confusions_and_labels",
            "Python counts confusions from lists after each step, 12 ms, and labels are copied as rows of 0 and 1, 4 ms",
            ("callback-stall",),
            "mean",
            second=("h2d-exposed",),
        ),
        Program(
            "gpu_jax_shuffle_each_step",
            "each step shuffles the numbers of all samples to draw its batch",
            ("costly-ops",),
        ),
        Program(
            "gpu_jax_python_environment",
            "an environment moves in Python, place by place, 12 ms, and `scan` sums the returns in small kernels, 2.5 ms",
            _PYTHON,
            second=("launch-bound",),
        ),
        Program(
            "gpu_jax_timed_layers",
            "Python waits for the call of each of 40 layers, to time it",
            ("d2h-sync", "host-bound", "launch-bound"),
        ),
        Program(
            "gpu_jax_layers_in_python",
            "Python takes the gradient through a loop over compiled layers",
            ("host-bound", "launch-bound", *_PYTHON),
        ),
        Program(
            "gpu_jax_moments_on_host",
            "the moments of Adam are moved to the host and back between steps",
            ("h2d-exposed", "d2h-sync"),
        ),
        Program(
            "loop_predict",
            "`model.predict` is asked about four rows after each step",
            (*_PYTHON, "host-bound"),
            present={"repeated-compute": 0.37},
        ),
        Program(
            "loop_late_filter",
            "rows are decoded before a filter throws most of them away",
            _INPUT,
            present={"input-bound": 0.38, "repeated-compute": 0.25},
        ),
        Program(
            "fit_tensorboard",
            "callbacks write scalars and histograms of each layer after every batch",
            (*_PYTHON, "host-bound"),
        ),
        Program(
            "loop_subprocess",
            "each step starts another program and waits for its answer",
            _PYTHON,
            present={"repeated-compute": 0.42},
        ),
        Program(
            "loop_plot",
            "a picture of weights is compressed after every fourth step",
            _PYTHON,
            "mean",
            present={"repeated-compute": 0.39},
        ),
        Program(
            "loop_logits_list",
            "predictions are taken out of a tensor one by one",
            (*_PYTHON, "host-bound", "d2h-sync"),
            present={"callback-stall": 0.084, "repeated-compute": 0.4},
            advice="Fetch the tensor once",
        ),
        Program(
            "loop_eager_clip",
            "weights are clipped eagerly, one variable after the other",
            (*_PYTHON, "host-bound"),
            advice="Put the ops between steps into a graph",
            present={"repeated-compute": 0.37},
        ),
        Program(
            "loop_uneven_rows",
            "one replica has more rows than the other",
            ("straggler-gpu",),
            present={"repeated-compute": 0.34},
        ),
        Program(
            "fit_late_cache",
            "`cache` stands before the map that takes long, and a callback sorts weights",
            _PYTHON,
            second=_INPUT,
        ),
        Program(
            "jax_changing_lengths",
            "every third batch has a length that compiles the step again",
            ("retracing", "compile-in-window"),
            "mean",
            present={"collective-exposed": 0.33, "python-stall": 0.13},
        ),
        Program(
            "jax_debug_callback", "`jax.debug.callback` keeps a histogram of each layer", _HOST_OP
        ),
        Program(
            "jax_mean_of_metrics",
            "48 metrics are averaged outside of the compiled step, one op each",
            (*_PYTHON, "host-bound"),
            present={"collective-exposed": 0.15, "callback-stall": 0.096},
            advice="Put all that a step computes into one jax.jit",
        ),
        Program(
            "fit_synchronized_norm",
            "each of ten layers normalizes its output over the rows of both replicas",
            ("small-collectives", "collective-exposed"),
        ),
        Program(
            "fit_column_inputs",
            "each of 96 columns is an input of the model with layers of its own",
            ("host-bound", "launch-bound"),
        ),
        Program(
            "loop_windows",
            "a data set of its own is made and batched for each window of a series",
            _INPUT,
        ),
        Program(
            "fit_in_pieces",
            "`fit` is called for each file of two batches",
            _PYTHON,
            "mean",
        ),
        Program(
            "loop_tf_queue",
            "a thread that unpacks episodes fills the `tf.queue` of the step",
            (*_INPUT, "python-thread"),
        ),
        Program(
            "loop_summed_accumulators",
            "accumulators of gradients are summed over replicas in each of four steps",
            ("reduction-off-gpu", "collective-exposed", "small-collectives"),
        ),
        Program(
            "loop_word_lookup",
            "the model looks up the numbers of words in a table inside the step",
            _HOST_OP,
        ),
        Program(
            "fit_thresholds",
            "hits are counted at 100 thresholds in each step",
            ("untrained-compute",),
        ),
        Program(
            "loop_growing_tensor",
            "each of 128 states is appended to a tensor by `tf.concat`",
            ("d2d-copies", "costly-ops"),
        ),
        Program(
            "loop_scoring_thread",
            "a thread scores held-out rows with the model all the time",
            ("python-thread",),
        ),
        Program(
            "fit_sampled_sources",
            "every fourth batch is of a source whose signals are filtered row by row",
            _INPUT,
            "mean",
        ),
        Program(
            "jax_sums_in_scan",
            "each of 32 small batches of a `scan` averages its gradients over the devices",
            ("collective-exposed", "small-collectives"),
        ),
        Program(
            "jax_replicated_teacher",
            "each device computes the teacher for the whole batch, a NumPy array",
            ("repeated-compute",),
            advice="Divide the batch over the devices",
        ),
        Program(
            "jax_static_field",
            "the epoch of six steps is a static field of the state, which compiles the step again",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program(
            "jax_whole_batch_shards",
            "the whole batch is prepared for each device, which takes its rows of it",
            _PYTHON,
            present={"python-stall": 0.3},
        ),
        Program(
            "jax_waiting_checkpoint",
            "every fourth step waits until the checkpoint before has been compressed in a thread",
            ("checkpoint-stall", "python-thread", *_PYTHON),
            "mean",
        ),
        Program(
            "jax_loss_at_once",
            "the loss is read at once, so that the next batch is not fetched meanwhile",
            ("d2h-sync", *_PYTHON),
        ),
        Program(
            "keras_jax_dataset_threads",
            "two threads of a `PyDataset` split texts into tokens in Python",
            ("python-thread", *_PYTHON, *_INPUT),
            "mean",
        ),
        Program(
            "jax_numpy_table",
            "each call copies a table, a NumPy array, to all devices",
            ("h2d-exposed", "host-bound"),
        ),
        Program(
            "fit_skipped_parts",
            "each part of a file is reached by parsing and skipping all that stands before it",
            _INPUT,
            "mean",
        ),
        Program(
            "fit_beam_search",
            "a metric decodes each batch by a beam search",
            ("untrained-compute",),
        ),
        Program(
            "fit_resizing_layer",
            "layers of the model make large photographs small in every step",
            ("batch-work-in-step",),
        ),
        Program(
            "fit_half_precision",
            "the policy `mixed_float16` computes on the CPU",
            ("costly-ops", "casts"),
        ),
        Program(
            "fit_multi_hot_tags",
            "tags become rows of 0 and 1 for a dense layer, not numbers for an embedding",
            ("batch-free-compute",),
        ),
        Program(
            "fit_annealed_and_unbatched",
            "every twelfth step has a new dropout rate, which builds the step anew, and rows are unbatched and batched again",
            ("retracing", "compile-in-window"),
            "mean",
            second=_INPUT,
        ),
        Program(
            "fit_replay_priorities",
            "Python keeps priorities in a tree, and the step unpacks states",
            ("callback-stall", "batch-work-in-step"),
            second=("callback-stall", "batch-work-in-step"),
        ),
        Program("fit_gan", "nothing", ()),
        Program(
            "keras_jax_dropout",
            "dropout draws a number for each element, not one for each channel",
            ("costly-ops",),
        ),
        Program(
            "keras_jax_probe",
            "a callback calls the model as a function, uncompiled, on a few sentences",
            (*_PYTHON, "host-bound"),
        ),
        Program(
            "jax_replay_deque",
            "transitions to learn from are drawn out of a long `deque`, and stacked",
            _PYTHON,
        ),
        Program(
            "jax_callback_per_row",
            "`vmap` of `pure_callback` calls NumPy for one row after the other",
            _HOST_OP,
            # Softmax in its place, in turns.
            present={"host-op-in-step": 0.12},
        ),
        Program(
            "jax_pipeline_bubble",
            "the second stage of a pipeline waits for the whole batch of the first",
            ("pipeline-bubble",),
        ),
        Program(
            "jax_actor_learner",
            "the loop waits for the device of the actor before it calls the learner on another",
            ("serial-gpus", "d2h-sync", *_PYTHON),
        ),
        Program(
            "jax_flops_each_step",
            "each step lowers its function again, to count its operations",
            ("retracing", "compile-in-window", *_PYTHON),
        ),
        Program(
            "jax_npz_each_batch",
            "each batch indexes an archive of arrays, which reads the whole array from its file",
            (*_PYTHON, *_INPUT),
        ),
        Program(
            "jax_gan_debug_text",
            "gradients are worded for a debug log that is off",
            (*_PYTHON, "d2h-sync"),
        ),
        Program(
            "jax_mapped_cond_and_hash",
            "`cond` below `vmap` sorts rows that it then leaves as they are, and weights are hashed after each step",
            ("costly-ops", *_PYTHON),
            second=("costly-ops", *_PYTHON),
        ),
        Program(
            "jax_clear_and_draw",
            "every sixth step clears what JAX compiled, and samples are drawn by weights that are summed anew",
            ("retracing", "compile-in-window"),
            "mean",
            second=_PYTHON,
            present={"python-stall": 0.05},
        ),
        Program(
            "jax_sampled_text",
            "every sixth step writes a text, with a call and a read for each letter",
            ("validation-stall", "host-bound", "d2h-sync", *_PYTHON),
            "mean",
        ),
        Program(
            "jax_reshard_weights",
            "the state is moved from whole copies to shards and back outside of the step",
            ("d2d-copies", "collective-exposed", "h2d-exposed", "host-bound"),
        ),
        Program(
            "loop_guarded_forward",
            "a critical section that guards a table holds the forward pass, too, which one replica after the other runs",
            ("straggler-gpu", "serial-gpus", "late-by-turns", *_HOST_OP),
        ),
        Program(
            "loop_ensemble_in_order",
            "the second of two models waits until the first has been updated",
            ("serial-gpus",),
        ),
        Program(
            "loop_full_log_queue",
            "the queue of a thread that packs outputs is full, so that each step waits for it",
            (*_WAITS, "python-thread"),
        ),
        Program(
            "loop_task_datasets",
            "the step makes a shuffled data set of each task and loops over it",
            (*_INPUT, *_HOST_OP),
            present={"untrained-compute": 0.94},
        ),
        Program(
            "loop_stall_before_input",
            "a report between the steps, while the pipeline works ahead",
            ("callback-stall",),
            present={"input-bound": 0.6},
        ),
        Program(
            "loop_state_as_arguments",
            "320 weights and moments are passed to each call of the step and returned",
            ("host-bound", *_PYTHON),
        ),
        Program(
            "loop_normalized_table",
            "a whole table is normalized before rows of it are looked up",
            ("batch-free-compute",),
        ),
        Program(
            "loop_traced_memory",
            "`tracemalloc` notes the allocations of Python between steps",
            _PYTHON,
        ),
        Program(
            "loop_crowded_cores",
            "threads of the input pipeline, which is never waited for, take the cores of the replicas",
            _INPUT,
        ),
        Program(
            "loop_beams_and_rollback",
            "a beam search counts errors in each step, and every fourth reads saved weights",
            ("untrained-compute",),
            "mean",
            second=("checkpoint-stall",),
        ),
        Program(
            "loop_pictures_and_history",
            "replica 0 packs pictures in its step, and norms of all steps so far are averaged eagerly",
            ("untrained-compute",),
            second=(*_PYTHON, "host-bound"),
        ),
        Program(
            "jax_nan_checks",
            "`jax_debug_nans` was left on, so that each step reads all weights and moments",
            (*_PYTHON, "d2h-sync", "host-bound"),
        ),
        Program(
            "jax_module_graph",
            "objects of modules are taken apart and put together again in Python in each step",
            (*_PYTHON, "host-bound"),
        ),
        Program(
            "jax_frozen_norms",
            "the norm that clips gradients takes those of frozen blocks, which are computed for it",
            ("untrained-compute", "costly-ops"),
        ),
        Program(
            "jax_unjitted_scan",
            "every fourth step calls a function with a `scan` that `jit` does not compile, which compiles its loop each time",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program(
            "jax_mesh_axes",
            "a constraint on hidden rows names the wrong axis of the mesh, so that each block moves them between devices",
            ("collective-exposed", "d2d-copies"),
            present={"collective-exposed": 0.12},
        ),
        Program(
            "jax_long_side",
            "Muon makes tall gradients orthogonal along their longer side",
            ("optimizer-bound", "costly-ops"),
            present={"optimizer-bound": 0.18},
        ),
        Program(
            "jax_vmapped_kernels_and_masks",
            "`vmap` over kernels makes grouped convolutions, and every twelfth step picks pixels by a mask outside of `jit`, whose ops are compiled for each number of them",
            ("costly-ops",),
            "mean",
            second=("retracing", "compile-in-window", *_PYTHON),
        ),
        Program(
            "jax_outputs_and_history",
            "`scan` carries the array that its outputs are written to, and all measurements so far are written as JSON after each step",
            ("d2d-copies", "costly-ops"),
            second=_PYTHON,
            present={"python-stall": 0.054},
        ),
        Program(
            "fit_time_distributed",
            "`TimeDistributed` runs the layers of a picture once for each of 8 pictures of a clip",
            ("host-bound", "launch-bound", "d2d-copies", "costly-ops"),
        ),
        Program(
            "fit_growing_history",
            "a callback writes the whole history so far as JSON after every batch",
            _PYTHON,
            "mean",
            present={"callback-stall": 0.059},
        ),
        Program(
            "fit_table_regularizer",
            "the regularizer of embeddings takes every row of the tables, not those of the batch",
            ("batch-free-compute", "optimizer-bound"),
        ),
        Program(
            "fit_frozen_backbone",
            "frozen layers run on the same photographs in every epoch, not once before",
            ("untrained-compute", "batch-work-in-step", "constant-compute"),
        ),
        Program(
            "fit_feature_maps",
            "a callback makes a new model of some layers for every sixth batch and asks it",
            ("retracing", "compile-in-window", "validation-stall", *_PYTHON),
            "mean",
        ),
        Program(
            "keras_jax_epoch_shuffle",
            "a `PyDataset` shuffles its samples as a list after each epoch of six batches",
            (*_PYTHON, *_INPUT),
            "mean",
        ),
        Program(
            "fit_rows_and_memory",
            "a generator yields one row after the other, and a callback asks for the memory of the process",
            (*_INPUT, *_PYTHON),
            second=(*_INPUT, *_PYTHON),
        ),
        Program(
            "fit_second_forward_and_scores",
            "scores in Python of predictions end each epoch of six batches, and the step runs the model again for its metric",
            ("validation-stall", "untrained-compute", "second-forward", *_PYTHON),
            "mean",
            second=("validation-stall", "untrained-compute", "second-forward", *_PYTHON),
            present={"costly-ops": 0.2},
        ),
        Program(
            "loop_triplets",
            "the loss is taken over all triplets of a batch, not over the hardest of each row",
            ("costly-ops",),
        ),
        Program(
            "loop_whole_batch_replicas",
            "the data set is not distributed, so that each replica trains on the whole batch",
            ("repeated-compute",),
        ),
        Program(
            "loop_frozen_backbone",
            "a frozen network reads the same frames again in each step",
            ("batch-work-in-step", "untrained-compute"),
        ),
        Program(
            "loop_policy_saver",
            "every sixth step saves the policy as a `SavedModel`",
            ("checkpoint-stall", "retracing", *_PYTHON),
            "mean",
        ),
        Program(
            "loop_driver_environments",
            "environments of Python are moved one after the other in a loop of the step",
            (*_HOST_OP, "host-bound"),
            # 0.43 to 0.59, with an op in place of the call, which NumPy answers for all environments.
            present={"host-op-in-step": 0.45},
        ),
        Program(
            "loop_counted_epochs",
            "each epoch of six steps begins by counting the batches of the data set",
            ("validation-stall", *_PYTHON, *_INPUT),
            "mean",
            present={"input-bound": 0.12},
        ),
        Program(
            "loop_gradient_per_loss",
            "a persistent tape is asked for the gradient of each of three losses",
            ("repeated-compute", "costly-ops", "second-forward"),
        ),
        Program(
            "loop_negatives_and_decay",
            "Python draws items one by one, and the loss decays whole tables, which makes their gradients dense",
            (*_PYTHON, "batch-free-compute", "optimizer-bound"),
            second=(*_PYTHON, "batch-free-compute", "optimizer-bound"),
            present={"callback-stall": 0.118},
        ),
        Program(
            "loop_style_and_log",
            "each step computes the style of the same painting, and pandas writes the whole log anew",
            (*_PYTHON, "constant-compute"),
            second=(*_PYTHON, "constant-compute"),
            # Without the variation of the image, in turns; with `tf.split` for its slices 0.31.
            present={"costly-ops": 0.38},
        ),
        Program(
            "loop_uncached_decoding",
            "each word of a sampled sentence runs the decoder over all words before it again",
            ("untrained-compute", "repeated-compute", "costly-ops"),
        ),
        Program(
            "loop_channels_first",
            "tensors have the channels first, so that each convolution transposes them",
            ("d2d-copies", "costly-ops"),
        ),
        Program(
            "loop_eager_advantages",
            "advantages are summed backwards over a rollout by ops outside of the compiled step",
            ("host-bound", "launch-bound", *_PYTHON),
            # With advantages of the first rollout; 5 to 30% in five turns.
            present={"callback-stall": 0.15},
        ),
        Program(
            "loop_full_softmax_and_windows",
            "the loss takes the softmax over all articles, and Python cuts sessions into windows for each step",
            ("costly-ops", "optimizer-bound", *_PYTHON),
            second=("costly-ops", "optimizer-bound", *_PYTHON),
        ),
        Program(
            "fit_no_prefetch",
            "the data set is not prefetched, so that a batch is made only when the step before has ended",
            _INPUT,
            present={"input-bound": 0.35},
            advice="Map in parallel",
        ),
        Program(
            "fit_best_weights",
            "`EarlyStopping` copies all weights after each epoch of six batches that was better",
            ("checkpoint-stall", *_PYTHON),
            "mean",
            present={"callback-stall": 0.145},
        ),
        Program(
            "keras_jax_hdf5_rows",
            "rows of a compressed HDF5 file are read one by one in an order of chance, each of which unpacks a block",
            (*_INPUT, *_PYTHON),
            present={"python-stall": 0.2},
            advice="Read the file once, before the loop",
        ),
        Program("fit_usual_callbacks", "nothing", ()),
        Program(
            "jax_update_not_taken",
            "Adam computes an update in each call, and `where` takes it in every eighth",
            ("optimizer-bound",),
        ),
        Program(
            "jax_preconditioner_roots",
            "roots of the covariances of gradients are taken in each step, not in each twenty-fourth",
            ("matrix-factoring", "optimizer-bound", "costly-ops"),
        ),
        Program(
            "jax_all_experts",
            "every expert computes all words, and a mask takes the result of one",
            ("costly-ops",),
        ),
        Program("jax_diffusion", "nothing", (), present={"costly-ops": 0.46}),
        Program(
            "loop_ordered_reads",
            "the order of clips of a remote store is kept, so that those behind a late one wait",
            _INPUT,
            "mean",
            present={"input-bound": 0.055},
        ),
        Program(
            "loop_box_lists_and_settings",
            "boxes are a list of tensors, whose length traces the step again after every sixth, and each step reads the file of settings",
            ("retracing",),
            "mean",
            second=_PYTHON,
        ),
        Program(
            "loop_polling_writer",
            "a thread that writes losses asks its queue again and again without a pause",
            ("python-thread",),
        ),
        Program(
            "loop_dense_word_gradients",
            "gradients of a table of words are made finite as whole tables, which the replicas sum",
            ("batch-free-compute", "optimizer-bound", "collective-exposed"),
            # Of the table, with 60000 rows in place of 6000.
            present={
                "input-bound": 0.058,
                "collective-exposed": 0.16,
                "batch-free-compute": 0.24,
                "optimizer-bound": 0.24,
            },
        ),
        Program(
            "fit_mixed_photographs",
            "pairs to mix come from two data sets of the same files, so that each is decoded twice",
            _INPUT,
            present={"input-bound": 0.1},
        ),
        Program(
            "fit_padded_and_described",
            "texts are padded to a length that none has, and a callback words the whole model after each batch",
            ("costly-ops", "host-bound", "launch-bound", *_PYTHON),
            second=("costly-ops", "host-bound", "launch-bound", *_PYTHON),
            present={"callback-stall": 0.14, "python-stall": 0.14},
        ),
        Program(
            "fit_packed_run_folder",
            "a callback packs the folder of the run after every sixth batch",
            (*_PYTHON, "checkpoint-stall"),
            "mean",
        ),
        Program(
            "keras_jax_metrics_database",
            "each metric of each batch is committed to a data base, which waits for the disk",
            _PYTHON,
        ),
        Program(
            "jax_gathered_logits",
            "scores of all words are gathered on both devices for the loss, not the sums of their halves",
            ("collective-exposed", "repeated-compute", "costly-ops"),
            present={"collective-exposed": 0.076},
        ),
        Program(
            "jax_summed_by_hand",
            "gradients are moved to the first device and summed there, and new weights are moved back",
            (
                "d2d-copies",
                "serial-gpus",
                "collective-exposed",
                "h2d-exposed",
                "host-bound",
                *_PYTHON,
            ),
            present={"python-stall": 0.066, "callback-stall": 0.066, "h2d-exposed": 0.066},
        ),
        Program(
            "jax_frame_batches",
            "pandas picks the rows of each batch and makes numbers of their words",
            (*_PYTHON, *_INPUT),
        ),
        Program(
            "jax_dense_graph_and_negatives",
            "neighbours are summed by a matrix of 0 and 1, and pairs without a link are drawn in Python",
            ("costly-ops", *_PYTHON),
            second=("costly-ops", *_PYTHON),
            # Without the sums over edges; with pairs drawn before the loop.
            present={"costly-ops": 0.19, "callback-stall": 0.13, "python-stall": 0.13},
        ),
        Program(
            "loop_gradient_penalty",
            "the gradient of a discriminator is penalized in each step, not in each eighth",
            ("costly-ops", "second-forward", "repeated-compute"),
            present={"untrained-compute": 0.09, "second-forward": 0.11, "costly-ops": 0.11},
        ),
        Program(
            "loop_sleepy_sampler",
            "the loop sleeps ten milliseconds between two looks whether a thread has answered",
            (*_PYTHON, *_INPUT),
            present={"callback-stall": 0.06},
        ),
        Program(
            "loop_reloaded_judge",
            "the `SavedModel` that rates every sixth step is loaded again for it",
            ("validation-stall", "retracing", "checkpoint-stall", *_PYTHON),
            "mean",
        ),
        Program(
            "loop_twice_summed_and_copied",
            "gradients are summed over replicas to be clipped, and by the optimizer again, and Python copies nested lists deeply",
            ("collective-exposed", *_PYTHON),
            second=("collective-exposed", *_PYTHON),
            present={"collective-exposed": 0.39},
        ),
        Program(
            "fit_small_files",
            "each record is in a file of its own, which is opened for it",
            _INPUT,
            present={"input-bound": 0.06},
        ),
        Program(
            "fit_new_rates_and_callers",
            "the model is compiled again for a new learning rate after twelve steps, and a callback asks the stack who calls it",
            ("retracing", "compile-in-window", *_PYTHON),
            "mean",
            second=("retracing", "compile-in-window", *_PYTHON),
        ),
        Program(
            "fit_shared_results",
            "a callback waits for the lock of a file that another process often holds",
            _PYTHON,
        ),
        Program(
            "keras_jax_pictures_by_ops",
            "a `PyDataset` changes one picture after the other by ops of JAX",
            (*_INPUT, *_PYTHON, "host-bound", "launch-bound"),
            present={"input-bound": 0.23, "callback-stall": 0.23, "python-stall": 0.23},
        ),
        Program(
            "jax_every_word_scored",
            "all words are scored at every place of a sentence, though the loss takes those of the hidden ones",
            ("costly-ops", "untrained-compute"),
        ),
        Program(
            "jax_averaged_state",
            "devices average weights and moments after they have averaged the gradients",
            ("collective-exposed",),
            present={"collective-exposed": 0.25},
        ),
        Program(
            "jax_unindexed_table",
            "a table without an index is read as a whole to find the rows of a batch",
            (*_PYTHON, *_INPUT),
            present={"callback-stall": 0.13, "input-bound": 0.13, "python-stall": 0.13},
        ),
        Program(
            "jax_adapters_and_statistics",
            "small adapters are added to whole weights in each step, and statistics are updated row by row",
            (*_PYTHON, "costly-ops", "batch-free-compute"),
            second=(*_PYTHON, "costly-ops", "batch-free-compute"),
            present={"callback-stall": 0.18, "python-stall": 0.18},
        ),
        Program(
            "loop_unused_heads",
            "heads of tasks that the batch does not train get gradients of zeros, which the replicas sum and the optimizer applies",
            ("collective-exposed", "optimizer-bound", "batch-free-compute", "untrained-compute"),
            # With the sum, and the update, left out of the step.
            present={"collective-exposed": 0.09, "optimizer-bound": 0.28, "input-bound": 0.045},
        ),
        Program(
            "loop_pipeline_per_epoch",
            "each epoch of six steps makes its data set anew, whose functions are traced again",
            (*_INPUT, "retracing", "validation-stall", *_PYTHON),
            "mean",
            present={"input-bound": 0.2},
        ),
        Program(
            "loop_stop_file",
            "the folder of all runs is searched after each step for a file that asks to stop",
            _PYTHON,
            present={"input-bound": 0.06},
        ),
        Program(
            "loop_sizes_and_confusions",
            "confusions are the sum of a table for each pixel, and a thread adds up the sizes of all records in memory",
            ("costly-ops", "untrained-compute", "python-thread"),
            "mean",
            second=("costly-ops", "untrained-compute", "python-thread"),
            present={"input-bound": 0.06},
        ),
        Program(
            "fit_decode_then_crop",
            "each photograph is decoded as a whole, and cropped then",
            _INPUT,
            present={"input-bound": 0.27},
        ),
        Program(
            "fit_weights_through_pipe",
            "a callback sends the weights to another process through its pipe after every third batch",
            (*_PYTHON, "checkpoint-stall"),
            "mean",
            present={"input-bound": 0.065},
        ),
        Program(
            "fit_zero_weights_and_spread",
            "outputs whose losses weigh nothing are computed, and a callback takes the spread of the latest losses by exact fractions",
            ("costly-ops", "untrained-compute", "second-forward", *_PYTHON),
            second=("costly-ops", "untrained-compute", "second-forward", *_PYTHON),
        ),
        Program(
            "keras_jax_listed_words",
            "a `PyDataset` searches a list for each word to find its number",
            (*_INPUT, *_PYTHON),
        ),
        Program(
            "jax_hashed_settings",
            "each call of the step hashes a static argument that holds the whole vocabulary",
            (*_PYTHON, "host-bound", "launch-bound"),
        ),
        Program(
            "jax_indexed_shards",
            "a batch is drawn by numbers of any samples, which lie in parts on the devices, so that rows are moved between them",
            ("collective-exposed", "d2d-copies", "costly-ops"),
            # Places drawn once; rows taken before the loop; without the mean, where `shard_map` holds the whole step.
            present={
                "callback-stall": 0.16,
                "python-stall": 0.16,
                "h2d-exposed": 0.16,
                "costly-ops": 0.13,
                "collective-exposed": 0.045,
            },
        ),
        Program(
            "jax_gradients_per_sample",
            "the gradient of each sample is taken, and then their mean, not the gradient of the mean loss",
            ("costly-ops", "repeated-compute"),
        ),
        Program(
            "jax_backup_and_debugger",
            "the state is copied op by op before each step, and a debugger traces each line of Python",
            (*_PYTHON, "host-bound", "launch-bound", "d2d-copies"),
            second=(*_PYTHON, "host-bound", "launch-bound", "d2d-copies"),
        ),
        Program(
            "loop_overlays_and_run_store",
            "pictures for a log are drawn in each step and seldom written, and each metric is appended to a file of its own, after the file on the run has been read",
            (*_PYTHON, "untrained-compute", "costly-ops"),
            second=(*_PYTHON, "untrained-compute", "costly-ops"),
            # One batch for all steps; without the sum of gradients.
            present={"input-bound": 0.12, "collective-exposed": 0.06},
        ),
        Program(
            "loop_walked_modules",
            "the report of each step counts the weights by walking through all modules",
            _PYTHON,
        ),
        Program(
            "loop_pool_per_batch",
            "each batch starts a pool of threads for its reads, and ends it",
            (*_PYTHON, "python-thread", *_INPUT),
            # One batch for all steps; files read one by one without a pool.
            present={
                "callback-stall": 0.34,
                "python-stall": 0.34,
                "input-bound": 0.34,
                "python-thread": 0.18,
            },
        ),
        Program(
            "fit_added_handlers",
            "the function that gets the logger adds a handler to it at each batch, so that each line is written once more than before",
            _PYTHON,
            "mean",
            # Without the callback.
            present={"callback-stall": 0.1, "python-stall": 0.1},
        ),
        Program(
            "fit_bucketed_texts",
            "texts are put into buckets by length one by one, in each epoch again",
            _INPUT,
            "mean",
        ),
        Program(
            "jax_unpartitioned_noise",
            "random numbers are made in the way that does not divide them, so that each of four devices makes those of all",
            ("repeated-compute", "costly-ops"),
            # Without noise and dropout; the step by `shard_map`, without the mean.
            present={"costly-ops": 0.24, "collective-exposed": 0.11},
        ),
        Program(
            "jax_seeds_and_growing_history",
            "a random generator is seeded for each sample, and every sixth step appends its loss to an array, which compiles that for the new length",
            (*_PYTHON, *_INPUT, "retracing", "compile-in-window"),
            "mean",
            second=(*_PYTHON, *_INPUT, "retracing", "compile-in-window"),
            # One batch for all steps.
            present={"callback-stall": 0.05, "python-stall": 0.05},
        ),
        Program(
            "jax_pickled_in_background",
            "a thread pickles a memory of moves in the background of every fourth step, which keeps Python to itself meanwhile",
            ("python-thread", *_PYTHON),
            "mean",
            # With one batch for all steps, in turns: 0.02 and 0.06.
            present={"python-stall": 0.06},
        ),
        Program(
            "fit_shuffled_catalogue",
            "the numbers of a whole catalogue are shuffled for each reader, to draw twenty of them",
            _INPUT,
            present={"input-bound": 0.2},
        ),
        Program(
            "fit_rotated_log",
            "a log begins a new file after each batch, for which the hundreds that are kept are renamed",
            _PYTHON,
            present={"input-bound": 0.2, "callback-stall": 0.11, "python-stall": 0.11},
        ),
        Program(
            "keras_jax_shared_connection",
            "threads that read the parts of a batch share one connection, so that one waits until the other has read",
            (*_INPUT, *_PYTHON),
            present={"input-bound": 0.25, "callback-stall": 0.25, "python-stall": 0.25},
        ),
        Program(
            "jax_gathered_hidden",
            "split layers gather the outputs of each product, where every second could take the half that is there",
            ("collective-exposed", "costly-ops"),
            present={"collective-exposed": 0.05},
        ),
        Program(
            "jax_changing_features",
            "a batch leaves out features that none of its rows has, so that the step is compiled for each set of them",
            ("retracing", "compile-in-window"),
            "mean",
        ),
        Program(
            "jax_filled_and_sorted",
            "a batch is filled row by row with `at`, which copies it, and all gradients are sorted to clip them at a quantile",
            (
                "costly-ops",
                "optimizer-bound",
                "batch-free-compute",
                "host-bound",
                "launch-bound",
                "d2d-copies",
                *_PYTHON,
            ),
            second=(
                "costly-ops",
                "optimizer-bound",
                "batch-free-compute",
                "host-bound",
                "launch-bound",
                "d2d-copies",
                *_PYTHON,
            ),
        ),
        Program(
            "loop_candidates_and_memory",
            "hits among all articles are counted in each step, and NumPy joins the whole memory of clicks anew with each batch",
            ("costly-ops", "untrained-compute", "batch-free-compute", *_PYTHON),
            second=("costly-ops", "untrained-compute", "batch-free-compute", *_PYTHON),
        ),
        Program(
            "loop_environments_in_turn",
            "each of four processes that play is asked for its answer before the next is told its action",
            _PYTHON,
            present={"callback-stall": 0.31, "python-stall": 0.31},
        ),
        Program(
            "loop_every_augmentation",
            "the data set makes all nine augmentations of each batch, and takes one",
            _INPUT,
            # One batch for all steps; without the sum.
            present={"input-bound": 0.26, "collective-exposed": 0.15},
        ),
        Program(
            "loop_gathered_views_and_shared_state",
            "each batch is mixed anew over four replicas, which gather all its views, and each measurement is kept in a dictionary of another process",
            ("collective-exposed", "d2d-copies", "repeated-compute", *_PYTHON),
            second=("collective-exposed", "d2d-copies", "repeated-compute", *_PYTHON),
            # Without averages; without the sum; one batch for all steps.
            present={
                "callback-stall": 0.04,
                "python-stall": 0.04,
                "collective-exposed": 0.125,
                "input-bound": 0.09,
            },
        ),
        Program(
            "loop_workers_shard_late",
            "each of two workers takes its part of the data after it has been read, so that it reads that of both",
            _INPUT,
            # One batch for all steps; that, and without the sum: the sum takes 76% of a step without input.
            present={"input-bound": 0.21, "collective-exposed": 0.60},
        ),
        Program(
            "loop_buffer_in_checkpoint",
            "the checkpoint after every sixth step holds the iterator, too, and with it the buffer that shuffles",
            ("checkpoint-stall",),
            "mean",
            # Without checkpoints; without the sum; one batch for all steps.
            present={
                "checkpoint-stall": 0.17,
                "collective-exposed": 0.07,
                "callback-stall": 0.13,
                "python-stall": 0.13,
                "input-bound": 0.13,
            },
        ),
        Program(
            "loop_normalized_kernel_and_columns",
            "the kernel of a recurrent cell is normalized again at each time, and batches take some of the columns of a file",
            ("costly-ops", "batch-free-compute", "constant-compute", *_PYTHON, *_INPUT),
            second=("costly-ops", "batch-free-compute", "constant-compute", *_PYTHON, *_INPUT),
            # The same rows in all steps; without the sum; with the kernel as it is.
            present={
                "callback-stall": 0.06,
                "python-stall": 0.06,
                "input-bound": 0.06,
                "collective-exposed": 0.06,
                "costly-ops": 0.046,
                "batch-free-compute": 0.046,
            },
        ),
        Program(
            "loop_bound_to_one_core",
            "the launcher binds the process of two replicas to one core",
            ("few-cores",),
        ),
        Program(
            "fit_statistics_of_all",
            "the mean and the deviation by which a batch is scaled are those of all readings, taken anew for each batch",
            _INPUT,
        ),
        Program(
            "fit_codebook_and_shared_table",
            "distances to a codebook are taken from all differences, and a callback writes into the table of another process one by one",
            ("costly-ops", *_PYTHON),
            second=("costly-ops", *_PYTHON),
        ),
        Program(
            "keras_jax_checked_shards",
            "the checksum of a whole file is taken for each batch from it",
            (*_INPUT, *_PYTHON),
            present={"input-bound": 0.08, "callback-stall": 0.08, "python-stall": 0.08},
        ),
        Program(
            "jax_gathered_per_part",
            "weights, of which each device keeps a part, are gathered for each small batch, not once for all of them",
            ("collective-exposed",),
            # With the own part in the place of each other one; without `jax.checkpoint`.
            present={"collective-exposed": 0.125, "rematerialization": 0.035},
        ),
        Program(
            "jax_drawn_errors_and_checks",
            "NumPy decomposes the covariance of errors whenever it draws some, and checks of every op of the step were left in",
            ("costly-ops", "untrained-compute", *_PYTHON),
            second=("costly-ops", "untrained-compute", *_PYTHON),
            # One batch for all steps; the step by `shard_map`, without the mean.
            present={"callback-stall": 0.29, "python-stall": 0.29, "collective-exposed": 0.11},
        ),
        Program(
            "jax_pmap_first_device",
            "batches are made arrays of the first device before `pmap`, which cuts and moves them from there",
            ("h2d-exposed", "d2d-copies", "host-bound", "launch-bound", *_PYTHON),
            # One batch that lies on the devices for all steps; without the mean.
            present={
                "callback-stall": 0.14,
                "python-stall": 0.14,
                "h2d-exposed": 0.14,
                "collective-exposed": 0.12,
            },
        ),
        Program(
            "fit_patterns_of_hosts",
            "a `PyDataset` passes the pattern of each line as text, of which there are more than `re` keeps compiled",
            (*_INPUT, *_PYTHON),
            # One batch that a data set repeats.
            present={"input-bound": 0.13, "callback-stall": 0.13, "python-stall": 0.13},
        ),
        Program(
            "fit_flattened_maps",
            "maps are flattened for a dense layer, not averaged, which has a hundred times the weights to sum and to update",
            ("optimizer-bound", "collective-exposed", "costly-ops"),
        ),
        Program(
            "fit_whole_records_and_versions",
            "all features of a record are parsed, of which few are taken, and a callback looks up the versions of packages for each line of its log",
            (*_INPUT, *_PYTHON),
            second=(*_INPUT, *_PYTHON),
            # One batch, parsed before; without the log.
            present={"input-bound": 0.18, "callback-stall": 0.09, "python-stall": 0.09},
        ),
        Program(
            "loop_sharpness_of_all",
            "gradients that only say where to look for a flat minimum are averaged over replicas, too",
            ("collective-exposed",),
            # One batch for all steps; without the mean.
            present={"input-bound": 0.073, "collective-exposed": 0.045},
        ),
        Program(
            "loop_sampled_stacks",
            "a thread samples the stack of the loop with its variables",
            ("python-thread",),
            # One batch for all steps.
            present={"callback-stall": 0.07, "python-stall": 0.07},
        ),
        Program(
            "loop_compared_replicas_and_meters",
            "each epoch of six steps passes a new meter to a compiled function, which is traced again, and NumPy compares the weights of the replicas after each step",
            ("retracing", *_PYTHON, "d2h-sync"),
            "mean",
            second=("retracing", *_PYTHON, "d2h-sync"),
            # One batch for all steps; without the sum; without the meter, and for Python between steps without the next batch, too.
            present={
                "input-bound": 0.075,
                "collective-exposed": 0.09,
                "callback-stall": 0.17,
                "python-stall": 0.055,
            },
        ),
        Program(
            "loop_packed_service",
            "batches of a `tf.data` service in another process of the same machine are packed for the way, and unpacked",
            _INPUT,
            statistic="mean",
            # One batch for all steps.
            present={"input-bound": 0.33},
        ),
        Program(
            "loop_forked_reports",
            "the whole process is forked for the report of every third step, and copies the pages that it changes then",
            _PYTHON,
            statistic="mean",
            # One batch for all steps, and no reports.
            present={"callback-stall": 0.08, "python-stall": 0.08},
        ),
        Program(
            "fit_columns_and_leak_hunt",
            "each of 64 columns of a row is a tensor of its own until batches are made, and a callback looks through all objects of Python after every twelfth batch",
            (*_INPUT, *_PYTHON, "garbage-collection"),
            statistic="mean",
            second=(*_INPUT, *_PYTHON, "garbage-collection"),
            # A cached batch; with one input of all columns.
            present={"input-bound": 0.045, "callback-stall": 0.07, "python-stall": 0.07},
        ),
        Program(
            "jax_split_pictures",
            "each of four devices has a part of every picture, so that each convolution exchanges borders",
            ("collective-exposed", "small-collectives", "d2d-copies"),
            # By `shard_map`, without the sum.
            present={"collective-exposed": 0.25, "small-collectives": 0.25},
        ),
        Program(
            "keras_jax_late_narrowing",
            "hidden pictures are made larger before a convolution of single pixels takes most of their channels away",
            ("costly-ops", "repeated-compute"),
            # One batch, which lies on the device; with all layers of single pixels before what enlarges pictures.
            present={
                "input-bound": 0.06,
                "callback-stall": 0.06,
                "python-stall": 0.06,
                "costly-ops": 0.32,
            },
        ),
        Program(
            "jax_hessians_and_triangles",
            "all second derivatives of a network are taken, where one is needed, and SciPy makes the triangles between stations anew for each batch",
            ("costly-ops", "untrained-compute", "repeated-compute", "native-threads", *_PYTHON),
            second=(
                "costly-ops",
                "untrained-compute",
                "repeated-compute",
                "native-threads",
                *_PYTHON,
            ),
            # One batch for all steps.
            present={"callback-stall": 0.11, "python-stall": 0.11},
        ),
        Program(
            "loop_matrix_of_each",
            "layers multiply grids with a matrix by `@`, whose gradient is made for each row of a grid",
            ("costly-ops",),
        ),
        Program(
            "fit_einsum_dots",
            "an einsum has dots for the dimensions of the batch, and the gradient of its matrix is made for each",
            ("costly-ops",),
        ),
        Program(
            "fit_repeated_context",
            "a context is repeated for each time and joined to it before a layer",
            ("costly-ops",),
        ),
        Program(
            "fit_noise_of_nothing",
            "layers draw noise and multiply it by 0",
            ("untrained-compute",),
        ),
        Program(
            "loop_dense_slices",
            "`tf.convert_to_tensor` makes the sparse gradient of a table dense",
            ("batch-free-compute",),
        ),
        Program(
            "loop_table_and_pairs",
            "a table of rich is printed in each step, and a layer of pairs joins repeated rows and multiplies by `@`",
            (*_PYTHON, "costly-ops"),
            second=(*_PYTHON, "costly-ops"),
        ),
        Program(
            "jax_negatives_by_noise",
            "`jax.random.categorical` draws a number for each word of a vocabulary",
            ("costly-ops",),
        ),
        Program(
            "loop_arrays_evaluated",
            "a function of arrays, called in each fourth step, checks the model by 24 batches instead of one",
            ("validation-stall",),
            "mean",
            # Of one batch.
            present={"validation-stall": 0.12},
        ),
        Program(
            "loop_shuffled_evaluation",
            "the data set of an evaluation in each fourth step maps and shuffles all rows of a buffer anew",
            ("validation-stall",),
            "mean",
            # Without evaluations.
            present={"validation-stall": 0.3},
        ),
        Program(
            "loop_seed_each_step",
            "a seed is set before each step, which drops the kernels of its graph",
            ("compile-in-window",),
        ),
        Program(
            "loop_clamped_weights",
            "weights are read, clipped by NumPy and assigned after each step",
            _PYTHON,
        ),
        Program(
            "loop_dice_per_class",
            "the loss goes class by class and picture by picture, and a monitor of the machine waits",
            ("host-bound", "launch-bound"),
            second=_PYTHON,
        ),
        Program(
            "loop_first_reports",
            "replica 0 looks up neighbours in each step, which every 24th reports",
            ("untrained-compute", "straggler-gpu"),
        ),
        Program(
            "loop_sparse_columns",
            "rows are taken from a matrix stored by columns, and each batch is tested for drift",
            _PYTHON,
            second=_PYTHON,
        ),
        Program(
            "fit_zip_reopened",
            "an archive is opened for each picture",
            _INPUT,
        ),
        Program(
            "jax_queue_on_host",
            "a queue is shifted by NumPy and copied to the devices in each step",
            ("h2d-exposed", *_PYTHON),
            second=("h2d-exposed", *_PYTHON),
        ),
        Program(
            "jax_awaited_in_turn",
            "answers of a store are awaited one after the other",
            _PYTHON,
        ),
        Program(
            "jax_choice_and_texts",
            "places are drawn without repeats, which sorts all of them, and a text of arrays is made that nobody reads",
            ("costly-ops",),
            second=("host-bound", *_PYTHON),
        ),
        Program(
            "keras_jax_copied_samples",
            "each transform of a sample copies it whole first",
            (*_INPUT, *_PYTHON),
        ),
        Program(
            "fit_centroids_and_rank",
            "callbacks find clusters and the rank of the features in each step, not each epoch",
            _PYTHON,
            second=_PYTHON,
        ),
        Program(
            "jax_blocks_in_order",
            "blocks of a graph lie in order of their fill, so that one of two devices gets most of the full ones",
            ("straggler-gpu",),
        ),
        Program(
            "jax_arrays_evaluated",
            "the model is checked after each fourth step, by 16 batches instead of one",
            ("validation-stall",),
            "mean",
            # Of one batch.
            present={"validation-stall": 0.10},
        ),
        Program(
            "jax_graph_again",
            "edges are checked for doubles and an adjacency is normalized in Python in each step",
            _PYTHON,
            second=_PYTHON,
        ),
        Program(
            "jax_mixing_per_feature",
            "a share is drawn by the beta distribution for each feature, not for each sample",
            ("costly-ops",),
        ),
        Program(
            "loop_timestamps",
            "every fourth step parses times by `strptime`, one by one",
            _PYTHON,
            "mean",
        ),
        Program(
            "loop_bank_averaged",
            "each replica writes a whole bank of features, which is averaged over them",
            ("costly-ops", "repeated-compute", "untrained-compute"),
        ),
        Program(
            "loop_masks_by_token",
            "words are masked one by one in Python",
            _PYTHON,
        ),
        Program(
            "loop_miner_and_kde",
            "all samples are sorted in Python, and a density is fitted to the losses",
            (*_PYTHON, "native-threads"),
            second=(*_PYTHON, "native-threads"),
        ),
        Program(
            "loop_spectra_on_first",
            "replica 0 takes singular values of the weights in each step",
            ("untrained-compute", "straggler-gpu", "matrix-factoring"),
        ),
        Program(
            "jax_attention_order_and_colours",
            "attention without a softmax multiplies queries with keys first, and each colour is compared with each pixel",
            ("costly-ops", *_PYTHON),
            second=("costly-ops", *_PYTHON),
        ),
        Program(
            "jax_prime_spectrum_and_trim",
            "spectra have a prime length, and each step gives free memory back to the system",
            ("costly-ops",),
            second=_PYTHON,
            present={"python-stall": 0.16},
        ),
        Program(
            "jax_ring_and_rows",
            "gradients are added up on a ring by hand, and a batch grows row by row",
            ("collective-exposed",),
            second=_PYTHON,
        ),
        Program(
            "loop_dropped_frames_and_pool",
            "a pool of processes scales the sounds, and a layer computes frames that a slice drops",
            _PYTHON,
            second=("costly-ops",),
            present={"callback-stall": 0.18},
        ),
        Program(
            "loop_scans_and_similarity",
            "whole scans are rotated for a part of them, and each step rates results by a second model",
            _PYTHON,
            second=("untrained-compute",),
            present={"callback-stall": 0.5},
        ),
    )
}
