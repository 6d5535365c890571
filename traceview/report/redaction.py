"""Makes a report that may leave the house: the same numbers, and no name that shows whose they are.

The type of a field decides (`traceview.base.record`): a name becomes a pseudonym of its kind, a word of a closed list or a
checksum stays as it is. The sentences of findings are made of arguments, which have such types. In a sentence of ours and in a
message of the profiler known names are replaced, and only the words stay that traceview itself writes. A text without such a
type is hidden as a whole.

Kept: types of TensorFlow's ops, words of kernel names that known libraries use, threads that TensorFlow names, kinds of
iterators, models of GPUs, PCI addresses, versions, times, and the checksums of the files, by which their owner can find
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

from msgspec import inspect
from msgspec.structs import replace

from traceview.base.record import Record, TextKind, kind_of_text
from traceview.report.model import Report
from traceview.report.pseudonyms import SENTENCES, Pseudonyms
from traceview.report.verdict import with_sentences

R = TypeVar("R", bound=Record)

_Hide: TypeAlias = Callable[[TextKind | None, str], str]

_LOGDIR_PLACE: Final = 2
"""`traceview report LOGDIR …`"""

_KIND_OF_VALUE: Final[Mapping[str, TextKind]] = {"--run": "run"}


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
        return text if kind in SENTENCES else names.shown(kind, text)

    whole = inspect.type_info(type(record))
    # First all names, so that a sentence is known to hold one that only a later field has.
    _with_texts(record, whole, learn)
    return cast("R", _with_texts(record, whole, names.shown))


def _command(names: Pseudonyms, command: tuple[str, ...]) -> list[str]:
    """The command line: the program, its options and their plain values stay."""
    before = ("", *command)
    return [
        names.shown(
            "path" if place == _LOGDIR_PLACE else _KIND_OF_VALUE.get(before[place], "words"),
            argument,
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
