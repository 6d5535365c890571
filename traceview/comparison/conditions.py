"""Reads conditions, and finds the values they are about: `step_time_ms <= 120`, `finding:unused-gpu absent`, `step_time:+5%`.

condition = KEY OPERATOR LIMIT | KEY "absent" | KEY ":" CHANGE | "finding:" CODE "absent"
OPERATOR  = "<=" | ">=" | "<" | ">" | "==" | "!="
LIMIT     = NUMBER [UNIT] | WORD
CHANGE    = ("+" | "-") NUMBER ("%" | [UNIT])

A key is a path in the report's JSON, `device_time.devices[GPU:0].busy_ratio`; brackets choose rows of a list. Short keys
such as `state.input_ms` stand for paths.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, inspect

from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import SEVERITIES
from traceview.base.errors import UsageError
from traceview.base.record import Record, fields_of, parts_of
from traceview.comparison.sides import step_time_ps
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.ledger.states import KEYS
from traceview.report.model import Report, absence

Quantity: TypeAlias = Literal["time", "bytes", "rate", "ratio", "number", "text", "flag", "several"]
"""`time` is picoseconds, `rate` bytes per second; `several`: no value itself."""

STEP_TIME: Final = "step_time"
"""The mean of the used steps, as compare counts it: the only key whose noise is known."""
TIMES: Final[Mapping[str, int]] = {**numbers.TIMES, "us": numbers.TIMES["µs"]}
SIZES: Final = {unit.lower(): factor for unit, factor in numbers.SIZES.items() if factor > 1}
"""How many picoseconds or bytes the unit at the end of a key stands for."""
UNITS: Final[Mapping[Quantity, Mapping[str, Fraction]]] = {
    "time": {unit: Fraction(factor) for unit, factor in TIMES.items()},
    "bytes": {unit: Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "rate": {f"{unit}/s": Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "ratio": {"%": Fraction(1, 100)},
}
OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

_SHORT: Final = (
    (r"busy_ratio", "results.device_time.devices.busy_ratio"),
    (r"examples_per_second", "results.balance.throughput.examples_per_second"),
    (rf"state\.((?:{'|'.join(KEYS)})(?:_\w+)?)", r"results.ledger.devices.states.\1"),
    (rf"path\.({'|'.join(KEYS)})_ratio", r"results.path.share_by_state.\1"),
    (rf"path\.((?:{'|'.join(KEYS)})(?:_\w+)?)", r"results.path.states.\1"),
)
_BY_STATE: Final = ("states", "states_per_step", "by_state", "share_by_state")
"""Objects that leave out the states that do not occur: what is left out is zero."""
_QUANTITIES: Final[tuple[tuple[str, Quantity], ...]] = (
    (r".*_ratio|ratio|share_by_state|throttle_reasons", "ratio"),
    (r".*_bytes_per_second", "rate"),
    (r".*_ps|.*_ps_per_step|states|by_state|states_per_step", "time"),
    (r".*_bytes|bytes", "bytes"),
    (r".*", "number"),
)
_NAME: Final = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)(?:\[(?:"(?P<quoted>[^"]*)"|(?P<row>[^\[\]"]*))\])?(?P<dot>\.?)""",
    re.ASCII,
)
_FINDING: Final = re.compile(r"finding ?: ?(?P<code>[\w-]+) absent", re.ASCII)
_REST: Final = re.compile(
    r" ?(?:(?P<absent>absent)|(?P<sign>[<>=!]=|[<>]) ?(?P<limit>.*)|: ?(?P<way>[+-]) ?(?P<change>[^+-].*))"
)
_NUMBER: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*(?P<unit>[^\s\d]*)"
)
_SHOWN: Final = 80
_EXAMPLE: Final = "for instance step_time_ms <= 120, or finding:unused-gpu absent"
_IN_USE: Final = ("active", "marginal")
"""Status of devices that compute; others are not busy, and need not be."""
_NAMING: Final = (("device",), ("code", "op", "name", "key", "op_type"))
"""Fields that name a row: of each group the first that it has."""


class Value(Struct, frozen=True):
    """A value in a report. `where`: the rows that it is in, empty for none; `reason`: why there is no value."""

    where: str
    value: int | float | str | bool | None
    reason: str = ""


class Unit(Struct, frozen=True):
    """What a key is measured in. `is_share`: a ratio that cannot exceed 1; `is_object`: its entries are values.

    `factor`: how many of the smallest unit its ending stands for; None where a limit has to name its unit.
    """

    quantity: Quantity
    factor: int | None = 1
    is_share: bool = False
    is_object: bool = False


class Key(Struct, frozen=True):
    """A key of the report. `rows`: which rows are meant, by the number of the name; `text`: as it was written."""

    text: str
    names: tuple[str, ...]
    rows: Mapping[int, str]
    unit: Unit

    @property
    def is_step_time(self) -> bool:
        """Whether it is the step time."""
        return self.names == (STEP_TIME,)

    def values(self, report: Report) -> list[Value]:
        """Its values in a report, at least one; rows and objects count as `true`."""
        if self.is_step_time:
            return [_step_time(report)]
        if self.names[0] == "results" and getattr(report.results, self.names[1]) is None:
            return [Value("", None, absence(report, self.names[1]))]
        top = self.names[:2] if self.names[0] == "results" else self.names[:1]
        held: Any = report
        for name in top:
            held = getattr(held, name)
        found = list(self._below(msgspec.to_builtins(held), len(top), (), {}))
        return found or [Value("", None, f"there is no row in {'.'.join(self.names)}")]

    def _below(
        self, value: Any, depth: int, where: tuple[str, ...], around: Mapping[str, Any]
    ) -> Iterator[Value]:
        """The values below the end of the first `depth` names; `around`: the object that holds the value."""
        name, place = self.names[depth - 1], ", ".join(where)
        if isinstance(value, (list, tuple)):
            yield from self._rows(value, depth, where)
        elif value is None:
            yield Value(place, None, _reason(around, name))
        elif depth < len(self.names) and not isinstance(value, dict):
            yield Value(place, None, f"there is no {self.names[depth]} in {name}")
        elif depth < len(self.names):
            inner = self.names[depth]
            if inner in value:
                yield from self._below(value[inner], depth + 1, where, value)
            elif name in _BY_STATE:
                yield Value(place, _of_state(value, inner, around))
            else:
                yield Value(place, None, f"there is no {inner} in {name}")
        elif isinstance(value, dict) and self.unit.is_object:
            for entry, number in value.items():
                yield Value(", ".join((*where, entry)), number)
        else:
            yield Value(place, True if isinstance(value, dict) else value)

    def _rows(self, rows: Sequence[Any], depth: int, where: tuple[str, ...]) -> Iterator[Value]:
        asked, name = self.rows.get(depth - 1), self.names[depth - 1]
        if self.text.startswith("busy_ratio"):
            rows = [row for row in rows if row["status"] in _IN_USE]
        chosen = [row for row in rows if asked is None or _is_called(row, asked)]
        names = [_row_name(row) for row in chosen]
        counts = Counter(names)
        for row, own in zip(chosen, names, strict=True):
            # Ops of one name differ by their kernel.
            kernel = row.get("kernel") if isinstance(row, dict) and counts[own] > 1 else None
            yield from self._below(row, depth, (*where, *filter(None, (own, kernel))), {})
        if not rows and self.text.startswith("busy_ratio"):
            yield Value("", None, "no device computed")
        elif not chosen:
            there = numbers.beginning(list(dict.fromkeys(filter(None, map(_row_name, rows)))))
            which = "row" if asked is None else f"row {asked}"
            has = f", which has {there}" if there else ""
            reason = f"there is no {which} in {name}{has}"
            yield Value(", ".join(where) or asked or "", None, reason)


def key_at_start(text: str) -> tuple[Key, str]:
    """The key that a text begins with, and what follows it; raises `UsageError`, with the names that are near."""
    names, rows, end, is_ended = [], [], 0, False
    while not is_ended and (match := _NAME.match(text, end)):
        names.append(match["name"])
        row = (match["row"] or "").strip() if match["quoted"] is None else match["quoted"]
        rows.append(None if row in ("", "*") else row)
        end, is_ended = match.end(), not match["dot"]
    if not is_ended:
        raise UsageError(f"{text!r}: a key is expected at {text[end:]!r}")
    path = ".".join(names)
    step_time = re.fullmatch(rf"{STEP_TIME}(?:_({'|'.join(TIMES)}))?", path)
    if step_time and rows == [None]:
        return Key(path, (STEP_TIME,), {}, Unit("time", TIMES.get(step_time[1]))), text[end:]
    short = next((row for row in _SHORT if re.fullmatch(row[0], path)), None)
    if short and not any(rows[:-1]) and (rows[-1] is None or ".devices." in short[1]):
        path = re.sub(*short, path)
        # The only row that is chosen is that of a device.
        rows = [rows[-1] if name == "devices" else None for name in path.split(".")]
    if names[0] not in Report.__struct_encode_fields__ and path.partition(".")[0] != "results":
        path, rows = f"results.{path}", [None, *rows]
    found, unit = _in_schema(path)
    chosen = {place: row for place, row in enumerate(rows) if row is not None}
    if any(".".join(found.split(".")[: place + 1]) not in lists() for place in chosen):
        raise _unknown(path)
    return Key(text[:end], tuple(found.split(".")), chosen, unit), text[end:]


# The schema


@cache
def schema() -> Mapping[str, Unit]:
    """Every key of the report with its unit."""
    return {path: _unit(path, field) for path, field in _fields(Report, "", ())}


@cache
def lists() -> frozenset[str]:
    """The keys whose rows brackets choose."""
    return frozenset(
        path
        for path, field in _fields(Report, "", ())
        if any(isinstance(part, inspect.VarTupleType) for part in parts_of(field.type))
    )


def _fields(
    record: type[Record], before: str, around: tuple[type[Record], ...]
) -> Iterator[tuple[str, inspect.Field]]:
    for field in fields_of(record):
        path = f"{before}{field.encode_name}"
        yield path, field
        for part in parts_of(field.type):
            cls = part.cls if isinstance(part, inspect.StructType) else None
            if cls is not None and issubclass(cls, Record) and cls not in around:
                yield from _fields(cls, f"{path}.", (*around, cls))


def _unit(path: str, field: inspect.Field) -> Unit:
    parts = list(parts_of(field.type))
    kinds = {type(part) for part in parts}
    is_object = inspect.DictType in kinds
    if inspect.StructType in kinds:
        return Unit("several")
    if inspect.BoolType in kinds:
        return Unit("flag", is_object=is_object)
    if not kinds & {inspect.IntType, inspect.FloatType}:
        return Unit("text", is_object=is_object)
    name = path.rpartition(".")[2]
    quantity = next(known for pattern, known in _QUANTITIES if re.fullmatch(pattern, name))
    is_share = quantity == "ratio" and any(getattr(part, "le", None) == 1 for part in parts)
    needs_unit = quantity == "time" and "_ps" not in name
    return Unit(quantity, None if needs_unit else 1, is_share, is_object)


def _in_schema(path: str) -> tuple[str, Unit]:
    """The path with the unit of the schema, `median_ps` for `median_ms`, and its unit; raises `UsageError`."""
    known = schema()
    if path in known:
        return path, known[path]
    for ending, factor in (*TIMES.items(), *SIZES.items()):
        smallest = re.sub(
            rf"_{ending}(?=$|_per_step$)", "_bytes" if ending in SIZES else "_ps", path
        )
        if smallest != path and smallest in known:
            return smallest, msgspec.structs.replace(known[smallest], factor=factor)
    above, _, last = path.rpartition(".")
    holder, is_of_states = known.get(above), above.rpartition(".")[2] in _BY_STATE
    if holder is None or not holder.is_object:
        raise _unknown(path)
    state, _, ending = last.rpartition("_")
    if last in KEYS or not is_of_states:
        return path, msgspec.structs.replace(holder, is_object=False)
    if state in KEYS and ending == "ratio":
        return path, Unit("ratio", is_share=True)
    if state in KEYS and ending in TIMES and holder.quantity == "time":
        return f"{above}.{state}", Unit("time", TIMES[ending])
    raise _unknown(path)


def _unknown(path: str) -> UsageError:
    """An error with the keys that were probably meant."""
    path = path.removeprefix("results.")
    known = [f"{STEP_TIME}_ms", "busy_ratio", "examples_per_second"]
    known += [f"{of}.{key}{end}" for of in ("state", "path") for key in KEYS for end in _ENDS]
    for whole, unit in schema().items():
        name = whole.removeprefix("results.")
        by_state = unit.is_object and name.rpartition(".")[2] in _BY_STATE
        known += [name, *(f"{name}.{key}" for key in KEYS if by_state)]
    near = get_close_matches(path, known, n=2)
    near += [other for other in known if other.rpartition(".")[2] == path.rpartition(".")[2]][:1]
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else "docs/metrics.md has all"
    )
    return UsageError(f"no key is called {path}", hint=hint)


_ENDS: Final = ("_ms", "_ratio")


# Values


def _step_time(report: Report) -> Value:
    steps = report.results.steps
    reason = absence(report, "steps") if steps is None else "no step is used"
    excluded = dict.fromkeys(step.excluded for step in (steps.steps if steps else ()))
    words = ", ".join(filter(None, excluded))
    return Value("", step_time_ps(report), f"{reason}: {words}" if words else reason)


def _of_state(states: Mapping[str, Any], name: str, around: Mapping[str, Any]) -> float:
    """A state that does not occur, or as `input_ratio` its share of the step of the row."""
    if not name.endswith("_ratio"):
        return 0
    step_ps = around.get("step_ps") or sum(states.values())
    return states.get(name.removesuffix("_ratio"), 0) / step_ps if step_ps else 0


def _is_called(row: Any, asked: str) -> bool:
    if not isinstance(row, dict):
        return str(row) == asked
    known = [value for value in row.values() if isinstance(value, str)]
    known += [str(row[name]) for name in ("number", "ordinal", "step") if name in row]
    return any(asked in (value, value.rpartition("/")[2]) for value in known)


def _row_name(row: Any) -> str:
    """What tells a row from the others: its device, what it is on that device, and its step; else its host."""
    if not isinstance(row, dict):
        return ""
    named = [[row[name] for name in group if row.get(name)][:1] for group in _NAMING]
    words = [str(value) for group in named for value in group]
    number = row.get("number", row.get("step"))
    if isinstance(number, int):
        words.append(f"step {number}")
    return ", ".join(words) or row.get("host") or row.get("kind") or ""


def _reason(around: Mapping[str, Any], name: str) -> str:
    """Why a value is null, where the object around it says so."""
    missing = around.get("missing")
    known = missing.get(name) if isinstance(missing, dict) else None
    return str(around.get("reason") or known or f"{name} is null")


# Conditions


class Condition(Struct, frozen=True):
    """What has to hold of a key, or of findings.

    `key`: None for a condition on findings. `sign`: an operator with its `limit` in the smallest unit of the key; `absent`; `+`
    or `-`, what the value may rise or fall by against the baseline, of whose value `is_relative` makes the limit a share.
    `code`: of the finding, or a severity, which means the more severe ones, too.
    """

    text: str
    key: Key | None
    sign: str
    limit: Fraction | str | bool = ""
    is_relative: bool = False
    code: str = ""

    @property
    def is_change(self) -> bool:
        """Whether it needs a baseline."""
        return self.sign in ("+", "-")

    @property
    def quantity(self) -> Quantity:
        """What its values are measured in."""
        return self.key.unit.quantity if self.key else "text"


def condition_of(text: str) -> Condition:
    """The condition that a text states; raises `UsageError`, which names the text, for one that states none."""
    text = " ".join(text.split())
    try:
        return _condition(text)
    except UsageError as error:
        where = shortened(text, _SHOWN)
        raise UsageError(f"condition {where!r}: {error.message}", hint=error.hint) from None


def _condition(text: str) -> Condition:
    if not text:
        raise UsageError("it is empty", hint=_EXAMPLE)
    if re.match(r"finding ?:", text):
        return _no_finding(text)
    key, rest = key_at_start(text)
    match = _REST.fullmatch(rest)
    if match is None:
        problem = f"{rest.strip()!r} is no comparison" if rest else "it says nothing about the key"
        raise UsageError(problem, hint=_EXAMPLE)
    if match["absent"]:
        return Condition(text, key, "absent")
    quantity = key.unit.quantity
    if quantity == "several":
        raise UsageError(
            f"{key.text} holds several values, and is none itself",
            hint="docs/metrics.md lists the keys in it; KEY absent asks whether it is empty",
        )
    if match["way"]:
        if quantity in ("text", "flag"):
            raise UsageError(f"{key.text} is no number, and has no change")
        is_relative = match["change"].endswith("%")
        unit = Unit("ratio") if is_relative else key.unit
        return Condition(text, key, match["way"], limit_of(match["change"], unit), is_relative)
    if quantity in ("text", "flag"):
        return Condition(text, key, match["sign"], _word(key, match["sign"], match["limit"]))
    return Condition(text, key, match["sign"], limit_of(match["limit"], key.unit))


def _no_finding(text: str) -> Condition:
    match = _FINDING.fullmatch(text)
    if match is None:
        raise UsageError("a condition on a finding is finding:CODE absent", hint=_EXAMPLE)
    code, known = match["code"].lower(), (*RULES, *SEVERITIES)
    if code not in known:
        near = get_close_matches(code, known)
        hint = f"did you mean {' or '.join(near)}?" if near else "traceview explain lists them"
        raise UsageError(f"no finding is called {code}", hint=hint)
    return Condition(text, None, "absent", code=code)


def _word(key: Key, sign: str, text: str) -> str | bool:
    if sign not in ("==", "!="):
        raise UsageError(f"{key.text} is no number: compare it with == or !=")
    if key.unit.quantity == "text":
        return text.strip('"')
    if text not in ("true", "false"):
        raise UsageError(f"{key.text} is true or false: {key.text} == true")
    return text == "true"


def limit_of(text: str, unit: Unit) -> Fraction:
    """The limit that a text states, in the smallest unit of the quantity; raises `UsageError` for any other text."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no number")
    number = Fraction(match["number"])
    units = UNITS.get(unit.quantity, {})
    if match["unit"]:
        if match["unit"] not in units:
            known = f"; units here: {', '.join(units)}" if units else "; this key has no unit"
            raise UsageError(f"{text!r}: no such unit{known}")
        return number * units[match["unit"]]
    if unit.factor is None:
        raise UsageError(f"{text!r} has no unit", hint=f"write one of {', '.join(units)}")
    if unit.is_share and abs(number) > 1:
        # Read as it is written, such a limit would hold for every value, or for none.
        meant = f"{float(abs(number)) * 100:.10g}%"
        raise UsageError(
            f"{match['number']} would be {meant}, and this share is at most 100%",
            hint=f"write {match['number']}%",
        )
    return number * unit.factor


def written(value: float | Fraction | str | bool, quantity: Quantity) -> str:
    """A value as people read it."""
    if isinstance(value, (str, bool)):
        return str(value).lower() if isinstance(value, bool) else value
    number = int(value) if value == int(value) else float(value)
    in_words: Mapping[Quantity, Callable[[float], str]] = {
        "time": numbers.time,
        "bytes": numbers.size,
        "rate": numbers.rate,
        "ratio": numbers.share,
    }
    return in_words.get(quantity, numbers.number)(number)
