"""Which words in the name of a kernel come from a known library, and so say nothing about whose kernel it is?"""

from __future__ import annotations

import re
from typing import Final

_BEGINNING: Final = re.compile(
    r"(?:Eigen|cub|thrust|cutlass\w*|cute|cudnn\w*|cublas\w*|cufft|std|nccl\w*|rccl\w*|xla|stream_executor)(?:::\w+)*"
    r"|(?:cutlass|cudnn|cublas|nccl|rccl|ncclKernel|ncclDevKernel|ampere|volta|turing|maxwell|hopper|sm\d+|nvjet|"
    r"Cijk|Memcpy|MEMCPY|Memset|__amd_rocclr|dgrad|wgrad|fprop|gemv|gemmk1|splitKreduce|winograd)\w*"
    r"|[sdhc]?gemm\w*|fusion|fusion_\d+|\w+_fusion(?:_\d+)?|CudaGraphExec|kd|Params"
    r"|void|const|unsigned|signed|bool|char|short|int|long|float|double|half|__half|__nv_bfloat16|u?int\d+_t"
    r"|u?int[234]|float[234]|half2|half_t|bfloat16(?:_t)?|true|false"
)
"""Namespaces and beginnings of names of CUDA's libraries, Eigen, NCCL, Tensile and XLA, and words of C++."""

_PART: Final = re.compile(
    r"add|align|all|allgather|allreduce|avg|bias|bitcast|broadcast|cgemm|clamp|collnet|compare|concatenate|convert"
    r"|copy|cudnn|device|dgemm|dgrad|divide|dot|dynamic|execute|exponential|exp|first|fprop|fusion|gather|gemm|hcudnn"
    r"|hgemm|igemm|input|interior|iota|kernel|large|layer|log|loop|max|maximum|medium|min|minimum|multiply|negate|pad"
    r"|power|prod|reduce|reducescatter|relu|reshape|reverse|ring|rsqrt|scatter|scudnn|select|sendrecv|sgemm|simple"
    r"|simt|slice|sliced|small|sort|splitk|sqrt|stages|subtract|sum|tanh|tensorop|transpose|tree|update|warp"
    r"|warpgroup|wgrad|winograd|wrapped|xmma|\w{1,3}|\w*\d\w*"
)
"""What may follow, between underscores: their words, shapes and types with digits, a few letters as `nn`."""


def is_of_library(word: str) -> bool:
    """Whether a word begins as a library's do and goes on with nothing of its own.

    `word`: an identifier of C++ with its namespaces.
    """
    if not _BEGINNING.fullmatch(word):
        return False
    if "::" in word or word.startswith(("Cijk", "__")):
        return True
    parts = word.lower().split("_")
    rest = parts if "fusion" in parts[1:] else parts[1:]
    return all(_PART.fullmatch(part) for part in rest)
