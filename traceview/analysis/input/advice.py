"""Holds advice on how to speed up each kind of stage of a tf.data pipeline."""

from __future__ import annotations

import re
from typing import Final

_ADVICE: Final = (
    (
        r"Map(?:V\d+)?",
        (
            "Map in parallel: dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE); add "
            "deterministic=False if the order of elements does not matter."
        ),
    ),
    (
        r"ParallelMap.*|MapAndBatch.*",
        (
            "The mapped function takes the time: batch before mapping and write it for batches, "
            "dataset.batch(n).map(function, num_parallel_calls=tf.data.AUTOTUNE); avoid tf.py_function and "
            "tf.numpy_function, which hold Python's lock; dataset.cache() what does not change."
        ),
    ),
    (
        r"TFRecord.*|TextLine.*|FixedLengthRecord.*|SSTable.*|RecordIO.*|LMDB.*|Csv.*",
        (
            "Read several files at once: files.interleave(tf.data.TFRecordDataset, "
            "num_parallel_calls=tf.data.AUTOTUNE, deterministic=False), with the reader that the files need; "
            "if the data fits into memory, dataset.cache()."
        ),
    ),
    (
        r"Interleave.*|FlatMap.*",
        (
            "Open and read inputs in parallel: files.interleave(reader, "
            "num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)."
        ),
    ),
    (
        r"ParallelInterleave.*|LegacyParallelInterleave.*",
        (
            "Let more inputs be read at once: raise cycle_length of dataset.interleave, with "
            "num_parallel_calls=tf.data.AUTOTUNE and deterministic=False; check the speed of the storage."
        ),
    ),
    (
        r"Generator.*",
        (
            "A Python generator runs under Python's lock, one element at a time: read with tf.data ops or write "
            "the data to TFRecord files; else generate whole batches and add "
            "dataset.prefetch(tf.data.AUTOTUNE)."
        ),
    ),
    (
        r"Shuffle.*",
        (
            "Shuffle before decoding and use a smaller buffer: dataset.shuffle(buffer_size); each pass fills the "
            "buffer before its first element."
        ),
    ),
    (
        r"(?:Parallel|Padded|Ragged)?Batch.*|Rebatch.*",
        (
            "Copying elements into batches takes the time: dataset.batch(n, "
            "num_parallel_calls=tf.data.AUTOTUNE), or make smaller elements."
        ),
    ),
    (
        r"ParseExample.*",
        (
            "Parse in parallel: dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE) with "
            "tf.io.parse_example on batches."
        ),
    ),
    (
        r"Filter.*",
        "Filter before expensive stages: dataset.filter(predicate) ahead of dataset.map and dataset.batch.",
    ),
    (
        r".*Cache.*|Snapshot.*",
        (
            "Keep what is cached small: put dataset.cache() after reading and before augmentation; a cache in a "
            "file is read from disk again."
        ),
    ),
    (
        r".*Repeat.*|Concatenate.*|Zip.*|Take.*|Skip.*|Unbatch.*",
        (
            "The stage itself does little: speed up its inputs, and add dataset.prefetch(tf.data.AUTOTUNE) at the "
            "end."
        ),
    ),
)
_OTHER: Final = (
    "Let the pipeline work ahead of the model: dataset.prefetch(tf.data.AUTOTUNE) at its end, and "
    "num_parallel_calls=tf.data.AUTOTUNE where a stage takes it."
)


def advice_for(kind: str, parallelism: int | None) -> str:
    """What to change at a stage of that kind; `parallelism` as recorded, None without a record."""
    advice = next((text for pattern, text in _ADVICE if re.fullmatch(pattern, kind)), _OTHER)
    if parallelism == 1 and kind.startswith(("Parallel", "MapAndBatch")):
        return f"The stage runs one call at a time: num_parallel_calls=tf.data.AUTOTUNE. {advice}"
    return advice
