"""Makes a report that may leave the house: the same numbers, and no name that shows whose they are.

The type of a field decides (`traceview.base.record`): a name becomes a pseudonym of its kind, a word of a closed list or a
checksum stays as it is. The sentences of findings are made of arguments, which have such types. Every other text, such as a
reason or a message of the profiler, is one in which known names are replaced and only the words stay that traceview itself
writes: `public_words.txt`, which `python -m scripts.public_words` makes from the code. A word that is missing there is
hidden, never shown. Pseudonyms count in the order in which names appear in a report; hashes of likely names could be
looked up.

Kept: types of TensorFlow's ops, words of kernel names that known libraries use, threads that TensorFlow names, kinds of
iterators, models of GPUs, PCI addresses, versions, times, and the checksums of the files, by which their owner can find
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias, TypeVar, cast

from msgspec import inspect
from msgspec.structs import replace

from traceview.base.record import Record, TextKind, kind_of_text
from traceview.report.model import Report
from traceview.report.verdict import with_sentences

AROUND: Final = "()[]{}<>\"'`.,;:!?…=|"
"""Characters around a word that do not belong to it."""

_VERSION_NUMBER: Final = re.compile(r"(?:V\d+)?$")
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
    ops = {
        _VERSION_NUMBER.sub("", op).replace("Dataset", "") for op in op_types() if "Dataset" in op
    }
    own = {"FiniteRepeat", "FiniteSkip", "FiniteTake", "ForeverRepeat", "Iterator", "Root"}
    return frozenset(ops | own | {"EmptyRepeat", "EmptySkip", "EmptyTake", "InfiniteSkip"})


def is_op_name(name: str) -> bool:
    """Whether a name is a type of op, with a number or as a kernel: `MatMul`, `MatMul_1`, `MatMulOp::Compute`."""
    return _AFTER_TYPE.sub("", name) in op_types()


def is_stage_name(name: str) -> bool:
    """Whether a part of the name of an iterator says its kind and nothing more: `Prefetch`, `FlatMap[0]`."""
    return _VERSION_NUMBER.sub("", _INDEXED.sub("", name)) in stage_types()


def _stored(name: str) -> frozenset[str]:
    text = files("traceview.report").joinpath(name).read_text(encoding="utf-8")
    return frozenset(text.split())


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
    r"Cijk_[A-D][i-m]+_[A-D][i-m]+(?:_[A-Z\d][A-Z\dnpx]*|_Bias|_UserArgs)*"
)
_SHAPE: Final = re.compile(
    r"(?<![A-Za-z])(?:[a-z]{2}|[A-Z]{2}|[nt]{3}|[NT]{3}|[hsdbz][hscdbt][hsdbzt]|nhwc|nchw|ndhwc|ncdhw)(?![A-Za-z])"
)
"""Letters for layouts and types: `nn`, `tnt`, `hsh`. They stand alone, and a single one (`coopA`) stands anywhere."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_of_library(word: str) -> bool:
    """Whether a word begins as a library's names do and has no word that is not a library's.

    `word`: an identifier of C++ with its namespaces.
    """
    if _CPP.fullmatch(word) or _TENSILE.fullmatch(word):
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


_TIMESTAMP: Final = re.compile(r"\d{4}_\d\d_\d\d(?:_\d\d)*")
_RUN_FOLDERS: Final = frozenset(("train", "validation", "plugins", "profile"))
_DEVICE_PART: Final = re.compile(
    r"|job:(?:localhost|worker|chief|ps|evaluator)|(?:replica|task):\d+"
    r"|(?:device:|physical_device:|logical_device:)?(?:XLA_)?(?:CPU|GPU|TPU):\d+"
)
_OP: Final = re.compile(r"(?P<name>.*?)(?P<colon>:(?P<type>[A-Za-z_][\w>-]*))?", re.DOTALL)
_OP_PARTS: Final = re.compile(
    r"(?:gradient_tape|while|cond|body|then|else|branch|replica|update|StatefulPartitionedCall"
    r"|PartitionedCall)?(?:_\d+)?"
)
_THREAD: Final = re.compile(
    r"(?:main|python\d*|Host Threads|collective_ops|nccl_kernel_launch|tf(?:_(?:\d+|as|async|batch|cache|capture"
    r"|collective|compile|compute|data|device|eigen|event|filter|get|gpu|grpc|inter|interleave|intra|iterator|legacy"
    r"|manager|map|mgr|model|multi|nccl|next|numa|op|optional|parallel|pool|prefetch|private|resource|runner|save|shared"
    r"|snapshot|thread|threadpool|tracker|xla))+)(?:\.\d+)?(?:/-?\d+)?",
    re.IGNORECASE,
)
"""Those of Python, of CUPTI and of TensorFlow, which puts `tf_` before its own; a pool can have a user's name."""

_KERNEL_WORD: Final = re.compile(r"[A-Za-z_~]\w*(?:::~?[A-Za-z_]\w*)*")
_NUMBER: Final = re.compile(
    r"[-+±~≥≤×x]*\d[\d.,:%/×x–-]*(?:[pnµum]?s|[kMGT]?i?B|[kMG]?Hz|W|th|st|nd|rd)?(?:/s)?"
)
_ADDRESS: Final = re.compile(r"(?<!\d)\d+(?:(?:\.\d+){3}|(?:-\d+){3}|(?::\d+){3})|::")
"""Of the Internet, in either version, or as host names write it; a date and a time of day have fewer parts."""

_BUS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_MODEL_WORD: Final = re.compile(
    r"NVIDIA|GeForce|Quadro|Tesla|TITAN|RTX|GTX|RX|XTX|V|CMP|Super|Ti|Laptop|GPU|Ada|Generation|Graphics|Max|Q|PCIe?|NVL|MIG"
    r"|AMD|Instinct|Radeon|Pro|VII|TPU|CPU|Xp?|gfx\w{3,4}"
    r"|(?:MX|GB|GH|MI|SXM|HBM|NVL|GT|CMP|[ABDHKLMPTV])?\d{1,4}(?:GB|HX|XTX?|[A-Z])?",
    re.IGNORECASE,
)
"""Words and numbers in the names of GPUs: `NVIDIA A100-SXM4-80GB`."""

_ERROR_CODE: Final = re.compile(r"(?:CUPTI|CUDA|HIP|NCCL|NVML)_ERROR_[A-Z_]+|ERR_NVGPUCTRPERM")
_CHECKSUM: Final = re.compile(r"[0-9a-f]{64}")
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)*(?:[-.]?(?:rc|dev|post|a|b)\d*)*(?:-\d+-g[0-9a-f]+)?")
_PLAIN_VALUE: Final = re.compile(
    r"-?\d+(?:\.\d+)?|-?\d{1,3}(?:,-?\d{1,3})*|true|false|on|off|yes|no|", re.IGNORECASE
)
"""A number, a list of small ones such as those of devices, or a switch; an address is none of these."""

_HIDDEN: Final = frozenset(("argument", "function", "host", "line", "module", "path"))
"""Kinds of names of which nothing stays."""

_HELD: Final = re.compile("\ue000(\\d+)\ue001")
_HOLDERS: Final = re.compile("[\ue000\ue001]")
_SHORTEST_PHRASE: Final = 3


class Pseudonyms:
    """The names of one report so far, and what is shown instead of each."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._shown: dict[str, str] = {}
        self._phrases: list[str] | None = None

    def _numbered(self, kind: str, name: str) -> str:
        if (kind, name) not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, name] = f"{kind}_{self._counts[kind]}"
        return self._numbers[kind, name]

    def _known(self, name: str, shown: str) -> str:
        """Remember what stands for a name, so that sentences with it agree."""
        if name not in self._shown:
            self._shown[name] = shown
            self._phrases = None
        return shown

    def shown(self, kind: TextKind | None, text: str) -> str:
        """What is shown instead of a name of this kind; without a kind the text is a sentence."""
        if kind in _HIDDEN:
            return self._hidden(kind, text)
        shown: str = getattr(self, kind or "text")(text)
        return shown

    def _hidden(self, kind: str, name: str) -> str:
        """`path_1`: nothing of the name stays."""
        return self._known(name, self._numbered(kind, name)) if name else name

    # Names of one kind

    def model(self, name: str) -> str:
        """`model_1`, unless every word of it is one of the names of GPUs."""
        is_known = all(map(_MODEL_WORD.fullmatch, re.findall(r"[^\s:-]+", name)))
        return self._known(name, name if is_known else self._numbered("model", name))

    def bus(self, name: str) -> str:
        """A PCI address stays."""
        return name if _BUS.fullmatch(name) else self._numbered("bus", name)

    def device(self, key: str) -> str:
        """`host_1/GPU:0`: the number of the device stays."""
        parts = key.split("/")
        hidden = [p if _DEVICE_PART.fullmatch(p) else self._numbered("host", p) for p in parts]
        if len(parts) > 1 and not _DEVICE_PART.fullmatch(key.rpartition("/")[0]):
            prefix, _, last = key.rpartition("/")
            if prefix in self._shown and _DEVICE_PART.fullmatch(last):
                return self._known(key, f"{self._shown[prefix]}/{last}")
        return self._known(key, "/".join(hidden))

    def file(self, name: str) -> str:
        """`host_1.xplane.pb`: the file of a host is called after it."""
        stem, dot, rest = name.partition(".xplane.pb")
        if dot and not rest:
            return self._known(name, f"{self._hidden('host', stem)}{dot}")
        return self._known(name, self._numbered("file", name))

    def run(self, name: str) -> str:
        """`run_1`, unless it is called after its time, as runs are."""
        parts = [
            part
            if part in _RUN_FOLDERS or _TIMESTAMP.fullmatch(part)
            else self._numbered("run", part)
            for part in name.split("/")
        ]
        return self._known(name, "/".join(parts))

    def op(self, name: str) -> str:
        """`op_1/op_2/MatMul:MatMul`: scopes and layers go, names of TensorFlow's own ops stay."""
        match = _OP.fullmatch(name)
        bare, type_ = (match["name"], match["type"]) if match else (name, None)
        parts = [
            part if _OP_PARTS.fullmatch(part) or is_op_name(part) else self._numbered("op", part)
            for part in bare.split("/")
        ]
        return self._known(name, "/".join(parts) + (f":{self.type(type_)}" if type_ else ""))

    def type(self, name: str) -> str:
        """The type of an op stays if TensorFlow registers it."""
        return self._known(name, name if is_op_name(name) else self._numbered("type", name))

    def kernel(self, name: str) -> str:
        """Words of a kernel's name stay if a known library uses them: cuBLAS, cuDNN, CUTLASS, Eigen, NCCL …"""

        def word_of(match: re.Match[str]) -> str:
            word = match[0]
            return word if is_of_library(word) else self._numbered("kernel", word)

        words = _KERNEL_WORD.sub(word_of, _HOLDERS.sub("?", name))
        outside = _KERNEL_WORD.sub("", name)
        # A name of other letters than those of C++ is no kernel's: hidden as a whole.
        return self._known(name, words if outside.isascii() else self._numbered("kernel", name))

    def activity(self, name: str) -> str:
        """The op or, without one, the kernel of a device event."""
        is_op = "/" in name or (":" in name and "::" not in name and " " not in name)
        return self.op(name) if is_op else self.kernel(name)

    def slice(self, name: str) -> str:
        """An iterator's stage, or else an op or a kernel."""
        return self.stage(name) if name.startswith("Iterator::") else self.activity(name)

    def thread(self, name: str) -> str:
        """`thread_1`, unless TensorFlow or Python named it."""
        is_known = _THREAD.fullmatch(name) is not None
        return self._known(name, name if is_known else self._numbered("thread", name))

    def threads(self, names: str) -> str:
        """Several threads, with commas between them."""
        return ", ".join(self.thread(name) for name in names.split(", "))

    def stage(self, name: str) -> str:
        """`Iterator::Root::Prefetch::stage_1`: kinds of iterators stay."""
        parts = [
            part if is_stage_name(part) else self._numbered("stage", part)
            for part in name.split("::")
        ]
        return self._known(name, "::".join(parts))

    def setting(self, value: str) -> str:
        """The value of a setting stays if it is a number, a list of numbers or a switch."""
        return value if _PLAIN_VALUE.fullmatch(value) else self._numbered("value", value)

    def metric(self, name: str) -> str:
        """The key of a number stays if it is a public word, or made of such: `idle_input_ratio`."""
        words = public_words()
        is_public = name in words or all(part in words for part in name.split("_"))
        return name if is_public else self._numbered("name", name)

    def version(self, name: str) -> str:
        """A version stays if it is written as versions are."""
        return name if _VERSION.fullmatch(name) else self._numbered("version", name)

    # Sentences

    def text(self, sentence: str) -> str:
        """A sentence without the names that are known, and without any other word that is not public."""
        held: list[str] = []

        def hold(shown: str) -> str:
            held.append(shown)
            return f"\ue000{len(held) - 1}\ue001"

        text = _HOLDERS.sub("?", sentence)
        for phrase in self._known_phrases():
            if phrase in text:
                text = text.replace(phrase, hold(self._shown[phrase]))
        pieces = re.split("(\ue000\\d+\ue001)", text)
        words = [
            piece if _HELD.fullmatch(piece) else re.sub(r"\S+", lambda m: self._word(m[0]), piece)
            for piece in pieces
        ]
        return _HELD.sub(lambda match: held[int(match[1])], "".join(words))

    def _known_phrases(self) -> list[str]:
        """Known names that are not one word of a sentence, the longest first."""
        if self._phrases is None:
            phrases = [
                name
                for name in self._shown
                if len(name) >= _SHORTEST_PHRASE
                and (len(name.split()) != 1 or name.strip(AROUND) != name)
            ]
            self._phrases = sorted(phrases, key=lambda name: (-len(name), name))
        return self._phrases

    def _word(self, word: str) -> str:
        core = word.strip(AROUND)
        if not core:
            return word
        begin = word.index(core)
        return word[:begin] + self._core(core) + word[begin + len(core) :]

    def _core(self, core: str) -> str:
        is_word = core.lower() in public_words()
        if core in self._shown and not (
            is_word and core.isascii() and core.islower() and core.isalpha()
        ):
            return self._shown[core]
        if is_word or is_plain(core) or is_op_name(core):
            return core
        possessive = re.fullmatch(r"(.+)(['’]s?)", core)
        if possessive:
            return self._core(possessive[1]) + possessive[2]
        for mark in ("–", ",", "=", "("):
            left, _, right = core.partition(mark)
            if left and right and all(map(self._is_public, (left, right))):
                return core
        if _DEVICE_PART.fullmatch(core.rpartition("/")[2]) and "/" in core:
            return self.device(core)
        if core.startswith(("/", "~", ".")) or "\\" in core:
            return self._numbered("path", core)
        if core.startswith("Iterator::"):
            return self.stage(core)
        if "/" in core or re.fullmatch(r"[\w.-]+:[A-Z_]\w*", core):
            return self.op(core)
        return self._numbered("name", core)

    def _is_public(self, core: str) -> bool:
        if core in self._shown:
            return self._shown[core] == core
        is_word = core.strip(AROUND).lower() in public_words()
        return is_word or is_plain(core) or is_op_name(core)


def is_plain(core: str) -> bool:
    """Whether a word is a number, the name of a device, a checksum, an error code, a time or a sign."""
    is_number = _NUMBER.fullmatch(core) is not None and not _ADDRESS.search(core)
    return (
        is_number
        or any(
            pattern.fullmatch(core)
            for pattern in (_CHECKSUM, _DEVICE_PART, _ERROR_CODE, _OP_PARTS, _TIMESTAMP)
        )
        or not any(c.isalnum() for c in core)
    )


R = TypeVar("R", bound=Record)

_Hide: TypeAlias = Callable[[TextKind | None, str], str]

_LOGDIR_PLACE: Final = 2
"""`traceview report LOGDIR …`"""

_KIND_OF_VALUE: Final[Mapping[str, TextKind]] = {"--run": "run", "--baseline": "path"}


def redacted(report: Report, names: Pseudonyms | None = None) -> Report:
    """The report with a pseudonym for every name, the same one for the same name everywhere.

    `names`: those of other reports that are shown with it. The sentences of findings are made again from their arguments.
    """
    names = names or Pseudonyms()
    hidden = _redacted(report, names)
    return with_sentences(replace(hidden, command=tuple(_command(names, report.command))))


def redacted_record(record: R) -> R:
    """Any other record, treated in the same way."""
    return _redacted(record, Pseudonyms())


def _redacted(record: R, names: Pseudonyms) -> R:
    def learn(kind: TextKind | None, text: str) -> str:
        return text if kind is None else names.shown(kind, text)

    whole = inspect.type_info(type(record))
    # First all names, so that a sentence is known to hold one that only a later field has.
    _with_texts(record, whole, learn)
    return cast("R", _with_texts(record, whole, names.shown))


def _command(names: Pseudonyms, command: tuple[str, ...]) -> list[str]:
    """The command line: the program, its options and their plain values stay."""
    before = ("", *command)
    return [
        names.shown(
            "path" if place == _LOGDIR_PLACE else _KIND_OF_VALUE.get(before[place]), argument
        )
        for place, argument in enumerate(command)
    ]


def _with_texts(value: Any, type_: inspect.Type, hide: _Hide, kind: TextKind | None = None) -> Any:
    """The value with what `hide` makes of each of its texts, in the order of the fields."""
    if isinstance(type_, inspect.Metadata):
        return _with_texts(value, type_.type, hide, kind_of_text(type_.extra))
    if isinstance(type_, inspect.UnionType):
        type_ = next((member for member in type_.types if _is_of(value, member)), type_)
        if not isinstance(type_, inspect.UnionType):
            return _with_texts(value, type_, hide)
    if isinstance(value, str):
        return value if _is_of_closed_form(value, type_) else hide(kind, value)
    if isinstance(type_, inspect.StructType) and isinstance(value, Record):
        parts = {
            field.name: _with_texts(getattr(value, field.name), field.type, hide)
            for field in type_.fields
        }
        return replace(value, **parts)
    if isinstance(type_, inspect.VarTupleType):
        return tuple(_with_texts(item, type_.item_type, hide) for item in value)
    if isinstance(type_, inspect.DictType):
        return {
            _with_texts(key, type_.key_type, hide): _with_texts(item, type_.value_type, hide)
            for key, item in value.items()
        }
    return value


def _is_of(value: Any, type_: inspect.Type) -> bool:
    """Whether the value is of this member of a union, as far as texts are concerned."""
    if isinstance(type_, inspect.Metadata):
        return _is_of(value, type_.type)
    if isinstance(value, str):
        return isinstance(type_, inspect.StrType | inspect.LiteralType)
    if isinstance(value, Record):
        return isinstance(type_, inspect.StructType) and isinstance(value, type_.cls)
    if isinstance(value, tuple):
        return isinstance(type_, inspect.VarTupleType)
    return isinstance(value, dict) and isinstance(type_, inspect.DictType)


def _is_of_closed_form(text: str, type_: inspect.Type) -> bool:
    """Whether it is a word of the closed list of its type, or has the form that its type demands."""
    if isinstance(type_, inspect.LiteralType):
        return text in type_.values
    pattern = type_.pattern if isinstance(type_, inspect.StrType) else None
    return pattern is not None and re.fullmatch(pattern, text) is not None
