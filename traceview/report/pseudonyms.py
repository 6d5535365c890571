"""Replaces names by a word and a number, the same for the same name, and hides unknown words of sentences.

Numbers count in the order in which names appear in a report. They are no hashes: hashes of likely names could be looked
up.
"""

from __future__ import annotations

import re
from typing import Final

from traceview.base.record import TextKind
from traceview.report.public_words import (
    AROUND,
    error_words,
    is_of_library,
    is_op_name,
    is_stage_name,
    public_words,
)

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

_ERROR_CODE: Final = re.compile(
    r"(?:CUPTI|CUDA|HIP|NCCL|NVML)_ERROR(?P<words>(?:_[A-Z]+)+)|ERR_NVGPUCTRPERM"
)
_LONG_NUMBER: Final = re.compile(r"\d{10}")
"""Of an account, a card, a telephone; no count that a message states is as long."""
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)*(?:[-.]?(?:rc|dev|post|a|b)\d*)*(?:-\d+-g[0-9a-f]+)?")
_PLAIN_VALUE: Final = re.compile(
    r"-?\d+(?:\.\d+)?|-?\d{1,3}(?:,-?\d{1,3})*|true|false|on|off|yes|no|", re.IGNORECASE
)
"""A number, a list of small ones such as those of devices, or a switch; an address is none of these."""

_TASK: Final = re.compile(r"(?:chief|coordinator|evaluator|master|ps|rank|worker)(?: \d{1,6})?")
SENTENCES: Final = frozenset(("message", "words"))
"""Kinds of texts of which known words stay; all others are names."""

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
        """What is shown instead of a text of this kind; without a kind nothing of it is."""
        if kind is None or kind in _HIDDEN:
            return self._hidden(kind or "text", text)
        if kind in SENTENCES:
            return self.text(text)
        shown: str = getattr(self, kind)(text)
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

    def task(self, name: str) -> str:
        """The role and the number of a process stay."""
        is_known = _TASK.fullmatch(name) is not None
        return self._known(name, name if is_known else self._numbered("task", name))

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
    """Whether a word is a number, the name of a device, an error code, a time or a sign."""
    is_number = _NUMBER.fullmatch(core) is not None and not (
        _ADDRESS.search(core) or _LONG_NUMBER.search(core)
    )
    return (
        is_number
        or any(pattern.fullmatch(core) for pattern in (_DEVICE_PART, _OP_PARTS, _TIMESTAMP))
        or _is_error_code(core)
        or not any(c.isalnum() for c in core)
    )


def _is_error_code(core: str) -> bool:
    """Whether it is an error of a library, in words that such errors have."""
    match = _ERROR_CODE.fullmatch(core)
    return match is not None and error_words().issuperset((match["words"] or "").split("_")[1:])
