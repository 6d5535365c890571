"""Makes a report that may leave the house: the same numbers, and no name that shows whose they are.

The type of a field decides (`traceview.base.record`): a name becomes a pseudonym of its kind, a text of ours, a word of a
closed list or a checksum stays as it is, and all else is hidden as a whole. Rules make the sentences of findings again, of
the redacted arguments.

Kept: types of TensorFlow's ops, words of kernel names that known libraries use, threads that TensorFlow names, kinds of
iterators, models of GPUs, codes of errors, PCI addresses, versions, times, and the checksums of the files, by which their
owner can find them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeVar

from msgspec import inspect
from msgspec.structs import replace

from traceview.base.record import Record, TextKind, fields_of, kind_of_text, parts_of
from traceview.base.text import lazy_pattern
from traceview.report.model import Report, with_sentences

R = TypeVar("R", bound=Record)

_LOGDIR_PLACE: Final = 2
"""`traceview report LOGDIR …`"""


def redacted(report: Report, names: Pseudonyms | None = None) -> Report:
    """The report with a pseudonym for every name, the same one for the same name everywhere.

    `names`: those of other reports that are shown with it.
    """
    names = names or Pseudonyms()
    hidden = _hidden(report, names)
    # Of a run without device times it is numbers and words of ours; else it is made again.
    verdict = replace(hidden.verdict, headline=report.verdict.headline)
    command = tuple(_command(names, report.command))
    return with_sentences(replace(hidden, verdict=verdict, command=command))


def redacted_record(record: R) -> R:
    """Any other record, treated in the same way."""
    return _hidden(record, Pseudonyms())


def _command(names: Pseudonyms, command: tuple[str, ...]) -> Iterator[str]:
    """The command line: all but the log directory and the run is ours."""
    for place, (before, argument) in enumerate(zip(("", *command), command, strict=False)):
        is_path, is_run = place == _LOGDIR_PLACE, before == "--run"
        yield names.shown("path" if is_path else "run" if is_run else "words", argument)


def _hidden(record: R, names: Pseudonyms) -> R:
    """The record with what stands for each of its texts."""
    parts = {
        field.name: _with_pseudonyms(getattr(record, field.name), field.type, names, record)
        for field in fields_of(type(record))
    }
    return replace(record, **parts)


_TYPES: Final[Mapping[type, tuple[type[inspect.Type], ...]]] = {
    str: (inspect.StrType, inspect.LiteralType),
    tuple: (inspect.VarTupleType,),
    dict: (inspect.DictType,),
}
"""By the type of a value those that a field may have of it."""


def _with_pseudonyms(value: Any, type_: inspect.Type, names: Pseudonyms, record: Record) -> Any:
    """The value with what stands for each of its texts. `record`: has it."""
    if isinstance(value, Record):
        return _hidden(value, names)
    if type(value) not in _TYPES:
        return value
    kind = None
    for part in parts_of(type_):
        if isinstance(part, inspect.Metadata):
            kind = kind_of_text(part.extra, record)
        if isinstance(part, _TYPES[type(value)]):
            type_ = part
            break
    if isinstance(value, str):
        return value if _is_of_closed_form(value, type_) else names.shown(kind, value)
    if isinstance(type_, inspect.DictType):
        key, item = type_.key_type, type_.value_type
        return {
            _with_pseudonyms(name, key, names, record): _with_pseudonyms(part, item, names, record)
            for name, part in value.items()
        }
    assert isinstance(type_, inspect.VarTupleType)
    return tuple(_with_pseudonyms(part, type_.item_type, names, record) for part in value)


def _is_of_closed_form(text: str, type_: inspect.Type) -> bool:
    """Whether it is a word of the closed list of its type, or has the form that its type demands."""
    if isinstance(type_, inspect.LiteralType):
        return text in type_.values
    pattern = type_.pattern if isinstance(type_, inspect.StrType) else None
    return pattern is not None and re.fullmatch(pattern, text) is not None


# What stands for a name, the same for the same name. Numbers count in the order in which names appear; hashes of
# likely names could be looked up.


_RUN_PART: Final = lazy_pattern(r"(?a)\d{4}_\d\d_\d\d(?:_\d\d)*|train|validation|plugins|profile")
_DEVICE_PART: Final = lazy_pattern(
    r"|job:(?:localhost|worker|chief|ps|evaluator)|(?:replica|task):\d+"
    r"|(?:device:|physical_device:|logical_device:)?(?:XLA_)?(?:CPU|GPU|TPU):\d+",
    re.ASCII,
)
_OP: Final = lazy_pattern(r"(?P<name>.*?)(?P<colon>:(?P<type>[A-Za-z_][\w>-]*))?", re.DOTALL)
_OP_WITH_TYPE: Final = lazy_pattern(r"(?a)[^$\s][^\s]*:[A-Za-z_]\w*")
_OP_PARTS: Final = lazy_pattern(
    r"(?:gradient_tape|while|cond|body|then|else|branch|replica|update|StatefulPartitionedCall"
    r"|PartitionedCall)?(?:_\d{1,6})?",
    re.ASCII,
)
_THREAD: Final = lazy_pattern(
    r"(?:main|python\d*|Host Threads|collective_ops|nccl_kernel_launch|tf(?:_(?:\d+|as|async|batch|cache|capture"
    r"|collective|compile|compute|data|device|eigen|event|filter|get|gpu|grpc|inter|interleave|intra|iterator|legacy"
    r"|manager|map|mgr|model|multi|nccl|next|numa|op|optional|parallel|pool|prefetch|private|resource|runner|save|shared"
    r"|snapshot|thread|threadpool|tracker|xla))+)(?:\.\d+)?(?:/-?\d+)?",
    re.IGNORECASE | re.ASCII,
)
"""Those of Python, of CUPTI and of TensorFlow, which puts `tf_` before its own; a pool can have a user's name."""

_CALL: Final = lazy_pattern(
    r"EagerExecute|EagerKernelExecute|EagerLocalExecute|EagerCopyToDevice|FunctionRun|Profiled batch"
    r"|ExecutorState::Process(?:Async)?(?:::Start|::Done)?|TFE_(?:Py_)?(?:FastPath)?Execute(?:Cancelable)?(?:_C)?"
    r"|GetNextFromShard\d{0,6}|InstantiatedCapturedFunction::Run(?:Async|Instantiated)?|KernelAndDeviceFunc::Run"
    r"|MakeTensorFromProto|TraceContext|ValidateInputTypeAndPlacement|block_until_ready|convert_to_tensor"
    r"|(?:cu|cuda|hip)(?:Alloc|Async|Attribute|Cooperative|Copy|Create|Ctx|Destroy|Device|Dto[ADH]|Event|Exec|Ext?|Free|Func"
    r"|Get|Graph|Host|Hto[AD]|Instantiate|Kernel|Launch|Load|Malloc|Managed|Memcpy|Memset|Mem|Module|Peer|Pool|Query"
    r"|Record|Register|Set|Stream|Synchronize|Unload|Wait|With|D(?:8|16|32))+(?:_v\d)?(?:_ptsz)?"
)
"""Events of a host that TensorFlow and the drivers of GPUs name."""

_KERNEL_WORD: Final = lazy_pattern(r"(?a)[A-Za-z_~]\w*(?:::~?[A-Za-z_]\w*)*")
_BETWEEN_WORDS: Final = lazy_pattern(r"(?a)[\d\s<>()\[\]{},.:;&*+=|/$@#%'-]*")

_BUS: Final = lazy_pattern(
    r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII
)
_MODEL_WORD: Final = lazy_pattern(
    r"NVIDIA|GeForce|Quadro|Tesla|TITAN|RTX|GTX|RX|XTX|V|CMP|Super|Ti|Laptop|GPU|Ada|Generation|Graphics|Max|Q|PCIe?|NVL|MIG"
    r"|AMD|Instinct|Radeon|Pro|VII|TPU|CPU|Xp?|gfx\w{3,4}"
    r"|(?:MX|GB|GH|MI|SXM|HBM|NVL|GT|CMP|[ABDHKLMPTV])?\d{1,4}(?:GB|HX|XTX?|[A-Z])?",
    re.IGNORECASE | re.ASCII,
)
"""Words and numbers in the names of GPUs: `NVIDIA A100-SXM4-80GB`."""

_ERROR_CODE: Final = lazy_pattern(
    r"\b(?:(?:CUPTI|CUDA|HIP|NCCL|NVML)_ERROR(?:_[A-Z]+)+|ERR_NVGPUCTRPERM)\b"
)
_LONG_NUMBER: Final = lazy_pattern(r"\d{10}")
"""Of an account, a card, a telephone; no size in the name of a kernel is as long."""

_VERSION: Final = lazy_pattern(
    r"(?a)v?\d+(?:\.\d+)*(?:[-.]?(?:rc|dev|post|a|b)\d*)*(?:-\d+-g[0-9a-f]+)?"
)
_PLAIN_VALUE: Final = lazy_pattern(
    r"-?\d{1,9}(?:\.\d{1,9})?|-?\d{1,3}(?:,-?\d{1,3})*|true|false|on|off|yes|no|",
    re.IGNORECASE | re.ASCII,
)
"""A number, a list of small ones such as those of devices, or a switch; an address is none of these."""

_TASK: Final = lazy_pattern(
    r"(?a)(?:chief|coordinator|evaluator|master|ps|rank|worker)(?: \d{1,6})?"
)
_PUBLIC_FORMS: Final[Mapping[TextKind, re.Pattern[str]]] = {
    "bus": _BUS,
    "task": _TASK,
    "thread": _THREAD,
    "version": _VERSION,
}
"""Kinds of names that stay as they are where all of a name has this form."""

_HIDDEN: Final = frozenset(
    ("argument", "axis", "function", "host", "line", "module", "path", "sentence")
)
"""Kinds of names of which nothing stays."""

_OF_EVENTS: Final = frozenset(("op", "kernel", "event", "type"))
"""Kinds of names that sections take each other's for: a layer in a table is an op, and in a sentence what a device does."""


class Pseudonyms:
    """The names of one report so far, and what is shown instead of each."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def _numbered(self, kind: str, name: str) -> str:
        """`path_1`: nothing of the name stays. What is of one name has one pseudonym, called after the kind that it is first."""
        key = ("event" if kind in _OF_EVENTS else kind, name)
        if key not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = f"{kind}_{self._counts[kind]}"
        return self._numbers[key]

    def shown(self, kind: TextKind | None, text: str) -> str:
        """The pseudonym of a text of this kind; without a kind all of it is hidden."""
        if not text or kind == "words":
            return text
        if kind is None or kind in _HIDDEN:
            return self._numbered(kind or "text", text)
        if kind in _PUBLIC_FORMS:
            return text if _PUBLIC_FORMS[kind].fullmatch(text) else self._numbered(kind, text)
        shown: str = getattr(self, kind)(text)
        return shown

    def model(self, name: str) -> str:
        """`model_1`, unless every word of it is one of the names of GPUs."""
        is_known = all(map(_MODEL_WORD.fullmatch, re.findall(r"[^\s:-]+", name)))
        return name if is_known else self._numbered("model", name)

    def device(self, key: str) -> str:
        """`host_1/GPU:0`: the number of the device stays; without one it is a host."""
        host, _, device = key.rpartition("/")
        if not _DEVICE_PART.fullmatch(device):
            return self._numbered("host", key)
        is_known = all(map(_DEVICE_PART.fullmatch, host.split("/")))
        return key if is_known else f"{self._numbered('host', host)}/{device}"

    def file(self, name: str) -> str:
        """`host_1.xplane.pb`: the file of a host is called after it."""
        stem, dot, rest = name.partition(".xplane.pb")
        if dot and not rest:
            return f"{self._numbered('host', stem)}{dot}"
        return self._numbered("file", name)

    def _in_parts(
        self, kind: str, name: str, between: str, is_public: Callable[[str], object]
    ) -> str:
        """A name whose public parts stay."""
        parts = name.split(between)
        return between.join(of if is_public(of) else self._numbered(kind, of) for of in parts)

    def run(self, name: str) -> str:
        """`run_1`, unless it is called after its time, as runs are."""
        return self._in_parts("run", name, "/", _RUN_PART.fullmatch)

    def op(self, name: str) -> str:
        """`op_1/op_2/MatMul:MatMul`: scopes and layers go, names of TensorFlow's own ops stay."""
        match = _OP.fullmatch(name)
        bare, type_ = (match["name"], match["type"]) if match else (name, None)
        shown = self._in_parts("op", bare, "/", is_op_part)
        return shown + (f":{self.type(type_)}" if type_ else "")

    def type(self, name: str) -> str:
        """The type of an op stays if TensorFlow registers it."""
        return name if is_op_name(name) else self._numbered("type", name)

    def kernel(self, name: str) -> str:
        """Words of a kernel's name stay if a known library uses them: cuBLAS, cuDNN, CUTLASS, Eigen, NCCL …"""

        def word_of(match: re.Match[str]) -> str:
            word = match[0]
            return word if is_of_library(word) else self._numbered("kernel", word)

        # What has no word, or other letters and signs than names of C++, is no kernel's name: hidden as a whole.
        between, count = _KERNEL_WORD.subn("", name)
        if not count or not _BETWEEN_WORDS.fullmatch(between) or _LONG_NUMBER.search(name):
            return self._numbered("kernel", name)
        return _KERNEL_WORD.sub(word_of, name)

    def activity(self, name: str) -> str:
        """The op or, without one, the kernel of a device event."""
        is_op = "/" in name or (":" in name and "::" not in name and " " not in name)
        return self.op(name) if is_op else self.kernel(name)

    def slice(self, name: str) -> str:
        """An iterator's stage, or else an op or a kernel."""
        return self.stage(name) if name.startswith("Iterator::") else self.activity(name)

    def stage(self, name: str) -> str:
        """`Iterator::Root::Prefetch::stage_1`: kinds of iterators stay."""
        return self._in_parts("stage", name, "::", is_stage_name)

    def event(self, names: str) -> str:
        """Events of a host, ` > ` between them: ops, stages and calls of TensorFlow and of drivers stay."""
        return " > ".join(map(self._event, names.split(" > ")))

    def _event(self, name: str) -> str:
        call, colon, op = name.partition(": ")
        if _CALL.fullmatch(call):
            return f"{call}: {self.type(op)}" if colon else call
        if name.startswith("Iterator::"):
            return self.stage(name)
        if is_of_library(name) and not _LONG_NUMBER.search(name):
            return name
        is_op = is_op_name(name) or (_OP_WITH_TYPE.fullmatch(name) and "::" not in name)
        return self.op(name) if is_op else self._numbered("event", name)

    def setting(self, value: str) -> str:
        """A setting stays if it is a number, a list of numbers, a switch or a public word."""
        is_public = _PLAIN_VALUE.fullmatch(value) or value in _stored("setting_words")
        return value if is_public else self._numbered("value", value)

    def message(self, text: str) -> str:
        """`message_1 (CUDA_ERROR_OUT_OF_MEMORY)`: codes of errors of known libraries stay."""
        codes = dict.fromkeys(_ERROR_CODE.findall(text))
        hidden = self._numbered("message", text)
        return f"{hidden} ({', '.join(codes)})" if codes else hidden


# Names that identify nobody


_OP_VERSION: Final = lazy_pattern(r"(?:V[0-9]+)?$")
_AFTER_TYPE: Final = lazy_pattern(r"(?:_[0-9]{1,6}|Op::(?:Do)?Compute)$")
_INDEXED: Final = lazy_pattern(r"\[[0-9]{1,6}\]$")


@cache
def _stored(name: str) -> frozenset[str]:
    """Words that identify nobody, of one of the lists beside this module.

    `tensorflow_ops`: the ops that TensorFlow 2.21 registers (`TF_GetAllOpList`). `library_words`: in names of kernels of
    Eigen, CUB, CUTLASS, cuBLAS, cuDNN, NCCL, rocBLAS, Tensile and of XLA's instructions. `setting_words`: variables, classes
    and values of settings of TensorFlow, Keras, JAX, CUDA and NCCL.
    """
    text = files("traceview.report").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


@cache
def stage_types() -> frozenset[str]:
    """Kinds of iterators of tf.data: the ops that make datasets, without `Dataset` and version, and its own."""
    ops = {
        _OP_VERSION.sub("", op).replace("Dataset", "")
        for op in _stored("tensorflow_ops")
        if "Dataset" in op
    }
    own = {"FiniteRepeat", "FiniteSkip", "FiniteTake", "ForeverRepeat", "Iterator", "Root"}
    return frozenset(ops | own | {"EmptyRepeat", "EmptySkip", "EmptyTake", "InfiniteSkip"})


def is_op_name(name: str) -> bool:
    """Whether a name is a type of op, with a number or as a kernel: `MatMul`, `MatMul_1`, `MatMulOp::Compute`."""
    return _AFTER_TYPE.sub("", name) in _stored("tensorflow_ops")


def is_op_part(name: str) -> bool:
    """Whether a scope in the name of an op says no more than what TensorFlow puts there."""
    return _OP_PARTS.fullmatch(name) is not None or is_op_name(name)


def is_stage_name(name: str) -> bool:
    """Whether a part of the name of an iterator says its kind and nothing more: `Prefetch`, `FlatMap[0]`."""
    return _OP_VERSION.sub("", _INDEXED.sub("", name)) in stage_types()


# Words in the names of kernels

_BEGINNING: Final = lazy_pattern(
    r"(?:Eigen|cub|thrust|cutlass|cute|cudnn|cublas|cufft|std|nccl|rccl|xla|stream_executor|ampere|volta|turing|maxwell"
    r"|pascal|hopper|blackwell|sm\d+|nvjet|memcpy|memset|__amd_rocclr|dgrad|wgrad|fprop|gemv|gemmk1|splitkreduce|winograd"
    r"|[sdhc]?gemm|fusion|cudagraphexec|kd|params|Cijk_"
    r"|(?:__)?(?:void|const|(?:un)?signed|bool|char|short|u?int|long|float|double|half|(?:nv_)?bfloat16|true|false)\d*(?:_t)?$"
    r"|\w+_fusion(?:_\d+)?$)",
    re.IGNORECASE,
)
"""How names of CUDA's libraries, Eigen, NCCL, Tensile and XLA begin, and the types of C++ and CUDA."""

_SHAPE: Final = lazy_pattern(
    r"(?<![A-Za-z])(?:[a-z]{2}|[A-Z]{2}|[nt]{3}|[NT]{3}|[hsdbz][hscdbt][hsdbzt]|nhwc|nchw|ndhwc|ncdhw)(?![A-Za-z])"
)
"""Letters for layouts and types: `nn`, `tnt`, `hsh`. They stand alone, and a single one (`coopA`) stands anywhere."""
_TENSILE_TYPES: Final = lazy_pattern(r"(?<![A-Za-z])[BCDFHISZ]{1,4}(?![A-Za-z])")
_WORD: Final = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_of_library(word: str) -> bool:
    """Whether a word begins as a library's names do and has no word that is not a library's.

    `word`: an identifier of C++ with its namespaces.
    """
    if not word.isascii() or not _BEGINNING.match(word):
        return False
    letters = _TENSILE_TYPES if word.startswith("Cijk_") else _SHAPE
    words = _WORD.findall(letters.sub("", word))
    return all(len(each) == 1 or each.lower() in _stored("library_words") for each in words)
