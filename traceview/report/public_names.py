"""Knows the names that identify nobody, of each kind of thing that a field can name: ops, stages, kernels, errors, settings.

A kernel is of a library if its name begins as the library's names do and every word in it is one that such libraries use.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_VERSION: Final = re.compile(r"(?:V[0-9]+)?$")
_AFTER_TYPE: Final = re.compile(r"(?:_[0-9]{1,6}|Op::(?:Do)?Compute)$")
_INDEXED: Final = re.compile(r"\[[0-9]{1,6}\]$")


@cache
def op_types() -> frozenset[str]:
    """The ops that TensorFlow 2.21 registers (`TF_GetAllOpList`)."""
    return _stored("tensorflow_ops.txt")


@cache
def library_words() -> frozenset[str]:
    """Words in names of kernels: of Eigen, CUB, CUTLASS, cuBLAS, cuDNN, NCCL, rocBLAS and XLA's instructions."""
    return _stored("library_words.txt")


@cache
def tensile_keys() -> frozenset[str]:
    """Parameters of a kernel of Tensile in its name, before their values: `MT64x64x32`."""
    return _stored("tensile_keys.txt")


@cache
def error_words() -> frozenset[str]:
    """Words in the names of errors of CUDA's libraries, HIP and NCCL: `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`."""
    return _stored("error_words.txt")


@cache
def setting_words() -> frozenset[str]:
    """Variables, classes and values of settings that TensorFlow, Keras, JAX, CUDA and NCCL define."""
    return _stored("setting_words.txt")


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


# Words in the names of kernels

_CPP: Final = re.compile(
    r"void|const|unsigned|signed|bool|char|short|int|long|float|double|half|__half|__nv_bfloat16|u?int\d+_t"
    r"|u?int[234]|float[234]|half2|half_t|bfloat16(?:_t)?|true|false"
)
"""Words of C++ and of CUDA's types."""

_NAMESPACE: Final = re.compile(
    r"(?:Eigen|cub|thrust|cutlass|cute|cudnn|cublas|cufft|std|nccl|rccl|xla|stream_executor)\w*"
)
_BEGINNING: Final = re.compile(
    r"(?:cutlass|cudnn|cublas|nccl|rccl|ampere|volta|turing|maxwell|pascal|hopper|blackwell|sm\d+|nvjet|memcpy|memset"
    r"|__amd_rocclr|dgrad|wgrad|fprop|gemv|gemmk1|splitkreduce|winograd|[sdhc]?gemm|fusion|cudagraphexec|kd|params)",
    re.IGNORECASE,
)
"""Namespaces, and the beginnings of other names, of CUDA's libraries, Eigen, NCCL, Tensile and XLA."""

_XLA_FUSION: Final = re.compile(r"\w+_fusion(?:_\d+)?")
_TENSILE: Final = re.compile(
    r"Cijk_[A-D][i-m]+_[A-D][i-m]+(?P<tail>(?:_ISA\d+[a-f]|_[A-Z\d][A-Z\dnpx]*|_Bias|_UserArgs)*)"
)
_TENSILE_TYPES: Final = re.compile(r"[BCDFHISZ]{1,4}")
_SHAPE: Final = re.compile(
    r"(?<![A-Za-z])(?:[a-z]{2}|[A-Z]{2}|[nt]{3}|[NT]{3}|[hsdbz][hscdbt][hsdbzt]|nhwc|nchw|ndhwc|ncdhw)(?![A-Za-z])"
)
"""Letters for layouts and types: `nn`, `tnt`, `hsh`. They stand alone, and a single one (`coopA`) stands anywhere."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_of_library(word: str) -> bool:
    """Whether a word begins as a library's names do and has no word that is not a library's.

    `word`: an identifier of C++ with its namespaces.
    """
    tensile = _TENSILE.fullmatch(word)
    if tensile:
        keys = re.findall(r"[A-Z]+(?![a-z]{2})", tensile["tail"])
        return all(key in tensile_keys() or _TENSILE_TYPES.fullmatch(key) for key in keys)
    if _CPP.fullmatch(word):
        return True
    namespace, _, rest = word.partition("::")
    begins = _NAMESPACE.fullmatch(namespace) if rest else _begins_as_library(word)
    return (
        bool(begins)
        and word.isascii()
        and all(map(_is_library_word, _WORD.findall(_SHAPE.sub("", word))))
    )


def _begins_as_library(word: str) -> bool:
    return _BEGINNING.match(word) is not None or _XLA_FUSION.fullmatch(word) is not None


def _is_library_word(word: str) -> bool:
    return len(word) == 1 or word.lower() in library_words()
