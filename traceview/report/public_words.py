"""Knows the words that identify nobody: those of traceview's own sentences, and the names of TensorFlow's ops.

Every word that traceview writes into a report is in `public_words.txt`, which `python -m scripts.public_words` makes from
the code. A word that is not there came from a trace. A word that is missing is hidden, never shown.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

AROUND: Final = "()[]{}<>\"'`.,;:!?…=|"
"""Characters around a word that do not belong to it."""

_VERSION: Final = re.compile(r"(?:V\d+)?$")
_AFTER_TYPE: Final = re.compile(r"(?:_\d+|Op::(?:Do)?Compute)$")
_INDEXED: Final = re.compile(r"\[\d+\]$")


@cache
def public_words() -> frozenset[str]:
    """Words of traceview, in lower case."""
    return _stored("public_words.txt")


@cache
def op_types() -> frozenset[str]:
    """The ops that TensorFlow 2.21 registers (`TF_GetAllOpList`)."""
    return _stored("tensorflow_ops.txt")


@cache
def library_words() -> frozenset[str]:
    """Words in names of kernels: of Eigen, CUB, CUTLASS, cuBLAS, cuDNN, NCCL, rocBLAS and XLA's instructions."""
    return _stored("library_words.txt")


@cache
def stage_types() -> frozenset[str]:
    """Kinds of iterators of tf.data: the ops that make datasets, without `Dataset` and version, and its own."""
    ops = {_VERSION.sub("", op).replace("Dataset", "") for op in op_types() if "Dataset" in op}
    own = {"FiniteRepeat", "FiniteSkip", "FiniteTake", "ForeverRepeat", "Iterator", "Root"}
    return frozenset(ops | own | {"EmptyRepeat", "EmptySkip", "EmptyTake", "InfiniteSkip"})


def is_op_name(name: str) -> bool:
    """Whether a name is a type of op, with a number or as a kernel: `MatMul`, `MatMul_1`, `MatMulOp::Compute`."""
    return _AFTER_TYPE.sub("", name) in op_types()


def is_stage_name(name: str) -> bool:
    """Whether a part of the name of an iterator says its kind and nothing more: `Prefetch`, `FlatMap[0]`."""
    return _VERSION.sub("", _INDEXED.sub("", name)) in stage_types()


def _stored(name: str) -> frozenset[str]:
    text = files("traceview.report").joinpath(name).read_text(encoding="utf-8")
    return frozenset(text.split())
