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
from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

from msgspec import inspect
from msgspec.structs import replace

from traceview.base.record import Record, TextKind, kind_of_text
from traceview.report.model import Report
from traceview.report.pseudonyms import Pseudonyms
from traceview.report.verdict import with_sentences

R = TypeVar("R", bound=Record)

_LOGDIR_PLACE: Final = 2
"""`traceview report LOGDIR …`"""


def redacted(report: Report, names: Pseudonyms | None = None) -> Report:
    """The report with a pseudonym for every name, the same one for the same name everywhere.

    `names`: those of other reports that are shown with it.
    """
    names = names or Pseudonyms()
    hidden = _redacted(report, names)
    verdict = hidden.verdict
    if report.verdict.finding is None:
        # Numbers and words of ours, as no finding leads.
        verdict = replace(verdict, headline=report.verdict.headline)
    command = tuple(_command(names, report.command))
    return with_sentences(replace(hidden, verdict=verdict, command=command))


def redacted_record(record: R) -> R:
    """Any other record, treated in the same way."""
    return _redacted(record, Pseudonyms())


def _redacted(record: R, names: Pseudonyms) -> R:
    return cast("R", _with_pseudonyms(record, inspect.type_info(type(record)), names))


def _command(names: Pseudonyms, command: tuple[str, ...]) -> Iterator[str]:
    """The command line: all but the log directory and the run is ours."""
    for place, (before, argument) in enumerate(zip(("", *command), command, strict=False)):
        is_path, is_run = place == _LOGDIR_PLACE, before == "--run"
        yield names.shown("path" if is_path else "run" if is_run else "words", argument)


def _with_pseudonyms(
    value: Any,
    type_: inspect.Type,
    names: Pseudonyms,
    record: Record | None = None,
    kind: TextKind | None = None,
) -> Any:
    """The value with what stands for each of its texts. `record`: has the value; `kind`: of the text that it is."""

    def part(value: Any, type_: inspect.Type, kind: TextKind | None = None) -> Any:
        return _with_pseudonyms(value, type_, names, record, kind)

    if isinstance(type_, inspect.Metadata):
        return part(value, type_.type, kind_of_text(type_.extra, record))
    if isinstance(type_, inspect.UnionType):
        type_ = next((member for member in type_.types if _is_of(value, member)), type_)
        if not isinstance(type_, inspect.UnionType):
            return part(value, type_)
    if isinstance(value, str):
        return value if _is_of_closed_form(value, type_) else names.shown(kind, value)
    if isinstance(type_, inspect.StructType) and isinstance(value, Record):
        parts = {
            field.name: _with_pseudonyms(getattr(value, field.name), field.type, names, value)
            for field in type_.fields
        }
        return replace(value, **parts)
    if isinstance(type_, inspect.VarTupleType):
        return tuple(part(item, type_.item_type) for item in value)
    if isinstance(type_, inspect.DictType):
        return {
            part(key, type_.key_type): part(item, type_.value_type) for key, item in value.items()
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
