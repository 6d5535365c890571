"""Reads the key of a condition: a short key, or any key of the report's JSON Schema."""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Struct

from traceview.document import numbers
from traceview.errors import UsageError
from traceview.gate.path import PathStep, dotted, path_at_start
from traceview.gate.schema_keys import (
    SchemaKey,
    UnknownKeyError,
    Value,
    schema_key,
    schema_paths,
    values_of,
)
from traceview.gate.short_keys import STEP_TIME, ShortKey, short_key, short_names
from traceview.gate.units import Unit
from traceview.report.model import Report

_NEAR = 3


class Key(Struct, frozen=True):
    """What a condition is about. `device`: the only row that a short key means, None for all."""

    text: str
    unit: Unit | None
    source: ShortKey | SchemaKey
    device: str | None = None

    @property
    def is_step_time(self) -> bool:
        """Whether it is the step time, whose noise is known."""
        return isinstance(self.source, ShortKey) and self.source.name == STEP_TIME

    def values(self, report: Report) -> list[Value]:
        """Its values in a report, at least one; a value that is not there has its reason."""
        if isinstance(self.source, SchemaKey):
            return values_of(report, self.source)
        values = list(self.source.values(report))
        if self.device is None:
            return values
        short = {value.where.rpartition("/")[2] for value in values}
        chosen = [
            value
            for value in values
            if value.where == self.device
            or (self.device in short and value.where.rpartition("/")[2] == self.device)
        ]
        there = ", ".join(value.where for value in values if value.where) or "no device"
        return chosen or [Value(self.device, None, f"no such device in use; there is {there}")]


def key_at_start(text: str) -> tuple[Key, str]:
    """The key that a text begins with, and what follows it.

    Raises `UsageError` where there is no such key, with the names that are near.
    """
    steps, rest = path_at_start(text)
    written = dotted(steps)
    *names, last = steps
    if all(step.selector is None for step in names):
        plain = dotted((*names, PathStep(last.name)))
        short = short_key(plain)
        if short is not None:
            return Key(written, short.unit, short, last.selector), rest
    try:
        known = schema_key(steps)
    except UnknownKeyError as unknown:
        raise UsageError(f"no key is called {written}", hint=_hint(steps, unknown)) from None
    return Key(written, known.unit, known), rest


def _hint(steps: tuple[PathStep, ...], unknown: UnknownKeyError) -> str:
    """The keys that were probably meant."""
    place = unknown.place
    before = "".join(f"{step}." for step in steps[:place])
    plain = ".".join(step.name for step in steps)
    near: list[str] = []
    if place:
        names = get_close_matches(steps[place].name if place < len(steps) else "", unknown.known)
        near += [f"{before}{name}" for name in names]
    near += get_close_matches(plain, list(short_names()), n=_NEAR)
    paths = [path for path, _ in schema_paths()]
    last = steps[-1].name
    near += [path for path in paths if path.rpartition(".")[2] == last]
    near += get_close_matches(plain, paths, n=_NEAR)
    if not near:
        ends = {path.rpartition(".")[2]: path for path in reversed(paths)}
        near = [ends[name] for name in get_close_matches(last, list(ends), n=_NEAR)]
    meant = list(dict.fromkeys(near))[:_NEAR]
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    if place and unknown.known:
        return f"{before.rstrip('.')} has {numbers.beginning(unknown.known, 12)}"
    return "docs/metrics.md lists the keys, and so does traceview schema"
