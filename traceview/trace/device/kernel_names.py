"""Tells from the name of a kernel its precision, and whether it uses matrix units (docs/method.md, "Precision").

Sources: CUTLASS `gemm_operation.py` (without element types in the name the operands have the type of the accumulator,
which on tensor cores of compute capability 8 is TF32 for `s1688`), Tensile `SolutionStructs`, names in recorded traces
and in the public profiles of PyTorch and TensorFlow on V100 to B200 and MI200 to MI300X. XMMA writes `f32f32_tf32f32_f32` for
float data multiplied in TF32.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from traceview.base.text import lazy_pattern


class NumberFormat(IntEnum):
    """Number formats, narrowest first; of kernels that run at the same time the earlier member gets the time."""

    FP8 = 0
    INT8 = 1
    FP16 = 2
    BF16 = 3
    TF32 = 4
    FP32 = 5
    FP64 = 6
    UNKNOWN = 7


class KernelName(Struct, frozen=True):
    """What a kernel's name proves. `precision`: format of its operands, `UNKNOWN` where the name does not show it.

    `tensor_core`: the kernel uses tensor cores (AMD: matrix cores). `is_matrix`: it multiplies matrices or
    convolves, which tensor cores are made for.
    """

    precision: NumberFormat
    tensor_core: bool
    is_matrix: bool


_LONGEST: Final = 1 << 13
"""Bytes of a name that are searched: types come early in a signature, and a name may be of any length."""

_KEPT_WORDS: Final = 1 << 12
_WORD: Final = lazy_pattern(rb"[a-z0-9]+")
_TYPES_OF_WORD: Final[dict[bytes, NumberFormat]] = {
    **dict.fromkeys((b"double", b"double2", b"double4", b"fp64", b"f64"), NumberFormat.FP64),
    **dict.fromkeys((b"float", b"float2", b"float4", b"fp32", b"f32"), NumberFormat.FP32),
    **dict.fromkeys((b"tf32", b"xf32"), NumberFormat.TF32),
    **dict.fromkeys((b"bf16", b"bfloat16", b"bfloat162", b"bhalf"), NumberFormat.BF16),
    **dict.fromkeys((b"half", b"half2", b"fp16", b"f16", b"float16"), NumberFormat.FP16),
    **dict.fromkeys((b"fp8", b"f8", b"e4m3", b"e5m2"), NumberFormat.FP8),
}
_TYPES_OF_RUN: Final = {
    **_TYPES_OF_WORD,
    **dict.fromkeys((b"i8", b"s8", b"u8"), NumberFormat.INT8),
}
_FP8_WORD: Final = lazy_pattern(rb"(?:float8|f8)?e(?:4m3|5m2)(?:fn)?(?:uz)?")
_TYPE: Final = lazy_pattern(rb"bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|s8|u8|i32|s32")
_TYPE_RUN: Final = lazy_pattern(rb"(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|s8|u8|i32|s32){2,}")
_MANGLED: Final = lazy_pattern(rb"(?:13__nv_|12hip_|8)(bfloat16)|(?:6__|4)(half)")

# `sgemm`, `hcudnn`, `gcgemm`: the type letter of BLAS, on ordinary cores.
_BLAS_WORD: Final = lazy_pattern(rb"(?:g?([sdhcz]))(?:gemm|cudnn)")
_TYPES_OF_LETTER: Final = {
    b"b": NumberFormat.BF16,
    b"h": NumberFormat.FP16,
    **dict.fromkeys((b"s", b"c"), NumberFormat.FP32),
    **dict.fromkeys((b"d", b"z"), NumberFormat.FP64),
}
# `s16816gemm`, `h884cudnn`, `s1688tf32gemm`: letter of the accumulator and shape of the matrix instruction.
_MATRIX_WORD: Final = lazy_pattern(
    rb"([sdhcziu])(884|1684|1688|16816|16832|161616|8816|8832|\d{2,3}x\d{2,3}x\d{1,3})"
    rb"(tf32|bf16|f16)?(gemm|cudnn|fprop|dgrad|wgrad|scudnn)"
)
_MATRIX_UNIT: Final = lazy_pattern(
    rb"tensorop|wgmma|hmma|imma|wmma|_gmma|xdlops|_xdl_|gtcx|nvjet"
    rb"|tensor\d+x\d+x\d+|sm\d+_\d+x\d+x\d+_f"
)
_ORDINARY_UNIT: Final = lazy_pattern(rb"_[fdh]fma_|_simt_|_simt$")
_CUTLASS_80: Final = lazy_pattern(rb"cutlass_(?:tensorop|8\d_(?:wmma_)?tensorop)")
_MATRIX_WORK: Final = lazy_pattern(
    rb"gemm|convolve|fprop|dgrad|wgrad|winograd|[sh]cudnn|884cudnn|1688cudnn|8816cudnn|nvjet|^cijk_"
)

_NVJET: Final = lazy_pattern(rb"nvjet_(?:sm\d+_)?(qq|tst|tss|hsh|hss|hhh)")
_NVJET_TYPES: Final = {b"t": NumberFormat.BF16, b"h": NumberFormat.FP16, b"q": NumberFormat.FP8}
_TENSILE: Final = lazy_pattern(rb"Cijk(?:_[A-Z][a-z]+){2,4}_(?:([FB]8)|(I8|4xi8)|([BHSDCZ]))(\w*)")
_TENSILE_MATRIX_UNIT: Final = lazy_pattern(rb"_MI[1-9]\d*x\d+")


def kernel_name(name: bytes) -> KernelName:
    """What the name of a kernel proves; cheap enough for every distinct name, not for every event."""
    name = name[:_LONGEST]
    tensile = _TENSILE.match(name)
    if tensile:
        return _of_tensile(tensile)
    lowered = name.lower()
    is_matrix = _MATRIX_WORK.search(lowered) is not None
    words = set(_WORD.findall(lowered))
    shown = [_of_word(word) for word in words]
    formats = {format_ for of_word, _ in shown for format_ in of_word}
    instruction = next((found for _, found in shown if found), None)
    if name.startswith(b"_Z"):
        formats |= {_TYPES_OF_WORD[brain or half] for brain, half in _MANGLED.findall(name)}
    if is_matrix and words & {b"i8", b"s8", b"int8", b"imma"}:
        formats.add(NumberFormat.INT8)
    if instruction:
        formats |= _of_instruction(instruction, lowered, formats)
    nvjet = _NVJET.match(lowered)
    if nvjet:
        formats.add(_NVJET_TYPES[nvjet[1][:1]])
    precision = min(formats, default=NumberFormat.UNKNOWN)
    is_narrow = precision < NumberFormat.FP32
    on_matrix_unit = instruction is not None or _MATRIX_UNIT.search(lowered) is not None
    on_matrix_unit |= b"xmma_" in lowered and is_narrow
    return KernelName(
        precision,
        on_matrix_unit and not _ORDINARY_UNIT.search(lowered),
        is_matrix or on_matrix_unit,
    )


@lru_cache(_KEPT_WORDS)
def _of_word(word: bytes) -> tuple[set[NumberFormat], re.Match[bytes] | None]:
    """The formats in a word of a name, and the matrix instruction that it begins with; names share most of their words."""
    types = _TYPE.findall(word) if _TYPE_RUN.fullmatch(word) else ()
    formats = {_TYPES_OF_RUN.get(type_, NumberFormat.UNKNOWN) for type_ in types}
    if word in _TYPES_OF_WORD:
        formats.add(_TYPES_OF_WORD[word])
    if _FP8_WORD.fullmatch(word):
        formats.add(NumberFormat.FP8)
    blas = _BLAS_WORD.match(word)
    if blas:
        formats.add(_TYPES_OF_LETTER[blas[1]])
    return formats, _MATRIX_WORD.match(word)


def _of_instruction(
    instruction: re.Match[bytes], lowered: bytes, formats: set[NumberFormat]
) -> set[NumberFormat]:
    """The formats that the shape of the matrix instruction adds to the types in the name."""
    accumulator, shape, math = instruction[1], instruction[2], instruction[3]
    if math:
        return {_TYPES_OF_WORD[math]}
    if accumulator in b"iu":
        return {NumberFormat.INT8} if shape in (b"8816", b"16816", b"16832") else set()
    if accumulator in b"dz":
        return {NumberFormat.FP64}
    if accumulator == b"h" or shape == b"884":
        return {NumberFormat.FP16}
    if formats <= {NumberFormat.FP32} and shape == b"1688" and _CUTLASS_80.search(lowered):
        return {NumberFormat.TF32}
    return set()


def _of_tensile(match: re.Match[bytes]) -> KernelName:
    """A name of Tensile: the operands, and `MI` with the shape of the instruction if that is a matrix instruction."""
    fp8, int8, letter, rest = match.groups()
    if fp8 or int8:
        precision = NumberFormat.FP8 if fp8 else NumberFormat.INT8
    else:
        precision = _TYPES_OF_LETTER[letter.lower()]
    if letter == b"S" and rest.startswith((b"_MX_", b"X")):
        precision = NumberFormat.TF32
    return KernelName(precision, _TENSILE_MATRIX_UNIT.search(match.string) is not None, True)
