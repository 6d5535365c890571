"""Lists the training programs: what slows each down, and which finding is right to stand first."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Statistic = Literal["median", "mean"]


class Program(Struct, frozen=True):
    """A training program that can be slowed down.

    Attributes:
        name: Its module in `programs`.
        slowdown: What slows it down, in words.
        findings: Codes that are right as the first finding of the slow run; none if nothing slows it down.
        states: Those of the ledger that name the slowdown.
        statistic: Whether the slowdown costs every step (median) or some steps (mean).
        second: Codes that are right as the second finding, of a program that two things slow down.
    """

    name: str
    slowdown: str
    findings: tuple[str, ...]
    states: tuple[str, ...]
    statistic: Statistic = "median"
    second: tuple[str, ...] = ()

    @property
    def is_jax(self) -> bool:
        """Whether JAX runs the steps, which records its profile itself."""
        return "jax" in self.name.split("_")

    @property
    def needs_gpu(self) -> bool:
        """Whether it trains on a GPU."""
        return self.name.startswith("gpu_")


_INPUT: Final = ("input-bound",)
_BETWEEN_STEPS: Final = ("between", "python")
_HOST_OP: Final = ("host-op-in-step", "cpu-heavy-op")
_SMALL_OPS: Final = ("host-bound", "collective-exposed", "layer-collectives")
_PYTHON: Final = ("python-stall", "callback-stall")


def _slowed(
    findings: tuple[str, ...],
    states: tuple[str, ...],
    statistic: Statistic = "median",
    second: tuple[str, ...] = (),
    **slowdowns: str,
) -> dict[str, Program]:
    """Programs with one right answer; `slowdowns`: by name what slows each down."""
    return {
        name: Program(name, slowdown, findings, states, statistic, second)
        for name, slowdown in slowdowns.items()
    }


PROGRAMS: Final[dict[str, Program]] = {
    **_slowed(
        _INPUT,
        ("input",),
        fit_generator="a generator tokenizes text in Python",
        fit_decode="files are decoded one by one, in each epoch again",
        loop_compressed_files="each epoch unpacks a compressed file",
        gpu_fit_py_map="the pipeline calls Python on each batch",
    ),
    **_slowed(
        _INPUT,
        ("input",),
        "mean",
        fit_shuffle="each pass over the data fills a shuffle buffer",
        gpu_loop_csv="lines of a table are decoded one by one",
        gpu_mirrored_generator="a generator makes each batch",
    ),
    **_slowed(
        (
            *_INPUT,
            "callback-stall",
        ),
        (
            "input",
            *_BETWEEN_STEPS,
        ),
        "mean",
        loop_new_iterator="every third step begins the data set anew, which fills its buffers again",
    ),
    **_slowed(
        ("checkpoint-stall",),
        ("checkpoint",),
        "mean",
        loop_checkpoint="a checkpoint after every fourth step",
        gpu_loop_checkpoint="a checkpoint is written after every fourth step",
    ),
    **_slowed(
        (
            "callback-stall",
            "checkpoint-stall",
        ),
        (
            *_BETWEEN_STEPS,
            "checkpoint",
        ),
        fit_model_checkpoint="Keras writes the weights after every batch",
    ),
    **_slowed(
        ("retracing",),
        ("compile",),
        "mean",
        loop_ragged="every third batch has another length, which traces the step again",
    ),
    **_slowed(
        ("callback-stall",),
        _BETWEEN_STEPS,
        fit_callback="a callback orders the weights with NumPy",
        loop_numpy_batches="NumPy augments each batch between two steps",
        loop_summaries="histograms of all weights are written after each step",
        gpu_fit_callback="a callback reads weights and sorts them",
    ),
    **_slowed(
        (
            "callback-stall",
            "d2h-sync",
        ),
        (
            *_BETWEEN_STEPS,
            "sync",
        ),
        loop_metric="predictions are read and ranked with NumPy after each step",
    ),
    **_slowed(
        ("python-thread",),
        ("python_thread",),
        loop_thread="a Python thread counts words beside the steps",
        loop_statistics_thread="a thread of NumPy takes a core",
        gpu_jax_thread_loader="a thread computes each batch",
    ),
    **_slowed(
        (
            "callback-stall",
            "host-bound",
            "launch-bound",
        ),
        (
            *_BETWEEN_STEPS,
            "host_ops",
            "launch",
        ),
        loop_constants="nested lists are made into a tensor for each step",
        loop_eager_optimizer="Adam updates the variables op by op outside of the graph",
    ),
    **_slowed(
        ("validation-stall",),
        ("evaluation",),
        "mean",
        fit_validation="a validation ends each epoch of six steps",
    ),
    **_slowed(
        (
            "host-bound",
            "launch-bound",
        ),
        (
            "launch",
            "host_ops",
            "python",
        ),
        fit_eagerly="the step runs eagerly",
    ),
    **_slowed(
        (
            "host-bound",
            "launch-bound",
        ),
        (
            "launch",
            "host_ops",
        ),
        loop_map_fn="`tf.map_fn` runs small ops row by row",
    ),
    **_slowed(
        _HOST_OP,
        (
            "compute",
            "host_ops",
        ),
        loop_numpy_function="`tf.numpy_function` orders each row inside the step",
        fit_check_numerics="every op is checked for NaN",
        loop_print_replicas="`tf.print` writes a layer inside the step of each replica",
    ),
    **_slowed(
        (
            "optimizer-bound",
            *_HOST_OP,
        ),
        (
            "compute",
            "host_ops",
        ),
        loop_embedding="Adam updates a whole embedding table",
    ),
    **_slowed(("straggler-gpu",), ("device_wait",), loop_straggler="replica 1 of 2 computes more"),
    **_slowed(
        (
            "callback-stall",
            "python-stall",
            "host-bound",
        ),
        (
            *_BETWEEN_STEPS,
            "host_ops",
        ),
        loop_array_batch="a NumPy array of float64 is converted in each call of the step",
    ),
    **_slowed(
        _SMALL_OPS,
        (
            "host_ops",
            "communication",
            "device_wait",
        ),
        loop_many_variables="300 tiny variables have an all-reduce and an update each",
        jax_shard_map_sums="120 small gradients are summed one by one",
    ),
    **_slowed(
        ("matrix-factoring",),
        ("compute",),
        loop_decomposition="the loss takes the singular values of a matrix",
        gpu_jax_decomposition="the step takes eigenvalues",
    ),
    **_slowed(
        ("callback-stall",),
        _BETWEEN_STEPS,
        "median",
        (
            *_HOST_OP,
            "constant-compute",
        ),
        loop_ranking_and_strings="NumPy ranks outputs after each step, and the step hashes texts",
    ),
    **_slowed(
        (),
        (),
        fit_four_replicas="nothing",
        loop_read_loss="nothing",
        loop_learning_rate="nothing",
        jax_scan_steps="nothing",
    ),
    **_slowed(
        _PYTHON,
        ("python",),
        jax_mesh_generator="a generator makes each batch",
        gpu_jax_numpy_batches="NumPy makes each batch",
        gpu_jax_checkpoint="the weights are written after each step",
    ),
    **_slowed(
        _PYTHON,
        ("python",),
        "median",
        _HOST_OP,
        jax_numpy_and_callback="NumPy sorts each batch before the call, and the step calls Python",
    ),
    **_slowed(
        (
            *_INPUT,
            "python-stall",
            "callback-stall",
        ),
        (
            "input",
            *_BETWEEN_STEPS,
        ),
        fit_sequence_json="each batch is read from lines of JSON",
    ),
    **_slowed(
        (
            "host-bound",
            "launch-bound",
            *_PYTHON,
        ),
        (
            "launch",
            "host_ops",
            *_BETWEEN_STEPS,
        ),
        fit_tiny_steps="each call of a tiny model trains on one batch",
        jax_unjitted_update="Adam updates the weights op by op",
    ),
    **_slowed(
        ("other-processes",),
        ("no_core",),
        loop_busy_machine="other processes compute on the same cores",
    ),
    **_slowed(
        (
            *_SMALL_OPS,
            "optimizer-bound",
        ),
        (
            "compute",
            "host_ops",
            "communication",
            "device_wait",
        ),
        loop_micro_batches="gradients of small batches are summed and applied one by one",
    ),
    **_slowed(
        ("garbage-collection",),
        ("garbage_collection",),
        "mean",
        loop_collect_garbage="a full garbage collection after every third step",
    ),
    **_slowed(
        (
            "constant-compute",
            "matrix-factoring",
        ),
        ("compute",),
        loop_inverse="each step inverts the same matrix",
    ),
    **_slowed(
        (
            "retracing",
            "compile-in-window",
        ),
        ("compile",),
        "mean",
        loop_new_function="every fourth step makes its `tf.function` anew",
    ),
    **_slowed(
        ("float64-compute",),
        ("compute",),
        loop_float64="the layers compute in float64",
        jax_float64="the weights are float64",
        gpu_jax_float64="the weights are float64",
    ),
    **_slowed(
        ("checkpoint-stall",),
        ("checkpoint",),
        "mean",
        _INPUT,
        loop_generator_and_checkpoint="every fourth step writes a checkpoint, 3.2 ms of a mean step, and a generator makes each batch, 2 ms",
    ),
    **_slowed(
        (
            "retracing",
            "compile-in-window",
        ),
        ("compile",),
        "mean",
        _PYTHON,
        jax_static_and_numpy="a static argument that changes compiles anew, and NumPy shuffles before each call",
    ),
    **_slowed(
        ("host-bound",),
        ("host_ops",),
        "median",
        _PYTHON,
        jax_device_get="weights are taken from sharded arrays outside of jax.jit, fetched and ordered after each step",
    ),
    **_slowed(
        _PYTHON, _BETWEEN_STEPS, keras_jax_callback="a callback counts large numbers in Python"
    ),
    **_slowed(("h2d-exposed",), ("h2d",), gpu_jax_host_batches="the call copies each batch"),
    **_slowed(
        (
            "launch-bound",
            "host-bound",
        ),
        (
            "launch",
            "host_ops",
        ),
        gpu_jax_unjitted_update="Adam updates the weights op by op outside of `jit`",
    ),
    **_slowed(("d2h-sync",), ("sync",), gpu_jax_read_metrics="24 numbers are read one by one"),
    **_slowed(
        ("cpu-heavy-op",), ("host_ops",), gpu_jax_callback="a callback ranks the rows with NumPy"
    ),
    **_slowed(
        ("launch-bound",), ("launch",), gpu_jax_scan_rows="`scan` goes row by row, in small kernels"
    ),
    **_slowed(
        ("garbage-collection",),
        ("garbage_collection",),
        gpu_jax_collect_garbage="the garbage is collected after each step",
    ),
    **_slowed(
        ("no-tensor-cores",), ("compute",), gpu_jax_full_precision="products ask for full float32"
    ),
    **_slowed(
        ("h2d-exposed",), ("h2d",), "mean", gpu_loop_host_batches="the call copies each batch"
    ),
    **_slowed(
        ("callback-stall",),
        _BETWEEN_STEPS,
        "mean",
        gpu_loop_python="Python counts names after each step",
    ),
    **_slowed(
        ("launch-bound",),
        ("launch",),
        "mean",
        gpu_loop_many_variables="256 small variables have kernels of their own",
    ),
    **_slowed(
        ("float64-compute",), ("compute",), "mean", gpu_loop_float64="layers compute in float64"
    ),
    **_slowed(
        (
            "callback-stall",
            "launch-bound",
        ),
        (
            *_BETWEEN_STEPS,
            "launch",
        ),
        "mean",
        gpu_loop_eager_optimizer="Adam updates the variables op by op outside of the graph",
    ),
    **_slowed(
        ("cpu-heavy-op",),
        ("host_ops",),
        "mean",
        gpu_loop_numpy_function="the step ranks the outputs with NumPy",
    ),
}
