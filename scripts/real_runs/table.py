"""Lists the training programs, and which finding is right to stand first where each is slow; its docstring says why it is."""

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
        findings: Codes that are right as the first finding of the slow run; none if nothing slows it down.
        statistic: Whether the slowdown costs every step (median) or some steps (mean).
        second: Codes that are right as the second finding, of a program that two things slow down.
        advice: How the advice begins that the blocks with `StepClock.is_advised` follow; empty if none of them does.
        present: By code of a finding what healthy steps spend on that, too, as a share of a step: how much shorter they were
            without it, in turns with it in one process on two idle cores. Without `pmean`, or by `shard_map` without a sum;
            with a batch made before the loop, or a dataset of it; without setting the rate, asking for predictions,
            the loss of all tasks, casts, averages, statistics or dropout. Without making gradients orthogonal, or without
            writing what was measured; in one epoch; with a fourth channel of zeros; with half of the batch on each of two replicas; without Python in a map. Of loops and ops
            that models are made of it is what was recorded.
    """

    name: str
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
_CONVERTED: Final = "Define what tf.py_function or tf.numpy_function calls outside"
_SMALL_OPS: Final = ("host-bound", "collective-exposed", "small-collectives")
_PYTHON: Final = ("python-stall", "callback-stall")
_WAITS: Final = ("callback-stall",)
_LAUNCHES: Final = ("host-bound", "launch-bound")
_TRACING: Final = ("retracing", "compile-in-window")


def _two(
    name: str,
    findings: tuple[str, ...],
    statistic: Statistic = "median",
    present: Mapping[str, float] = MappingProxyType({}),
) -> Program:
    """A program that two things slow down, either of which may cost more."""
    return Program(name, findings, statistic, findings, present=present)


def _python(share: float) -> Mapping[str, float]:
    """What is present of Python, in the step or between steps."""
    return {"callback-stall": share, "python-stall": share}


_PROGRAMS: Final = (
    Program("fit_generator", _INPUT),
    Program("loop_generator", _INPUT, advice="Do the work in ops of TensorFlow"),
    Program("fit_decode", _INPUT, advice=_CACHE),
    Program("loop_spectrogram", _INPUT, advice=_CACHE),
    Program("loop_compressed_files", _INPUT, advice=_CACHE, present={"casts": 0.066}),
    Program("fit_shuffle", _INPUT, "mean"),
    Program(
        "loop_new_iterator",
        (*_INPUT, "callback-stall"),
        "mean",
        advice="Make one iterator before the loop",
    ),
    Program("loop_checkpoint", ("checkpoint-stall",), "mean"),
    Program("fit_model_checkpoint", ("callback-stall", "checkpoint-stall")),
    Program("loop_ragged", ("retracing",), "mean", advice="Let one graph serve every shape"),
    Program("loop_python_argument", ("retracing",), "mean"),
    Program("fit_callback", ("callback-stall",)),
    Program("loop_metric", ("callback-stall", "d2h-sync")),
    Program("loop_numpy_batches", ("callback-stall",)),
    Program("loop_thread", ("python-thread",)),
    Program(
        "loop_constants", ("callback-stall", *_LAUNCHES), advice="Convert once before the loop"
    ),
    Program("loop_summaries", ("callback-stall",)),
    Program("fit_validation", ("validation-stall",), "mean"),
    Program("fit_eagerly", _LAUNCHES),
    Program("loop_eager_optimizer", ("callback-stall", *_LAUNCHES)),
    Program("loop_map_fn", _LAUNCHES),
    Program("loop_numpy_function", _HOST_OP, advice=_OPS),
    Program("loop_strings", _HOST_OP),
    Program("loop_print", _HOST_OP),
    Program("loop_summaries_in_step", _HOST_OP),
    Program("fit_check_numerics", _HOST_OP),
    Program("loop_embedding", ("optimizer-bound", *_HOST_OP)),
    Program("loop_straggler", ("straggler-gpu",)),
    Program("loop_straggler_of_4", ("straggler-gpu",)),
    Program("loop_array_batch", ("callback-stall", "python-stall", "host-bound")),
    Program("loop_many_variables", _SMALL_OPS, advice="Run fewer and larger ops"),
    Program(
        "loop_small_all_reduces",
        _SMALL_OPS,
        advice="Exchange in one call",
        present={"collective-exposed": 0.36},
    ),
    Program(
        "loop_producer_thread",
        ("python-thread",),
        present={"callback-stall": 0.046, "repeated-compute": 0.29},
    ),
    Program("loop_print_replicas", _HOST_OP),
    Program("fit_csv", _INPUT, advice=_CACHE),
    Program("fit_py_map", _INPUT, advice="Replace Python of the pipeline"),
    Program("loop_decomposition", ("matrix-factoring",), advice="Do it every 100th step"),
    Program(
        "loop_ranking_and_strings", ("callback-stall",), second=(*_HOST_OP, "constant-compute")
    ),
    Program("fit_four_replicas", ()),
    Program("loop_read_loss", ()),
    Program(
        "jax_pmap_numpy",
        _PYTHON,
        # 0.18, and on another day 0.175 to 0.26.
        present={"collective-exposed": 0.2},
        advice="Do it ahead in a thread",
    ),
    Program("jax_shard_map_sums", _SMALL_OPS),
    Program(
        "jax_mesh_generator",
        _PYTHON,
        advice="Write it in jax.numpy",
        present={"collective-exposed": 0.41},
    ),
    _two("jax_numpy_and_callback", (*_PYTHON, *_HOST_OP)),
    Program("keras_jax_generator", _PYTHON),
    Program("loop_recurrence", _LAUNCHES),
    Program("loop_py_loss", _HOST_OP, advice=_OPS),
    Program("loop_nested_speller", _INPUT, advice=_CONVERTED, present={"input-bound": 0.15}),
    Program("loop_nested_weights", _HOST_OP, advice=_CONVERTED),
    Program("fit_class_metrics", ("host-bound",)),
    Program("fit_ctc_dense_labels", ("loop-bound",)),
    Program("fit_vectorized_views", ("loop-bound",), present={"costly-ops": 0.22}),
    Program("jax_rays_and_chunks", _PYTHON, second=("loop-bound",)),
    Program(
        "loop_task_per_row_and_likeness",
        _WAITS,
        second=("untrained-compute",),
        present={"callback-stall": 0.1},
    ),
    Program(
        "fit_load_and_orthogonal",
        _WAITS,
        second=("batch-free-compute",),
        present={"batch-free-compute": 0.13},
    ),
    Program("loop_values_in_turn", ("callback-stall", "host-bound")),
    Program("loop_fits_and_largest", ("costly-ops",), second=_WAITS),
    Program("fit_masks_in_loop", _INPUT, present={"input-bound": 0.15}),
    Program("loop_deterministic_map", _INPUT, present={"input-bound": 0.66}),
    Program("loop_padded_matching", _PYTHON, present={"callback-stall": 0.18}),
    Program("jax_jacobian_forward", ("costly-ops",)),
    Program("jax_pickled_bank", _PYTHON, present=_python(0.1)),
    Program("jax_arrow_and_room", ("costly-ops",), second=_PYTHON),
    Program("fit_sequence_json", (*_INPUT, *_PYTHON), present={"input-bound": 0.057}),
    Program("fit_tiny_steps", (*_LAUNCHES, *_PYTHON)),
    Program("loop_busy_machine", ("other-processes",)),
    Program("loop_micro_batches", (*_SMALL_OPS, "optimizer-bound")),
    Program("loop_average_weights", ("callback-stall", "d2h-sync")),
    Program("loop_fsync_log", ("callback-stall",)),
    Program("loop_statistics_thread", ("python-thread",)),
    Program("loop_collect_garbage", ("garbage-collection",), "mean"),
    Program("loop_inverse", ("constant-compute", "matrix-factoring")),
    Program("loop_new_function", _TRACING, "mean"),
    Program("loop_float64", ("float64-compute",)),
    Program(
        "loop_generator_and_checkpoint",
        ("checkpoint-stall",),
        "mean",
        second=_INPUT,
        present={"repeated-compute": 0.21},
    ),
    Program("loop_ordering_and_letters", ("callback-stall",), second=_HOST_OP),
    Program("fit_text_and_callback", ("callback-stall",), second=_INPUT),
    Program("jax_static_and_numpy", _TRACING, "mean", second=_PYTHON),
    Program("jax_unjitted_update", (*_LAUNCHES, *_PYTHON)),
    Program(
        "jax_device_get", ("host-bound",), second=_PYTHON, present={"collective-exposed": 0.18}
    ),
    Program("jax_float64", ("float64-compute",)),
    Program("keras_jax_callback", _PYTHON),
    Program("loop_process_queue", _WAITS, present={"callback-stall": 0.045}),
    Program("loop_http_report", _WAITS, advice="Do it in a thread of its own"),
    Program("loop_lock", _WAITS),
    Program(
        "loop_worker_queue",
        _INPUT,
        advice="Give that more threads or processes",
        present={"input-bound": 0.24},
    ),
    Program("loop_worker_processes", ("other-processes",)),
    Program(
        "loop_waiting_generator",
        _INPUT,
        advice="Let threads load ahead",
        present={"input-bound": 0.14},
    ),
    Program("loop_compiled_shapes", _TRACING, "mean"),
    Program("jax_list_batches", ("host-bound", "garbage-collection", *_PYTHON)),
    Program("loop_two_models", ()),
    Program("loop_learning_rate", (), present={"callback-stall": 0.059, "repeated-compute": 0.4}),
    Program("jax_scan_steps", (), present={"collective-exposed": 0.3}),
    Program("keras_jax_arrays", ()),
    Program("gpu_jax_numpy_batches", _PYTHON),
    Program("gpu_jax_host_batches", ("h2d-exposed",)),
    Program("gpu_jax_thread_loader", ("python-thread",)),
    Program("gpu_jax_unjitted_update", ("launch-bound", "host-bound")),
    Program("gpu_jax_read_metrics", ("d2h-sync",)),
    Program("gpu_jax_checkpoint", _PYTHON),
    Program("gpu_jax_callback", ("cpu-heavy-op",)),
    Program("gpu_jax_float64", ("float64-compute",)),
    Program("gpu_jax_scan_rows", ("launch-bound",)),
    Program("gpu_jax_decomposition", ("matrix-factoring",)),
    Program("gpu_jax_collect_garbage", ("garbage-collection",)),
    Program("gpu_jax_full_precision", ("no-tensor-cores",)),
    Program("gpu_jax_second_pass", ("second-forward",)),
    Program("gpu_loop_second_pass", ("second-forward",), "mean"),
    Program("gpu_fit_py_map", _INPUT),
    Program("gpu_fit_callback", ("callback-stall",)),
    Program("gpu_loop_host_batches", ("h2d-exposed",), "mean"),
    Program("gpu_loop_csv", _INPUT, "mean"),
    Program("gpu_loop_python", ("callback-stall",), "mean"),
    Program("gpu_loop_many_variables", ("launch-bound",), "mean"),
    Program("gpu_loop_float64", ("float64-compute",), "mean"),
    Program("gpu_loop_eager_optimizer", ("callback-stall", "launch-bound"), "mean"),
    Program("gpu_loop_numpy_function", ("cpu-heavy-op",), "mean"),
    Program("gpu_loop_checkpoint", ("checkpoint-stall",), "mean"),
    Program("gpu_mirrored_generator", _INPUT, "mean"),
    Program("gpu_loop_cpu_op", ("cpu-heavy-op",), "mean"),
    Program("gpu_loop_cpu_embedding", ("cpu-heavy-op",), "mean"),
    Program("gpu_loop_python_epoch", ("retracing",), "mean"),
    Program("gpu_fit_decode", _INPUT, "mean"),
    Program("gpu_fit_validation", ("validation-stall",), "mean"),
    Program("gpu_mirrored_cpu_sums", ("reduction-off-gpu",), "mean"),
    Program("gpu_mirrored_statistics", (*_SMALL_OPS, "launch-bound"), "mean"),
    Program("gpu_jax_static_rate", _TRACING, "mean"),
    Program("gpu_jax_host_optimizer", _PYTHON, second=("d2h-sync",)),
    Program("gpu_jax_micro_losses", ("d2h-sync",)),
    Program("gpu_jax_undonated_bank", ("d2d-copies",)),
    Program("gpu_jax_power_iteration", ("launch-bound", "d2h-sync")),
    Program("gpu_jax_stacked_samples", (*_LAUNCHES, "h2d-exposed", *_PYTHON)),
    Program("gpu_jax_embedding_adam", ("optimizer-bound",)),
    Program("gpu_fit_one_thread", _INPUT, "mean"),
    Program("gpu_fit_groups_and_report", ("callback-stall",), "mean", second=("launch-bound",)),
    Program("gpu_loop_assertions", ("d2h-sync", "cpu-heavy-op"), "mean"),
    Program("gpu_loop_host_sums", ("cpu-heavy-op", "d2h-sync"), "mean"),
    Program("gpu_loop_sorted_ranks", ("costly-ops",), "mean"),
    Program("gpu_mirrored_gathered_rows", ("collective-exposed",), "mean"),
    Program("gpu_mirrored_host_input", ("h2d-exposed",), "mean"),
    Program("gpu_mirrored_eager_metrics", (*_PYTHON, "host-bound", "d2h-sync"), "mean"),
    Program("gpu_jax_casts_per_part", ("casts",)),
    Program("gpu_jax_model_by_model", ("launch-bound", "host-bound")),
    Program("gpu_jax_scan_progress", ("cpu-heavy-op",)),
    Program("gpu_jax_keys_and_copies", ("d2h-sync",), second=(*_LAUNCHES, *_PYTHON)),
    Program("gpu_jax_remat", ("rematerialization",)),
    Program("gpu_jax_cpu_backend", ("cpu-heavy-op",)),
    Program("gpu_mirrored_padded_part", ("straggler-gpu",), "mean"),
    Program("gpu_mirrored_eager_run", (*_LAUNCHES, "callback-stall"), "mean"),
    Program("gpu_fit_print_norms", ("cpu-heavy-op",), "mean"),
    Program("gpu_loop_fixed_smoothing", ("constant-compute",), "mean"),
    Program("gpu_loop_confusions_and_labels", ("callback-stall",), "mean", second=("h2d-exposed",)),
    Program("gpu_jax_shuffle_each_step", ("costly-ops",)),
    Program("gpu_jax_python_environment", _PYTHON, second=("launch-bound",)),
    Program("gpu_jax_timed_layers", ("d2h-sync", *_LAUNCHES)),
    Program("gpu_jax_layers_in_python", (*_LAUNCHES, *_PYTHON)),
    Program("gpu_jax_moments_on_host", ("h2d-exposed", "d2h-sync")),
    Program("loop_predict", (*_PYTHON, "host-bound"), present={"repeated-compute": 0.37}),
    Program("loop_late_filter", _INPUT, present={"input-bound": 0.38, "repeated-compute": 0.25}),
    Program("fit_tensorboard", (*_PYTHON, "host-bound")),
    Program("loop_subprocess", _PYTHON, present={"repeated-compute": 0.42}),
    Program("loop_plot", _PYTHON, "mean", present={"repeated-compute": 0.39}),
    Program(
        "loop_logits_list",
        (*_PYTHON, "host-bound", "d2h-sync"),
        present={"callback-stall": 0.084, "repeated-compute": 0.4},
        advice="Fetch the tensor once",
    ),
    Program(
        "loop_eager_clip",
        (*_PYTHON, "host-bound"),
        advice="Make a graph of the ops between steps",
        present={"repeated-compute": 0.37},
    ),
    Program("loop_uneven_rows", ("straggler-gpu",), present={"repeated-compute": 0.34}),
    Program("fit_late_cache", _PYTHON, second=_INPUT),
    Program(
        "jax_changing_lengths",
        _TRACING,
        "mean",
        present={"collective-exposed": 0.33, "python-stall": 0.13},
    ),
    Program("jax_debug_callback", _HOST_OP),
    Program(
        "jax_mean_of_metrics",
        (*_PYTHON, "host-bound"),
        present={"collective-exposed": 0.15, "callback-stall": 0.096},
        advice="Put all that a step computes into one jax.jit",
    ),
    Program("fit_synchronized_norm", ("small-collectives", "collective-exposed")),
    Program("fit_column_inputs", _LAUNCHES),
    Program("loop_windows", _INPUT),
    Program("fit_in_pieces", _PYTHON, "mean"),
    Program("loop_tf_queue", (*_INPUT, "python-thread")),
    Program(
        "loop_summed_accumulators", ("reduction-off-gpu", "collective-exposed", "small-collectives")
    ),
    Program("loop_word_lookup", _HOST_OP),
    Program("fit_thresholds", ("untrained-compute",)),
    Program("loop_growing_tensor", ("d2d-copies", "costly-ops")),
    Program("loop_scoring_thread", ("python-thread",)),
    Program("fit_sampled_sources", _INPUT, "mean"),
    Program("jax_sums_in_scan", ("collective-exposed", "small-collectives")),
    Program(
        "jax_replicated_teacher", ("repeated-compute",), advice="Divide the batch over the devices"
    ),
    Program("jax_static_field", _TRACING, "mean"),
    Program("jax_whole_batch_shards", _PYTHON, present={"python-stall": 0.3}),
    Program("jax_waiting_checkpoint", ("checkpoint-stall", "python-thread", *_PYTHON), "mean"),
    Program("jax_loss_at_once", ("d2h-sync", *_PYTHON)),
    Program("keras_jax_dataset_threads", ("python-thread", *_PYTHON, *_INPUT), "mean"),
    Program("jax_numpy_table", ("h2d-exposed", "host-bound")),
    Program("fit_skipped_parts", _INPUT, "mean"),
    Program("fit_beam_search", ("untrained-compute",)),
    Program("fit_resizing_layer", ("batch-work-in-step",)),
    Program("fit_half_precision", ("costly-ops", "casts")),
    Program("fit_multi_hot_tags", ("batch-free-compute",)),
    Program("fit_annealed_and_unbatched", _TRACING, "mean", second=_INPUT),
    Program("fit_gan", ()),
    Program("keras_jax_dropout", ("costly-ops",)),
    Program("keras_jax_probe", (*_PYTHON, "host-bound")),
    Program(
        "jax_callback_per_row",
        _HOST_OP,
        # Softmax in its place, in turns.
        present={"host-op-in-step": 0.12},
    ),
    Program("jax_pipeline_bubble", ("pipeline-bubble",)),
    Program("jax_actor_learner", ("serial-gpus", "d2h-sync", *_PYTHON)),
    Program("jax_flops_each_step", (*_TRACING, *_PYTHON)),
    Program("jax_npz_each_batch", (*_PYTHON, *_INPUT)),
    Program("jax_gan_debug_text", (*_PYTHON, "d2h-sync")),
    _two("jax_mapped_cond_and_hash", ("costly-ops", *_PYTHON)),
    Program("jax_clear_and_draw", _TRACING, "mean", second=_PYTHON, present={"python-stall": 0.05}),
    Program(
        "jax_sampled_text",
        ("validation-stall", "host-bound", "d2h-sync", *_PYTHON),
        "mean",
        present={"loop-bound": 0.76},
    ),
    Program(
        "jax_reshard_weights", ("d2d-copies", "collective-exposed", "h2d-exposed", "host-bound")
    ),
    Program("loop_guarded_forward", ("straggler-gpu", "serial-gpus", "late-by-turns", *_HOST_OP)),
    Program("loop_ensemble_in_order", ("serial-gpus",)),
    Program("loop_full_log_queue", (*_WAITS, "python-thread")),
    Program("loop_task_datasets", (*_INPUT, *_HOST_OP), present={"untrained-compute": 0.94}),
    Program("loop_stall_before_input", ("callback-stall",), present={"input-bound": 0.6}),
    Program("loop_state_as_arguments", ("host-bound", *_PYTHON)),
    Program("loop_normalized_table", ("batch-free-compute",)),
    Program("loop_traced_memory", _PYTHON),
    Program("loop_crowded_cores", _INPUT),
    Program(
        "loop_beams_and_rollback", ("untrained-compute",), "mean", second=("checkpoint-stall",)
    ),
    Program("loop_pictures_and_history", ("untrained-compute",), second=(*_PYTHON, "host-bound")),
    Program("jax_nan_checks", (*_PYTHON, "d2h-sync", "host-bound")),
    Program("jax_module_graph", (*_PYTHON, "host-bound")),
    Program("jax_frozen_norms", ("untrained-compute", "costly-ops")),
    Program("jax_unjitted_scan", _TRACING, "mean"),
    Program(
        "jax_mesh_axes", ("collective-exposed", "d2d-copies"), present={"collective-exposed": 0.12}
    ),
    Program("jax_long_side", ("optimizer-bound", "costly-ops"), present={"optimizer-bound": 0.18}),
    Program("jax_vmapped_kernels_and_masks", ("costly-ops",), "mean", second=(*_TRACING, *_PYTHON)),
    Program(
        "jax_outputs_and_history",
        ("d2d-copies", "costly-ops"),
        second=_PYTHON,
        present={"python-stall": 0.054},
    ),
    Program("fit_time_distributed", (*_LAUNCHES, "d2d-copies", "costly-ops")),
    Program("fit_table_regularizer", ("batch-free-compute", "optimizer-bound")),
    Program("fit_frozen_backbone", ("untrained-compute", "batch-work-in-step", "constant-compute")),
    Program("fit_feature_maps", (*_TRACING, "validation-stall", *_PYTHON), "mean"),
    Program("keras_jax_epoch_shuffle", (*_PYTHON, *_INPUT), "mean"),
    _two("fit_rows_and_memory", (*_INPUT, *_PYTHON)),
    _two(
        "fit_second_forward_and_scores",
        ("validation-stall", "untrained-compute", "second-forward", *_PYTHON),
        "mean",
        present={"costly-ops": 0.2},
    ),
    Program("loop_triplets", ("costly-ops",)),
    Program("loop_whole_batch_replicas", ("repeated-compute",)),
    Program("loop_policy_saver", ("checkpoint-stall", "retracing", *_PYTHON), "mean"),
    Program(
        "loop_counted_epochs",
        ("validation-stall", *_PYTHON, *_INPUT),
        "mean",
        present={"input-bound": 0.12},
    ),
    Program("loop_gradient_per_loss", ("repeated-compute", "costly-ops", "second-forward")),
    _two(
        "loop_negatives_and_decay",
        (*_PYTHON, "batch-free-compute", "optimizer-bound"),
        present={"callback-stall": 0.118},
    ),
    _two(
        "loop_style_and_log",
        (*_PYTHON, "constant-compute"),
        # Without the variation of the image, in turns; with `tf.split` for its slices 0.31.
        present={"costly-ops": 0.38},
    ),
    Program("loop_uncached_decoding", ("untrained-compute", "repeated-compute", "costly-ops")),
    Program("loop_channels_first", ("d2d-copies", "costly-ops")),
    _two("loop_full_softmax_and_windows", ("costly-ops", "optimizer-bound", *_PYTHON)),
    Program("fit_no_prefetch", _INPUT, present={"input-bound": 0.35}, advice="Map in parallel"),
    Program(
        "fit_best_weights",
        ("checkpoint-stall", *_PYTHON),
        "mean",
        present={"callback-stall": 0.145},
    ),
    Program(
        "keras_jax_hdf5_rows",
        (*_INPUT, *_PYTHON),
        present={"python-stall": 0.2},
        advice="Read the file once, before the loop",
    ),
    Program("fit_usual_callbacks", ()),
    Program("jax_update_not_taken", ("optimizer-bound",)),
    Program("jax_preconditioner_roots", ("matrix-factoring", "optimizer-bound", "costly-ops")),
    Program("jax_all_experts", ("costly-ops",)),
    Program("jax_diffusion", (), present={"costly-ops": 0.46}),
    Program("loop_ordered_reads", _INPUT, "mean", present={"input-bound": 0.055}),
    Program("loop_box_lists_and_settings", ("retracing",), "mean", second=_PYTHON),
    Program("loop_polling_writer", ("python-thread",)),
    Program(
        "loop_dense_word_gradients",
        ("batch-free-compute", "optimizer-bound", "collective-exposed"),
        # Of the table, with 60000 rows in place of 6000.
        present={
            "input-bound": 0.058,
            "collective-exposed": 0.16,
            "batch-free-compute": 0.24,
            "optimizer-bound": 0.24,
        },
    ),
    _two("fit_padded_and_described", ("costly-ops", *_LAUNCHES, *_PYTHON), present=_python(0.14)),
    Program("fit_packed_run_folder", (*_PYTHON, "checkpoint-stall"), "mean"),
    Program("keras_jax_metrics_database", _PYTHON),
    Program(
        "jax_gathered_logits",
        ("collective-exposed", "repeated-compute", "costly-ops"),
        present={"collective-exposed": 0.076},
    ),
    Program(
        "jax_summed_by_hand",
        ("d2d-copies", "serial-gpus", "collective-exposed", "h2d-exposed", "host-bound", *_PYTHON),
        present={**_python(0.066), "h2d-exposed": 0.066},
    ),
    Program("jax_frame_batches", (*_PYTHON, *_INPUT)),
    _two(
        "jax_dense_graph_and_negatives",
        ("costly-ops", *_PYTHON),
        # Without the sums over edges; with pairs drawn before the loop.
        present={**_python(0.13), "costly-ops": 0.19},
    ),
    Program(
        "loop_gradient_penalty",
        ("costly-ops", "second-forward", "repeated-compute"),
        present={"untrained-compute": 0.09, "second-forward": 0.11, "costly-ops": 0.11},
    ),
    Program("loop_sleepy_sampler", (*_PYTHON, *_INPUT), present={"callback-stall": 0.06}),
    Program(
        "loop_reloaded_judge",
        ("validation-stall", "retracing", "checkpoint-stall", *_PYTHON),
        "mean",
    ),
    _two(
        "loop_twice_summed_and_copied",
        ("collective-exposed", *_PYTHON),
        present={"collective-exposed": 0.39},
    ),
    Program("fit_small_files", _INPUT, present={"input-bound": 0.06}),
    _two("fit_new_rates_and_callers", (*_TRACING, *_PYTHON), "mean"),
    Program("fit_shared_results", _PYTHON),
    Program(
        "keras_jax_pictures_by_ops",
        (*_INPUT, *_PYTHON, *_LAUNCHES),
        present={**_python(0.23), "input-bound": 0.23},
    ),
    Program("jax_every_word_scored", ("costly-ops", "untrained-compute")),
    Program("jax_averaged_state", ("collective-exposed",), present={"collective-exposed": 0.25}),
    _two(
        "jax_adapters_and_statistics",
        (*_PYTHON, "costly-ops", "batch-free-compute"),
        present=_python(0.18),
    ),
    Program(
        "loop_unused_heads",
        ("collective-exposed", "optimizer-bound", "batch-free-compute", "untrained-compute"),
        # With the sum, and the update, left out of the step.
        present={"collective-exposed": 0.09, "optimizer-bound": 0.28, "input-bound": 0.045},
    ),
    Program(
        "loop_pipeline_per_epoch",
        (*_INPUT, "retracing", "validation-stall", *_PYTHON),
        "mean",
        present={"input-bound": 0.2},
    ),
    _two(
        "loop_sizes_and_confusions",
        ("costly-ops", "untrained-compute", "python-thread"),
        "mean",
        present={"input-bound": 0.06},
    ),
    Program("fit_decode_then_crop", _INPUT, present={"input-bound": 0.27}),
    Program(
        "fit_weights_through_pipe",
        (*_PYTHON, "checkpoint-stall"),
        "mean",
        present={"input-bound": 0.065},
    ),
    _two(
        "fit_zero_weights_and_spread",
        ("costly-ops", "untrained-compute", "second-forward", *_PYTHON),
    ),
    Program("jax_hashed_settings", (*_PYTHON, *_LAUNCHES)),
    Program(
        "jax_indexed_shards",
        ("collective-exposed", "d2d-copies", "costly-ops"),
        # Places drawn once; rows taken before the loop; without the mean, where `shard_map` holds the whole step.
        present={
            **_python(0.16),
            "h2d-exposed": 0.16,
            "costly-ops": 0.13,
            "collective-exposed": 0.045,
        },
    ),
    Program("jax_gradients_per_sample", ("costly-ops", "repeated-compute")),
    _two("jax_backup_and_debugger", (*_PYTHON, *_LAUNCHES, "d2d-copies")),
    Program(
        "loop_pool_per_batch",
        (*_PYTHON, "python-thread", *_INPUT),
        # One batch for all steps; files read one by one without a pool.
        present={**_python(0.34), "input-bound": 0.34, "python-thread": 0.18},
    ),
    Program("fit_bucketed_texts", _INPUT, "mean"),
    Program(
        "jax_unpartitioned_noise",
        ("repeated-compute", "costly-ops"),
        # Without noise and dropout; the step by `shard_map`, without the mean.
        present={"costly-ops": 0.24, "collective-exposed": 0.11},
    ),
    _two(
        "jax_seeds_and_growing_history",
        (*_PYTHON, *_INPUT, *_TRACING),
        "mean",
        # One batch for all steps.
        present=_python(0.05),
    ),
    Program(
        "jax_pickled_in_background",
        ("python-thread", *_PYTHON),
        "mean",
        # With one batch for all steps, in turns: 0.02 and 0.06.
        present={"python-stall": 0.06},
    ),
    Program(
        "keras_jax_shared_connection",
        (*_INPUT, *_PYTHON),
        present={**_python(0.25), "input-bound": 0.25},
    ),
    Program("jax_changing_features", _TRACING, "mean"),
    _two(
        "jax_filled_and_sorted",
        (
            "costly-ops",
            "optimizer-bound",
            "batch-free-compute",
            "host-bound",
            "launch-bound",
            "d2d-copies",
            *_PYTHON,
        ),
    ),
    _two(
        "loop_candidates_and_memory",
        ("costly-ops", "untrained-compute", "batch-free-compute", *_PYTHON),
    ),
    _two(
        "loop_gathered_views_and_shared_state",
        ("collective-exposed", "d2d-copies", "repeated-compute", *_PYTHON),
        # Without averages; without the sum; one batch for all steps.
        present={**_python(0.04), "collective-exposed": 0.125, "input-bound": 0.09},
    ),
    Program(
        "loop_workers_shard_late",
        _INPUT,
        # One batch for all steps; that, and without the sum: the sum takes 76% of a step without input.
        present={"input-bound": 0.21, "collective-exposed": 0.60},
    ),
    Program(
        "loop_buffer_in_checkpoint",
        ("checkpoint-stall",),
        "mean",
        # Without checkpoints; without the sum; one batch for all steps.
        present={
            **_python(0.13),
            "checkpoint-stall": 0.17,
            "collective-exposed": 0.07,
            "input-bound": 0.13,
        },
    ),
    _two(
        "loop_normalized_kernel_and_columns",
        ("costly-ops", "batch-free-compute", "constant-compute", *_PYTHON, *_INPUT),
        # The same rows in all steps; without the sum; with the kernel as it is.
        present={
            **_python(0.06),
            "input-bound": 0.06,
            "collective-exposed": 0.06,
            "costly-ops": 0.046,
            "batch-free-compute": 0.046,
        },
    ),
    Program("loop_bound_to_one_core", ("few-cores",)),
    Program("fit_statistics_of_all", _INPUT),
    _two("fit_codebook_and_shared_table", ("costly-ops", *_PYTHON)),
    Program(
        "jax_gathered_per_part",
        ("collective-exposed",),
        # With the own part in the place of each other one; without `jax.checkpoint`.
        present={"collective-exposed": 0.125, "rematerialization": 0.035},
    ),
    _two(
        "jax_drawn_errors_and_checks",
        ("costly-ops", "untrained-compute", *_PYTHON),
        # One batch for all steps; the step by `shard_map`, without the mean.
        present={**_python(0.29), "collective-exposed": 0.11},
    ),
    Program(
        "jax_pmap_first_device",
        ("h2d-exposed", "d2d-copies", *_LAUNCHES, *_PYTHON),
        # One batch that lies on the devices for all steps; without the mean.
        present={**_python(0.14), "h2d-exposed": 0.14, "collective-exposed": 0.12},
    ),
    Program("fit_flattened_maps", ("optimizer-bound", "collective-exposed", "costly-ops")),
    _two(
        "fit_whole_records_and_versions",
        (*_INPUT, *_PYTHON),
        # One batch, parsed before; without the log.
        present={**_python(0.09), "input-bound": 0.18},
    ),
    Program(
        "loop_sharpness_of_all",
        ("collective-exposed",),
        # One batch for all steps; without the mean.
        present={"input-bound": 0.073, "collective-exposed": 0.045},
    ),
    Program(
        "loop_sampled_stacks",
        ("python-thread",),
        # One batch for all steps.
        present=_python(0.07),
    ),
    _two(
        "loop_compared_replicas_and_meters",
        ("retracing", *_PYTHON, "d2h-sync"),
        "mean",
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
        _INPUT,
        statistic="mean",
        # One batch for all steps.
        present={"input-bound": 0.33},
    ),
    Program(
        "loop_forked_reports",
        _PYTHON,
        statistic="mean",
        # One batch for all steps, and no reports.
        present=_python(0.08),
    ),
    _two(
        "fit_columns_and_leak_hunt",
        (*_INPUT, *_PYTHON, "garbage-collection"),
        statistic="mean",
        # A cached batch; with one input of all columns.
        present={**_python(0.07), "input-bound": 0.045},
    ),
    Program(
        "jax_split_pictures",
        ("collective-exposed", "small-collectives", "d2d-copies"),
        # By `shard_map`, without the sum.
        present={"collective-exposed": 0.25, "small-collectives": 0.25},
    ),
    Program(
        "keras_jax_late_narrowing",
        ("costly-ops", "repeated-compute"),
        # One batch, which lies on the device; with all layers of single pixels before what enlarges pictures.
        present={**_python(0.06), "input-bound": 0.06, "costly-ops": 0.32},
    ),
    _two(
        "jax_hessians_and_triangles",
        ("costly-ops", "untrained-compute", "repeated-compute", "native-threads", *_PYTHON),
        # One batch for all steps.
        present=_python(0.11),
    ),
    Program("loop_matrix_of_each", ("costly-ops",)),
    Program("fit_repeated_context", ("costly-ops",)),
    Program("fit_noise_of_nothing", ("untrained-compute",)),
    Program(
        "loop_arrays_evaluated",
        ("validation-stall",),
        "mean",
        # Of one batch.
        present={"validation-stall": 0.12},
    ),
    Program(
        "loop_shuffled_evaluation",
        ("validation-stall",),
        "mean",
        # Without evaluations.
        present={"validation-stall": 0.3},
    ),
    Program("loop_seed_each_step", ("compile-in-window",)),
    Program("loop_dice_per_class", _LAUNCHES, second=_PYTHON),
    _two("loop_sparse_columns", _PYTHON),
    Program("fit_zip_reopened", _INPUT),
    _two("jax_queue_on_host", ("h2d-exposed", *_PYTHON)),
    Program("jax_choice_and_texts", ("costly-ops",), second=("host-bound", *_PYTHON)),
    _two("fit_centroids_and_rank", _PYTHON),
    Program("jax_blocks_in_order", ("straggler-gpu",)),
    Program(
        "jax_arrays_evaluated",
        ("validation-stall",),
        "mean",
        # Of one batch.
        present={"validation-stall": 0.10},
    ),
    _two("jax_graph_again", _PYTHON),
    Program("jax_mixing_per_feature", ("costly-ops",)),
    Program("loop_bank_averaged", ("costly-ops", "repeated-compute", "untrained-compute")),
    _two("loop_miner_and_kde", (*_PYTHON, "native-threads")),
    Program("loop_spectra_on_first", ("untrained-compute", "straggler-gpu", "matrix-factoring")),
    _two("jax_attention_order_and_colours", ("costly-ops", *_PYTHON)),
    Program(
        "jax_prime_spectrum_and_trim",
        ("costly-ops",),
        second=_PYTHON,
        present={"python-stall": 0.16},
    ),
    Program("jax_ring_and_rows", ("collective-exposed",), second=_PYTHON),
    Program(
        "loop_dropped_frames_and_pool",
        _PYTHON,
        second=("costly-ops",),
        present={"callback-stall": 0.18},
    ),
    Program(
        "loop_scans_and_similarity",
        _PYTHON,
        second=("untrained-compute",),
        present={"callback-stall": 0.5},
    ),
    Program("fit_remat_scope", ("rematerialization",)),
    Program("loop_diagonal_gates", ("costly-ops",)),
    Program("loop_wide_blur_and_vectorize", ("costly-ops",), second=_PYTHON),
    Program("jax_windows_first_and_list_index", ("costly-ops",), second=_PYTHON),
    _two("step_shifted_queue_and_frame_log", (*_PYTHON, "costly-ops")),
    Program("fit_concatenated_files", _INPUT),
    _two("jax_projected_in_scan_and_loc", (*_PYTHON, "loop-bound"), present={"loop-bound": 0.43}),
    _two("loop_translator_keys_and_chrf", (*_PYTHON, "repeated-compute")),
    _two("loop_rolling_apply_and_pairs", (*_PYTHON, "costly-ops")),
    Program("jax_coins_in_loader", ("python-thread",)),
    Program("keras_jax_class_weight", _PYTHON),
    Program("fit_pixel_tuples", _INPUT),
    Program("loop_cache_then_take", _INPUT),
    _two("loop_clones_and_early_prefetch", (*_PYTHON, *_INPUT)),
    Program("loop_finite_differences", ("costly-ops",), present={"costly-ops": 0.44}),
    Program("fit_upsampled_by_filter", ("costly-ops",), present={"costly-ops": 0.15}),
)

PROGRAMS: Final = {program.name: program for program in _PROGRAMS}
