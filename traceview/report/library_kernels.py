"""Recognizes words in the names of kernels that come from known libraries, and so identify nobody.

A name is of a library if it begins as the library's names do and every word in it is one that such libraries use.
"""

from __future__ import annotations

import re
from typing import Final

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
_TENSILE: Final = re.compile(r"Cijk_[A-D][i-m]+_[A-D][i-m]+(?:_[A-Z\d][A-Z\dnpx]*|_Bias|_UserArgs)*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHAPE: Final = re.compile(r"[a-z]{1,2}|[nt]{3}|[hsdbz][hscdbt][hsdbzt]|nhwc|nchw|ndhwc|ncdhw")
"""Letters for layouts and types: `nn`, `tnt`, `hsh`."""

_WORDS: Final = frozenset(
    """
    abs access accumulator activation add agent algo align aligned all allgather allreduce alltoall amd ampere and
    apply arch arg args argmax argmin array asm assign async atomic auto avg backward base batch batched batchnorm bfloat
    bias binary bit bitcast block bool bprop broadcast broadcasting buffer builder bulk bwd by call cast cbrt ceil
    cgemm chain channel chipping clamp class coalesced coll collective collnet colls column comm common compare complex
    compute concat concatenate concatenation cond constant contraction conv conversion convert convolution convolve coop
    cooperative coord copy cosine count counting cross cub cublas cuda cudnn cufft custom cute cutlass cwise default delta dense
    depthwise detail dev device dgemm dgrad difference digit direct dispatch div divide dot downsweep dropout dynamic
    eigen element elementwise empty engine epilogue eq equal erf eval evaluator even exclusive exec execute executor
    exp expand explicit exponential fast fft fill filter first flag flash flat float floor for forced forward fprop frag full
    function functional functor fused fusion fwd gather ge gelu gemm gemmk gemv gemvx gen general generate generator generic
    gpu gradient graph greater grid group grouped half hcudnn head hgemm histogram hopper horizontal identity if igemm impl
    implicit inclusive index indexed inference init inner inplace input instance integral interior interleaved internal
    inverse iota iterator jit kd kern kernel key kreduce large launch layer layernorm layout ldg left less li linear list ln
    load log logical logistic loop lrn lt magma major make map masked matmul matrix max maximum maxwell mean medium mem
    memcpy memory memset merge meta min minimum mix mma mod mode mul multi multiply multistage native nccl negate nhwc
    norm normal not ns null nullary num numeric nvjet nvls offset offsets one onesweep op optimized or out outer output pack
    pad padded padding pair parallel param params partial partition pascal patch per persist persistent philox pingpong
    pipeline pipelined plus pointer policy pool pooling pow power precomputed pred predicated prefetch primitive prod
    product projection ptr quotient radix random range rank rccl reciprocal recv reduce reducer reducescatter reduction
    relu remainder reorder replica reshape reshaping residual reverse right ring rnd rng rocclr rocm root round row rsqrt
    safe scal scalar scale scaling scan scatter schedule scheduler scudnn segmented select send sendrecv sequence serial
    set sgemm shape shared shift shuffle shuffling sigmoid sign silu simple simt sine single size sizes slice sliced slicing
    small smem softmax sort spatial specialized split splitk sqrt square stage stages standard static std step storage
    stream streamk stride strided striding sub subtract sum swap swish swizzle symmetric sync syrk table tail tan tanh
    tensor tensorop tensors tf thread threadblock threads thrust tile tiled tiles tilesize tma topk traits transform
    transforms transpose tree triangular triton trsm tuple tuned turing two type unary uniform uint unique universal unpack
    unrolled update upsweep value vec vector vectorized view visitor volta volume warp warpgroup warps weight wgmma wgrad
    where while winograd with wmma work worker wrapped xla xmma xor zero zip
    """.split()
)
"""Words of Eigen, CUB, CUTLASS, cuBLAS, cuDNN, NCCL, rocBLAS and the instructions of XLA."""


def is_of_library(word: str) -> bool:
    """Whether a word begins as a library's names do and has no word that is not a library's.

    `word`: an identifier of C++ with its namespaces.
    """
    if _CPP.fullmatch(word) or _TENSILE.fullmatch(word):
        return True
    namespace, _, rest = word.partition("::")
    begins = _NAMESPACE.fullmatch(namespace) if rest else _begins_as_library(word)
    return bool(begins) and all(map(_is_library_word, _WORD.findall(word)))


def _begins_as_library(word: str) -> bool:
    return _BEGINNING.match(word) is not None or _XLA_FUSION.fullmatch(word) is not None


def _is_library_word(word: str) -> bool:
    lower = word.lower()
    return lower in _WORDS or _SHAPE.fullmatch(lower) is not None
