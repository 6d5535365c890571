"""Holds advice on how to speed up each kind of stage of a tf.data pipeline."""

from __future__ import annotations

import re
from typing import Final

_ADVICE: Final = (
    (
        r"Map(?:V\d+)?",
        (
            "Map in parallel: dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE), which TensorFlow does by "
            "itself only for functions without state; batch before mapping and write the function for batches."
        ),
    ),
    (
        r"ParallelMap.*|MapAndBatch.*",
        (
            "The mapped function takes the time, although it runs in parallel: make it cheaper. Batch before mapping "
            "and write it for batches, dataset.batch(n).map(function, num_parallel_calls=tf.data.AUTOTUNE); replace "
            "tf.py_function and tf.numpy_function by ops of TensorFlow, for they hold Python's lock; put "
            "dataset.cache() behind what is the same in each epoch, if it fits into memory."
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
            "Do the work in ops of TensorFlow, dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE), and let the generator "
            "yield only what to load. Make once what is the same in each epoch: dataset.cache() behind the "
            "generator, if it fits into memory, or TFRecord files. Work that has to stay in Python needs several processes, "
            "multiprocessing.get_context('spawn').Pool(4).imap(make_batch, keys) in the generator, and cores for them; a "
            "generator that waits for a server needs threads, multiprocessing.pool.ThreadPool(8).imap(load, keys). A generator "
            "makes one element at a time and holds Python's lock while it computes: prefetch alone does not help."
        ),
    ),
    (
        r"Shuffle.*",
        (
            "Each pass fills the buffer of the shuffle before its first element: shuffle names or keys before they are "
            "read and decoded, use a smaller dataset.shuffle(buffer_size), and repeat() before it."
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
            "The stage hands on one element at a time: batch before it, so that there are fewer elements."
        ),
    ),
)
_OTHER: Final = (
    "Make the stage cheaper, or give it num_parallel_calls=tf.data.AUTOTUNE if it takes that. "
    "dataset.prefetch(tf.data.AUTOTUNE) at the end lets the pipeline work while the model computes."
)


def advice_for(kind: str, parallelism: int | None) -> str:
    """What to change at a stage of that kind; `parallelism` as recorded, None without a record."""
    advice = next((text for pattern, text in _ADVICE if re.fullmatch(pattern, kind)), _OTHER)
    if parallelism == 1 and kind.startswith(("Parallel", "MapAndBatch")):
        return f"The stage runs one call at a time: num_parallel_calls=tf.data.AUTOTUNE. {advice}"
    return advice
